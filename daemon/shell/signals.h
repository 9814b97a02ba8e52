/* How a daemon is asked to end: SIGTERM or SIGINT, or by itself after an error that it cannot outlive. SIGPIPE is ignored. */
#ifndef TR_DAEMON_SHELL_SIGNALS_H
#define TR_DAEMON_SHELL_SIGNALS_H

#include <stdbool.h>
#include <uv.h>

struct signals {
	uv_signal_t term, interrupt;
	uv_async_t async; /* ends from a later turn of the loop, whoever asks */
	char reason[256];
	bool asked;
	void (*end)(void *arg, const char *reason);
	void *arg;
};

/* `end` runs once, from its own turn of the loop. Its handles do not keep the loop alive once it has run; signals that come then are
 * ignored, so that whoever sends two (as timeout(1) does) does not cut the orderly end short. */
void signals_start(uv_loop_t *loop, struct signals *signals,
    void (*end)(void *arg, const char *reason), void *arg);
void signals_ask(struct signals *signals, const char *reason);
void signals_finish(
    struct signals *signals); /* after the loop has ended; runs it to close what is left */

#endif
