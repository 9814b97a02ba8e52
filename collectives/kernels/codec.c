#include "collectives/kernels/codec.h"

#include <assert.h>

#include "collectives/kernels/codec_format.h"
#include "collectives/kernels/variant.h"

bool codec_known(unsigned codec)
{
	return codec <= TR_CODEC_INT2;
}

size_t codec_bytes(enum tr_codec codec, size_t elements)
{
	assert(codec_known(codec));
	if (codec == TR_CODEC_NONE)
		return elements * sizeof(float);
	if (codec == TR_CODEC_BF16)
		return elements * sizeof(uint16_t);
	size_t rest = elements % CODEC_BLOCK;
	return elements / CODEC_BLOCK * codec_block_bytes(codec, CODEC_BLOCK) +
	    (rest > 0 ? codec_block_bytes(codec, rest) : 0);
}

void codec_encode(enum tr_codec codec, void *out, const float *in, size_t elements)
{
	assert(codec_known(codec));
	variant_now()->encode(codec, out, in, elements);
}

void codec_decode(enum tr_codec codec, float *out, const void *in, size_t elements)
{
	assert(codec_known(codec));
	variant_now()->decode(codec, out, in, elements);
}

void codec_decode_combine(enum tr_codec codec, enum tr_reduce op, float *acc, const void *in,
    size_t elements)
{
	assert(codec_known(codec) && op >= TR_SUM && op <= TR_PROD);
	variant_now()->decode_combine(codec, op, acc, in, elements);
}

void codec_encode_feedback(enum tr_codec codec, float beta, void *out, const float *in,
    const float *residual, float *residual_next, size_t elements)
{
	assert(codec_known(codec));
	variant_now()->encode_feedback(codec, beta, out, in, residual, residual_next, elements);
}
