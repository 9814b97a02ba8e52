#include <stdio.h>

#include "daemon/worker/waits.h"

bool waits_step(struct waits *waits, double now_s, double inside_s)
{
	if (waits->since_s == 0)
		return true;
	waits->steps++;
	waits->inside_s += inside_s;
	return now_s - waits->since_s >= WAITS_EVERY_S;
}

bool waits_end(struct waits *waits, double now_s, double calls_s, char text[WAITS_TEXT])
{
	const struct waits was = *waits;
	*waits = (struct waits){ .since_s = now_s, .calls_s = calls_s };
	if (was.steps == 0)
		return false;
	double each_ms = 1e3 / (double)was.steps;
	(void)snprintf(text, WAITS_TEXT,
	    "steps: %llu, %.1f ms each; waited %.2f ms for others of the replica, %.2f ms in all "
	    "calls",
	    (unsigned long long)was.steps, each_ms * (now_s - was.since_s), each_ms * was.inside_s,
	    each_ms * (calls_s - was.calls_s));
	return true;
}
