#include "collectives/engine/link.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "collectives/engine/lifeline.h"
#include "collectives/engine/redial.h"
#include "collectives/transport/address.h"
#include "collectives/transport/conn.h"
#include "collectives/transport/tcp_path.h"
#include "common/log.h"
#include "proto/unpack.h"

#define BACKOFF_FIRST_MS 50
#define BACKOFF_MOST_MS  1000
/* Of memberd's silence. Longer than it takes to call us lost: closing a connection that is merely slow would be the worse
 * mistake, since memberd acts on a closed one at once. */
#define SILENCE_LEAST_MS 10000

/* What memberd's messages may take in one turn of the loop: starting a process takes milliseconds, and between two of a
 * thousand starts the heartbeat must go out. */
#define BUSY_MOST_NS   20000000u
#define BEHIND_LOOK_MS 1 /* whether what it said was done meanwhile */

static void dial(struct link *link);
static void dial_beside(struct link *link);

/* ---- sending */

void link_send_packed(struct link *link, const void *packed, size_t bytes)
{
	if (link->conn == NULL || !link->welcomed)
		return;
	tr_status st = conn_send_copy(link->conn, FRAME_TO_MEMBER, packed, bytes);
	if (st == TR_ELIMIT)
		conn_close(link->conn, "memberd reads too slowly");
	else if (st != TR_OK && st != TR_EUNAVAILABLE)
		log_warn("link", "a message of %zu bytes to memberd is lost: %s", bytes,
		    tr_status_text(st));
}

static void pack_and_send(struct link *link, const Traind__Peer__ToMember *message)
{
	size_t bytes = traind__peer__to_member__get_packed_size(message);
	uint8_t *packed = malloc(bytes > 0 ? bytes : 1);
	if (packed == NULL) {
		log_error("link", "out of memory: a message to memberd is lost");
		return;
	}
	(void)traind__peer__to_member__pack(message, packed);
	if (message->body_case == TRAIND__PEER__TO_MEMBER__BODY_HELLO)
		(void)conn_send_copy(link->conn, FRAME_TO_MEMBER, packed, bytes);
	else
		link_send_packed(link, packed, bytes);
	free(packed);
}

void link_send(struct link *link, const Traind__Peer__ToMember *message)
{
	if (link->conn != NULL && link->welcomed)
		pack_and_send(link, message);
}

/* ---- heartbeats */

/* memberd allows more silence over a long way, so heartbeats are further apart there; but one that has no answer when it should have is followed by the next, whose answer tells the
 * kernel that it is lost. */
static bool beat_due(const struct link *link)
{
	uint64_t since_ms = uv_now(link->loop) - link->beat_ms;
	struct tcp_path path;
	if (since_ms + link->interval_ms / 2 >= link->apart_ms)
		return true;
	return (double)since_ms > 1250 * link->rtt_s &&
	    tcp_path_get(conn_socket(link->conn), &path) && path.waits;
}

/* False: it has one, or none is due. */
static bool lacks_answer(const struct link *link, struct tcp_path *path)
{
	return link->conn != NULL && tcp_path_get(conn_socket(link->conn), path) &&
	    redial_due(path);
}

static void beat(uv_timer_t *timer)
{
	struct link *link = timer->data;
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	Traind__Peer__Heartbeat heartbeat = TRAIND__PEER__HEARTBEAT__INIT;
	uint64_t silent_ms = uv_now(link->loop) - link->heard_ms;
	if (silent_ms > link->timeout_ms) {
		char reason[64];
		(void)snprintf(reason, sizeof(reason), "silent for %.1f s",
		    (double)silent_ms / 1000);
		conn_close(link->conn, reason);
		return;
	}
	if (link->fresh == NULL && !uv_is_active((uv_handle_t *)&link->retry))
		dial_beside(link);
	if (!link->welcomed)
		return;
	char words[LIFELINE_WORDS_MAX];
	if (lifeline_failed(link->lifeline, words))
		log_warn("link",
		    "memberd at %s: no lifeline: %s; that this process ended will be seen late",
		    link->address, words);
	if (!beat_due(link))
		return;
	link->beat_ms = uv_now(link->loop);
	link->callbacks->heartbeat(link->arg, &heartbeat);
	heartbeat.sequence = pulse_echo_sent(&link->echo, uv_hrtime() / 1000);
	heartbeat.rtt_s = link->rtt_s;
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_HEARTBEAT;
	message.heartbeat = &heartbeat;
	link_send(link, &message);
}

static void beat_acknowledged(struct link *link, const Traind__Peer__HeartbeatAck *ack)
{
	uint64_t took_us = pulse_echo_heard(&link->echo, ack->sequence, uv_hrtime() / 1000);
	if (took_us > 0)
		link->rtt_s = (double)took_us / 1e6;
	link->apart_ms = ack->interval_ms;
}

/* ---- what memberd says */

/* A group may be founded before a heartbeat's answer has been told: until then the handshake's round trip is known. */
static void guess_rtt(struct link *link)
{
	struct tcp_path path;
	if (link->rtt_s == 0 && tcp_path_get(conn_socket(link->conn), &path))
		link->rtt_s = path.rtt_us / 1e6;
}

static void welcomed(struct link *link, const Traind__Peer__Welcome *welcome)
{
	guess_rtt(link);
	link->welcomed = true;
	link->backoff_ms = BACKOFF_FIRST_MS;
	link->interval_ms = welcome->heartbeat_interval_ms > 0 ? welcome->heartbeat_interval_ms
	                                                       : TR_HEARTBEAT_INTERVAL_MS;
	link->apart_ms = link->beat_ms = 0;
	link->timeout_ms = (uint64_t)welcome->heartbeat_timeout_ms * 5;
	if (link->timeout_ms < SILENCE_LEAST_MS)
		link->timeout_ms = SILENCE_LEAST_MS;
	log_info("link", "n%" PRIu64 ": %s memberd at %s", welcome->node_id,
	    link->was_welcomed ? "back with" : "registered with", link->address);
	link->complained = false;
	link->was_welcomed = true;
	for (size_t i = 0; i < LINK_PAST_MAX; i++)
		conn_close(link->past[i], "replaced by a newer connection");
	lifeline_tie(link->lifeline, conn_peer_name(link->conn), welcome->node_id,
	    link->incarnation, link->calls);
	link->callbacks->welcome(link->arg, welcome);
	(void)uv_timer_start(&link->beat, beat, 0, link->interval_ms);
}

static void refused(struct link *link, const char *reason)
{
	link->given_up = link->callbacks->refused != NULL &&
	    link->callbacks->refused(link->arg, reason);
	if (!link->given_up)
		log_error("link", "memberd at %s refuses this process: %s", link->address, reason);
	link->complained = true;
	link->backoff_ms = BACKOFF_MOST_MS;
	conn_close(link->conn, "refused");
}

static tr_status dispatch(struct link *link, const Traind__Peer__ToNode *message,
    struct tr_error *error)
{
	switch (message->body_case) {
	case TRAIND__PEER__TO_NODE__BODY_WELCOME:
		if (link->welcomed)
			break;
		if (message->welcome->node_id == 0) /* who has none yet */
			return tr_error_set(error, TR_EPROTO, "a welcome that gives no node number");
		welcomed(link, message->welcome);
		link->callbacks->message(link->arg, message);
		break;
	case TRAIND__PEER__TO_NODE__BODY_REFUSED:
		refused(link, message->refused->reason);
		break;
	case TRAIND__PEER__TO_NODE__BODY_HEARTBEAT_ACK:
		beat_acknowledged(link, message->heartbeat_ack);
		break;
	default:
		if (link->welcomed)
			link->callbacks->message(link->arg, message);
	}
	return TR_OK;
}

/* The timers have had their turn, the heartbeat's among them. */
static void breathed(uv_timer_t *timer)
{
	struct link *link = timer->data;
	link->busy_ns = 0;
	if (link->conn != NULL)
		conn_resume(link->conn);
}

static tr_status frame(void *arg, struct conn *conn, uint16_t type, const uint8_t *payload,
    size_t bytes, struct tr_error *error)
{
	struct link *link = arg;
	struct unpack_budget budget;
	if (conn != link->conn)
		return TR_OK; /* what memberd knows of us now is in the NodeHello after it */
	if (type != FRAME_TO_NODE)
		return tr_error_set(error, TR_EPROTO, "frame of type %u, expected ToNode", type);
	bool behind = link->callbacks->behind != NULL && link->callbacks->behind(link->arg);
	if ((behind || link->busy_ns >= BUSY_MOST_NS) && !link->closing) {
		(void)uv_timer_start(&link->breath, breathed, behind ? BEHIND_LOOK_MS : 0, 0);
		return TR_EAGAIN;
	}
	uint64_t since_ns = uv_hrtime();
	Traind__Peer__ToNode *message = traind__peer__to_node__unpack(unpack_budget(&budget, bytes),
	    bytes, payload);
	if (message == NULL)
		return tr_error_set(error, TR_EPROTO, "not a ToNode message");
	link->heard_ms = uv_now(link->loop);
	tr_status st = link->closing ? TR_OK : dispatch(link, message, error);
	traind__peer__to_node__free_unpacked(message, NULL);
	link->busy_ns += uv_hrtime() - since_ns;
	return st;
}

/* ---- dialling */

/* A free place; `conn`: its. NULL: there is none. */
static struct conn **past_of(struct link *link, const struct conn *conn)
{
	size_t i = 0;
	while (i < LINK_PAST_MAX && link->past[i] != conn)
		i++;
	return i < LINK_PAST_MAX ? &link->past[i] : NULL;
}

static void retry(uv_timer_t *timer)
{
	struct link *link = timer->data;
	if (link->conn == NULL)
		dial(link);
	else
		dial_beside(link);
}

/* Half to all of it, so that a cluster does not come back in step. */
static void retry_within(struct link *link, uint64_t most_ms)
{
	link->random = link->random * 6364136223846793005u + 1442695040888963407u;
	(void)uv_timer_start(&link->retry, retry,
	    most_ms / 2 + (link->random >> 33) % (most_ms / 2 + 1), 0);
}

/* It is no failure: the next one is dialled as after any that had no answer. */
static void leave_fresh(struct link *link)
{
	struct conn *fresh = link->fresh;
	link->fresh = NULL;
	conn_close(fresh, "not needed any more");
	if (!link->given_up)
		retry_within(link, REDIAL_PAUSE_MS);
}

/* False: what it was dialled beside is heard again. One that is being closed has not said so yet, but is as good as gone. */
static bool replace(struct link *link)
{
	struct tcp_path path;
	struct conn **place = past_of(link, NULL);
	bool gone = conn_socket(link->conn) < 0;
	if (link->given_up || place == NULL || !(gone || lacks_answer(link, &path))) {
		leave_fresh(link);
		return false;
	}
	*place = link->conn;
	link->conn = link->fresh;
	link->fresh = NULL;
	if (!link->welcomed)
		return true;
	log_warn("link",
	    "memberd at %s went away: not heard for %.1f s, but on a new connection; work goes on",
	    link->address, (double)(uv_now(link->loop) - link->heard_ms) / 1000);
	link->welcomed = false;
	link->callbacks->lost(link->arg);
	return true;
}

static void connected(void *arg, struct conn *conn)
{
	struct link *link = arg;
	if (conn == link->fresh && !replace(link))
		return;
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	Traind__Peer__NodeHello hello = TRAIND__PEER__NODE_HELLO__INIT;
	link->conn = conn;
	link->heard_ms = uv_now(link->loop);
	link->timeout_ms = SILENCE_LEAST_MS;
	(void)uv_timer_start(&link->beat, beat, TR_HEARTBEAT_INTERVAL_MS, TR_HEARTBEAT_INTERVAL_MS);
	link->callbacks->hello(link->arg, &hello);
	link->incarnation = hello.incarnation;
	hello.call = ++link->calls;
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_HELLO;
	message.hello = &hello;
	pack_and_send(link, &message);
}

static void retry_later(struct link *link)
{
	retry_within(link, link->backoff_ms);
	link->backoff_ms = link->backoff_ms * 2 < BACKOFF_MOST_MS ? link->backoff_ms * 2
	                                                          : BACKOFF_MOST_MS;
}

/* Not before memberd has closed the link: it has heard our farewell then. */
static void cut_lifeline(struct link *link)
{
	lifeline_end(link->lifeline);
	link->lifeline = NULL;
	tls_context_release(link->tls);
	link->tls = NULL;
}

/* True: it is not the one that counts. */
static bool closed_beside(struct link *link, const struct conn *conn)
{
	struct conn **past = past_of(link, conn);
	if (past != NULL)
		*past = NULL;
	if (conn == link->fresh) {
		link->fresh = NULL;
		if (!link->closing && !link->given_up)
			retry_within(link, REDIAL_PAUSE_MS);
	}
	return conn != link->conn;
}

static void closed(void *arg, struct conn *conn, const char *reason)
{
	struct link *link = arg;
	if (closed_beside(link, conn))
		return;
	bool was_welcomed = link->welcomed;
	link->conn = NULL;
	link->welcomed = false;
	if (link->closing) {
		cut_lifeline(link);
		return;
	}
	(void)uv_timer_stop(&link->beat);
	if (link->given_up) {
		(void)uv_timer_stop(&link->retry);
		conn_close(link->fresh, "refused");
		return;
	}
	/* Once, not at each try. */
	static const char unreachable[] = "cannot reach ";
	size_t skip = strncmp(reason, unreachable, strlen(unreachable)) == 0 ? strlen(unreachable)
	                                                                     : 0;
	if (was_welcomed)
		log_warn("link", "memberd at %s went away: %s; trying again, work goes on",
		    link->address, reason);
	else if (!link->complained)
		log_warn("link", "cannot reach memberd at %s%s%s; %strying again",
		    skip == 0 ? link->address : reason + skip, skip == 0 ? ": " : "",
		    skip == 0 ? reason : "", conn_found_nobody(conn) ? "is it running? " : "");
	link->complained = true;
	if (was_welcomed)
		link->callbacks->lost(link->arg);
	else if (link->callbacks->failed != NULL)
		link->callbacks->failed(link->arg, reason);
	link->conn = link->fresh; /* it is being dialled already */
	link->fresh = NULL;
	if (link->conn == NULL)
		retry_later(link);
}

static tr_status begin_dial(struct link *link, struct conn **conn, struct tr_error *error)
{
	static const struct conn_callbacks callbacks = { .frame = frame,
		.connected = connected,
		.closed = closed };
	tr_status st = conn_dial(link->loop, link->address, link->tls, &callbacks, link, conn,
	    error);
	if (st == TR_OK)
		conn_set_dial_patience(*conn,
		    redial_patience_ms(link->rtt_s, uv_now(link->loop) - link->heard_ms));
	return st;
}

static void dial_beside(struct link *link)
{
	struct tcp_path path;
	if (lacks_answer(link, &path) && begin_dial(link, &link->fresh, NULL) != TR_OK)
		retry_within(link, REDIAL_PAUSE_MS);
}

static void dial(struct link *link)
{
	struct tr_error error;
	if (begin_dial(link, &link->conn, &error) == TR_OK)
		return;
	if (!link->complained)
		log_warn("link", "%s; trying again", error.text);
	link->complained = true;
	retry_later(link);
}

tr_status link_start(struct link *link, uv_loop_t *loop, const char *address,
    struct tls_context *tls, const struct link_callbacks *callbacks, void *arg,
    struct tr_error *error)
{
	struct address parsed;
	tr_status st = address_parse(address, &parsed, error);
	if (st != TR_OK)
		return st;
	*link = (struct link){ .loop = loop,
		.tls = tls_context_hold(tls),
		.callbacks = callbacks,
		.arg = arg,
		.backoff_ms = BACKOFF_FIRST_MS };
	(void)snprintf(link->address, sizeof(link->address), "%s", address);
	(void)getrandom(&link->random, sizeof(link->random), GRND_NONBLOCK);
	(void)uv_timer_init(loop, &link->retry);
	(void)uv_timer_init(loop, &link->beat);
	(void)uv_timer_init(loop, &link->breath);
	link->retry.data = link->beat.data = link->breath.data = link;
	link->lifeline = lifeline_start(tls, parsed.host);
	dial(link);
	return TR_OK;
}

void link_close(struct link *link, const char *reason)
{
	if (link->loop == NULL || link->closing)
		return;
	link->closing = true;
	uv_close((uv_handle_t *)&link->retry, NULL);
	uv_close((uv_handle_t *)&link->beat, NULL);
	uv_close((uv_handle_t *)&link->breath, NULL);
	conn_close(link->fresh, reason);
	for (size_t i = 0; i < LINK_PAST_MAX; i++)
		conn_close(link->past[i], reason);
	if (link->conn != NULL && link->welcomed)
		conn_finish(link->conn, reason);
	else if (link->conn != NULL)
		conn_close(link->conn, reason);
	else
		cut_lifeline(link);
}
