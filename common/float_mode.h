/* What the calling thread makes of subnormal numbers (f32 below 1.2e-38): keeps them as IEEE 754 wants, or takes and gives zero. A new thread begins with its creator's mode.
 *
 * Many processors take tens to hundreds of cycles for an operation with a subnormal one. Gradients of tokens that a model has learned never to expect are such numbers: after 100 s of training with bytes as tokens a worker took
 * 0.235 of a processor (Intel Xeon) for what takes 0.035 when they are flushed, most of it in matrix products. XLA and TensorFlow compute so too.
 *
 *	unsigned before = float_mode_set(FLOAT_FLUSH);
 *	...
 *	(void)float_mode_set(before);
 *
 * For what one peer computes alone. What is to have the same bits on all peers (sums, outer steps, AdamW) keeps subnormals, whatever program it is linked into: when a result counts as subnormal, before or after it is rounded,
 * processors do not agree on. x86-64 and AArch64; on others nothing changes. Any thread, its own mode alone; rounding and exceptions stay as they are. */
#ifndef TR_COMMON_FLOAT_MODE_H
#define TR_COMMON_FLOAT_MODE_H

#if defined(__x86_64__)
#include <immintrin.h>
#define FLOAT_FLUSH 0x8040u /* MXCSR: flush to zero, denormals are zero */
#elif defined(__aarch64__)
#include <stdint.h>
#define FLOAT_FLUSH (1u << 24) /* FPCR.FZ */
#else
#define FLOAT_FLUSH 0u
#endif
#define FLOAT_EXACT 0u

/* Returns the mode before: one of these, or what else the program has set of their bits. */
static inline unsigned float_mode_set(unsigned mode)
{
#if defined(__x86_64__)
	unsigned is = _mm_getcsr();
	if ((is & FLOAT_FLUSH) != mode)
		_mm_setcsr((is & ~FLOAT_FLUSH) | mode);
	return is & FLOAT_FLUSH;
#elif defined(__aarch64__)
	uint64_t is;
	__asm__ volatile("mrs %0, fpcr" : "=r"(is));
	if ((is & FLOAT_FLUSH) != mode)
		__asm__ volatile("msr fpcr, %0" : : "r"((is & ~(uint64_t)FLOAT_FLUSH) | mode));
	return (unsigned)(is & FLOAT_FLUSH);
#else
	return mode;
#endif
}

#endif
