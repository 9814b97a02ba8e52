/* A timer that exists only while it is wanted, so that its owner may be freed at any time without waiting for the loop. */
#ifndef TR_DAEMON_API_TICKER_H
#define TR_DAEMON_API_TICKER_H

#include <uv.h>

#include "common/status.h"

struct ticker {
	uv_timer_t *timer; /* NULL: closed */
};

/* No-op if it is open. */
tr_status ticker_open(struct ticker *ticker, uv_loop_t *loop, void (*run)(void *arg), void *arg);
/* Runs once after the delay, unless armed again before. Open only. */
void ticker_arm(struct ticker *ticker, uint64_t delay_ms);
void ticker_close(struct ticker *ticker);

#endif
