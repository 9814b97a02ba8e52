/* Sockets that a loop watches, for who sleeps in a loop's epoll (uv_backend_fd) by himself instead of in uv_run: libuv registers a
 * watcher with epoll in the next turn after it was started, not before; who sleeps without that turn never hears of the
 * socket. libuv tells nobody whether a watcher waits for it, so what collectives/ watches is started here.
 *
 * The thread that started one has to ask before it leaves the loop to another.
 */
#ifndef TR_COLLECTIVES_TRANSPORT_WATCH_H
#define TR_COLLECTIVES_TRANSPORT_WATCH_H

#include <stdbool.h>
#include <uv.h>

/* As uv_poll_start, of an initialised handle that is not closing; it cannot fail. */
void watch_start(uv_poll_t *poll, int events, uv_poll_cb callback);

/* Has this thread started any since it asked last? Then the loop needs a turn before anybody sleeps. */
bool watch_started(void);

#endif
