/* XXH3's loop over long inputs in wider registers than the library has for every x86. For digest.c.
 *
 * A block is DIGEST_BLOCK_BYTES that more bytes follow. False: this processor or this build has no such registers, and nothing was
 * done.
 */
#ifndef TR_COMMON_DIGEST_WIDE_H
#define TR_COMMON_DIGEST_WIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIGEST_LANES       8
#define DIGEST_BLOCK_BYTES 1024

/* lanes: aligned to 64 bytes; data: as it lies. */
typedef bool digest_form(uint64_t lanes[DIGEST_LANES], const void *data, size_t blocks);
digest_form digest_avx2, digest_avx512;

#endif
