/* Connections of nodes: frames in become events, messages out become frames. */
#include "daemon/membership/server/memberd_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/unpack.h"

#define HELLO_CHECK_MS 1000
/* Of one connection, that wait for their step. More are not read: whoever sends faster than we step fills its own socket and
 * neither our memory nor the time of the others. */
#define QUEUED_MAX 32

static struct node_conn *find(struct memberd *memberd, uint64_t number)
{
	struct node_conn *node = memberd->nodes.places[number % MEMBERD_CONNS_MAX];
	return node != NULL && node->number == number ? node : NULL;
}

static void hello_overdue(uv_timer_t *timer)
{
	struct memberd *memberd = timer->data;
	uint64_t now = uv_now(memberd->loop);
	for (size_t i = 0; i < MEMBERD_CONNS_MAX && memberd->nodes.ungreeted > 0; i++) {
		struct node_conn *node = memberd->nodes.places[i];
		if (node != NULL && !node->greeted &&
		    now - node->since_ms >= TR_CONN_GREETING_TIMEOUT_MS)
			conn_close(node->conn, "no NodeHello in time");
	}
	if (memberd->nodes.ungreeted == 0)
		(void)uv_timer_stop(timer);
}

/* The core sees whole, valid messages of nodes that have introduced themselves. */
static tr_status node_frame(void *arg, struct conn *conn, uint16_t type, const uint8_t *payload,
    size_t bytes, struct tr_error *error)
{
	(void)conn;
	struct node_conn *node = arg;
	struct unpack_budget budget;
	if (type != FRAME_TO_MEMBER)
		return tr_error_set(error, TR_EPROTO, "frame of type %u, expected ToMember", type);
	if (node->queued == QUEUED_MAX) {
		node->held = true;
		return TR_EAGAIN;
	}
	Traind__Peer__ToMember *message = traind__peer__to_member__unpack(unpack_budget(&budget,
	                                                                      bytes),
	    bytes, payload);
	if (message == NULL)
		return tr_error_set(error, TR_EPROTO, "not a ToMember message");
	bool hello = message->body_case == TRAIND__PEER__TO_MEMBER__BODY_HELLO ||
	    message->body_case == TRAIND__PEER__TO_MEMBER__BODY_LIFELINE;
	if (hello == node->greeted || message->body_case == TRAIND__PEER__TO_MEMBER__BODY__NOT_SET) {
		traind__peer__to_member__free_unpacked(message, NULL);
		return tr_error_set(error, TR_EPROTO,
		    hello ? "a second NodeHello" : "a message before NodeHello");
	}
	if (hello) {
		node->greeted = true;
		node->memberd->nodes.ungreeted--;
	}
	node->queued++;
	event_queue_push(node->memberd,
	    &(struct membership_event){ .kind = MEMBERSHIP_MESSAGE,
	        .conn = node->number,
	        .message = message },
	    &message->base, NULL);
	return TR_OK;
}

static void node_closed(void *arg, struct conn *conn, const char *reason)
{
	struct node_conn *node = arg;
	struct memberd *memberd = node->memberd;
	if (node->greeted) {
		event_queue_push(memberd,
		    &(struct membership_event){ .kind = MEMBERSHIP_CLOSED, .conn = node->number },
		    NULL, reason);
		log_relay_node_gone(memberd, node->number);
	} else {
		memberd->nodes.ungreeted--;
		log_limited(&memberd->nodes.drops, uv_now(memberd->loop), LOG_INFO, "server",
		    "connection from %s dropped: %s", conn_peer_name(conn), reason);
	}
	memberd->nodes.places[node->number % MEMBERD_CONNS_MAX] = NULL;
	memberd->nodes.count--;
	free(node);
}

void node_conns_init(struct memberd *memberd)
{
	(void)uv_timer_init(memberd->loop, &memberd->nodes.timer);
	memberd->nodes.timer.data = memberd;
	memberd->nodes.serial = 1;
	log_limit_init(&memberd->nodes.drops, uv_now(memberd->loop));
}

/* A number with a free place, never used before. */
static uint64_t new_number(struct node_conns *nodes)
{
	do
		nodes->serial++;
	while (nodes->places[nodes->serial % MEMBERD_CONNS_MAX] != NULL);
	return nodes->serial;
}

void node_conns_accept(struct memberd *memberd, struct stream stream, const void *early,
    size_t early_bytes)
{
	static const struct conn_callbacks callbacks = { .frame = node_frame,
		.closed = node_closed };
	struct tr_error error;
	struct node_conns *nodes = &memberd->nodes;
	struct node_conn *node = nodes->count < MEMBERD_CONNS_MAX / 2 ? calloc(1, sizeof(*node))
	                                                              : NULL;
	if (node == NULL) {
		log_limited(&nodes->drops, uv_now(memberd->loop), LOG_WARN, "server",
		    "a node's connection is refused: %zu are open", nodes->count);
		stream_close(&stream);
		return;
	}
	node->memberd = memberd;
	node->number = new_number(nodes);
	node->since_ms = uv_now(memberd->loop);
	if (conn_adopt(memberd->loop, stream, early, early_bytes, &callbacks, node, &node->conn,
	        &error) != TR_OK) {
		log_limited(&nodes->drops, uv_now(memberd->loop), LOG_WARN, "server",
		    "a node's connection is dropped: %s", error.text);
		stream_close(&stream);
		free(node);
		return;
	}
	nodes->places[node->number % MEMBERD_CONNS_MAX] = node;
	nodes->count++;
	nodes->ungreeted++;
	if (!uv_is_active((uv_handle_t *)&nodes->timer))
		(void)uv_timer_start(&nodes->timer, hello_overdue, HELLO_CHECK_MS, HELLO_CHECK_MS);
}

bool node_conns_has(struct memberd *memberd, uint64_t number)
{
	return find(memberd, number) != NULL;
}

void node_conns_send(struct memberd *memberd, uint64_t number, const Traind__Peer__ToNode *message)
{
	struct packed_message packed = { 0 };
	node_conns_send_same(memberd, number, message, &packed);
	free(packed.bytes);
}

/* False: there is no memory. */
static bool pack(const Traind__Peer__ToNode *message, struct packed_message *packed)
{
	free(packed->bytes);
	packed->size = traind__peer__to_node__get_packed_size(message);
	packed->bytes = malloc(packed->size > 0 ? packed->size : 1);
	packed->of = packed->bytes != NULL ? message : NULL;
	if (packed->bytes != NULL)
		(void)traind__peer__to_node__pack(message, packed->bytes);
	return packed->bytes != NULL;
}

void node_conns_send_same(struct memberd *memberd, uint64_t number,
    const Traind__Peer__ToNode *message, struct packed_message *packed)
{
	struct node_conn *node = find(memberd, number);
	if (node == NULL)
		return; /* it closed; that event is on its way to the core */
	if (packed->of != message && !pack(message, packed)) {
		event_queue_broken(memberd);
		return;
	}
	tr_status st = conn_send_copy(node->conn, FRAME_TO_NODE, packed->bytes, packed->size);
	if (st == TR_ENOMEM)
		event_queue_broken(memberd);
	else if (st == TR_ELIMIT)
		conn_close(node->conn, "it reads too slowly");
	else if (st != TR_OK && st != TR_EUNAVAILABLE)
		conn_close(node->conn, tr_status_text(st));
}

void node_conns_stepped(struct memberd *memberd, uint64_t number)
{
	struct node_conn *node = find(memberd, number);
	if (node == NULL)
		return;
	node->queued--;
	if (!node->held || node->queued > QUEUED_MAX / 2)
		return;
	node->held = false;
	conn_resume(node->conn);
}

void node_conns_finish(struct memberd *memberd, uint64_t number, const char *reason)
{
	struct node_conn *node = find(memberd, number);
	if (node != NULL)
		conn_finish(node->conn, reason);
}

void node_conns_close(struct memberd *memberd)
{
	for (size_t i = 0; i < MEMBERD_CONNS_MAX; i++)
		if (memberd->nodes.places[i] != NULL)
			conn_close(memberd->nodes.places[i]->conn, "memberd ends");
	uv_close((uv_handle_t *)&memberd->nodes.timer, NULL);
}
