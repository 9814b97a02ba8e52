/* Ends: connections to a relay. What they say, for how long, and who meets whom. */
#include "collectives/transport/relay_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "collectives/transport/congestion.h"
#include "collectives/transport/socket.h"
#include "collectives/transport/watch.h"
#include "common/log.h"

static void on_event(uv_poll_t *poll, int status, int events);

/* ---- life ---- */

static void count(struct relay *relay, enum relay_end_state state, unsigned by)
{
	if (state == END_SAYS)
		relay->strangers += by;
	else if (state == END_WAITS)
		(void)atomic_fetch_add(&relay->waiting, by);
	else if (state == END_CALLS)
		(void)atomic_fetch_add(&relay->calling, by);
}

static void move(struct relay_end *end, enum relay_end_state to)
{
	count(end->relay, end->state, (unsigned)-1);
	end->state = to;
	count(end->relay, to, 1);
}

static void on_closed(uv_handle_t *handle)
{
	struct relay_end *end = handle->data;
	free(end->held);
	free(end);
}

void relay_end_close(struct relay_end *end, bool broken)
{
	const struct linger at_once = { 1, 0 };
	if (end->state == END_CLOSED)
		return;
	move(end, END_CLOSED);
	if (broken)
		(void)setsockopt(end->stream.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	uv_close((uv_handle_t *)&end->poll, on_closed);
	stream_close(&end->stream);
}

void relay_end_poll(struct relay_end *end, int events)
{
	if (end->state == END_CLOSED || events == end->polled)
		return;
	end->polled = events;
	if (events != 0)
		watch_start(&end->poll, events, on_event);
	else
		(void)uv_poll_stop(&end->poll);
}

static void take_out(struct relay_end *end)
{
	struct relay_end **at = &end->relay->ends;
	while (*at != end)
		at = &(*at)->next;
	*at = end->next;
	end->next = NULL;
	end->relay->ends_count--;
}

static void drop(struct relay_end *end, const char *reason)
{
	struct relay *relay = end->relay;
	take_out(end);
	log_limited(&relay->drops, uv_now(&relay->loop), LOG_INFO, "relay",
	    "connection from %s dropped: %s", end->name, reason);
	relay_end_close(end, false);
}

static void refuse(struct relay_end *end, enum relay_cause cause)
{
	const struct relay_message answer = { .kind = RELAY_REFUSED, .cause = cause };
	uint8_t bytes[RELAY_MESSAGE_BYTES];
	relay_message_put(&answer, bytes);
	(void)stream_write(&end->stream, bytes, sizeof(bytes));
	(void)atomic_fetch_add(&end->relay->refused, 1);
	drop(end, relay_cause_words(cause));
}

/* ---- who meets whom ---- */

static bool same_pair(const struct relay_message *a, const struct relay_message *b)
{
	return a->group == b->group && a->from == b->from && a->to == b->to;
}

static unsigned count_of(const struct relay_end *end, enum relay_end_state state,
    struct relay_end **oldest)
{
	unsigned found = 0;
	*oldest = NULL;
	for (struct relay_end *other = end->relay->ends; other != NULL; other = other->next) {
		if (other == end || other->state != state || !same_pair(&other->said, &end->said))
			continue;
		if (found++ == 0)
			*oldest = other;
	}
	return found;
}

static unsigned joined_of(const struct relay_end *end)
{
	unsigned found = 0;
	for (const struct relay_joint *joint = end->relay->joints; joint != NULL;
	     joint = joint->next)
		found += same_pair(&joint->ends[0]->said, &end->said) ? 1 : 0;
	return found;
}

/* false: there is no room, and the caller was told; who waits is left as it was. */
static bool meet(struct relay_end *caller, struct relay_end *waiter)
{
	if (caller->relay->joints_count >= caller->relay->joined_max) {
		refuse(caller, RELAY_CAUSE_FULL);
		return false;
	}
	take_out(caller);
	take_out(waiter);
	move(caller, END_JOINED);
	move(waiter, END_JOINED);
	if (!relay_joint_make(caller, waiter)) {
		relay_end_close(caller, true);
		relay_end_close(waiter, true);
	}
	return true;
}

static void take_wait(struct relay_end *end)
{
	struct relay_end *caller, *oldest;
	move(end, END_WAITS);
	end->deadline_ms = UINT64_MAX;
	while (count_of(end, END_CALLS, &caller) > 0)
		if (meet(caller, end))
			return;
	if (count_of(end, END_WAITS, &oldest) >= TR_RELAY_WAITS_MAX)
		drop(oldest, "too many of its pair wait");
	relay_end_poll(end, UV_READABLE);
}

static void take_call(struct relay_end *end)
{
	struct relay_end *waiter, *oldest;
	if (count_of(end, END_CALLS, &oldest) + joined_of(end) >= TR_INBOUND_PEER_MAX) {
		refuse(end, RELAY_CAUSE_FULL);
		return;
	}
	move(end, END_CALLS);
	end->deadline_ms = uv_now(&end->relay->loop) + TR_RELAY_CALL_MS;
	if (count_of(end, END_WAITS, &waiter) > 0)
		(void)meet(end, waiter);
	else
		relay_end_poll(end, UV_READABLE);
}

/* ---- what they say ---- */

static void take_message(struct relay_end *end)
{
	struct tr_error error = { 0 };
	if (relay_message_get(end->bytes, &end->said, &error) != TR_OK)
		drop(end, error.text);
	else if (end->said.kind != RELAY_CALL && end->said.kind != RELAY_WAIT)
		drop(end, "an answer that nobody asked for");
	else if (!relay_knows(end->relay, &end->said))
		refuse(end, RELAY_CAUSE_UNKNOWN);
	else if (end->relay->ends_count - end->relay->strangers >= TR_RELAY_ENDS_MAX)
		refuse(end, RELAY_CAUSE_FULL);
	else if (end->said.kind == RELAY_CALL)
		take_call(end);
	else
		take_wait(end);
}

static void read_message(struct relay_end *end, bool broken)
{
	ssize_t n = stream_read(&end->stream, end->bytes + end->got, sizeof(end->bytes) - end->got);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) && !broken) {
		relay_end_poll(end, UV_READABLE);
		return;
	}
	if (n <= 0) {
		drop(end,
		    n == 0 ? "it closed before it said what it wants"
		           : "it broke before it said what it wants");
		return;
	}
	end->got += (size_t)n;
	if (end->got == sizeof(end->bytes))
		take_message(end);
	else
		relay_end_poll(end, UV_READABLE);
}

/* Nothing is to come from who waits or calls: it is gone. */
static void heard(struct relay_end *end)
{
	uint8_t byte;
	ssize_t n = recv(end->stream.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return;
	drop(end, n > 0 ? "it spoke before it was joined" : "it went away before it was joined");
}

static void on_event(uv_poll_t *poll, int status, int events)
{
	struct relay_end *end = poll->data;
	if (status < 0)
		end->polled = 0; /* libuv has stopped it */
	switch (end->state) {
	case END_SAYS:
		read_message(end, status < 0);
		break;
	case END_WAITS:
	case END_CALLS:
		if (status < 0)
			drop(end, "it broke before it was joined");
		else
			heard(end);
		break;
	case END_JOINED:
		relay_joint_event(end, status, events);
		break;
	case END_CLOSED:
		break;
	}
}

static void drop_stranger(struct relay *relay)
{
	struct relay_end *oldest = relay->ends;
	while (oldest->state != END_SAYS)
		oldest = oldest->next;
	drop(oldest, "too many others have not said what they want");
}

void relay_end_begin(struct relay *relay, struct stream stream)
{
	struct relay_end *end = relay->stopping ? NULL : calloc(1, sizeof(*end));
	struct relay_end **at = &relay->ends;
	if (end == NULL || uv_poll_init(&relay->loop, &end->poll, stream.fd) != 0) {
		stream_close(&stream);
		free(end);
		return;
	}
	end->relay = relay;
	end->poll.data = end;
	end->stream = stream;
	end->deadline_ms = uv_now(&relay->loop) + TR_CONN_GREETING_TIMEOUT_MS;
	socket_peer_name(stream.fd, end->name);
	socket_keep_alive(stream.fd, TR_RELAY_KEEPALIVE_S);
	congestion_choose(stream.fd, NULL);
	while (*at != NULL)
		at = &(*at)->next;
	*at = end;
	relay->ends_count++;
	count(relay, END_SAYS, 1);
	if (relay->strangers > TR_RELAY_STRANGERS_MAX)
		drop_stranger(relay);
	read_message(end, false); /* with TLS it may be here, and no poll tells of it */
}

/* ---- all of them ---- */

void relay_ends_judge(struct relay *relay)
{
	struct relay_end *next;
	for (struct relay_end *end = relay->ends; end != NULL; end = next) {
		next = end->next;
		if (end->state != END_SAYS && !relay_knows(relay, &end->said))
			refuse(end, RELAY_CAUSE_UNKNOWN);
	}
}

void relay_ends_look(struct relay *relay)
{
	struct relay_end *next;
	uint64_t now_ms = uv_now(&relay->loop);
	for (struct relay_end *end = relay->ends; end != NULL; end = next) {
		next = end->next;
		if (end->deadline_ms > now_ms)
			continue;
		if (end->state == END_CALLS)
			refuse(end, RELAY_CAUSE_NOBODY);
		else
			drop(end, "it did not say in time what it wants");
	}
}

void relay_ends_close(struct relay *relay, const char *reason)
{
	while (relay->ends != NULL)
		drop(relay->ends, reason);
}
