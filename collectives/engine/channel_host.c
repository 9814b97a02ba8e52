#include "collectives/engine/channel_host.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collectives/transport/shm_memory.h"

#define MESSAGES_PER_READ 256 /* then others get their turn */
#define LACKS_US \
	1000000 /* who waits in the commons says so far more often, unless it was stopped */

/* ---- making and ending ---- */

static tr_status make_control(struct channel_host *host, size_t spec_bytes, int *fd,
    struct tr_error *error)
{
	size_t bytes = sizeof(struct channel_control) + spec_bytes;
	void *base;
	tr_status st = shm_memory_create("traind-channel", bytes, fd, &base, error);
	if (st != TR_OK)
		return st;
	host->control = base;
	host->control_bytes = bytes;
	return TR_OK;
}

static void fill_control(struct channel_control *control, const Traind__Peer__StartWorker *start,
    unsigned threads, unsigned seat, size_t spec_bytes)
{
	control->magic = CHANNEL_MAGIC;
	control->version = CHANNEL_VERSION;
	control->rank = start->rank;
	control->world_size = start->world_size;
	control->threads = threads;
	control->restarts = start->restarts;
	control->job = start->job_id;
	control->group = start->group;
	control->peer = start->peer;
	control->spec_bytes = spec_bytes;
	control->seat = seat;
	if (spec_bytes > 0)
		(void)traind__v1__job_spec__pack(start->spec, (uint8_t *)(control + 1));
}

static tr_status say_hello(struct channel_host *host, int control, int commons,
    struct tr_error *error)
{
	host->own_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	host->worker_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	host->question_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (host->own_bell < 0 || host->worker_bell < 0 || host->question_bell < 0)
		return tr_error_set(error, TR_EIO, "cannot make a worker's doorbells: %s",
		    strerror(errno));
	int descriptors[5] = { control, host->own_bell, host->worker_bell, host->question_bell,
		commons };
	if (channel_send(host->socket, CHANNEL_HELLO, NULL, 0, NULL, 0, descriptors,
	        commons >= 0 ? 5 : 4) != TR_OK)
		return tr_error_set(error, TR_EUNAVAILABLE, "the worker closed its channel");
	return TR_OK;
}

tr_status channel_host_create(const Traind__Peer__StartWorker *start, unsigned threads, int fd,
    const struct channel_seat *seat, struct channel_host **host, struct tr_error *error)
{
	struct channel_host *made = calloc(1, sizeof(*made));
	if (made == NULL) {
		(void)close(fd);
		return tr_error_set(error, TR_ENOMEM, "no memory for a worker's channel");
	}
	made->socket = fd;
	made->seat = seat->commons >= 0 ? seat->seat : COMMONS_NO_SEAT;
	made->own_bell = made->worker_bell = made->question_bell = -1;
	(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	size_t spec_bytes = start->spec == NULL
	    ? 0
	    : traind__v1__job_spec__get_packed_size(start->spec);
	int control = -1;
	tr_status st = make_control(made, spec_bytes, &control, error);
	if (st == TR_OK) {
		fill_control(made->control, start, threads, made->seat, spec_bytes);
		st = say_hello(made, control, seat->commons, error);
	}
	if (control >= 0)
		(void)close(control);
	if (st != TR_OK) {
		channel_host_destroy(made);
		return st;
	}
	*host = made;
	return TR_OK;
}

static void close_if_open(int fd)
{
	if (fd >= 0)
		(void)close(fd);
}

void channel_host_destroy(struct channel_host *host)
{
	if (host == NULL)
		return;
	for (unsigned i = 0; i < host->arena_count; i++) {
		(void)munmap(host->arenas[i].base, host->arenas[i].bytes);
		close_if_open(host->arenas[i].fd);
	}
	free(host->arenas);
	free(host->tensors);
	if (host->control != NULL)
		(void)munmap(host->control, host->control_bytes);
	channel_inbox_finish(&host->inbox);
	close_if_open(host->socket);
	close_if_open(host->own_bell);
	close_if_open(host->worker_bell);
	close_if_open(host->question_bell);
	free(host);
}

/* ---- the socket ---- */

static tr_status take_arena(struct channel_host *host, const uint8_t *payload, size_t bytes,
    struct tr_error *error)
{
	uint64_t size;
	int fd = channel_inbox_descriptor(&host->inbox);
	if (fd < 0)
		return tr_error_set(error, TR_EPROTO, "a message about memory without memory");
	if (bytes != sizeof(size)) {
		(void)close(fd);
		return tr_error_set(error, TR_EPROTO, "a message about memory of %zu bytes", bytes);
	}
	memcpy(&size, payload, sizeof(size));
	tr_status st = TR_OK;
	if (host->arena_count == TR_CHANNEL_ARENAS_MAX)
		st = tr_error_set(error, TR_EPROTO, "more than %u pieces of memory",
		    TR_CHANNEL_ARENAS_MAX);
	if (st == TR_OK && host->arenas == NULL) {
		host->arenas = calloc(TR_CHANNEL_ARENAS_MAX, sizeof(*host->arenas));
		st = host->arenas != NULL ? TR_OK : tr_error_set(error, TR_ENOMEM, "no memory");
	}
	if (st == TR_OK) {
		void *base;
		st = shm_memory_map(fd, size, true, &base, error);
		if (st == TR_OK)
			host->arenas[host->arena_count++] = (struct channel_arena){ .base = base,
				.bytes = size,
				.fd = shm_memory_read_only(fd) };
	}
	(void)close(fd);
	return st;
}

static tr_status take_state(struct channel_host *host, const uint8_t *payload, size_t bytes,
    struct tr_error *error)
{
	struct channel_state state;
	if (bytes < sizeof(state))
		return tr_error_set(error, TR_EPROTO, "a short message about state");
	memcpy(&state, payload, sizeof(state));
	if (host->declared)
		return tr_error_set(error, TR_EPROTO, "state after it said that it was ready");
	if (state.name_bytes != bytes - sizeof(state) || state.name_bytes >= TR_STATE_NAME_MAX ||
	    host->tensor_count == TR_STATE_TENSORS_MAX)
		return tr_error_set(error, TR_EPROTO,
		    "state with a name of %u bytes, or too much of it", state.name_bytes);
	uint8_t *data = channel_host_memory(host, state.arena, state.offset, state.bytes, 1);
	if (data == NULL)
		return tr_error_set(error, TR_EPROTO, "state outside of its memory");
	if (host->tensors == NULL)
		host->tensors = calloc(TR_STATE_TENSORS_MAX, sizeof(*host->tensors));
	if (host->tensors == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory");
	struct channel_tensor *tensor = &host->tensors[host->tensor_count++];
	memcpy(tensor->name, payload + sizeof(state), state.name_bytes);
	tensor->name[state.name_bytes] = '\0';
	tensor->data = data;
	tensor->bytes = state.bytes;
	tensor->gradual = state.gradual;
	host->gradual = host->gradual || tensor->gradual != 0;
	return TR_OK;
}

static tr_status take_message(struct channel_host *host, const struct channel_message *message,
    const uint8_t *payload, channel_report_fn *report, void *arg, struct tr_error *error)
{
	switch (message->kind) {
	case CHANNEL_ARENA:
		return take_arena(host, payload, message->bytes, error);
	case CHANNEL_STATE:
		return take_state(host, payload, message->bytes, error);
	case CHANNEL_REPORT:
		if (report(arg, payload, message->bytes))
			return TR_OK;
		host->inbox.begin -= sizeof(*message) + message->bytes;
		return TR_EAGAIN;
	default:
		return tr_error_set(error, TR_EPROTO, "a message of unknown kind %u", message->kind);
	}
}

tr_status channel_host_read(struct channel_host *host, channel_report_fn *report, void *arg,
    struct tr_error *error)
{
	host->more = true;
	for (int i = 0; i < MESSAGES_PER_READ; i++) {
		struct channel_message message;
		const uint8_t *payload;
		tr_status st = channel_inbox_next(&host->inbox, &message, &payload);
		if (st == TR_OK) {
			st = take_message(host, &message, payload, report, arg, error);
			if (st != TR_OK)
				return st;
			host->heard++;
			continue;
		}
		if (st == TR_EAGAIN)
			st = channel_inbox_fill(&host->inbox, host->socket);
		if (st == TR_EAGAIN)
			host->more = false;
		if (st == TR_EAGAIN)
			return TR_OK;
		if (st != TR_OK)
			return tr_error_set(error, st, "%s",
			    st == TR_EPROTO ? "a malformed message" : "it closed its channel");
	}
	return TR_OK;
}

/* ---- the rings ---- */

static tr_status check_submission(const struct channel_submission *s, struct tr_error *error)
{
	if (s->call < CHANNEL_SUBMIT || s->call > CHANNEL_SCOPED)
		return tr_error_set(error, TR_EPROTO, "a call of unknown kind %u", s->call);
	if (s->call != CHANNEL_SUBMIT && s->call != CHANNEL_RELEASE)
		return s->id != 0 ? TR_OK : tr_error_set(error, TR_EPROTO, "a call without an id");
	return TR_OK;
}

bool channel_host_heard_all(const struct channel_host *host)
{
	return !host->more && atomic_load(&host->control->said) == host->heard;
}

uint64_t channel_host_submitted(const struct channel_host *host)
{
	return atomic_load(&host->control->submitted);
}

tr_status channel_host_take(struct channel_host *host, struct channel_submission *submission,
    struct tr_error *error)
{
	struct channel_control *control = host->control;
	uint64_t waiting = atomic_load(&control->submitted) - host->taken;
	if (waiting == 0)
		return TR_EAGAIN;
	if (waiting > TR_CHANNEL_RING)
		return tr_error_set(error, TR_EPROTO,
		    "its ring of submissions holds %" PRIu64 " entries, at most %d", waiting,
		    TR_CHANNEL_RING);
	memcpy(submission, &control->submissions[host->taken % TR_CHANNEL_RING],
	    sizeof(*submission));
	if (submission->extended != 0)
		memcpy(&host->extra, &control->extras[host->taken % TR_CHANNEL_RING],
		    sizeof(host->extra));
	atomic_store(&control->taken, ++host->taken);
	return check_submission(submission, error);
}

void *channel_host_memory(const struct channel_host *host, uint32_t arena, uint64_t offset,
    uint64_t bytes, size_t alignment)
{
	if (arena >= host->arena_count || offset > host->arenas[arena].bytes ||
	    bytes > host->arenas[arena].bytes - offset || offset % alignment != 0)
		return NULL;
	return host->arenas[arena].base + offset;
}

static void ring(int bell)
{
	uint64_t one = 1;
	ssize_t ignored = write(bell, &one, sizeof(one));
	(void)ignored; /* full: it is rung already */
}

tr_status channel_host_answer(struct channel_host *host, const struct channel_answer *answer,
    bool wake)
{
	struct channel_control *control = host->control;
	if (host->answered - atomic_load(&control->answers_taken) >= TR_CHANNEL_ANSWERS)
		return TR_EPROTO;
	memcpy(&control->answers[host->answered % TR_CHANNEL_ANSWERS], answer,
	    channel_answer_bytes(answer));
	atomic_store(&control->answered, ++host->answered);
	if (wake)
		ring(host->worker_bell);
	return TR_OK;
}

bool channel_host_question(struct channel_host *host, struct channel_question *question)
{
	uint64_t asked = atomic_load(&host->control->asked);
	if (asked == host->told)
		return false;
	memcpy(question, &host->control->question, sizeof(*question));
	host->told = asked;
	return true;
}

void channel_host_tell(struct channel_host *host, const struct channel_told *told,
    const struct tr_link *links)
{
	struct channel_control *control = host->control;
	if (told->count > 0)
		memcpy(control->links, links, told->count * sizeof(*links));
	control->of_question = *told;
	atomic_store(&control->told, host->told);
	ring(host->question_bell);
}

void channel_host_abandoned(struct channel_host *host)
{
	(void)atomic_fetch_add(&host->control->abandons, 1);
}

void channel_host_end(struct channel_host *host, tr_status status, const char *reason)
{
	struct channel_control *control = host->control;
	if (host->ended)
		return;
	host->ended = true;
	(void)snprintf(control->ended_text, sizeof(control->ended_text), "%s", reason);
	atomic_store(&control->ended, (int32_t)status);
	channel_host_abandoned(host);
	ring(host->worker_bell);
	ring(host->question_bell);
}

uint64_t channel_host_progress(const struct channel_host *host)
{
	return atomic_load_explicit(&host->control->progress, memory_order_relaxed);
}

uint64_t channel_host_waited_us(const struct channel_host *host)
{
	return channel_waited_us(atomic_load(&host->control->waited));
}

uint64_t channel_host_lacks(const struct channel_host *host)
{
	uint64_t said_us = atomic_load(&host->control->lacked_us);
	return channel_now_us() - said_us < LACKS_US ? atomic_load(&host->control->lacks) : 0;
}

void channel_host_common(const struct channel_host *host, struct tr_stats *stats)
{
	for (unsigned i = 0; i < TR_COLLECTIVES_MAX; i++) {
		stats->ops[i] += atomic_load(&host->control->common_ops[i]);
		stats->op_bytes[i] += atomic_load(&host->control->common_bytes[i]);
	}
}
