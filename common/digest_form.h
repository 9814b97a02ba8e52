/* The library's own code, compiled again for the processor of the file that includes this (scripts/kernels.mk): Debian's
 * libxxhash cannot choose at run time. DIGEST_FORM, DIGEST_FORM_ADD: the functions' names; DIGEST_FEATURE: what the processor must have, not
 * defined where the build has none of it.
 */
#include "common/digest_wide.h"

#ifdef DIGEST_FEATURE
#define XXH_INLINE_ALL
#include <xxhash.h>

bool DIGEST_FORM(const void *data, size_t bytes, struct tr_digest *digest)
{
	if (!__builtin_cpu_supports(DIGEST_FEATURE))
		return false;
	XXH128_hash_t hash = XXH3_128bits(data, bytes);
	*digest = (struct tr_digest){ hash.low64, hash.high64 };
	return true;
}

bool DIGEST_FORM_ADD(struct tr_digest_stream *stream, const void *data, size_t bytes)
{
	if (!__builtin_cpu_supports(DIGEST_FEATURE))
		return false;
	(void)XXH3_128bits_update((XXH3_state_t *)(void *)stream->state, data, bytes);
	return true;
}
#else
bool DIGEST_FORM(const void *data, size_t bytes, struct tr_digest *digest)
{
	(void)data, (void)bytes, (void)digest;
	return false;
}

bool DIGEST_FORM_ADD(struct tr_digest_stream *stream, const void *data, size_t bytes)
{
	(void)stream, (void)data, (void)bytes;
	return false;
}
#endif
