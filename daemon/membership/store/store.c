#include "daemon/membership/store/store.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/limits.h"
#include "common/log.h"
#include "daemon/membership/store/entries.h"
#include "daemon/membership/store/folder.h"
#include "daemon/membership/store/life.h"
#include "daemon/membership/store/repair.h"

#define BATCH_ENTRIES_MAX 256u
#define BATCH_BYTES_MAX   (1u << 20)
#define QUEUE_BYTES_MAX   (64u << 20)
#define ENTRY_BYTES_MAX   TR_FRAME_CONTROL_MAX
#define REOPEN_MS         500
#define ELECTION_POLL_MS  10
#define POLLS_PATIENCE    1000u

/* What C-Raft stores: u64 length, u64 sequence, bytes, padding to 8. A snapshot likewise, with the sequence of the newest
 * entry in it. The sequence tells, after the log was opened again, which entries the owner has seen. */
#define HEADER_BYTES 16

struct store {
	uv_loop_t *loop;
	struct store_callbacks callbacks;
	void *arg;
	char folder[PATH_MAX]; /* C-Raft's */
	int lock_fd;
	struct life *life;
	uv_idle_t idle;        /* work for the next turn: never inside C-Raft's callbacks */
	uv_timer_t timer;      /* election, opening again */
	uv_timer_t patience;   /* runs while all that is in `queue` waits for company */
	unsigned handles;      /* that are still open */
	struct fifo queue;     /* appended, not given to C-Raft yet */
	struct fifo submitted; /* given to C-Raft, not applied yet; in order */
	struct fifo replay;    /* came while opening: delivered on a later turn */
	size_t queue_bytes, in_flight;
	bool hurry;     /* `queue` is to be written */
	unsigned polls; /* of a life that does not lead yet */
	uint64_t next_sequence;
	uint64_t seen;    /* sequence of the newest entry that the owner knows */
	bool opening;     /* callbacks of C-Raft come from within life_open */
	bool leads;       /* this life */
	bool was_leading; /* the owner knows that the replay is over */
	bool failing;     /* the log took an error; appends are refused until a new life leads */
	bool ending_life; /* the present life is to end, or ends */
	bool life_closing, closing;
	char failure[TR_ERROR_TEXT_MAX];
};

static uint64_t word_get(const uint8_t *bytes)
{
	uint64_t word = 0;
	for (int i = 7; i >= 0; i--)
		word = word << 8 | bytes[i];
	return word;
}

static void word_put(uint8_t *bytes, uint64_t word)
{
	for (int i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(word >> (8 * i));
}

static void fail_entry(struct store *store, struct entry *entry)
{
	store->callbacks.failed(store->arg, entry->cookie, store->failure);
	entry_free(entry);
}

static void queue_emptied(struct store *store)
{
	store->queue_bytes = 0;
	store->hurry = false;
	(void)uv_timer_stop(&store->patience);
}

static void fail_all(struct store *store, struct fifo *fifo)
{
	/* New ones that come from the callback are not of this generation. */
	struct fifo old = *fifo;
	if (old.first == NULL)
		return;
	fifo_init(fifo);
	if (fifo == &store->queue)
		queue_emptied(store);
	for (struct entry *entry = old.first; entry != NULL;) {
		struct entry *next = entry->next;
		fail_entry(store, entry);
		entry = next;
	}
}

static void on_turn(uv_idle_t *idle);

static void next_turn(struct store *store)
{
	(void)uv_idle_start(&store->idle, on_turn);
}

/* The log took an error: what is under way has failed, and a new life begins. */
static void begin_failing(struct store *store, int status)
{
	if (store->closing)
		return;
	store->ending_life = true;
	next_turn(store); /* it ends there: never inside C-Raft's callbacks */
	if (store->failing)
		return; /* one more life that came to nothing */
	store->failing = true;
	const char *words = status == RAFT_NOSPACE ? "no space left on the disk"
	                                           : life_error(store->life);
	(void)snprintf(store->failure, sizeof(store->failure),
	    "memberd's log in %.200s cannot be written: %.200s", store->folder,
	    words[0] != '\0' ? words : raft_strerror(status));
	log_error("store", "%s; trying again every %.1f s", store->failure, REOPEN_MS / 1000.0);
}

static void deliver(struct store *store, const uint8_t *bytes, size_t size, bool snapshot,
    uint64_t cookie)
{
	uint64_t length = word_get(bytes), sequence = word_get(bytes + 8);
	if (store->next_sequence <= sequence)
		store->next_sequence = sequence + 1;
	if (length > size - HEADER_BYTES || sequence <= store->seen)
		return;
	store->seen = sequence;
	if (snapshot)
		store->callbacks.restored(store->arg, bytes + HEADER_BYTES, length);
	else
		store->callbacks.applied(store->arg, bytes + HEADER_BYTES, length, cookie);
}

static int keep_for_later(struct store *store, const void *bytes, size_t size, bool snapshot)
{
	struct entry *entry = calloc(1, sizeof(*entry));
	void *copy = raft_malloc(size);
	if (entry == NULL || copy == NULL) {
		free(entry);
		raft_free(copy);
		return RAFT_NOMEM;
	}
	memcpy(copy, bytes, size);
	entry->base = copy;
	entry->size = size;
	entry->snapshot = snapshot;
	fifo_push(&store->replay, entry);
	return 0;
}

static void deliver_replay(struct store *store)
{
	for (struct entry *entry; (entry = fifo_pop(&store->replay)) != NULL;) {
		deliver(store, entry->base, entry->size, entry->snapshot, 0);
		entry_free(entry);
	}
}

static int on_applied(void *arg, const void *bytes, size_t size)
{
	struct store *store = arg;
	if (size < HEADER_BYTES)
		return RAFT_CORRUPT;
	if (store->opening)
		return keep_for_later(store, bytes, size, false);
	deliver_replay(store);
	struct entry *mine = store->submitted.first;
	if (mine != NULL && mine->sequence == word_get((const uint8_t *)bytes + 8)) {
		(void)fifo_pop(&store->submitted);
		uint64_t cookie = mine->cookie;
		entry_free(mine);
		deliver(store, bytes, size, false, cookie);
	} else {
		deliver(store, bytes, size, false, 0);
	}
	return 0;
}

static int on_restored(void *arg, const void *bytes, size_t size)
{
	return size >= HEADER_BYTES ? keep_for_later(arg, bytes, size, true) : RAFT_CORRUPT;
}

/* NULL: out of memory. */
static void *wrap(const void *bytes, size_t length, uint64_t sequence, size_t *size)
{
	*size = HEADER_BYTES + (length + 7) / 8 * 8;
	uint8_t *copy = raft_calloc(1, *size);
	if (copy == NULL)
		return NULL;
	word_put(copy, length);
	word_put(copy + 8, sequence);
	memcpy(copy + HEADER_BYTES, bytes, length);
	return copy;
}

static tr_status on_snapshot(void *arg, void **bytes, size_t *size)
{
	struct store *store = arg;
	void *state = NULL;
	size_t state_size = 0;
	deliver_replay(store);
	tr_status status = store->callbacks.snapshot(store->arg, &state, &state_size);
	if (status != TR_OK)
		return status;
	*bytes = wrap(state, state_size, store->seen, size);
	free(state);
	return *bytes != NULL ? TR_OK : TR_ENOMEM;
}

static void on_leading(void *arg)
{
	struct store *store = arg;
	deliver_replay(store);
	store->leads = true;
	if (store->failing)
		log_info("store", "memberd's log in %s can be written again", store->folder);
	store->failing = false;
	if (!store->was_leading) {
		store->was_leading = true;
		store->callbacks.leading(store->arg);
	}
	next_turn(store);
}

static void on_written(void *arg, size_t count, int status)
{
	struct store *store = arg;
	store->in_flight -= count;
	next_turn(store);
	if (status == 0)
		return;
	if (store->closing)
		(void)snprintf(store->failure, sizeof(store->failure), "memberd is closing");
	begin_failing(store, status);
	for (; count > 0; count--) {
		struct entry *entry = fifo_pop(&store->submitted);
		if (entry != NULL)
			fail_entry(store, entry);
	}
}

static void on_poll(uv_timer_t *timer);

static void life_over(void *arg)
{
	struct store *store = arg;
	store->life = NULL;
	store->leads = store->ending_life = store->life_closing = false;
	if (store->closing)
		next_turn(store);
	else
		(void)uv_timer_start(&store->timer, on_poll, REOPEN_MS, 0);
}

static const struct life_callbacks life_callbacks = {
	.applied = on_applied,
	.restored = on_restored,
	.snapshot = on_snapshot,
	.leading = on_leading,
	.written = on_written,
	.closed = life_over,
};

static tr_status begin_life(struct store *store, struct tr_error *error)
{
	tr_status status = repair_folder(store->folder, error);
	if (status != TR_OK)
		return status;
	store->polls = 0;
	store->opening = true;
	status = life_open(store->loop, store->folder, &life_callbacks, store, &store->life, error);
	store->opening = false;
	if (status == TR_OK) {
		next_turn(store);
		(void)uv_timer_start(&store->timer, on_poll, ELECTION_POLL_MS, 0);
	} else {
		fifo_free(&store->replay);
	}
	return status;
}

/* Until this life leads, or, without one, until it can be opened again. */
static void on_poll(uv_timer_t *timer)
{
	struct store *store = timer->data;
	struct tr_error error = { 0 };
	if (store->closing || store->ending_life || store->leads)
		return;
	if (store->life != NULL) {
		life_poll(store->life);
		if (++store->polls == POLLS_PATIENCE)
			log_error("store", "the log in %s was read but does not come up",
			    store->folder);
	} else if (begin_life(store, &error) == TR_OK)
		return;
	(void)uv_timer_start(timer, on_poll, store->life != NULL ? ELECTION_POLL_MS : REOPEN_MS, 0);
}

/* As many as fit into one batch: one write, one fsync. One batch at a time: libraft 0.15 crashes when a write fails while
 * others wait behind it. */
static void submit_batch(struct store *store)
{
	struct raft_buffer buffers[BATCH_ENTRIES_MAX];
	struct fifo batch;
	unsigned count = 0;
	size_t bytes = 0;
	fifo_init(&batch);
	while (count < BATCH_ENTRIES_MAX && store->queue.first != NULL &&
	    (count == 0 || bytes + store->queue.first->size <= BATCH_BYTES_MAX)) {
		struct entry *entry = fifo_pop(&store->queue);
		buffers[count++] = (struct raft_buffer){ .base = entry->base, .len = entry->size };
		bytes += entry->size;
		fifo_push(&batch, entry);
	}
	store->queue_bytes -= bytes;
	if (store->queue.first == NULL)
		queue_emptied(store);
	int rv = life_append(store->life, buffers, count);
	if (rv != 0) {
		begin_failing(store, rv);
		fail_all(store, &batch);
		return;
	}
	store->in_flight = count;
	for (struct entry *entry; (entry = fifo_pop(&batch)) != NULL;) {
		entry->base = NULL;
		fifo_push(&store->submitted, entry);
	}
}

static void on_handle_closed(uv_handle_t *handle)
{
	struct store *store = handle->data;
	if (--store->handles > 0)
		return;
	void (*closed)(void *arg) = store->callbacks.closed;
	void *arg = store->arg;
	fifo_free(&store->replay);
	if (store->lock_fd >= 0)
		(void)close(store->lock_fd);
	free(store);
	if (closed != NULL)
		closed(arg);
}

static void close_handles(struct store *store)
{
	uv_close((uv_handle_t *)&store->idle, on_handle_closed);
	uv_close((uv_handle_t *)&store->timer, on_handle_closed);
	uv_close((uv_handle_t *)&store->patience, on_handle_closed);
}

static void end_life(struct store *store)
{
	if (store->life_closing)
		return;
	store->life_closing = true;
	life_close(store->life);
}

static void close_step(struct store *store)
{
	(void)snprintf(store->failure, sizeof(store->failure), "memberd is closing");
	fail_all(store, &store->queue);
	if (store->life != NULL) {
		end_life(store);
		return;
	}
	close_handles(store);
}

static void on_patience_over(uv_timer_t *timer)
{
	struct store *store = timer->data;
	store->hurry = true;
	next_turn(store);
}

/* What may wait for company does, while nothing else is there. */
static void submit(struct store *store)
{
	if (!store->leads || store->in_flight > 0 || store->queue.first == NULL)
		return;
	if (store->hurry)
		submit_batch(store);
	else if (!uv_is_active((uv_handle_t *)&store->patience))
		(void)uv_timer_start(&store->patience, on_patience_over, STORE_WAIT_MS, 0);
}

static void on_turn(uv_idle_t *idle)
{
	struct store *store = idle->data;
	(void)uv_idle_stop(idle);
	deliver_replay(store);
	if (store->closing) {
		close_step(store);
		return;
	}
	if (store->failing) {
		fail_all(store, &store->queue);
		if (store->ending_life && store->life != NULL)
			end_life(store);
		if (store->life != NULL && !store->ending_life)
			life_poll(store->life);
		return;
	}
	if (store->life != NULL && !store->leads)
		life_poll(store->life);
	submit(store);
}

tr_status store_open(uv_loop_t *loop, const char *folder, const struct store_callbacks *callbacks,
    void *arg, struct store **result, struct tr_error *error)
{
	struct store *store = calloc(1, sizeof(*store));
	if (store == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	store->loop = loop;
	store->callbacks = *callbacks;
	store->arg = arg;
	store->lock_fd = -1;
	store->next_sequence = 1;
	fifo_init(&store->queue);
	fifo_init(&store->submitted);
	fifo_init(&store->replay);
	tr_status status = folder_prepare(folder, store->folder, &store->lock_fd, error);
	if (status != TR_OK) {
		free(store);
		return status;
	}
	(void)uv_idle_init(loop, &store->idle);
	(void)uv_timer_init(loop, &store->timer);
	(void)uv_timer_init(loop, &store->patience);
	store->idle.data = store->timer.data = store->patience.data = store;
	store->handles = 3;
	status = begin_life(store, error);
	if (status != TR_OK)
		goto close_handles;
	*result = store;
	return TR_OK;
close_handles:
	store->callbacks.closed = NULL;
	close_handles(store);
	return status;
}

tr_status store_append(struct store *store, const void *bytes, size_t length, uint64_t cookie,
    enum store_haste haste, struct tr_error *error)
{
	if (store->closing || !store->was_leading)
		return tr_error_set(error, TR_EUNAVAILABLE, "the log is not open for writing");
	if (store->failing)
		return tr_error_set(error, TR_EIO, "%s", store->failure);
	if (length > ENTRY_BYTES_MAX)
		return tr_error_set(error, TR_ELIMIT,
		    "an entry of %zu bytes is larger than the log takes (%u)", length,
		    ENTRY_BYTES_MAX);
	if (store->queue_bytes > QUEUE_BYTES_MAX)
		return tr_error_set(error, TR_ELIMIT,
		    "the disk is too slow: %u MiB wait to be written", QUEUE_BYTES_MAX >> 20);
	struct entry *entry = calloc(1, sizeof(*entry));
	if (entry == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	entry->cookie = cookie;
	entry->sequence = store->next_sequence;
	entry->base = wrap(bytes, length, entry->sequence, &entry->size);
	if (entry->base == NULL) {
		free(entry);
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	}
	store->next_sequence++;
	store->queue_bytes += entry->size;
	fifo_push(&store->queue, entry);
	store->hurry = store->hurry || haste == STORE_NOW;
	next_turn(store);
	return TR_OK;
}

void store_close(struct store *store)
{
	if (store == NULL || store->closing)
		return;
	store->closing = true;
	(void)uv_timer_stop(&store->timer);
	next_turn(store);
}
