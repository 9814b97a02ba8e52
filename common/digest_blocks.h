/* The library's own loop, compiled again for the processor of the file that includes this (scripts/kernels.mk): Debian's
 * libxxhash cannot choose at run time.
 */
#include "common/digest_wide.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(DIGEST_LANES == XXH_ACC_NB, "XXH3's");
_Static_assert(DIGEST_BLOCK_BYTES ==
        (XXH_SECRET_DEFAULT_SIZE - XXH_STRIPE_LEN) / XXH_SECRET_CONSUME_RATE * XXH_STRIPE_LEN,
    "XXH3's");

/* Stripes of 64 bytes from `data` on, the first of a block. */
static inline void digest_stripes(uint64_t *lanes, const uint8_t *data, size_t stripes)
{
	for (size_t i = 0; i < stripes; i++)
		XXH3_accumulate_512((xxh_u64 *)lanes, data + i * XXH_STRIPE_LEN,
		    XXH3_kSecret + i * XXH_SECRET_CONSUME_RATE);
}

static inline void digest_blocks(uint64_t *lanes, const uint8_t *data, size_t blocks)
{
	for (; blocks > 0; blocks--, data += DIGEST_BLOCK_BYTES) {
		digest_stripes(lanes, data, DIGEST_BLOCK_BYTES / XXH_STRIPE_LEN);
		XXH3_scrambleAcc((xxh_u64 *)lanes,
		    XXH3_kSecret + sizeof(XXH3_kSecret) - XXH_STRIPE_LEN);
	}
}
