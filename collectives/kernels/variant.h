/* One form of all kernels: what dispatch.h chooses among. The contracts are those of reduce.h and codec.h. */
#ifndef TR_COLLECTIVES_KERNELS_VARIANT_H
#define TR_COLLECTIVES_KERNELS_VARIANT_H

#include <stddef.h>

#include "collectives/coll.h"

struct variant {
	const char *name;
	void (*combine)(enum tr_dtype dtype, enum tr_reduce op, void *out, const void *a,
	    const void *b, size_t count);
	/* n >= 2 */
	void (*combine_many)(enum tr_dtype dtype, enum tr_reduce op, void *out,
	    const void *const *inputs, unsigned n, size_t count);
	void (*combine_wide)(enum tr_dtype dtype, enum tr_reduce op, float *acc, const void *b,
	    size_t count);
	void (*divide)(enum tr_dtype dtype, void *data, size_t count, unsigned divisor);
	void (*settle_nans)(enum tr_dtype dtype, void *data, size_t count);
	void (*widen)(enum tr_dtype dtype, float *out, const void *in, size_t count);
	void (*narrow)(enum tr_dtype dtype, void *out, const float *in, size_t count);
	void (*encode)(enum tr_codec codec, void *out, const float *in, size_t elements);
	void (*decode)(enum tr_codec codec, float *out, const void *in, size_t elements);
	void (*decode_combine)(enum tr_codec codec, enum tr_reduce op, float *acc, const void *in,
	    size_t elements);
	void (*encode_feedback)(enum tr_codec codec, float beta, void *out, const float *in,
	    const float *residual, float *residual_next, size_t elements);
};

/* NULL where the compiler was not told to make it. */
extern const struct variant *const variant_plain, *const variant_base, *const variant_avx2,
                                                                           *const variant_avx512;

const struct variant *variant_now(void);
/* The last of them that gives the bits of "plain" (self_check.h); one that is passed over is said in the log. `worst_first` begins with
 * "plain". */
const struct variant *variant_best(const struct variant *const *worst_first, unsigned count);

#endif
