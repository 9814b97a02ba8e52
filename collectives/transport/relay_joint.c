/* A joint: two ends of a relay that have each other. What one says the other gets, as it is and in order; what it does not take at
 * once is held, up to a bound, and nothing more is read meanwhile.
 */
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>

#include "collectives/transport/relay_internal.h"
#include "common/log.h"

/* Of one direction, before others get their turn. */
#define TURN_BYTES (256u << 10)
/* Unsent bytes in the kernel above which a socket is not writable: what is behind them waits here, and is not read. */
#define NOT_SENT_BYTES (256u << 10)

static struct relay_end *other_of(const struct relay_end *end)
{
	struct relay_joint *joint = end->joint;
	return joint->ends[joint->ends[0] == end ? 1 : 0];
}

/* ---- life ---- */

static void joint_free(struct relay_joint *joint, bool broken)
{
	struct relay *relay = joint->ends[0]->relay;
	struct relay_joint **at = &relay->joints;
	while (*at != joint)
		at = &(*at)->next;
	*at = joint->next;
	relay->joints_count--;
	atomic_store(&relay->joined, relay->joints_count);
	relay_end_close(joint->ends[0], broken);
	relay_end_close(joint->ends[1], broken);
	free(joint);
}

void relay_joint_break(struct relay_joint *joint, const char *reason)
{
	const struct relay_end *caller = joint->ends[0], *waiter = joint->ends[1];
	struct relay *relay = caller->relay;
	log_limited(&relay->drops, uv_now(&relay->loop), LOG_INFO, "relay",
	    "peer %" PRIu64 " (%s) to peer %" PRIu64 " (%s) of group %" PRIu64 ": %s",
	    caller->said.from, caller->name, caller->said.to, waiter->name, caller->said.group,
	    reason);
	joint_free(joint, true);
}

/* ---- the answer ---- */

/* TR_EAGAIN: a part of it is on its way. After it the socket is the ends' own: nothing of it was read through TLS that is theirs,
 * since they say nothing before they have it. */
static tr_status answer(struct relay_end *end)
{
	if (end->answered)
		return TR_OK;
	if (stream_unsent(&end->stream) > 0 && stream_flush(&end->stream) < 0 && errno != EAGAIN)
		return TR_EIO;
	if (stream_unsent(&end->stream) > 0)
		return TR_EAGAIN;
	tls_destroy(end->stream.tls);
	end->stream.tls = NULL;
	end->answered = true;
	return TR_OK;
}

static bool begin_answer(struct relay_end *end)
{
	const struct relay_message joined = { .kind = RELAY_JOINED,
		.group = end->said.group,
		.from = end->said.from,
		.to = end->said.to };
	uint8_t bytes[RELAY_MESSAGE_BYTES];
	relay_message_put(&joined, bytes);
	/* The first bytes of ours on this connection: a socket that does not take them is broken. */
	return stream_write(&end->stream, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes);
}

/* ---- bytes ---- */

/* What `from` has left behind. TR_EAGAIN: not all of it. */
static tr_status send_held(struct relay_end *from, struct relay_end *to)
{
	while (from->held_begin < from->held_end) {
		ssize_t n = send(to->stream.fd, from->held + from->held_begin,
		    from->held_end - from->held_begin, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? TR_EAGAIN : TR_EIO;
		from->held_begin += (size_t)n;
	}
	free(from->held);
	from->held = NULL;
	from->held_begin = from->held_end = 0;
	return TR_OK;
}

static tr_status pass_on(struct relay_end *from, struct relay_end *to, const uint8_t *bytes,
    size_t count)
{
	ssize_t n;
	(void)atomic_fetch_add(&from->relay->bytes, count);
	do {
		n = send(to->stream.fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
		return TR_EIO;
	size_t sent = n < 0 ? 0 : (size_t)n;
	if (sent == count)
		return TR_OK;
	from->held = malloc(count - sent);
	if (from->held == NULL)
		return TR_ENOMEM;
	memcpy(from->held, bytes + sent, count - sent);
	from->held_begin = 0;
	from->held_end = count - sent;
	return TR_EAGAIN;
}

/* As much as there is, is taken, and is this turn's. */
static tr_status carry(struct relay_end *from, struct relay_end *to)
{
	struct relay *relay = from->relay;
	size_t turn = 0;
	tr_status st = send_held(from, to);
	while (st == TR_OK && !from->ended && turn < TURN_BYTES) {
		ssize_t n = recv(from->stream.fd, relay->scratch, sizeof(relay->scratch),
		    MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? TR_OK : TR_EIO;
		from->ended = n == 0;
		turn += (size_t)n;
		if (n > 0)
			st = pass_on(from, to, relay->scratch, (size_t)n);
	}
	if (st == TR_OK && from->ended && !to->told) {
		to->told = true;
		(void)shutdown(to->stream.fd, SHUT_WR);
	}
	return st == TR_EAGAIN ? TR_OK : st;
}

static int wanted(const struct relay_end *end)
{
	const struct relay_end *other = other_of(end);
	if (!end->answered)
		return UV_WRITABLE;
	if (!other->answered)
		return 0;
	return (end->held == NULL && !end->ended ? UV_READABLE : 0) |
	    (other->held != NULL ? UV_WRITABLE : 0);
}

void relay_joint_event(struct relay_end *end, int status, int events)
{
	struct relay_joint *joint = end->joint;
	struct relay_end *other = other_of(end);
	tr_status st = answer(end);
	(void)events;
	if (st == TR_OK)
		st = answer(other);
	if (st == TR_OK)
		st = carry(end, other);
	if (st == TR_OK)
		st = carry(other, end);
	if (st == TR_EAGAIN && status >= 0)
		st = TR_OK;
	if (st != TR_OK || (status < 0 && !end->ended)) {
		relay_joint_break(joint, st == TR_ENOMEM ? "no memory" : "an end broke");
		return;
	}
	if (end->told && other->told) {
		joint_free(joint, false);
		return;
	}
	relay_end_poll(end, wanted(end));
	relay_end_poll(other, wanted(other));
}

bool relay_joint_make(struct relay_end *caller, struct relay_end *waiter)
{
	struct relay_joint *joint = calloc(1, sizeof(*joint));
	struct relay *relay = caller->relay;
	int low = NOT_SENT_BYTES;
	if (joint == NULL)
		return false;
	*joint = (struct relay_joint){ relay->joints, { caller, waiter } };
	relay->joints = joint;
	atomic_store(&relay->joined, ++relay->joints_count);
	for (unsigned i = 0; i < 2; i++) {
		joint->ends[i]->joint = joint;
		(void)setsockopt(joint->ends[i]->stream.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &low,
		    sizeof(low));
	}
	log_limited(&relay->drops, uv_now(&relay->loop), LOG_DEBUG, "relay",
	    "peer %" PRIu64 " (%s) to peer %" PRIu64 " (%s) of group %" PRIu64, caller->said.from,
	    caller->name, caller->said.to, waiter->name, caller->said.group);
	if (!begin_answer(caller) || !begin_answer(waiter)) {
		relay_joint_break(joint, "an end broke as it was joined");
		return true;
	}
	relay_joint_event(caller, 0, 0);
	return true;
}
