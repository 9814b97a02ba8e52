/* What the caller in the worker wants, and the answers. */
#include "collectives/engine/engine_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/engine/channel_op.h"
#include "collectives/transport/watch.h"
#include "common/log.h"

#define SUBMISSIONS_PER_TURN 64

static void on_deadline(uv_timer_t *timer);
static void on_bell(uv_poll_t *poll, int status, int events);
static void on_socket(uv_poll_t *poll, int status, int events);

/* ---- answers ---- */

static void broken(struct member *member, const char *cause)
{
	char reason[TR_ERROR_TEXT_MAX + 64];
	if (member->over)
		return;
	(void)snprintf(reason, sizeof(reason), "its worker broke the channel's rules: %s", cause);
	member_failed(member, TR_EPROTO, reason);
	member_end(member, TR_EPROTO, reason);
}

static void give(struct member *member, struct channel_answer *answer)
{
	answer->id = member->call.id;
	member->call.id = 0;
	(void)uv_timer_stop(&member->deadline);
	if (answer->id == 0 || member->worker_gone)
		return;
	bool asleep = !member->engine->driven || member->engine->sleepers > 0;
	if (channel_host_answer(member->host, answer, asleep) != TR_OK)
		broken(member, "it does not take its answers");
}

static void give_status(struct member *member, tr_status status, const char *text)
{
	struct channel_answer answer; /* it is large, and most say nothing but the status */
	memset(&answer, 0, offsetof(struct channel_answer, text));
	answer.status = status;
	if (status != TR_OK)
		(void)snprintf(answer.text, sizeof(answer.text), "%s", text);
	give(member, &answer);
}

static bool waits_in(const struct member *member, enum channel_call call)
{
	return member->call.id != 0 && member->call.call == call;
}

/* From now on the call waits. */
static void wait_for(struct member *member)
{
	member_publish(member);
	if (member->call.id == 0)
		return;
	if (!member->call.limited)
		return;
	uv_update_time(&member->engine->loop);
	(void)uv_timer_start(&member->deadline, on_deadline, member->call.limit_ms, 0);
}

static const char *call_name(enum channel_call call)
{
	switch (call) {
	case CHANNEL_BEGIN:
		return "begin";
	case CHANNEL_WAIT:
		return "wait";
	case CHANNEL_RECEIVE_STATE:
		return "receiving the state";
	case CHANNEL_COMMIT:
		return "commit";
	default:
		return "call";
	}
}

/* As far as the state is here when the caller does not wait for it any longer. */
static void give_state(struct member *member)
{
	struct channel_answer answer = { .status = TR_OK,
		.count = sizeof(answer.state) / sizeof(answer.peers[0]) };
	state_gradual_progress(member, &answer.state);
	answer.state.whole = member->state_here;
	give(member, &answer);
}

static void on_deadline(uv_timer_t *timer)
{
	struct member *member = timer->data;
	struct group_core_progress progress = { 0 };
	char text[TR_ERROR_TEXT_MAX];
	member_board_settle(member);
	if (member->call.id == 0)
		return; /* that was all it waited for */
	if (member->call.states) {
		give_state(member);
		member_publish(member);
		return;
	}
	group_core_progress(member->core, true, &progress);
	int used = snprintf(text, sizeof(text), "%s of round %" PRIu64 " waited %u ms for",
	    call_name(member->call.call), progress.round, member->call.limit_ms);
	size_t named = progress.lack_count > 0 ? progress.lack_count : progress.waits_for_count;
	for (size_t i = 0; i < named && used < (int)sizeof(text) - 100; i++) {
		const struct view_peer_entry *peer = member_view_peer(member, progress.waits_for[i]);
		used += snprintf(text + used, sizeof(text) - (size_t)used, " peer %" PRIu64 " (%s)",
		    progress.waits_for[i], peer != NULL ? peer->node_name : "no longer a member");
	}
	if (progress.waits_for_count == 0)
		(void)snprintf(text + used, sizeof(text) - (size_t)used,
		    member->view == 0 ? " the group's first view" : " a new view");
	give_status(member, TR_ETIMEDOUT, text);
	member_publish(member);
}

/* An answer that came after its call had given up waits for the next such call. */
static void keep_unclaimed(struct member *member, enum channel_call call,
    const struct channel_answer *answer)
{
	member->unclaimed = *answer;
	member->unclaimed_call = call;
}

static bool claim(struct member *member, enum channel_call call)
{
	if (member->unclaimed_call != call)
		return false;
	member->unclaimed_call = 0;
	give(member, &member->unclaimed);
	return true;
}

/* ---- what the core says ---- */

void member_calls_began(struct member *member, const struct tr_round *info)
{
	struct channel_answer answer = { .status = TR_OK, .round = *info };
	unsigned count;
	const uint64_t *peers = group_core_round_contributors(member->core, &count);
	answer.count = count;
	memcpy(answer.peers, peers, count * sizeof(*peers));
	answer.abandons = atomic_load(&member->host->control->abandons);
	answer.attempt = group_core_round_attempt(member->core);
	member->begin_asked = false;
	member->round_open = true;
	member->submit_error.status = member->lost.status = TR_OK;
	member->memory_reused = false;
	if (waits_in(member, CHANNEL_BEGIN))
		give(member, &answer);
	else
		keep_unclaimed(member, CHANNEL_BEGIN, &answer);
}

void member_calls_op_done(struct member *member, uint32_t tag, tr_status status, const char *text)
{
	if (waits_in(member, CHANNEL_WAIT) && member->call.tag == tag)
		give_status(member, status, text);
}

void member_calls_decided(struct member *member, tr_status status, const struct tr_round *info,
    const char *reason)
{
	struct channel_answer answer = { .status = status, .round = *info };
	bool asked = member->close_asked;
	(void)snprintf(answer.text, sizeof(answer.text), "%s",
	    reason[0] != '\0' ? reason : tr_status_text(status));
	member->round_open = member->close_asked = false;
	if (status != TR_OK) {
		(void)tr_error_set(&member->lost, status, "%s", answer.text);
		channel_host_abandoned(member->host);
	}
	if (waits_in(member, CHANNEL_COMMIT) ||
	    (status != TR_OK && member->call.id != 0 && member->call.call != CHANNEL_CONTRIBUTORS))
		give(member, &answer);
	else if (asked)
		keep_unclaimed(member, CHANNEL_COMMIT, &answer);
}

void member_calls_state_here(struct member *member, tr_status status, const char *reason)
{
	member->state_here = status == TR_OK;
	if (status != TR_OK || !waits_in(member, CHANNEL_RECEIVE_STATE))
		return;
	if (member->call.states)
		give_state(member);
	else
		give_status(member, TR_OK, reason);
}

void member_calls_end(struct member *member, tr_status status, const char *reason)
{
	channel_host_end(member->host, status, reason);
	if (member->call.id != 0)
		give_status(member, status, reason);
}

/* ---- what the caller says ---- */

/* What is wrong is said by the next wait or commit, as of a submission. */
static void note_refusal(struct member *member, tr_status status, const struct tr_error *error)
{
	if (status != TR_OK && status != TR_ERESTART && member->submit_error.status == TR_OK)
		(void)tr_error_set(&member->submit_error, status, "%s", error->text);
}

static void submit(struct member *member, const struct channel_submission *s)
{
	struct tr_error error;
	struct channel_op op;
	tr_error_clear(&error);
	if (channel_op_read(member->host, s, &op, &error) != TR_OK) {
		broken(member, error.text);
		return;
	}
	member_shm_show(member);
	struct group_event event = { .kind = GROUP_SUBMIT, .submit = op.submit };
	tr_status st = member_step(member, &event, &error);
	note_refusal(member, st, &error);
}

static void release(struct member *member, uint32_t tag)
{
	struct tr_error error;
	struct group_event event = { .kind = GROUP_RELEASE, .tag = tag };
	tr_error_clear(&error);
	tr_status st = member_step(member, &event, &error);
	note_refusal(member, st, &error);
	/* The caller has begun to use the memory of an op that is still here. */
	member->memory_reused = member->memory_reused || (st != TR_OK && st != TR_ERESTART);
}

/* Of the ops themselves nothing comes here. */
static void scoped(struct member *member)
{
	struct tr_error error;
	struct group_event event = { .kind = GROUP_SCOPED };
	uint64_t id = member->call.id;
	tr_error_clear(&error);
	tr_status st = member_step(member, &event, &error);
	if (member->call.id == id)
		give_status(member, st, error.text);
}

static void ready(struct member *member, const struct channel_submission *s)
{
	struct tr_error error = { 0 };
	struct group_event event = { .kind = GROUP_READY, .round = s->round };
	member->op_deadline_ms = (uint32_t)(s->count < UINT32_MAX ? s->count : UINT32_MAX);
	tr_status st = member_step(member, &event, &error);
	if (st == TR_OK) {
		member->ready = member->host->declared = true;
		member->ready_round = s->round;
		leftover_claim(member);
		member_shm_show(member); /* before an op needs it */
		member_tell_ready(member);
	}
	give_status(member, st, error.text);
}

static void begin(struct member *member)
{
	struct tr_error error = { 0 };
	struct group_event event = { .kind = GROUP_BEGIN };
	uint64_t id = member->call.id;
	if (claim(member, CHANNEL_BEGIN))
		return;
	if (member->unclaimed_call == CHANNEL_COMMIT) {
		give_status(member, TR_EINVAL, "the round was decided meanwhile: commit it first");
		return;
	}
	wait_for(member);
	if (member->begin_asked)
		return;
	member->begin_asked = true;
	tr_status st = member_step(member, &event, &error);
	if (st == TR_OK)
		return;
	member->begin_asked = false;
	if (member->call.id == id)
		give_status(member, st, error.text);
}

static void wait_op(struct member *member, uint32_t tag)
{
	struct tr_error error;
	struct group_event event = { .kind = GROUP_WAIT, .tag = tag };
	uint64_t id = member->call.id;
	if (!member->round_open && member->lost.status != TR_OK) {
		give_status(member, member->lost.status, member->lost.text);
		return;
	}
	if (member->submit_error.status != TR_OK) {
		give_status(member, member->submit_error.status, member->submit_error.text);
		return;
	}
	tr_error_clear(&error);
	tr_status st = member_step(member, &event, &error);
	if (member->call.id != id)
		return;
	if (st == TR_OK)
		wait_for(member);
	else
		give_status(member, st, error.text);
}

static void receive_state(struct member *member)
{
	if (member->state_here && member->call.states)
		give_state(member);
	else if (member->state_here)
		give_status(member, TR_OK, "");
	else if (member->lost.status != TR_OK && !member->round_open)
		give_status(member, member->lost.status, member->lost.text);
	else if (!member->state_awaited)
		give_status(member, TR_EINVAL, "this peer has its state, none is awaited");
	else
		wait_for(member);
}

/* Without what it reads of the state the caller could not go on. */
static bool may_defer(const struct member *member)
{
	struct tr_state_progress progress = { 0 };
	state_gradual_progress(member, &progress);
	return progress.may_defer;
}

static void commit(struct member *member, const struct channel_submission *s)
{
	struct tr_error error = { 0 };
	struct group_event event = { .kind = GROUP_CLOSE, .close = s->commit };
	uint64_t id = member->call.id;
	if (claim(member, CHANNEL_COMMIT))
		return;
	if (member->submit_error.status != TR_OK) {
		give_status(member, member->submit_error.status, member->submit_error.text);
		if (!member->memory_reused)
			member->submit_error.status = TR_OK;
		return;
	}
	wait_for(member);
	if (member->close_asked)
		return;
	if (!may_defer(member))
		event.close.flags &= ~(uint64_t)TR_DEFER_STATE; /* it waits for the state */
	if ((event.close.flags & TR_DEFER_STATE) != 0)
		state_gradual_defer(member);
	member->close_asked = true;
	gauge_tell(member);
	tr_status st = member_step(member, &event, &error);
	if (st == TR_OK)
		return;
	member->close_asked = false;
	state_gradual_decided(member, st, 0);
	if (member->call.id == id)
		give_status(member, st, error.text);
}

static void contributors(struct member *member, const struct channel_submission *s)
{
	struct channel_answer answer = { .status = TR_OK };
	size_t count = 0;
	answer.status = group_core_contributors(member->core, s->tag, s->offset, answer.peers,
	    TR_GROUP_PEERS_MAX, &count);
	answer.count = (uint32_t)count;
	answer.run = group_core_segment_elements(member->core, s->tag);
	if (answer.status != TR_OK)
		(void)snprintf(answer.text, sizeof(answer.text),
		    "op %u has no element %" PRIu64 " in the round committed last", s->tag,
		    s->offset);
	give(member, &answer);
}

static struct member_call call_of(const struct member *member, const struct channel_submission *s)
{
	struct member_call call = { .id = s->id, .call = s->call, .tag = s->tag };
	call.states = s->call == CHANNEL_RECEIVE_STATE && s->count > 0;
	bool own = call.states ||
	    ((s->call == CHANNEL_WAIT || s->call == CHANNEL_COMMIT) && s->count > 0);
	uint64_t limit_ms = own ? s->count - 1 : member->op_deadline_ms;
	call.limited = own || limit_ms > 0;
	call.limit_ms = (uint32_t)(limit_ms < UINT32_MAX ? limit_ms : UINT32_MAX);
	return call;
}

static void handle(struct member *member, const struct channel_submission *s)
{
	if (s->call == CHANNEL_SUBMIT) {
		submit(member, s);
		return;
	}
	if (s->call == CHANNEL_RELEASE) {
		release(member, s->tag);
		return;
	}
	if (member->call.id != 0) {
		broken(member, "two calls at a time");
		return;
	}
	member->call = call_of(member, s);
	switch ((enum channel_call)s->call) {
	case CHANNEL_READY:
		ready(member, s);
		break;
	case CHANNEL_BEGIN:
		begin(member);
		break;
	case CHANNEL_WAIT:
		wait_op(member, s->tag);
		break;
	case CHANNEL_RECEIVE_STATE:
		receive_state(member);
		break;
	case CHANNEL_COMMIT:
		commit(member, s);
		break;
	case CHANNEL_CONTRIBUTORS:
		contributors(member, s);
		break;
	case CHANNEL_SCOPED:
		scoped(member);
		break;
	case CHANNEL_SUBMIT:
	case CHANNEL_RELEASE:
		break;
	}
}

/* ---- the worker's descriptors ---- */

/* `closed`: by itself; else it may live on, and show things in the commons. */
static void gone(struct member *member, bool closed)
{
	if (member->worker_gone)
		return;
	member->worker_gone = true;
	member->call.id = 0;
	engine_commons_leave(member, closed);
	(void)uv_poll_stop(&member->bell_poll);
	(void)uv_poll_stop(&member->socket_poll);
	(void)uv_idle_stop(&member->again);
	(void)uv_timer_stop(&member->deadline);
	bool left = leftover_keep(member);
	if (!member->over)
		(void)member_step(member, &(struct group_event){ .kind = GROUP_LEAVE }, NULL);
	if (member->engine->callbacks.worker_gone != NULL) {
		Traind__Peer__LastWords words = TRAIND__PEER__LAST_WORDS__INIT;
		notices_last_words(member, &words);
		words.state_left = left;
		member->engine->callbacks.worker_gone(member->engine->arg, member->group,
		    member->peer, &words);
	}
	if (member->over) /* nobody has a use for it any more */
		member_destroy(member, TR_ECANCELLED, "its worker is gone");
}

static void on_again(uv_idle_t *again);

/* false: the channel is over. */
static bool read_socket(struct member *member)
{
	struct tr_error error = { 0 };
	tr_status st = channel_host_read(member->host, notices_report, member, &error);
	member->reports_full = st == TR_EAGAIN;
	if (st == TR_OK && member->host->more)
		(void)uv_idle_start(&member->again, on_again);
	if (st == TR_OK)
		return true;
	if (st == TR_EAGAIN) { /* read on when reports were sent */
		(void)uv_poll_stop(&member->socket_poll);
		return true;
	}
	if (st != TR_EUNAVAILABLE)
		broken(member, error.text);
	if (st == TR_EUNAVAILABLE || member->over)
		gone(member, st == TR_EUNAVAILABLE);
	return false;
}

/* Submissions may speak of memory that is announced on the socket: those that were there before it was read empty. */
static void serve(struct member *member)
{
	struct channel_host *host = member->host;
	struct channel_submission submission;
	struct tr_error error;
	uint64_t announced = channel_host_submitted(host);
	tr_error_clear(&error);
	(void)uv_idle_stop(&member->again);
	if (!channel_host_heard_all(host) && (!read_socket(member) || host->more))
		return;
	for (int i = 0;
	     i < SUBMISSIONS_PER_TURN && host->taken != announced && !member->over && !host->ended;
	     i++) {
		tr_status st = channel_host_take(host, &submission, &error);
		if (st == TR_EAGAIN)
			return;
		if (st != TR_OK)
			broken(member, error.text);
		else
			handle(member, &submission);
	}
	if (!member->over && !host->ended && channel_host_submitted(host) != host->taken)
		(void)uv_idle_start(&member->again, on_again);
}

bool member_calls_serve(struct member *member)
{
	if (member->over || member->worker_gone || member->reports_full ||
	    channel_host_submitted(member->host) == member->host->taken)
		return false;
	serve(member);
	return true;
}

static void on_again(uv_idle_t *again)
{
	serve(again->data);
}

static void on_bell(uv_poll_t *poll, int status, int events)
{
	struct member *member = poll->data;
	uint64_t count;
	(void)status;
	(void)events;
	ssize_t ignored = read(member->host->own_bell, &count, sizeof(count));
	(void)ignored;
	(void)observe_serve(member);
	serve(member);
}

static void on_socket(uv_poll_t *poll, int status, int events)
{
	struct member *member = poll->data;
	(void)events;
	if (status < 0)
		gone(member, false);
	else
		(void)read_socket(member);
}

static void on_handle_closed(uv_handle_t *handle)
{
	member_unhold(handle->data);
}

void member_calls_start(struct member *member)
{
	uv_loop_t *loop = &member->engine->loop;
	(void)uv_timer_init(loop, &member->deadline);
	(void)uv_idle_init(loop, &member->again);
	member->deadline.data = member->again.data = member;
	member->holds += 2;
	member->bell_poll.data = member->socket_poll.data = member;
	int rc = uv_poll_init(loop, &member->bell_poll, member->host->own_bell);
	if (rc == 0) {
		member->holds++;
		rc = uv_poll_init(loop, &member->socket_poll, member->host->socket);
	}
	if (rc != 0) {
		broken(member, uv_strerror(rc));
		return;
	}
	member->holds++;
	watch_start(&member->bell_poll, UV_READABLE, on_bell);
	watch_start(&member->socket_poll, UV_READABLE, on_socket);
	(void)uv_idle_start(&member->again,
	    on_again); /* a caller of this process may wait already */
}

void member_calls_resume(struct member *member)
{
	if (!member->reports_full || member->worker_gone)
		return;
	serve(member);
	if (!member->reports_full && !member->worker_gone)
		watch_start(&member->socket_poll, UV_READABLE, on_socket);
}

void member_calls_stop(struct member *member)
{
	uv_handle_t *handles[] = { (uv_handle_t *)&member->deadline, (uv_handle_t *)&member->again,
		(uv_handle_t *)&member->bell_poll, (uv_handle_t *)&member->socket_poll };
	for (size_t i = 0; i < sizeof(handles) / sizeof(handles[0]); i++)
		if (handles[i]->loop != NULL) /* it was started */
			uv_close(handles[i], on_handle_closed);
}
