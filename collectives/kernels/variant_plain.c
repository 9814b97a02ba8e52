#include "collectives/kernels/nans.h"
#include "collectives/kernels/plain.h"
#include "collectives/kernels/reduce.h"
#include "collectives/kernels/variant.h"

static const struct variant table = {
	.name = "plain",
	.combine = reduce_plain_combine,
	.combine_many = plain_combine_many,
	.combine_wide = plain_combine_wide,
	.divide = reduce_plain_divide,
	.settle_nans = nans_settle,
	.widen = plain_widen,
	.narrow = plain_narrow,
	.encode = plain_encode,
	.decode = plain_decode,
	.decode_combine = plain_decode_combine,
	.encode_feedback = plain_encode_feedback,
};
const struct variant *const variant_plain = &table;
