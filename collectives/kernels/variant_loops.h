/* All loops and the table of them, for one setting of the compiler: read by variant_*.c. */
#ifndef TR_COLLECTIVES_KERNELS_VARIANT_LOOPS_H
#define TR_COLLECTIVES_KERNELS_VARIANT_LOOPS_H

#include "collectives/kernels/codec_loops.h"
#include "collectives/kernels/nans.h"
#include "collectives/kernels/reduce_loops.h"
#include "collectives/kernels/variant.h"

#define VARIANT_TABLE(variant_name)                                                               \
	{                                                                                         \
		.name = (variant_name), .combine = loops_combine,                                 \
		.combine_many = loops_combine_many, .combine_wide = loops_combine_wide,           \
		.divide = loops_divide, .settle_nans = nans_settle, .widen = loops_widen,         \
		.narrow = loops_narrow, .encode = loops_encode, .decode = loops_decode,           \
		.decode_combine = loops_decode_combine, .encode_feedback = loops_encode_feedback, \
	}

#endif
