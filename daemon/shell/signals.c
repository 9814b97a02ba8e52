#include "daemon/shell/signals.h"

#include <signal.h>
#include <stdio.h>

void signals_ask(struct signals *signals, const char *reason)
{
	if (signals->asked)
		return;
	signals->asked = true;
	(void)snprintf(signals->reason, sizeof(signals->reason), "%s", reason);
	(void)uv_async_send(&signals->async);
}

static void got_signal(uv_signal_t *handle, int number)
{
	signals_ask(handle->data, number == SIGTERM ? "SIGTERM" : "SIGINT");
}

static void asked(uv_async_t *async)
{
	struct signals *signals = async->data;
	uv_unref((uv_handle_t *)&signals->term);
	uv_unref((uv_handle_t *)&signals->interrupt);
	uv_unref((uv_handle_t *)&signals->async);
	signals->end(signals->arg, signals->reason);
}

void signals_start(uv_loop_t *loop, struct signals *signals,
    void (*end)(void *arg, const char *reason), void *arg)
{
	*signals = (struct signals){ .end = end, .arg = arg };
	(void)signal(SIGPIPE, SIG_IGN);
	(void)uv_signal_init(loop, &signals->term);
	(void)uv_signal_init(loop, &signals->interrupt);
	(void)uv_async_init(loop, &signals->async, asked);
	signals->term.data = signals->interrupt.data = signals->async.data = signals;
	(void)uv_signal_start(&signals->term, got_signal, SIGTERM);
	(void)uv_signal_start(&signals->interrupt, got_signal, SIGINT);
}

void signals_finish(struct signals *signals)
{
	uv_loop_t *loop = signals->async.loop;
	uv_close((uv_handle_t *)&signals->term, NULL);
	uv_close((uv_handle_t *)&signals->interrupt, NULL);
	uv_close((uv_handle_t *)&signals->async, NULL);
	(void)uv_run(loop, UV_RUN_DEFAULT);
}
