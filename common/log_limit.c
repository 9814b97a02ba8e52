#include "common/log_limit.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/limits.h"

void log_limit_init(struct log_limit *limit, uint64_t now_ms)
{
	token_bucket_init(&limit->budget, TR_LOG_LIMIT_BURST, TR_LOG_LIMIT_RATE, now_ms);
	limit->left_out = 0;
}

void log_limited(struct log_limit *limit, uint64_t now_ms, enum log_level level,
    const char *subsystem, const char *format, ...)
{
	char message[1024];
	va_list args;
	if (!token_bucket_take(&limit->budget, now_ms)) {
		limit->left_out++;
		return;
	}
	if (limit->left_out > 0)
		log_write(level, subsystem, "%" PRIu64 " lines like the next were left out",
		    limit->left_out);
	limit->left_out = 0;
	va_start(args, format);
	(void)vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	log_write(level, subsystem, "%s", message);
}
