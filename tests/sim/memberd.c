/* memberd: the real core over a log whose last entries a crash may take, as a disk without fsync does; and its
 * connections to the nodes. Packets are packed and unpacked, as on the wire.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

static const struct membership_options options = {
	.heartbeat_interval_ms = SIM_HEARTBEAT_US / MS,
	.heartbeat_timeout_ms = SIM_TIMEOUT_MS,
	.progress_timeout_ms = 20000,
	.reconnect_grace_ms = 5000,
};

static void memberd_step(struct sim *sim, struct membership_event *event);

static struct sim_packet *packet_new(const ProtobufCMessage *message, unsigned node, uint64_t conn)
{
	size_t bytes = protobuf_c_message_get_packed_size(message);
	struct sim_packet *packet = malloc(sizeof(*packet) + bytes);

	if (!packet)
		abort();
	*packet = (struct sim_packet){ .node = node, .conn = conn, .bytes = bytes };
	protobuf_c_message_pack(message, packet->data);
	return packet;
}

static void packet_queue(struct sim_packet **head, struct sim_packet **tail,
    struct sim_packet *packet)
{
	if (*tail)
		(*tail)->next = packet;
	else
		*head = packet;
	*tail = packet;
}

static struct sim_packet *packet_take(struct sim_packet **head, struct sim_packet **tail)
{
	struct sim_packet *packet = *head;

	if (!packet)
		return NULL;
	*head = packet->next;
	if (!*head)
		*tail = NULL;
	return packet;
}

/* FIFO per connection; a node that is cut off is heard later. */
static uint64_t due(struct sim *sim, struct sim_node *node, uint64_t *last)
{
	uint64_t at = sim->now_us + sim_between(sim, 20, sim->delay_us);

	if (at < node->hold_until_us)
		at = node->hold_until_us;
	if (at <= *last)
		at = *last + 1;
	*last = at;
	return at;
}

void memberd_send(struct sim *sim, unsigned number, const Traind__Peer__ToMember *message)
{
	struct sim_node *node = &sim->nodes[number];
	struct sim_packet *packet = packet_new(&message->base, number, node->conn);

	/* One queue for all would keep them all in order: sorted by time when it is read. */
	packet_queue(&sim->memberd.to_member_head, &sim->memberd.to_member_tail, packet);
	sim_at(sim, due(sim, node, &node->to_member_due_us), SIM_TO_MEMBER, number, 0, 0);
}

/* One event a packet: the oldest one of the node that the event is about. */
static struct sim_packet *take_of(struct sim_memberd *memberd, unsigned node)
{
	struct sim_packet **at = &memberd->to_member_head, *before = NULL;

	while (*at && (*at)->node != node) {
		before = *at;
		at = &(*at)->next;
	}
	struct sim_packet *packet = *at;
	if (!packet)
		return NULL;
	*at = packet->next;
	if (memberd->to_member_tail == packet)
		memberd->to_member_tail = before;
	return packet;
}

void memberd_receive(struct sim *sim, unsigned node)
{
	struct sim_packet *packet = take_of(&sim->memberd, node);

	if (!packet)
		return;
	if (sim->memberd.up && packet->conn > sim->memberd.conn_floor) {
		Traind__Peer__ToMember *message = traind__peer__to_member__unpack(NULL,
		    packet->bytes, packet->data);
		if (!message)
			abort();
		memberd_step(sim,
		    &(struct membership_event){ .kind = MEMBERSHIP_MESSAGE,
		        .conn = packet->conn,
		        .message = message });
		traind__peer__to_member__free_unpacked(message, NULL);
	}
	free(packet);
}

void memberd_deliver(struct sim *sim, unsigned number)
{
	struct sim_memberd *memberd = &sim->memberd;
	struct sim_packet *packet = packet_take(&memberd->to_node_head[number],
	    &memberd->to_node_tail[number]);

	if (!packet)
		return;
	if (packet->conn == sim->nodes[number].conn) {
		Traind__Peer__ToNode *message = traind__peer__to_node__unpack(NULL, packet->bytes,
		    packet->data);
		if (!message)
			abort();
		node_message(sim, number, message);
		traind__peer__to_node__free_unpacked(message, NULL);
	}
	free(packet);
}

#define STREAM_DISK    6
#define FULL_PERIOD_US (500 * MS)

/* Half a second at a time, one of four; the fault that is over with the others. */
static bool disk_full(const struct sim *sim)
{
	return sim->fulls && sim->last_fault_us == 0 &&
	    rng_below(sim->key, STREAM_DISK, sim->now_us / FULL_PERIOD_US, 4) == 0;
}

static void memberd_append(struct sim *sim, const struct membership_action *action)
{
	struct sim_memberd *memberd = &sim->memberd;

	if (memberd->log_count == memberd->log_capacity) {
		memberd->log_capacity = memberd->log_capacity ? 2 * memberd->log_capacity : 64;
		memberd->log = realloc(memberd->log,
		    memberd->log_capacity * sizeof(memberd->log[0]));
		if (!memberd->log)
			abort();
	}
	struct sim_entry *entry = &memberd->log[memberd->log_count++];
	entry->bytes = traind__peer__log_entry__get_packed_size(action->entry);
	entry->data = malloc(entry->bytes + 1);
	if (!entry->data)
		abort();
	traind__peer__log_entry__pack(action->entry, entry->data);
	entry->cookie = action->cookie;
	entry->refused = disk_full(sim);
	sim_at(sim, sim->now_us + sim_between(sim, 20, sim->sync_us), SIM_MEMBER_APPLY, 0, 0,
	    memberd->stamp);
}

static unsigned node_of_conn(const struct sim *sim, uint64_t conn)
{
	for (unsigned i = 0; i < sim->node_count; i++)
		if (sim->nodes[i].conn == conn)
			return i;
	return SIM_NODES_MAX;
}

static void memberd_act(struct sim *sim, const struct membership_action *action)
{
	struct sim_memberd *memberd = &sim->memberd;
	unsigned number = node_of_conn(sim, action->conn);

	switch (action->kind) {
	case MEMBERSHIP_DO_APPEND:
		memberd_append(sim, action);
		break;
	case MEMBERSHIP_DO_SEND:
		if (number == SIM_NODES_MAX || action->conn == 0)
			break;
		packet_queue(&memberd->to_node_head[number], &memberd->to_node_tail[number],
		    packet_new(&action->message->base, number, action->conn));
		sim_at(sim, due(sim, &sim->nodes[number], &sim->nodes[number].to_node_due_us),
		    SIM_TO_NODE, number, 0, 0);
		break;
	case MEMBERSHIP_DO_CLOSE:
		if (number != SIM_NODES_MAX && action->conn != 0)
			sim_at(sim,
			    due(sim, &sim->nodes[number], &sim->nodes[number].to_node_due_us),
			    SIM_CONN_LOST, number, 0, action->conn);
		break;
	case MEMBERSHIP_DO_LOG:
		sim_trace(sim, "memberd: %s", action->text);
		if (strstr(action->text, "CONTRADICTION"))
			sim_violation(sim, "I6: memberd: %s", action->text);
		break;
	case MEMBERSHIP_DO_REPLY:
	case MEMBERSHIP_DO_JOB_CHANGED:
	case MEMBERSHIP_DO_RELAY:
	case MEMBERSHIP_DO_LOG_DATA:
		break;
	}
}

static void memberd_step(struct sim *sim, struct membership_event *event)
{
	struct sim_memberd *memberd = &sim->memberd;
	struct membership_actions actions = { 0 };
	struct tr_error error = { 0 };

	event->now_ms = 1 + sim->now_us / MS;
	event->unix_ms = 1700000000000u + event->now_ms;
	event->random = sim_draw(sim, UINT64_MAX);
	event->secret[0] = event->random *
	    0x9e3779b97f4a7c15u; /* no draw of its own: seeds stay what they are */
	event->secret[1] = ~event->random;
	if (membership_step(memberd->core, event, &actions, &error) != TR_OK)
		sim_violation(sim, "memberd's step: %s", error.text);
	for (size_t i = 0; i < actions.count; i++)
		memberd_act(sim, &actions.items[i]);
	membership_actions_finish(&actions);
	uint64_t deadline = membership_deadline_ms(memberd->core);
	if (deadline != UINT64_MAX && deadline != memberd->tick_ms) {
		memberd->tick_ms = deadline;
		uint64_t at = deadline > 1 ? (deadline - 1) * MS : 0;
		sim_at(sim, at > sim->now_us ? at : sim->now_us + MS, SIM_MEMBER_TICK, 0, 0,
		    memberd->stamp);
	}
}

void memberd_tick(struct sim *sim)
{
	if (!sim->memberd.up)
		return;
	sim->memberd.tick_ms = 0;
	memberd_step(sim, &(struct membership_event){ .kind = MEMBERSHIP_TICK });
}

static void memberd_apply_entry(struct sim *sim, const struct sim_entry *entry, uint64_t cookie)
{
	Traind__Peer__LogEntry *unpacked = traind__peer__log_entry__unpack(NULL, entry->bytes,
	    entry->data);

	if (!unpacked)
		abort();
	sim->memberd.applied++;
	if (unpacked->body_case == TRAIND__PEER__LOG_ENTRY__BODY_PEER_MOVED &&
	    unpacked->peer_moved->refused_round != 0)
		sim->refused_round = unpacked->peer_moved->refused_round;
	memberd_step(sim,
	    &(struct membership_event){ .kind = MEMBERSHIP_APPLIED,
	        .entry = unpacked,
	        .cookie = cookie });
	traind__peer__log_entry__free_unpacked(unpacked, NULL);
}

/* The next entry's turn: it is not in the log, nor will be. */
static void memberd_refuse(struct sim *sim)
{
	struct sim_memberd *memberd = &sim->memberd;
	struct sim_entry *entry = &memberd->log[memberd->applied];
	uint64_t cookie = entry->cookie;
	free(entry->data);
	memberd->log_count--;
	memmove(entry, entry + 1, (memberd->log_count - memberd->applied) * sizeof(*entry));
	memberd_step(sim,
	    &(struct membership_event){ .kind = MEMBERSHIP_APPEND_FAILED,
	        .cookie = cookie,
	        .reason = "no space left on the disk" });
}

void memberd_apply(struct sim *sim, uint64_t stamp)
{
	struct sim_memberd *memberd = &sim->memberd;

	if (!memberd->up || memberd->stamp != stamp || memberd->applied >= memberd->log_count)
		return;
	const struct sim_entry *entry = &memberd->log[memberd->applied];
	if (entry->refused)
		memberd_refuse(sim);
	else
		memberd_apply_entry(sim, entry, entry->cookie);
}

void memberd_snapshot(struct sim *sim)
{
	struct sim_memberd *memberd = &sim->memberd;

	if (!memberd->up)
		return;
	Traind__Peer__Snapshot *snapshot = membership_snapshot(memberd->core);
	if (!snapshot)
		abort();
	free(memberd->snapshot);
	memberd->snapshot_bytes = traind__peer__snapshot__get_packed_size(snapshot);
	memberd->snapshot = malloc(memberd->snapshot_bytes + 1);
	if (!memberd->snapshot)
		abort();
	traind__peer__snapshot__pack(snapshot, memberd->snapshot);
	memberd->snapshot_applied = memberd->applied;
	traind__peer__snapshot__free_unpacked(snapshot, NULL);
}

uint64_t memberd_recorded(struct sim *sim)
{
	uint64_t recorded = 0;

	if (!sim->memberd.up)
		return 0;
	Traind__Peer__Snapshot *snapshot = membership_snapshot(sim->memberd.core);
	for (size_t i = 0; snapshot && i < snapshot->n_groups; i++)
		if (snapshot->groups[i]->group == sim->group && snapshot->groups[i]->ledger)
			recorded = snapshot->groups[i]->ledger->frontier;
	if (snapshot)
		traind__peer__snapshot__free_unpacked(snapshot, NULL);
	return recorded;
}

static void memberd_restore(struct sim *sim)
{
	struct sim_memberd *memberd = &sim->memberd;

	memberd->applied = 0;
	if (!memberd->snapshot)
		return;
	Traind__Peer__Snapshot *snapshot = traind__peer__snapshot__unpack(NULL,
	    memberd->snapshot_bytes, memberd->snapshot);
	if (!snapshot)
		abort();
	memberd_step(sim,
	    &(struct membership_event){ .kind = MEMBERSHIP_RESTORED, .snapshot = snapshot });
	memberd->applied = memberd->snapshot_applied;
	traind__peer__snapshot__free_unpacked(snapshot, NULL);
}

void memberd_start(struct sim *sim)
{
	struct sim_memberd *memberd = &sim->memberd;

	if (memberd->up)
		return;
	if (membership_create(&options, &memberd->core) != TR_OK)
		abort();
	memberd->up = true;
	memberd->conn_floor = memberd->next_conn;
	memberd->tick_ms = 0;
	memberd_restore(sim);
	sim_trace(sim, "memberd starts with %zu entries%s", memberd->log_count,
	    memberd->snapshot ? " and a snapshot" : "");
	while (memberd->applied < memberd->log_count)
		memberd_apply_entry(sim, &memberd->log[memberd->applied], 0);
	memberd_step(sim, &(struct membership_event){ .kind = MEMBERSHIP_LEADING });
}

void memberd_crash(struct sim *sim)
{
	struct sim_memberd *memberd = &sim->memberd;

	if (!memberd->up)
		return;
	/* Of what was not acknowledged, some is on the disk. */
	size_t keep = memberd->applied + sim_draw(sim, memberd->log_count - memberd->applied + 1);
	sim_trace(sim, "memberd dies; of %zu entries %zu are on its disk", memberd->log_count, keep);
	while (memberd->log_count > keep)
		free(memberd->log[--memberd->log_count].data);
	size_t kept = memberd->applied;
	for (size_t i = memberd->applied; i < memberd->log_count; i++)
		if (memberd->log[i].refused)
			free(memberd->log[i].data);
		else
			memberd->log[kept++] = memberd->log[i];
	memberd->log_count = kept;
	membership_destroy(memberd->core);
	memberd->core = NULL;
	memberd->up = false;
	memberd->stamp++;
	memberd->stalled_until_us = 0;
	for (unsigned i = 0; i < sim->node_count; i++)
		if (sim->nodes[i].conn != 0)
			sim_at(sim, sim->now_us + sim_between(sim, 0, 50 * MS), SIM_CONN_LOST, i, 0,
			    sim->nodes[i].conn);
	sim_at(sim, sim->now_us + sim_between(sim, 10 * MS, 5 * SECOND), SIM_MEMBER_START, 0, 0, 0);
}

uint64_t memberd_accept(struct sim *sim, unsigned node)
{
	(void)node;
	return sim->memberd.up ? ++sim->memberd.next_conn : 0;
}

void memberd_closed(struct sim *sim, unsigned node, uint64_t conn)
{
	(void)node;
	if (sim->memberd.up && conn > sim->memberd.conn_floor)
		memberd_step(sim,
		    &(struct membership_event){ .kind = MEMBERSHIP_CLOSED,
		        .conn = conn,
		        .reason = "reset by peer" });
}

void memberd_finish(struct sim *sim)
{
	struct sim_memberd *memberd = &sim->memberd;
	struct sim_packet *packet;

	membership_destroy(memberd->core);
	for (size_t i = 0; i < memberd->log_count; i++)
		free(memberd->log[i].data);
	free(memberd->log);
	free(memberd->snapshot);
	while ((packet = packet_take(&memberd->to_member_head, &memberd->to_member_tail)))
		free(packet);
	for (unsigned i = 0; i < SIM_NODES_MAX; i++)
		while ((packet = packet_take(&memberd->to_node_head[i], &memberd->to_node_tail[i])))
			free(packet);
}
