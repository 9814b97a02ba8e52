#include "common/token_bucket.h"

void token_bucket_init(struct token_bucket *bucket, uint64_t burst, uint64_t rate, uint64_t now_ms)
{
	*bucket = (struct token_bucket){ burst * 1000, burst, rate, now_ms };
}

bool token_bucket_take(struct token_bucket *bucket, uint64_t now_ms)
{
	if (now_ms > bucket->last_ms) {
		uint64_t room = bucket->burst * 1000 - bucket->milli_tokens;
		uint64_t passed_ms = now_ms - bucket->last_ms;
		bool full = bucket->rate != 0 && passed_ms > room / bucket->rate;
		bucket->milli_tokens += full ? room : passed_ms * bucket->rate;
		bucket->last_ms = now_ms;
	}
	if (bucket->milli_tokens < 1000)
		return false;
	bucket->milli_tokens -= 1000;
	return true;
}
