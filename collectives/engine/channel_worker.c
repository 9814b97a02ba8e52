#include "collectives/engine/channel_worker_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define HELLO_TIMEOUT_MS  30000
#define RING_FULL_WAIT_MS 1 /* until the engine, which is behind, takes something */

/* ---- opening and closing ---- */

static tr_status other_release(unsigned theirs, struct tr_error *error)
{
	return tr_error_set(error, TR_EPROTO,
	    "traind is of another release than this program (channels of version %u and %u): "
	    "both have to be of the same one",
	    theirs, CHANNEL_VERSION);
}

/* What stands first stays there in all releases. */
static tr_status map_control(struct channel_worker *worker, int fd, struct tr_error *error)
{
	struct {
		uint64_t magic;
		uint32_t version;
	} first = { 0 };
	struct stat info;
	if (fstat(fd, &info) != 0 || pread(fd, &first, sizeof(first), 0) != sizeof(first) ||
	    first.magic != CHANNEL_MAGIC)
		return TR_EPROTO;
	if (first.version != CHANNEL_VERSION)
		return other_release(first.version, error);
	if ((size_t)info.st_size < sizeof(struct channel_control))
		return TR_EPROTO;
	void *base = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return TR_ENOMEM;
	worker->control = base;
	worker->control_bytes = (size_t)info.st_size;
	const struct channel_control *control = worker->control;
	return control->spec_bytes > worker->control_bytes - sizeof(*control) ? TR_EPROTO : TR_OK;
}

static tr_status take_hello(struct channel_worker *worker, struct channel_inbox *inbox,
    struct tr_error *error)
{
	struct channel_message message;
	const uint8_t *payload;
	for (;;) {
		tr_status st = channel_inbox_next(inbox, &message, &payload);
		if (st == TR_OK)
			break;
		if (st != TR_EAGAIN)
			return st;
		struct pollfd wait = { .fd = worker->socket, .events = POLLIN };
		int rc = poll(&wait, 1, HELLO_TIMEOUT_MS);
		if (rc == 0)
			return TR_ETIMEDOUT;
		st = channel_inbox_fill(inbox, worker->socket);
		if (st != TR_OK && st != TR_EAGAIN)
			return st;
	}
	unsigned descriptors = inbox->descriptor_count;
	if (message.kind != CHANNEL_HELLO || (descriptors != 4 && descriptors != 5))
		return TR_EPROTO;
	int control = channel_inbox_descriptor(inbox);
	worker->engine_bell = channel_inbox_descriptor(inbox);
	worker->own_bell = channel_inbox_descriptor(inbox);
	worker->question_bell = channel_inbox_descriptor(inbox);
	worker->commons = channel_inbox_descriptor(inbox);
	tr_status st = map_control(worker, control, error);
	(void)close(control);
	return st;
}

tr_status channel_worker_open(int fd, struct channel_worker **worker, struct tr_error *error)
{
	struct channel_worker *made = calloc(1, sizeof(*made));
	struct channel_inbox *inbox = calloc(1, sizeof(*inbox));
	if (made == NULL || inbox == NULL) {
		free(made);
		free(inbox);
		(void)close(fd);
		return tr_error_set(error, TR_ENOMEM, "no memory for the channel to traind");
	}
	made->socket = fd;
	made->engine_bell = made->own_bell = made->question_bell = made->commons = -1;
	pthread_mutex_init(&made->asking, NULL);
	(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	struct tr_error why = { .text = "" };
	tr_status st = take_hello(made, inbox, &why);
	channel_inbox_finish(inbox);
	free(inbox);
	if (st != TR_OK) {
		channel_worker_close(made);
		if (st == TR_EUNAVAILABLE)
			return tr_error_set(error, st, "traind is gone");
		return tr_error_set(error, st, "the channel to traind did not open: %s",
		    why.text[0] != '\0' ? why.text : tr_status_text(st));
	}
	*worker = made;
	return TR_OK;
}

void channel_worker_set_drive(struct channel_worker *worker, channel_drive_fn *drive, void *arg)
{
	worker->drive = drive;
	worker->drive_arg = arg;
}

void channel_worker_close(struct channel_worker *worker)
{
	if (worker == NULL)
		return;
	for (unsigned i = 0; i < worker->arena_count; i++) {
		(void)munmap(worker->arenas[i].base, worker->arenas[i].bytes);
		(void)close(worker->arenas[i].fd);
	}
	if (worker->control != NULL)
		(void)munmap(worker->control, worker->control_bytes);
	if (worker->engine_bell >= 0)
		(void)close(worker->engine_bell);
	if (worker->own_bell >= 0)
		(void)close(worker->own_bell);
	if (worker->question_bell >= 0)
		(void)close(worker->question_bell);
	if (worker->commons >= 0)
		(void)close(worker->commons);
	pthread_mutex_destroy(&worker->asking);
	(void)close(worker->socket);
	free(worker);
}

const struct channel_control *channel_worker_control(const struct channel_worker *worker)
{
	return worker->control;
}

/* ---- submissions and answers ---- */

static tr_status how_ended(const struct channel_worker *worker, struct tr_error *error)
{
	tr_status st = (tr_status)atomic_load(&worker->control->ended);
	if (st == TR_OK)
		return TR_OK;
	return tr_error_set(error, st, "%.*s", TR_ERROR_TEXT_MAX - 1, worker->control->ended_text);
}

static tr_status ended(struct channel_worker *worker, struct tr_error *error)
{
	tr_status st = how_ended(worker, error);
	if (st != TR_OK)
		channel_worker_part(worker);
	return st;
}

static void ring_engine(const struct channel_worker *worker)
{
	uint64_t one = 1;
	ssize_t ignored = write(worker->engine_bell, &one, sizeof(one));
	(void)ignored; /* full: it is rung already */
}

/* The engine's socket has something to say: only ever that it is gone. */
static bool engine_gone(const struct channel_worker *worker)
{
	uint8_t byte;
	ssize_t n = recv(worker->socket, &byte, sizeof(byte), MSG_DONTWAIT);
	return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

static tr_status gone(struct channel_worker *worker, struct tr_error *error)
{
	channel_worker_part(worker);
	tr_status st = ended(worker, error);
	return st != TR_OK ? st : tr_error_set(error, TR_EUNAVAILABLE, "traind is gone");
}

/* After our own turn: the engine did not know the member yet, or left something for its next one. */
static void ring_if_left(struct channel_worker *worker)
{
	worker->unrung = false;
	if (atomic_load(&worker->control->taken) != worker->submitted)
		ring_engine(worker);
}

/* Puts it; `behind`: the engine has not caught up with what it was told of before, so it will look again by itself. */
static tr_status put(struct channel_worker *worker, const struct channel_submission *submission,
    const struct channel_extra *extra, bool *behind, struct tr_error *error)
{
	struct channel_control *control = worker->control;
	tr_status st = ended(worker, error);
	if (st != TR_OK)
		return st;
	while (worker->submitted - atomic_load(&control->taken) >= TR_CHANNEL_RING) {
		struct pollfd wait = { .fd = worker->socket, .events = POLLIN };
		ring_engine(worker);
		if (poll(&wait, 1, RING_FULL_WAIT_MS) > 0 && engine_gone(worker))
			return gone(worker, error);
		st = ended(worker, error); /* a member that is over takes nothing any more */
		if (st != TR_OK)
			return st;
	}
	uint64_t before = worker->submitted;
	control->submissions[before % TR_CHANNEL_RING] = *submission;
	if (extra != NULL)
		control->extras[before % TR_CHANNEL_RING] = *extra;
	atomic_store(&control->submitted, ++worker->submitted);
	*behind = !worker->unrung && atomic_load(&control->taken) != before;
	return TR_OK;
}

tr_status channel_worker_note(struct channel_worker *worker,
    const struct channel_submission *submission, const struct channel_extra *extra,
    struct tr_error *error)
{
	bool behind;
	tr_status st = put(worker, submission, extra, &behind, error);
	worker->unrung = worker->unrung || (st == TR_OK && !behind);
	return st;
}

static void ring_unless(struct channel_worker *worker, bool behind)
{
	if (behind)
		return;
	worker->unrung = false;
	ring_engine(worker);
}

tr_status channel_worker_submit(struct channel_worker *worker,
    const struct channel_submission *submission, const struct channel_extra *extra,
    struct tr_error *error)
{
	bool behind;
	tr_status st = put(worker, submission, extra, &behind, error);
	if (st != TR_OK)
		return st;
	if (worker->drive != NULL && worker->drive(worker->drive_arg, NULL, NULL, NULL))
		ring_if_left(worker);
	else
		ring_unless(worker, behind);
	return TR_OK;
}

static bool take_answer(struct channel_worker *worker, uint64_t id, struct channel_answer *answer)
{
	struct channel_control *control = worker->control;
	bool found = false;
	while (!found && worker->answers_taken != atomic_load(&control->answered)) {
		const struct channel_answer
		    *next = &control->answers[worker->answers_taken % TR_CHANNEL_ANSWERS];
		found = next->id == id; /* an older one: of a call that gave up */
		if (found)
			memcpy(answer, next, channel_answer_bytes(next));
		atomic_store(&control->answers_taken, ++worker->answers_taken);
	}
	return found;
}

/* From here to end_waiting the call waits. */
static void begin_waiting(struct channel_worker *worker)
{
	uint64_t before = atomic_load(&worker->control->waited) >> 1;
	atomic_store(&worker->control->waited, (channel_now_us() - before) << 1 | 1);
}

static void end_waiting(struct channel_worker *worker)
{
	uint64_t word = atomic_load(&worker->control->waited);
	atomic_store(&worker->control->waited, channel_waited_us(word) << 1);
}

struct awaited {
	struct channel_worker *worker;
	uint64_t id;
	struct channel_answer *answer;
	bool found;
};

static bool answered(void *arg)
{
	struct awaited *awaited = arg;
	awaited->found = take_answer(awaited->worker, awaited->id, awaited->answer);
	return awaited->found || atomic_load(&awaited->worker->control->ended) != TR_OK;
}

/* Until the call that was put last is answered. */
static tr_status await_answer(struct channel_worker *worker, struct channel_answer *answer,
    struct tr_error *error)
{
	struct awaited awaited = { worker, worker->last_id, answer, false };
	bool is_over = false; /* an answer that was given before the end still counts */
	while (!awaited.found && !take_answer(worker, awaited.id, answer)) {
		if (is_over)
			return gone(worker, error);
		is_over = atomic_load(&worker->control->ended) != TR_OK;
		if (is_over)
			continue;
		struct pollfd waits[2] = {
			{ .fd = worker->own_bell, .events = POLLIN },
			{ .fd = worker->socket, .events = POLLIN },
		};
		if (worker->drive != NULL)
			(void)worker->drive(worker->drive_arg, answered, &awaited, waits);
		else if (poll(waits, 2, -1) < 0)
			continue;
		uint64_t count;
		if (waits[0].revents != 0 && read(worker->own_bell, &count, sizeof(count)) < 0)
			continue;
		is_over = waits[1].revents != 0 && engine_gone(worker);
	}
	return TR_OK;
}

tr_status channel_worker_call(struct channel_worker *worker, struct channel_submission *submission,
    struct channel_answer *answer, struct tr_error *error)
{
	bool behind;
	submission->id = ++worker->last_id;
	tr_status st = put(worker, submission, NULL, &behind, error);
	if (st != TR_OK)
		return st;
	if (worker->drive == NULL)
		ring_unless(worker, behind);
	begin_waiting(worker);
	st = await_answer(worker, answer, error);
	end_waiting(worker);
	if (st != TR_OK)
		return st;
	if (worker->drive != NULL)
		ring_if_left(worker);
	st = (tr_status)answer->status;
	if (st != TR_OK && st != TR_ERESTART)
		(void)ended(worker, NULL); /* the engine says so before it answers */
	if (st != TR_OK)
		return tr_error_set(error, st, "%.*s", TR_ERROR_TEXT_MAX - 1, answer->text);
	return TR_OK;
}

/* ---- questions ---- */

/* Touches nothing of the caller's thread, which may be in the middle of a call. */
static tr_status await_told(const struct channel_worker *worker, struct tr_error *error)
{
	struct channel_control *control = worker->control;
	bool is_over = false; /* what was told before the end still counts */
	while (atomic_load(&control->told) != worker->asked) {
		tr_status st = how_ended(worker, error);
		if (st != TR_OK)
			return st;
		if (is_over)
			return tr_error_set(error, TR_EUNAVAILABLE, "traind is gone");
		struct pollfd waits[2] = {
			{ .fd = worker->question_bell, .events = POLLIN },
			{ .fd = worker->socket, .events = POLLIN },
		};
		uint64_t count;
		if (poll(waits, 2, -1) < 0 ||
		    (waits[0].revents != 0 &&
		        read(worker->question_bell, &count, sizeof(count)) < 0))
			continue;
		is_over = waits[1].revents != 0 && engine_gone(worker);
	}
	return TR_OK;
}

tr_status channel_worker_ask(struct channel_worker *worker, const struct channel_question *question,
    struct channel_told *told, struct tr_link *links, struct tr_error *error)
{
	struct channel_control *control = worker->control;
	pthread_mutex_lock(&worker->asking);
	control->question = *question;
	atomic_store(&control->asked, ++worker->asked);
	ring_engine(worker);
	tr_status st = await_told(worker, error);
	if (st == TR_OK) {
		*told = control->of_question;
		told->text[TR_ERROR_TEXT_MAX - 1] = '\0';
		if (told->count > TR_GROUP_PEERS_MAX)
			told->count = TR_GROUP_PEERS_MAX;
		if (links != NULL)
			memcpy(links, control->links, told->count * sizeof(*links));
		st = (tr_status)told->status;
		if (st != TR_OK)
			(void)tr_error_set(error, st, "%s", told->text);
	}
	pthread_mutex_unlock(&worker->asking);
	return st;
}

/* ---- the socket ---- */

tr_status channel_worker_say(struct channel_worker *worker, uint32_t kind, const void *head,
    size_t head_bytes, const void *body, size_t body_bytes, const int *descriptors, unsigned count)
{
	tr_status st = channel_send(worker->socket, kind, head, head_bytes, body, body_bytes,
	    descriptors, count);
	if (st == TR_OK)
		(void)atomic_fetch_add(&worker->control->said, 1);
	return st;
}

tr_status channel_worker_state(struct channel_worker *worker, const char *name, uint32_t arena,
    uint64_t offset, uint64_t bytes, uint32_t gradual, struct tr_error *error)
{
	struct channel_state state = { .offset = offset,
		.bytes = bytes,
		.arena = arena,
		.name_bytes = (uint32_t)strlen(name),
		.gradual = gradual };
	if (channel_worker_say(worker, CHANNEL_STATE, &state, sizeof(state), name, state.name_bytes,
	        NULL, 0) != TR_OK)
		return gone(worker, error);
	return TR_OK;
}

tr_status channel_worker_report(struct channel_worker *worker, const void *packed, size_t bytes,
    struct tr_error *error)
{
	tr_status st = channel_worker_say(worker, CHANNEL_REPORT, NULL, 0, packed, bytes, NULL, 0);
	if (st == TR_ELIMIT)
		return tr_error_set(error, st, "a report of %zu bytes, at most %u", bytes,
		    TR_CHANNEL_MESSAGE_MAX);
	return st == TR_OK ? TR_OK : gone(worker, error);
}

bool channel_worker_progress(struct channel_worker *worker, uint64_t abandons)
{
	(void)atomic_fetch_add_explicit(&worker->control->progress, 1, memory_order_relaxed);
	return atomic_load_explicit(&worker->control->abandons, memory_order_acquire) == abandons;
}

uint64_t channel_worker_abandons(const struct channel_worker *worker)
{
	return atomic_load(&worker->control->abandons);
}

/* ---- without the engine ---- */

int channel_worker_commons(const struct channel_worker *worker)
{
	return worker->commons;
}

tr_status channel_worker_alive(struct channel_worker *worker, struct tr_error *error)
{
	return ended(worker, error);
}

tr_status channel_worker_look(struct channel_worker *worker, struct tr_error *error)
{
	tr_status st = ended(worker, error);
	return st == TR_OK && engine_gone(worker) ? gone(worker, error) : st;
}

tr_status channel_worker_scoped(struct channel_worker *worker, struct tr_error *error)
{
	struct channel_submission s = { .call = CHANNEL_SCOPED };
	struct channel_answer answer;
	return channel_worker_call(worker, &s, &answer, error);
}

void channel_worker_waits(struct channel_worker *worker, bool waits)
{
	if (waits)
		begin_waiting(worker);
	else
		end_waiting(worker);
}

void channel_worker_lacks(struct channel_worker *worker, uint64_t peer)
{
	if (peer != 0)
		atomic_store(&worker->control->lacked_us, channel_now_us());
	if (atomic_load_explicit(&worker->control->lacks, memory_order_relaxed) != peer)
		atomic_store(&worker->control->lacks, peer);
}

void channel_worker_made(struct channel_worker *worker, const uint64_t *ops, const uint64_t *bytes)
{
	for (unsigned i = 0; i < TR_COLLECTIVES_MAX; i++) {
		(void)atomic_fetch_add(&worker->control->common_ops[i], ops[i]);
		(void)atomic_fetch_add(&worker->control->common_bytes[i], bytes[i]);
	}
}
