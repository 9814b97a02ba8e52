#include "collectives/transport/watch.h"

#include <assert.h>

static _Thread_local bool started;

void watch_start(uv_poll_t *poll, int events, uv_poll_cb callback)
{
	int rc = uv_poll_start(poll, events, callback);
	assert(rc == 0);
	started = true;
}

bool watch_started(void)
{
	bool was = started;
	started = false;
	return was;
}
