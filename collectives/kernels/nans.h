/* One NaN in place of all (reduce.h, reduce_settle_nans), as a loop for the vectoriser: read by variant_plain.c and variant_loops.h, each with flags of its own. */
#ifndef TR_COLLECTIVES_KERNELS_NANS_H
#define TR_COLLECTIVES_KERNELS_NANS_H

#include <stddef.h>
#include <stdint.h>

#include "collectives/coll.h"

/* Of numbers that others see as floats. */
typedef uint16_t __attribute__((may_alias)) bits16;
typedef uint32_t __attribute__((may_alias)) bits32;
typedef uint64_t __attribute__((may_alias)) bits64;

#define NANS_SETTLE(bits_type, data, count, infinity, quiet)                                      \
	do {                                                                                      \
		bits_type *bits = (bits_type *)(data), sign = (bits_type) ~((bits_type)-1 >> 1);  \
		for (size_t i = 0; i < (count); i++)                                              \
			bits[i] = (bits_type)(bits[i] & (bits_type)~sign) > (infinity) ? (quiet)  \
			                                                               : bits[i]; \
	} while (0)

static inline void nans_settle(enum tr_dtype dtype, void *data, size_t count)
{
	if (dtype == TR_F32)
		NANS_SETTLE(bits32, data, count, 0x7f800000u, 0x7fc00000u);
	else if (dtype == TR_F64)
		NANS_SETTLE(bits64, data, count, 0x7ff0000000000000u, 0x7ff8000000000000u);
	else if (dtype == TR_F16)
		NANS_SETTLE(bits16, data, count, 0x7c00u, 0x7e00u);
	else if (dtype == TR_BF16)
		NANS_SETTLE(bits16, data, count, 0x7f80u, 0x7fc0u);
}

#endif
