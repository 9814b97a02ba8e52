/* A budget that refills with time: `burst` tokens at most, `rate` a second. Pure; the caller brings the clock. */
#ifndef TR_COMMON_TOKEN_BUCKET_H
#define TR_COMMON_TOKEN_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

struct token_bucket {
	uint64_t milli_tokens, burst, rate, last_ms;
};

void token_bucket_init(struct token_bucket *bucket, uint64_t burst, uint64_t rate, uint64_t now_ms);
/* False: none left. */
bool token_bucket_take(struct token_bucket *bucket, uint64_t now_ms);

#endif
