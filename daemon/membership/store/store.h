/* memberd's log on C-Raft: appends entries, gives them back once durable, takes snapshots. One server for now; a cluster of
 * one commits by itself. One loop, one thread; never closes Raft inside an apply callback.
 */
#ifndef TR_DAEMON_MEMBERSHIP_STORE_H
#define TR_DAEMON_MEMBERSHIP_STORE_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "common/error.h"

struct store;

struct store_callbacks {
	/* In log order, each once, at start (replay) and later; bytes are borrowed. cookie is store_append's, or 0 when replayed.
	 * No callback runs from within store_open, store_append or store_close; all of these may be called from callbacks. */
	void (*applied)(void *arg, const void *entry, size_t bytes, uint64_t cookie);
	void (*restored)(void *arg, const void *snapshot, size_t bytes);
	void (*leading)(void *arg); /* replay is over */
	/* An append that did not come to be (disk full, closing). If its bytes turn out to be on the disk after all when the log can
	 * be written again, they come through `applied` with cookie 0. */
	void (*failed)(void *arg, uint64_t cookie, const char *reason);
	/* The state that `applied` and `restored` have told so far, malloc'ed; the store frees it. May run inside store_open, after what is
	 * to be replayed before it: then the owner has no store yet. */
	tr_status (*snapshot)(void *arg, void **bytes, size_t *size);
	void (*closed)(void *arg); /* after store_close */
};

/* Opens or creates `folder`. An error names the file and says what to do. TR_EEXIST: another memberd uses it. After an error the
 * loop must turn once more before it can be closed. */
tr_status store_open(uv_loop_t *loop, const char *folder, const struct store_callbacks *callbacks,
    void *arg, struct store **store, struct tr_error *error);
enum store_haste {
	STORE_NOW,
	STORE_WITH_NEXT, /* with the next entry that is given with STORE_NOW, in the same fsync; after STORE_WAIT_MS without it */
};
#define STORE_WAIT_MS 10

/* Returns at once. On success either `applied` or `failed` comes with the cookie, once. Entries are written in the order in which
 * they are given; those of one turn of the loop with one fsync. While the disk takes nothing: TR_EIO, with the reason; the store
 * tries again by itself. */
tr_status store_append(struct store *store, const void *entry, size_t bytes, uint64_t cookie,
    enum store_haste haste, struct tr_error *error);
/* Appends under way end with `failed` or `applied`; then `closed`. Accepts NULL. */
void store_close(struct store *store);

#endif
