/* The log lines of a case's processes and of its memberd, with the time when each came: they tell when somebody first knew. */
#ifndef TR_BENCH_COLL_LOG_H
#define TR_BENCH_COLL_LOG_H

#include <stdbool.h>
#include <stddef.h>

#define COLL_LOG_LINES_MAX 2048

struct coll_log_line {
	double at_s; /* measure_now_s */
	bool from_memberd;
	char text[240]; /* without quotes and backslashes: fit for JSON */
};

struct coll_log {
	int processes[2], memberd[2]; /* pipes; their [1] becomes the stderr of those */
	struct coll_log_line *lines;
	size_t count;
	char partial[2][sizeof(((struct coll_log_line *)0)
	                           ->text)]; /* a line whose end has not come: processes', memberd's */
};

bool coll_log_open(struct coll_log *log);
void coll_log_close(struct coll_log *log);
/* Takes what comes within `wait_ms`; returns as soon as something came. */
void coll_log_read(struct coll_log *log, int wait_ms);
/* The first line that came at `at_s` or later and says that somebody is lost. */
bool coll_log_first_loss(const struct coll_log *log, double at_s, struct coll_log_line *line);
void coll_log_print(const struct coll_log *log); /* to stderr, the newest */

#endif
