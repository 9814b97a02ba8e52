#include "daemon/api/ticker.h"

#include <stdlib.h>

struct ticker_timer {
	uv_timer_t timer; /* first: the handle is what the ticker knows */
	void (*run)(void *arg);
	void *arg;
};

static void ticker_fires(uv_timer_t *timer)
{
	const struct ticker_timer *own = (struct ticker_timer *)timer;
	own->run(own->arg);
}

tr_status ticker_open(struct ticker *ticker, uv_loop_t *loop, void (*run)(void *arg), void *arg)
{
	if (ticker->timer != NULL)
		return TR_OK;
	struct ticker_timer *own = calloc(1, sizeof(*own));
	if (own == NULL)
		return TR_ENOMEM;
	own->run = run;
	own->arg = arg;
	(void)uv_timer_init(loop, &own->timer);
	ticker->timer = &own->timer;
	return TR_OK;
}

void ticker_arm(struct ticker *ticker, uint64_t delay_ms)
{
	(void)uv_timer_start(ticker->timer, ticker_fires, delay_ms, 0);
}

static void ticker_free(uv_handle_t *handle)
{
	free(handle);
}

void ticker_close(struct ticker *ticker)
{
	if (ticker->timer != NULL)
		uv_close((uv_handle_t *)ticker->timer, ticker_free);
	ticker->timer = NULL;
}
