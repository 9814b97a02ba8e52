/* Loops that look whether another thread has done something, a while before they sleep: so many looks, half as many after each time in vain and twice as many after each other. */
#ifndef TR_COMMON_RELAX_H
#define TR_COMMON_RELAX_H

#define LOOKS_LEAST 64u
#define LOOKS_MOST  8192u /* some 300 us: what a sleeper's wake-up costs here and there */

/* Tells the processor that a loop only looks: less power, and the other thread of its core gets on. */
static inline void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
