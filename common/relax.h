/* Tells the processor that a loop only looks: less power, and the other thread of its core gets on. */
#ifndef TR_COMMON_RELAX_H
#define TR_COMMON_RELAX_H

static inline void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
