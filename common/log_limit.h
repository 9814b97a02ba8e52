/* Log lines that strangers can cause as often as they like: TR_LOG_LIMIT_BURST at once, TR_LOG_LIMIT_RATE a second. The rest is
 * counted, and the next line that is written comes after one that says how many were left out.
 *
 *	log_limited(&server->drops, uv_now(loop), LOG_INFO, "server", "connection from %s dropped: %s", who, why);
 */
#ifndef TR_COMMON_LOG_LIMIT_H
#define TR_COMMON_LOG_LIMIT_H

#include "common/log.h"
#include "common/token_bucket.h"

struct log_limit {
	struct token_bucket budget;
	uint64_t left_out; /* since the last line */
};

void log_limit_init(struct log_limit *limit, uint64_t now_ms);
/* Not thread-safe: one limit, one thread. */
void log_limited(struct log_limit *limit, uint64_t now_ms, enum log_level level,
    const char *subsystem, const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif
