/* Segments on their way: along the ring or to and from the star's hub. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collectives/core/bits.h"
#include "collectives/core/member.h"
#include "collectives/core/ring.h"
#include "collectives/core/select.h"
#include "collectives/kernels/reduce.h"

void path_live_set(const struct group_core *core, uint8_t *set)
{
	memset(set, 0, TR_GROUP_PEERS_MAX / 8);
	for (unsigned i = 0; i < core->roster.n; i++)
		if (core->roster.live[i])
			bits_set(set, core->roster.bit[i]);
}

void path_send(struct group_core *core, struct op *op, uint32_t segment, enum segment_kind kind,
    unsigned to, const uint8_t *set, const void *payload, struct group_buffer *buffer)
{
	emit_connect(core, core->roster.peers[to]);
	struct group_action *action = emit(core, GROUP_DO_SEND_SEGMENT);
	action->to = core->roster.peers[to];
	action->round = core->roster.round;
	action->tag = op->tag;
	action->header = (struct segment_header){
		.view = core->view.number,
		.round = core->roster.round,
		.attempt = core->roster.attempt,
		.tag = op->tag,
		.segment = segment,
		.signature = op->signature,
		.kind = (uint8_t)kind,
		.elements = op_elements(op, segment),
		.bytes = (uint32_t)(op_elements(op, segment) * op->element_bytes),
	};
	memcpy(action->header.contributors, set, bits_bytes(core->roster.contributor_count));
	action->payload = payload;
	action->payload_bytes = op_elements(op, segment) * op->element_bytes;
	action->buffer = buffer;
}

static void path_send_result(struct group_core *core, struct op *op, uint32_t segment, unsigned to)
{
	path_send(core, op, segment, SEGMENT_SEALED, to, op_set(op, segment),
	    op->data + op_offset(op, segment), NULL);
}

/* The sum of all live contributors is in op->data. */
void path_sealed_here(struct group_core *core, struct op *op, uint32_t segment, const uint8_t *set)
{
	const struct roster *roster = &core->roster;

	if (op->reduce == TR_AVG)
		reduce_divide(op->dtype, op->data + op_offset(op, segment),
		    op_elements(op, segment), roster->live_count);
	op_seal(op, &core->pool, segment, set);
	if (op->algorithm == TR_RING) {
		if (roster->n > 1)
			path_send_result(core, op, segment,
			    roster->order[ring_next(roster->place[roster->me], roster->n)]);
		return;
	}
	for (unsigned i = 0; i < roster->n; i++)
		if (i != roster->me)
			path_send_result(core, op, segment, i);
}

static void path_seal_alone(struct group_core *core, struct op *op, uint32_t segment)
{
	uint8_t set[TR_GROUP_PEERS_MAX / 8];
	size_t bytes = op_elements(op, segment) * op->element_bytes;

	path_live_set(core, set);
	const uint8_t *input = op_input(op, segment);
	if (input != op->data + op_offset(op, segment) && bytes > 0)
		memcpy(op->data + op_offset(op, segment), input, bytes);
	path_sealed_here(core, op, segment, set);
}

static void path_send_input(struct group_core *core, struct op *op, uint32_t segment, unsigned to)
{
	uint8_t set[TR_GROUP_PEERS_MAX / 8] = { 0 };

	bits_set(set, core->roster.bit[core->roster.me]);
	op->segment[segment].passed = true;
	path_send(core, op, segment, SEGMENT_PARTIAL, to, set, op_input(op, segment), NULL);
}

static void path_begin_segment(struct group_core *core, struct op *op, uint32_t segment)
{
	const struct roster *roster = &core->roster;

	if (roster->n == 1) {
		path_seal_alone(core, op, segment);
	} else if (op->algorithm == TR_RING) {
		unsigned start = ring_start(core->view.deterministic ? 0 : segment, roster->n,
		    roster->live_at);
		if (roster->order[start] == roster->me)
			path_send_input(core, op, segment,
			    roster->order[ring_next(start, roster->n)]);
	} else if (roster->me == roster->hub) {
		fold_begin(core, op, segment);
	} else if (roster->live[roster->me]) {
		path_send_input(core, op, segment, roster->hub);
	}
}

void path_begin(struct group_core *core, struct op *op)
{
	const struct roster *roster = &core->roster;

	op->algorithm = select_algorithm(
	    &(struct select_input){
	        .wanted = (enum tr_algorithm)core->view.algorithm,
	        .latency_s = core->view.latency_s,
	        .bandwidth_bytes_per_s = core->view.bandwidth_bytes_per_s,
	        .bytes = op->signature.count * op->element_bytes,
	        .peers = roster->n,
	        .deterministic = core->view.deterministic,
	    },
	    NULL, 0);
	for (uint32_t s = 0; s < op->segments && core->state != ROUND_FAILED; s++) {
		if (op->segment[s].sealed || op->segment[s].server != ROSTER_NONE)
			continue;
		if (roster->live_count == 0) {
			emit_fail(core, TR_EPEERLOST,
			    "no contributor of round %" PRIu64 " is left in view %" PRIu64,
			    roster->round, core->view.number);
			return;
		}
		path_begin_segment(core, op, s);
	}
}

/* Who is in a sum that reaches ring distance `distance`: nobody twice, nobody left out. */
static void path_prefix_set(const struct roster *roster, unsigned start, unsigned distance,
    uint8_t set[TR_GROUP_PEERS_MAX / 8])
{
	memset(set, 0, TR_GROUP_PEERS_MAX / 8);
	for (unsigned d = 0, place = start; d < distance; d++, place = ring_next(place, roster->n))
		if (roster->live_at[place])
			bits_set(set, roster->bit[roster->order[place]]);
}

/* Our part of a ring sum: add (or not), then pass it on or seal it. */
static tr_status path_add(struct group_core *core, struct op *op, uint32_t segment,
    const uint8_t *before, const void *payload, bool last)
{
	const struct roster *roster = &core->roster;
	size_t bytes = op_elements(op, segment) * op->element_bytes;
	struct group_buffer *buffer = last ? NULL : buffer_get(&core->pool, bytes);
	uint8_t set[TR_GROUP_PEERS_MAX / 8];

	if (!last && !buffer)
		return TR_ENOMEM;
	uint8_t *out = last ? op->data + op_offset(op, segment) : buffer->data;
	memcpy(set, before, sizeof(set));
	if (roster->live[roster->me]) {
		reduce_combine(op->dtype, op->reduce, out, payload, op_input(op, segment),
		    op_elements(op, segment));
		bits_set(set, roster->bit[roster->me]);
	} else if (bytes > 0) {
		memcpy(out, payload, bytes);
	}
	op->segment[segment].passed = true;
	if (last)
		path_sealed_here(core, op, segment, set);
	else
		path_send(core, op, segment, SEGMENT_PARTIAL,
		    roster->order[ring_next(roster->place[roster->me], roster->n)], set, out,
		    buffer);
	return TR_OK;
}

static tr_status path_partial(struct group_core *core, struct op *op, unsigned from,
    const struct segment_header *header, const void *payload, struct tr_error *error)
{
	const struct roster *roster = &core->roster;
	struct op_segment *segment = &op->segment[header->segment];
	uint8_t expected[TR_GROUP_PEERS_MAX / 8] = { 0 };

	if (segment->sealed || segment->passed || segment->server != ROSTER_NONE ||
	    roster->live_count == 0)
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " sent a sum nobody waits for", roster->peers[from]);
	if (op->algorithm == TR_STAR) {
		if (roster->me != roster->hub || !roster->live[from])
			return tr_error_set(error, TR_EPROTO,
			    "peer %" PRIu64 " sent its data to a peer that is not the hub",
			    roster->peers[from]);
		bits_set(expected, roster->bit[from]);
		if (memcmp(expected, header->contributors, sizeof(expected)) != 0)
			goto wrong_set;
		return fold_add(core, op, header->segment, from, payload, error);
	}
	unsigned n = roster->n, place = roster->place[roster->me];
	unsigned start = ring_start(core->view.deterministic ? 0 : header->segment, n,
	    roster->live_at);
	unsigned distance = ring_distance(place, start, n);
	if (distance == 0 || roster->order[ring_previous(place, n)] != from)
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " sent a sum against the ring's order", roster->peers[from]);
	path_prefix_set(roster, start, distance, expected);
	if (memcmp(expected, header->contributors, sizeof(expected)) != 0)
		goto wrong_set;
	return path_add(core, op, header->segment, expected, payload, distance == n - 1);
wrong_set:
	return tr_error_set(error, TR_EPROTO, "peer %" PRIu64 " sent a sum of other contributors",
	    roster->peers[from]);
}

static bool path_set_valid(const struct group_core *core, const uint8_t *set)
{
	unsigned bits = core->roster.contributor_count;

	for (unsigned bit = bits; bit < TR_GROUP_PEERS_MAX; bit++)
		if (bits_get(set, bit))
			return false;
	return bits_count(set, bits_bytes(bits)) > 0;
}

/* May `from` send us the result of this segment, and do we pass it on? */
static bool path_result_expected(const struct group_core *core, const struct op *op, uint32_t s,
    unsigned from, bool *pass_on)
{
	const struct roster *roster = &core->roster;
	unsigned place = roster->place[roster->me];

	*pass_on = false;
	if (op->segment[s].server != ROSTER_NONE)
		return op->segment[s].server == from;
	if (op->algorithm == TR_STAR)
		return roster->me != roster->hub && from == roster->hub;
	unsigned start = ring_start(core->view.deterministic ? 0 : s, roster->n, roster->live_at);
	unsigned distance = ring_distance(place, start, roster->n);
	*pass_on = ring_passes_result(distance, roster->n);
	return distance != roster->n - 1 && roster->order[ring_previous(place, roster->n)] == from;
}

static tr_status path_result(struct group_core *core, struct op *op, unsigned from,
    const struct segment_header *header, const void *payload, struct tr_error *error)
{
	const struct roster *roster = &core->roster;
	uint32_t s = header->segment;
	bool pass_on;

	if (op->segment[s].sealed || !path_result_expected(core, op, s, from, &pass_on))
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " sent a result nobody waits for", roster->peers[from]);
	if (!path_set_valid(core, header->contributors))
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " sent a result of unknown contributors", roster->peers[from]);
	size_t bytes = op_elements(op, s) * op->element_bytes;
	if (bytes > 0)
		memcpy(op->data + op_offset(op, s), payload, bytes);
	op_seal(op, &core->pool, s, header->contributors);
	if (pass_on)
		path_send_result(core, op, s,
		    roster->order[ring_next(roster->place[roster->me], roster->n)]);
	return TR_OK;
}

static tr_status path_mismatch(struct group_core *core, uint64_t from, const char *what)
{
	char reason[200];

	(void)snprintf(reason, sizeof(reason),
	    "peers %" PRIu64 " and %" PRIu64 " disagree in round %" PRIu64 ": %s", from, core->peer,
	    core->round, what);
	commit_refuse(core, from, TR_EMISMATCH, reason);
	emit_fail(core, TR_EMISMATCH, "%s", reason);
	return TR_OK;
}

static tr_status path_compare(struct group_core *core, uint64_t from, const struct op *op,
    const struct segment_header *header)
{
	const struct op_signature *theirs = &header->signature, *ours = &op->signature;
	char what[160];

	if (theirs->count == ours->count && theirs->dtype == ours->dtype &&
	    theirs->reduce == ours->reduce && theirs->codec == ours->codec &&
	    theirs->collective == ours->collective && theirs->root == ours->root &&
	    theirs->algorithm == ours->algorithm)
		return TR_OK;
	(void)snprintf(what, sizeof(what),
	    "op %u has %" PRIu64 " elements of dtype %u, reduce op %u at peer %" PRIu64
	    " and %" PRIu64 ", %u, %u at peer %" PRIu64,
	    op->tag, theirs->count, theirs->dtype, theirs->reduce, from, ours->count, ours->dtype,
	    ours->reduce, core->peer);
	path_mismatch(core, from, what);
	return TR_EMISMATCH;
}

/* Where in time is this segment: of a past, this, or a coming attempt? */
static tr_status path_when(struct group_core *core, const struct segment_header *header)
{
	if (core->state == ROUND_FAILED || header->view < core->view.number)
		return TR_ESTALE;
	if (header->view > core->view.number)
		return TR_EAGAIN;
	if (core->proposal != 0 || header->round < core->round)
		return TR_ESTALE;
	if (header->round > core->round || !round_active(core))
		return TR_EAGAIN;
	return header->attempt == core->roster.attempt ? TR_OK : TR_EPROTO;
}

tr_status path_segment(struct group_core *core, uint64_t from, const struct segment_header *header,
    const void *payload, struct tr_error *error)
{
	tr_status st = path_when(core, header);

	if (st == TR_EAGAIN)
		core->parked = true;
	if (st != TR_OK)
		return st == TR_EPROTO
		    ? tr_error_set(error, st,
		          "peer %" PRIu64 " is in another attempt of round %" PRIu64, from,
		          header->round)
		    : st;
	unsigned who = roster_find(&core->roster, from);
	if (who == ROSTER_NONE || core->roster.me == ROSTER_NONE || who == core->roster.me)
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " does not take part in round %" PRIu64, from, header->round);
	struct op *op = round_op(core, header->tag);
	if (!op && core->state == ROUND_CLOSED) {
		char what[96];
		(void)snprintf(what, sizeof(what), "op %u is unknown to peer %" PRIu64, header->tag,
		    core->peer);
		return path_mismatch(core, from, what);
	}
	if (!op) {
		core->parked = true;
		return TR_EAGAIN;
	}
	if (path_compare(core, from, op, header) != TR_OK)
		return TR_OK;
	if (header->segment >= op->segments ||
	    header->elements != op_elements(op, header->segment) ||
	    header->encoding != SEGMENT_PLAIN ||
	    header->bytes != header->elements * op->element_bytes)
		return tr_error_set(error, TR_EPROTO, "peer %" PRIu64 " cuts op %u otherwise", from,
		    op->tag);
	return header->kind == SEGMENT_PARTIAL ? path_partial(core, op, who, header, payload, error)
	                                       : path_result(core, op, who, header, payload, error);
}
