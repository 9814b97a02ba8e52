/* Links between engines: FIFO, each with its own delays; they break, and what was under way is lost. Payloads are borrowed
 * from the sender until they leave it, as in the real engine; whether they kept their bits is checked on delivery.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/member.h"
#include "tests/sim/place.h"
#include "tests/sim/sim.h"

#define STREAM_TRANSPORT 3
#define STREAM_HALVES    7

static struct tr_digest digest_of(const void *data, size_t bytes)
{
	return tr_digest_of(bytes > 0 ? data : "", bytes);
}

static void message_release(struct sim *sim, unsigned from, struct sim_message *message)
{
	if (message->buffer)
		node_release(sim, from, message->buffer);
	if (message->place)
		group_buffer_release(sim->nodes[message->to].core, message->place);
	if (message->copied)
		free((void *)message->payload);
	if (message->submitted)
		traind__peer__submitted__free_unpacked(message->submitted, NULL);
	free(message);
}

/* The bytes leave the sender. */
static void message_copy(struct sim *sim, unsigned from, struct sim_message *message)
{
	if (message->copied || message->kind != SIM_SEGMENT)
		return;
	if (!tr_digest_equal(digest_of(message->payload, message->payload_bytes), message->sent))
		sim_violation(sim, "borrowed memory of node %u changed before it was sent", from);
	void *copy = malloc(message->payload_bytes + 1);
	if (!copy)
		abort();
	if (message->payload_bytes > 0)
		memcpy(copy, message->payload, message->payload_bytes);
	message->payload = copy;
	message->copied = true;
	if (message->buffer)
		node_release(sim, from, message->buffer);
	message->buffer = NULL;
}

/* A sender may be so far ahead, and no further. What is left of a view that it has left does not count. */
static void net_check_ahead(struct sim *sim, unsigned to, unsigned from)
{
	uint64_t view = 0;
	size_t bytes = 0, largest = 0;

	for (const struct sim_message *m = sim->nodes[to].held; m; m = m->next)
		view = m->from == from && m->header.view > view ? m->header.view : view;
	for (const struct sim_message *m = sim->nodes[to].held; m; m = m->next) {
		size_t frame = SEGMENT_HEADER_BYTES + m->payload_bytes;
		if (m->from != from || m->header.view != view)
			continue;
		bytes += frame;
		largest = frame > largest ? frame : largest;
	}
	if (sim->ahead_bytes > 0 && bytes >= sim->ahead_bytes + largest)
		sim_violation(sim, "I10: n%u is %zu bytes ahead of n%u", from, bytes, to);
}

/* As an engine does (held.c): what its core cannot take yet does not hold up what is behind it. */
static void net_hold(struct sim *sim, unsigned to, struct sim_message *message)
{
	struct sim_message **at = &sim->nodes[to].held;

	while (*at)
		at = &(*at)->next;
	message->next = NULL;
	*at = message;
	net_check_ahead(sim, to, message->from);
}

static void net_drop_held(struct sim *sim, unsigned to)
{
	struct sim_message *message = sim->nodes[to].held;

	sim->nodes[to].held = NULL;
	while (message) {
		struct sim_message *next = message->next;
		message_release(sim, message->from, message);
		message = next;
	}
}

static void net_queue(struct sim *sim, unsigned from, unsigned to, struct sim_message *message)
{
	struct sim_link *link = &sim->links[from][to];

	message->from = from;
	link->used = true;
	if (link->dead || !sim->nodes[to].started) {
		message_release(sim, from, message);
		return;
	}
	uint64_t due = sim->now_us + sim_between(sim, 20, sim->delay_us);
	if (due <= link->last_due_us)
		due = link->last_due_us + 1;
	link->last_due_us = message->due_us = due;
	if (link->tail)
		link->tail->next = message;
	else
		link->head = message;
	link->tail = message;
	sim_at(sim, due, SIM_LINK, from, to, link->stamp);
}

void net_send(struct sim *sim, unsigned from, struct group_action *action,
    enum sim_message_kind kind)
{
	unsigned to = node_of_peer(sim, action->to);
	struct sim_message *message = calloc(1, sizeof(*message));

	if (!message)
		abort();
	message->kind = kind;
	message->header = action->header;
	message->payload = action->payload;
	message->payload_bytes = action->payload_bytes;
	message->origin = action->payload;
	message->buffer = action->buffer;
	message->vote = action->vote;
	message->commit = action->commit;
	for (size_t i = 0; kind == SIM_COMMIT && i < action->commit.n_bandwidth_bytes_per_s; i++)
		message->bandwidth[i] = action->commit.bandwidth_bytes_per_s[i];
	message->submitted = action->submitted;
	action->submitted = NULL;
	message->round = action->round;
	(void)snprintf(message->reason, sizeof(message->reason), "%s", action->text);
	if (kind == SIM_SEGMENT)
		message->sent = digest_of(message->payload, message->payload_bytes);
	if (to == SIM_NODES_MAX)
		message_release(sim, from, message);
	else
		net_queue(sim, from, to, message);
}

void net_send_plain(struct sim *sim, unsigned from, unsigned to, struct sim_message *message)
{
	net_queue(sim, from, to, message);
}

void net_unmap(struct sim *sim, unsigned number)
{
	struct sim_node *node = &sim->nodes[number];

	while (node->stable) {
		struct sim_stable *next = node->stable->next;
		memset(node->stable->data, 0x5a, node->stable->bytes);
		free(node->stable);
		node->stable = next;
	}
}

/* As transports do: lent for the step, in a buffer of the receiver's, or in memory that it maps. */
static tr_status net_deliver_segment(struct sim *sim, unsigned to, struct sim_message *message,
    struct group_event *event)
{
	struct group_core *core = sim->nodes[to].core;
	size_t bytes = message->payload_bytes;
	uint64_t how = rng_below(sim->key, STREAM_TRANSPORT, sim->deliveries, 3);
	struct sim_stable *stable = NULL;
	event->kind = GROUP_SEGMENT;
	event->segment.header = &message->header;
	event->segment.counted = &message->counted;
	event->segment.payload = message->payload;
	if (message->place || (how == 1 && core)) {
		event->segment.buffer = message->place;
		if (!message->place)
			event->segment.buffer = group_buffer_take(core, event->from,
			    &message->header);
		if (!event->segment.buffer)
			abort();
		size_t half = message->place ? bytes / 2 : 0;
		char *data = *group_buffer_at(event->segment.buffer);
		if (message->place && sim->plant == PLANT_LANDING)
			data = message->first;
		message->place = NULL;
		if (data != *group_buffer_at(event->segment.buffer)) {
			sim_violation(sim,
			    "I2: a frame lands at n%u in memory that its caller has back", to);
			data = *group_buffer_at(event->segment.buffer);
		}
		place_write(event->segment.buffer, data, message->payload, half, bytes);
		event->segment.payload = data;
	} else if (how == 2) {
		stable = malloc(sizeof(*stable) + bytes);
		if (!stable)
			abort();
		stable->bytes = bytes;
		stable->from = message->from;
		stable->origin = message->buffer ? NULL : message->origin;
		memcpy(stable->data, message->payload, bytes);
		stable->next = sim->nodes[to].stable;
		sim->nodes[to].stable = stable;
		event->segment.payload = stable->data;
		event->segment.stable = true;
	}
	tr_status st = node_step(sim, to, event);
	if (st == TR_EAGAIN && event->segment.buffer)
		group_buffer_release(core, event->segment.buffer);
	return st;
}

static tr_status net_deliver(struct sim *sim, unsigned from, unsigned to,
    struct sim_message *message)
{
	struct group_event event = { .from = sim->nodes[from].peer, .round = message->round };

	switch (message->kind) {
	case SIM_SEGMENT:
		message_copy(sim, from, message);
		plant_message(sim, to, message);
		if (message->header.kind == SEGMENT_PARTIAL)
			gather_came(&sim->nodes[to].gather, &message->header);
		return net_deliver_segment(sim, to, message, &event);
	case SIM_VOTE:
		event.kind = GROUP_VOTE;
		event.vote = &message->vote;
		break;
	case SIM_COMMIT:
		event.kind = GROUP_COMMIT;
		message->commit.reason = message->reason;
		message->commit.bandwidth_bytes_per_s = message->bandwidth;
		event.commit = &message->commit;
		break;
	case SIM_SUBMITTED:
		event.kind = GROUP_SUBMITTED;
		event.submitted = message->submitted;
		break;
	case SIM_STATE_ASK:
		event.kind = GROUP_STATE_ASKED;
		event.wish = pieces_asked(sim, to, message);
		break;
	}
	return node_step(sim, to, &event);
}

static const char *const message_names[] = { "segment", "vote", "commit", "submitted",
	"state request" };

static void net_trace(struct sim *sim, unsigned from, unsigned to, const struct sim_message *m,
    tr_status st)
{
	static const char *const kinds[] = { "", "sum", "result", "question", "answer" };

	if (m->kind == SIM_SEGMENT)
		sim_trace(sim, "n%u>n%u %s v%lu r%lu.%lu op %u.%u set %02x%02x %s", from, to,
		    kinds[m->header.kind], /* it was sent by a core */
		    (unsigned long)m->header.view, (unsigned long)m->header.round,
		    (unsigned long)m->header.attempt, m->header.tag, m->header.segment,
		    m->header.contributors[1], m->header.contributors[0],
		    st == TR_OK ? "" : tr_status_name(st));
	else
		sim_trace(sim, "n%u>n%u %s r%lu %s", from, to, message_names[m->kind],
		    (unsigned long)m->round, st == TR_OK ? "" : tr_status_name(st));
}

/* The head of this frame and half of its body are here. What is wrong with the head is found when it is whole. */
static bool net_half(struct sim *sim, unsigned from, unsigned to, struct sim_message *message)
{
	struct sim_node *node = &sim->nodes[to];

	if (!sim->halves || message->kind != SIM_SEGMENT || message->looked || !node->core)
		return false;
	message->looked = true;
	if (rng_below(sim->key, STREAM_HALVES, sim->looks++, 3) != 0)
		return false;
	message_copy(sim, from, message);
	message->to = to;
	message->place = group_buffer_take(node->core, sim->nodes[from].peer, &message->header);
	if (!message->place)
		abort();
	message->first = *group_buffer_at(message->place);
	place_write(message->place, message->first, message->payload, 0, message->payload_bytes / 2);
	uint64_t most_us = sim->delay_us * (sim->looks % 4 == 0 ? 20 : 1);
	message->due_us = sim->now_us + rng_below(sim->key, STREAM_HALVES, sim->looks, most_us);
	return true;
}

/* Delivers what is due. */
void net_pump(struct sim *sim, unsigned from, unsigned to, uint64_t stamp)
{
	struct sim_link *link = &sim->links[from][to];

	if (link->stamp != stamp || link->parked)
		return;
	if (link->hold_until_us > sim->now_us) {
		sim_at(sim, link->hold_until_us, SIM_LINK, from, to, stamp);
		return;
	}
	struct sim_message *message = link->head;
	if (!message || message->due_us > sim->now_us)
		return;
	if (message->kind == SIM_VOTE && fault_stalls(sim, to)) {
		sim_at(sim, sim->nodes[to].paused_until_us, SIM_LINK, from, to, stamp);
		return;
	}
	if (net_half(sim, from, to, message)) {
		sim_at(sim, message->due_us, SIM_LINK, from, to, stamp);
		return;
	}
	link->head = message->next;
	if (!link->head)
		link->tail = NULL;
	if (!plant_forgets(sim, message)) {
		tr_status st = net_deliver(sim, from, to, message);
		net_trace(sim, from, to, message, st);
		if (st == TR_EAGAIN && sim->waits) {
			net_hold(sim, to, message);
			message = NULL;
		} else if (st == TR_EAGAIN && link->stamp == stamp) {
			message->next = link->head;
			link->head = message;
			if (!link->tail)
				link->tail = message;
			link->parked = true;
			return;
		}
		if (st == TR_EPROTO)
			sim_violation(sim, "n%u refuses what n%u sent: see --trace", to, from);
	}
	if (message)
		message_release(sim, from, message);
	if (link->stamp != stamp)
		return; /* the step cut this very link */
	if (link->head)
		sim_at(sim, link->head->due_us, SIM_LINK, from, to, stamp);
	sim->deliveries++;
	fault_delivery(sim);
}

void net_came(struct sim *sim, unsigned from, unsigned to, const struct segment_header *header,
    const void *payload, size_t bytes)
{
	struct sim_message *message = calloc(1, sizeof(*message));
	char *copy = malloc(bytes + 1);

	if (!message || !copy)
		abort();
	if (bytes > 0)
		memcpy(copy, payload, bytes);
	*message = (struct sim_message){ .from = from,
		.kind = SIM_SEGMENT,
		.header = *header,
		.payload = copy,
		.payload_bytes = bytes,
		.copied = true,
		.round = header->round };
	tr_status st = net_deliver(sim, from, to, message);
	net_trace(sim, from, to, message, st);
	if (st == TR_EPROTO)
		sim_violation(sim, "n%u refuses what n%u shows: see --trace", to, from);
	if (st == TR_EAGAIN && sim->nodes[to].alive)
		net_hold(sim, to, message);
	else
		message_release(sim, from, message);
}

void net_offer_held(struct sim *sim, unsigned to)
{
	struct sim_message *message = sim->nodes[to].held;
	bool all = sim->nodes[to].retry_all;

	sim->nodes[to].held = NULL;
	sim->nodes[to].retry_all = false;
	while (message) {
		struct sim_message *next = message->next;
		unsigned from = message->from;
		if (!sim->nodes[to].alive) { /* it died of one before */
			message_release(sim, from, message);
			message = next;
			continue;
		}
		if (!all && !message->due) {
			net_hold(sim, to, message);
			message = next;
			continue;
		}
		tr_status st = net_deliver(sim, from, to, message);
		message->due = false;
		net_trace(sim, from, to, message, st);
		if (st == TR_EPROTO)
			sim_violation(sim, "n%u refuses what n%u sent: see --trace", to, from);
		if (st == TR_EAGAIN)
			net_hold(sim, to, message);
		else
			message_release(sim, from, message);
		message = next;
	}
}

void net_retry(struct sim *sim, unsigned to, const struct group_action *retry)
{
	if (!retry->one_op)
		sim->nodes[to].retry_all = true;
	for (struct sim_message *m = sim->nodes[to].held; retry->one_op && m; m = m->next)
		m->due |= m->header.tag == retry->tag && m->header.round == retry->round;
	if (sim->nodes[to].held)
		sim_at(sim, sim->now_us, SIM_HELD, to, 0, 0);
	for (unsigned from = 0; from < sim->node_count; from++) {
		struct sim_link *link = &sim->links[from][to];
		if (!link->parked)
			continue;
		link->parked = false;
		sim_at(sim, sim->now_us, SIM_LINK, from, to, link->stamp);
	}
}

static void net_clear(struct sim *sim, unsigned from, unsigned to, bool keep_left)
{
	struct sim_link *link = &sim->links[from][to];
	struct sim_message **at = &link->head;

	/* What has left the sender still arrives, some of it. */
	while (keep_left && *at && sim_chance(sim, 70)) {
		message_copy(sim, from, *at);
		at = &(*at)->next;
	}
	struct sim_message *message = *at;
	*at = NULL;
	link->tail = link->head;
	while (link->tail && link->tail->next)
		link->tail = link->tail->next;
	while (message) {
		struct sim_message *next = message->next;
		message_release(sim, from, message);
		message = next;
	}
	if (keep_left && link->head)
		return;
	link->parked = false;
	link->stamp++;
}

/* The view froze: segments that have not left are forgotten; those that have keep their order. */
void net_drop_sends(struct sim *sim, unsigned from)
{
	for (unsigned to = 0; to < sim->node_count; to++) {
		struct sim_link *link = &sim->links[from][to];
		bool left = true;
		struct sim_message **at = &link->head;
		link->tail = NULL;
		while (*at) {
			struct sim_message *message = *at;
			if (left && message->kind == SIM_SEGMENT && sim_chance(sim, 50))
				message_copy(sim, from, message);
			if (message->kind == SIM_SEGMENT && !message->copied) {
				left = false;
				*at = message->next;
				message_release(sim, from, message);
				continue;
			}
			link->tail = message;
			at = &message->next;
		}
		if (link->parked && !link->head)
			link->parked = false;
		if (link->head)
			sim_at(sim, link->head->due_us, SIM_LINK, from, to, link->stamp);
	}
}

/* A reset: what was under way is lost; both ends hear of it, each in its own time. */
void net_break(struct sim *sim, unsigned from, unsigned to)
{
	struct sim_link *link = &sim->links[from][to];

	if (!link->used || link->dead)
		return;
	sim_trace(sim, "link n%u>n%u breaks", from, to);
	net_clear(sim, from, to, false);
	conn_break_way(sim, from, to);
	link->dead = true;
	link->hold_until_us = 0;
	sim_at(sim, sim->now_us + sim_between(sim, 0, 50 * MS), SIM_LINK_SEEN, from, to, 0);
	sim_at(sim, sim->now_us + sim_between(sim, 0, 50 * MS), SIM_LINK_SEEN, to, from, 0);
}

void net_silent(struct sim *sim, unsigned from, unsigned to)
{
	struct sim_link *link = &sim->links[from][to];
	uint64_t open_us = link->hold_until_us > sim->now_us ? link->hold_until_us : sim->now_us;

	sim_trace(sim, "link n%u>n%u is silent", from, to);
	net_clear(sim, from, to, false);
	link->dead = true;
	link->ear = (struct pulse_ear){ 0 };
	if (sim->nodes[from].alive)
		sim_at(sim, open_us + sim_between(sim, 0, 50 * MS), SIM_LINK_SEEN, from, to, 0);
	sim->nodes[to].arriving[from] = false;
}

void net_node_died(struct sim *sim, unsigned dead, bool silently)
{
	net_drop_held(sim, dead);
	for (unsigned other = 0; other < sim->node_count; other++) {
		struct sim_link *out = &sim->links[dead][other], *in = &sim->links[other][dead];
		if (other == dead)
			continue;
		net_clear(sim, dead, other, true);
		net_clear(sim, other, dead, false);
		bool seen = out->used || in->used;
		in->dead = true;
		if (seen && !silently && sim->nodes[other].alive)
			sim_at(sim, sim->now_us + sim_between(sim, 0, 100 * MS), SIM_LINK_SEEN,
			    other, dead, 0);
	}
}

static void net_check_landings(struct sim *sim, unsigned number, const char *start, size_t bytes)
{
	for (unsigned from = 0; from < sim->node_count; from++) {
		const struct sim_message *m = sim->links[from][number].head;
		const char *at = m && m->place ? *group_buffer_at(m->place) : NULL;
		if (at && at >= start && at < start + bytes)
			sim_violation(sim,
			    "n%u gets memory back into which a frame of n%u is still received",
			    number, from);
	}
}

/* Whoever receives the frame is in a later view, has taken its op's memory back, or has committed the round; or gives once more what it has of a block whose owner has. It is sent after a view
 * change, whose reports do not speak of what was taken back.
 */
static bool net_is_needless(const struct sim *sim, unsigned to, const struct sim_message *m)
{
	const struct sim_node *node = &sim->nodes[to];

	if (!sim->releases)
		return false;
	return !node->alive || !node->core || node->core->view.number > m->header.view ||
	    node->core->round > m->header.round ||
	    m->header.signature.collective == TR_REDUCE_SCATTER ||
	    release_has(&node->core->released, m->header.tag);
}

/* The caller writes to its memory before it is sent. */
static void net_garble(struct sim_message *message)
{
	void *garbage = malloc(message->payload_bytes);

	if (!garbage)
		abort();
	memset(garbage, 0xa5, message->payload_bytes);
	message->payload = garbage;
	message->copied = true;
}

/* Memory goes back to the caller: nothing that anybody needs may still be sent from it, and nothing received into it. */
void net_check_returned(struct sim *sim, unsigned from, const void *memory, size_t bytes)
{
	const char *start = memory;

	net_check_landings(sim, from, start, bytes);
	for (unsigned to = 0; to < sim->node_count; to++)
		for (struct sim_message *m = sim->links[from][to].head; m; m = m->next) {
			const char *payload = m->payload;
			if (m->kind != SIM_SEGMENT || m->copied || m->buffer || payload < start ||
			    payload >= start + bytes || m->payload_bytes == 0)
				continue;
			if (net_is_needless(sim, to, m))
				net_garble(m);
			else
				sim_violation(sim,
				    "n%u gets memory back from which n%u is still sent to", from,
				    to);
		}
}

void net_unread(struct sim *sim, unsigned from, const void *memory, size_t bytes)
{
	const char *start = memory;

	for (unsigned to = 0; to < sim->node_count; to++)
		for (struct sim_stable *s = sim->nodes[to].stable; s; s = s->next) {
			const char *origin = s->origin;
			if (s->from == from && origin && origin >= start && origin < start + bytes)
				memset(s->data, 0x5a, s->bytes);
		}
}

void net_finish(struct sim *sim)
{
	for (unsigned to = 0; to < SIM_NODES_MAX; to++)
		net_drop_held(sim, to);
	for (unsigned from = 0; from < SIM_NODES_MAX; from++)
		for (unsigned to = 0; to < SIM_NODES_MAX; to++)
			if (sim->links[from][to].head)
				net_clear(sim, from, to, false);
}
