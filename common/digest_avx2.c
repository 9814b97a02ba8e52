/* The library's own code, compiled again for AVX2 (scripts/kernels.mk): Debian's static libxxhash cannot choose at run time. */
#include "common/digest_avx2.h"

#ifdef __AVX2__
#define XXH_INLINE_ALL
#include <xxhash.h>

bool digest_avx2(const void *data, size_t bytes, struct tr_digest *digest)
{
	if (!__builtin_cpu_supports("avx2"))
		return false;
	XXH128_hash_t hash = XXH3_128bits(data, bytes);
	*digest = (struct tr_digest){ hash.low64, hash.high64 };
	return true;
}
#else
bool digest_avx2(const void *data, size_t bytes, struct tr_digest *digest)
{
	(void)data, (void)bytes, (void)digest;
	return false;
}
#endif
