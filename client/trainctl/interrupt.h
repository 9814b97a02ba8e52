/* SIGINT, SIGTERM and SIGHUP while trainctl starts, plans or submits: what waits gives up, so that what was begun can be taken back. A second one, unless it is SIGHUP, ends trainctl
 * at once. So it is from interrupt_begin until libuv takes the signals (follow.c); before, they end trainctl as ever, and nothing below ever comes.
 */
#ifndef TR_CLIENT_TRAINCTL_INTERRUPT_H
#define TR_CLIENT_TRAINCTL_INTERRUPT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

#include "common/error.h"

void interrupt_begin(void); /* what is ignored stays so */
/* The signal that came; 0: none, or it was taken. */
int interrupt_pending(void);
/* The same; what waits from here on does not give up for it any more. */
int interrupt_take(void);
/* What a second signal leaves behind: a line, a constant; NULL: nothing. */
void interrupt_leaves(const char *line);

/* For what waits in C: whether one is pending; for errors of what gave up. */
const atomic_bool *interrupt_flag(void);
tr_status interrupt_error(struct tr_error *error); /* TR_ECANCELLED */

/* For what waits in a loop of libuv: makes it turn when one comes. Between start and stop it keeps the loop going. */
struct interrupt_watch {
	uv_poll_t poll;
	bool open;
};
void interrupt_watch_open(struct interrupt_watch *watch, uv_loop_t *loop);
void interrupt_watch_start(struct interrupt_watch *watch);
void interrupt_watch_stop(struct interrupt_watch *watch);
void interrupt_watch_close(struct interrupt_watch *watch); /* the loop must run on */

/* "interrupted", "told to end", "the terminal went away". */
const char *interrupt_words(int number);
int interrupt_exit_code(int number);

#endif
