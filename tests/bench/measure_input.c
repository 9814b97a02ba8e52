/* What the processes contribute, and what must come out. */
#include <math.h>
#include <string.h>

#include "tests/bench/measure.h"

#define PERIOD MEASURE_INPUT_MAX /* of the contributions along the vector */

const char *const measure_dtype_names[MEASURE_DTYPES] = { "f32", "f64", "i32", "i64", "f16", "bf16",
	"u8" };

size_t measure_dtype_size(enum measure_dtype dtype)
{
	static const size_t sizes[MEASURE_DTYPES] = { 4, 8, 4, 8, 2, 2, 1 };
	return sizes[dtype];
}

unsigned measure_input(unsigned rank, size_t element)
{
	return (unsigned)((rank * 3 + element) % PERIOD) + 1;
}

/* Small whole numbers above 0 in the two short floats: `bits` of fraction after the exponent with `bias`. */
static uint16_t short_float(unsigned value, unsigned bits, unsigned bias)
{
	unsigned power = 31 - (unsigned)__builtin_clz(value);
	unsigned fraction = power > bits ? value >> (power - bits) : value << (bits - power);
	return (uint16_t)(((power + bias) << bits) + (fraction & ((1u << bits) - 1)));
}

static double from_short_float(uint16_t word, unsigned bits, unsigned bias)
{
	double fraction = 1 + (double)(word & ((1u << bits) - 1)) / (double)(1u << bits);
	return ldexp(fraction, (int)(word >> bits) - (int)bias);
}

static void put(enum measure_dtype dtype, void *to, unsigned value)
{
	switch (dtype) {
	case MEASURE_F32:
		*(float *)to = (float)value;
		break;
	case MEASURE_F64:
		*(double *)to = (double)value;
		break;
	case MEASURE_I32:
		*(int32_t *)to = (int32_t)value;
		break;
	case MEASURE_I64:
		*(int64_t *)to = (int64_t)value;
		break;
	case MEASURE_F16:
		*(uint16_t *)to = short_float(value, 10, 15);
		break;
	case MEASURE_BF16:
		*(uint16_t *)to = short_float(value, 7, 127);
		break;
	case MEASURE_U8:
		*(uint8_t *)to = (uint8_t)value;
		break;
	case MEASURE_DTYPES:
		break;
	}
}

static double get(enum measure_dtype dtype, const void *from)
{
	switch (dtype) {
	case MEASURE_F32:
		return (double)*(const float *)from;
	case MEASURE_F64:
		return *(const double *)from;
	case MEASURE_I32:
		return (double)*(const int32_t *)from;
	case MEASURE_I64:
		return (double)*(const int64_t *)from;
	case MEASURE_F16:
		return from_short_float(*(const uint16_t *)from, 10, 15);
	case MEASURE_BF16:
		return from_short_float(*(const uint16_t *)from, 7, 127);
	case MEASURE_U8:
		return (double)*(const uint8_t *)from;
	case MEASURE_DTYPES:
		break;
	}
	return NAN;
}

double measure_value(enum measure_dtype dtype, const void *data, size_t element)
{
	return get(dtype, (const char *)data + element * measure_dtype_size(dtype));
}

void measure_fill(enum measure_dtype dtype, void *data, size_t bytes, unsigned rank)
{
	size_t size = measure_dtype_size(dtype), pattern = PERIOD * size;
	char *to = data;
	for (size_t i = 0; i < PERIOD && (i + 1) * size <= bytes; i++)
		put(dtype, to + i * size, measure_input(rank, i));
	for (size_t done = pattern; done < bytes; done += pattern)
		memcpy(to + done, to, bytes - done < pattern ? bytes - done : pattern);
}

bool measure_is_sum(const struct measure_case *c, const void *data)
{
	size_t count = c->bytes / measure_dtype_size(c->dtype);
	for (size_t i = 0; i < count; i += count / 4099 + 1) {
		double sum = 0;
		for (unsigned k = 0; k < c->world; k++)
			sum += measure_input(k, i);
		if (!(fabs(measure_value(c->dtype, data, i) - sum) <= c->tolerance))
			return false;
	}
	return true;
}

uint64_t measure_digest(uint64_t digest, const void *data, size_t bytes)
{
	const char *from = data;
	uint64_t word;
	for (; bytes >= sizeof(word); from += sizeof(word), bytes -= sizeof(word)) {
		memcpy(&word, from, sizeof(word));
		digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
		digest ^= digest >> 32;
	}
	for (; bytes > 0; from++, bytes--)
		digest = (digest ^ (unsigned char)*from) * 0x9e3779b97f4a7c15u;
	return digest;
}
