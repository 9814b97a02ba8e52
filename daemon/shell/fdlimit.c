#include "daemon/shell/fdlimit.h"

#include <sys/resource.h>

uint64_t fdlimit_raise(uint64_t *before)
{
	struct rlimit limit = { 0, 0 };
	(void)getrlimit(RLIMIT_NOFILE, &limit);
	*before = limit.rlim_cur;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
		(void)getrlimit(RLIMIT_NOFILE, &limit);
	return limit.rlim_cur;
}

void fdlimit_lower(uint64_t soft)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && soft <= limit.rlim_max) {
		limit.rlim_cur = soft;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}
