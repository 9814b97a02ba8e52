/* Work handed to a loop from any thread, in order. The control loop, the log thread and the engine's thread talk through
 * these, so that none of them ever waits for another.
 */
#ifndef TR_DAEMON_NODE_MAILBOX_H
#define TR_DAEMON_NODE_MAILBOX_H

#include <pthread.h>
#include <stdbool.h>
#include <uv.h>

#include "common/error.h"

/* Embedded in what is handed over. `run` runs on the loop's thread and owns the mail; when the mailbox is closed with mail
 * in it, `run` runs with `dropped`, to free it. */
struct mail {
	struct mail *next;
	void (*run)(struct mail *mail, bool dropped);
};

struct mailbox {
	uv_async_t async;
	pthread_mutex_t lock;
	struct mail *first, **last;
	bool closed;
};

tr_status mailbox_init(struct mailbox *mailbox, uv_loop_t *loop, struct tr_error *error);
void mailbox_post(struct mailbox *mailbox, struct mail *mail); /* any thread; takes the mail */
/* On the loop's thread. Mail that is posted later is dropped at once. The memory must stay until `closed` (may be NULL) has
 * run; its handle's data is the mailbox. */
void mailbox_close(struct mailbox *mailbox, uv_close_cb closed);

#endif
