/* All loops and the table of them, for one setting of the compiler: read by variant_*.c with VARIANT_NAME set. */
#include "collectives/kernels/codec_loops.h"
#include "collectives/kernels/reduce_loops.h"
#include "collectives/kernels/variant.h"

static const struct variant table = {
	.name = VARIANT_NAME,
	.combine = loops_combine,
	.combine_many = loops_combine_many,
	.combine_wide = loops_combine_wide,
	.divide = loops_divide,
	.widen = loops_widen,
	.narrow = loops_narrow,
	.encode = loops_encode,
	.decode = loops_decode,
	.decode_combine = loops_decode_combine,
	.encode_feedback = loops_encode_feedback,
};
