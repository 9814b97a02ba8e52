/* Segments that come: sums of children, results from above. And how both are sent. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collectives/core/bits.h"
#include "collectives/core/member.h"
#include "collectives/kernels/reduce.h"

void path_live_set(const struct group_core *core, uint8_t *set)
{
	memset(set, 0, ROUTE_SET_BYTES);
	for (unsigned i = 0; i < core->roster.n; i++)
		if (core->roster.live[i])
			bits_set(set, core->roster.bit[i]);
}

void path_send(struct group_core *core, const struct op *op, uint32_t segment, unsigned to,
    const struct path_frame *frame)
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
		.kind = (uint8_t)frame->kind,
		.encoding = (uint8_t)frame->encoding,
		.elements = op_elements(op, segment),
		.bytes = (uint32_t)frame->bytes,
	};
	memcpy(action->header.contributors, frame->set, bits_bytes(core->roster.contributor_count));
	action->payload = frame->payload;
	action->payload_bytes = frame->bytes;
	action->buffer = frame->buffer;
	if (frame->buffer)
		frame->buffer->references++;
}

void path_send_result(struct group_core *core, const struct op *op, uint32_t segment, unsigned to)
{
	path_send(core, op, segment, to,
	    &(struct path_frame){ .kind = SEGMENT_SEALED,
	        .set = op_set(op, segment),
	        .payload = op->data + op_offset(op, segment),
	        .bytes = op_elements(op, segment) * op->element_bytes });
}

static void path_pass_on(struct group_core *core, struct op *op, uint32_t segment,
    const struct route *route)
{
	for (unsigned i = 0; i < route->down_count; i++)
		path_send_result(core, op, segment, route->down_to[i]);
}

void path_sealed_here(struct group_core *core, struct op *op, uint32_t segment,
    const struct route *route, const uint8_t *set)
{
	op_seal(op, &core->pool, segment, set);
	path_pass_on(core, op, segment, route);
}

/* A sum of f16 or bf16 travels as f32 once it is one of several. */
static bool path_encoding_expected(const struct op *op, const struct segment_header *header)
{
	bool wide = header->kind == SEGMENT_PARTIAL && reduce_is_wide(op->dtype) &&
	    bits_count(header->contributors, sizeof(header->contributors)) > 1;

	return header->encoding == (wide ? SEGMENT_WIDE : SEGMENT_PLAIN) &&
	    header->bytes == header->elements * (wide ? sizeof(float) : op->element_bytes);
}

static tr_status path_partial(struct group_core *core, struct op *op, unsigned from,
    const struct group_event *event, struct tr_error *error)
{
	const struct roster *roster = &core->roster;
	const struct segment_header *header = event->segment.header;
	struct op_segment *segment = &op->segment[header->segment];
	struct route_of of = { roster, op->algorithm, op->tag, header->segment };
	uint8_t expected[ROUTE_SET_BYTES];
	struct route route;

	if (segment->sealed || segment->passed || segment->server != ROSTER_NONE ||
	    roster->live_count == 0)
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " sent a sum nobody waits for", roster->peers[from]);
	route_find(&of, roster->me, &route);
	if (!bits_get(route.children, from))
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " sent a sum that is not to come here from it",
		    roster->peers[from]);
	route_set(&of, from, expected);
	if (memcmp(expected, header->contributors, sizeof(expected)) != 0)
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " sent a sum of other contributors", roster->peers[from]);
	struct path_payload payload = {
		.data = event->segment.payload ? event->segment.payload : "",
		.stable = event->segment.stable,
		.wide = header->encoding == SEGMENT_WIDE,
	};
	return fold_add(core, op, header->segment, &route, from, &payload, error);
}

static bool path_set_valid(const struct group_core *core, const uint8_t *set)
{
	unsigned bits = core->roster.contributor_count;

	for (unsigned bit = bits; bit < TR_GROUP_PEERS_MAX; bit++)
		if (bits_get(set, bit))
			return false;
	return bits_count(set, bits_bytes(bits)) > 0;
}

static tr_status path_result(struct group_core *core, struct op *op, unsigned from,
    const struct group_event *event, struct tr_error *error)
{
	const struct roster *roster = &core->roster;
	const struct segment_header *header = event->segment.header;
	uint32_t s = header->segment, server = op->segment[s].server;
	struct route route = { .down_from = ROSTER_NONE };

	if (server == ROSTER_NONE && roster->live_count > 0)
		route_find(&(struct route_of){ roster, op->algorithm, op->tag, s }, roster->me,
		    &route);
	if (op->segment[s].sealed || from != (server != ROSTER_NONE ? server : route.down_from))
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " sent a result nobody waits for", roster->peers[from]);
	if (!path_set_valid(core, header->contributors))
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " sent a result of unknown contributors", roster->peers[from]);
	if (header->bytes > 0)
		memcpy(op->data + op_offset(op, s), event->segment.payload, header->bytes);
	op_seal(op, &core->pool, s, header->contributors);
	path_pass_on(core, op, s, &route);
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

static tr_status path_take(struct group_core *core, struct op *op, unsigned from,
    const struct group_event *event, struct tr_error *error)
{
	const struct segment_header *header = event->segment.header;

	if (path_compare(core, event->from, op, header) != TR_OK)
		return TR_OK;
	if (header->segment >= op->segments ||
	    header->elements != op_elements(op, header->segment) ||
	    !path_encoding_expected(op, header))
		return tr_error_set(error, TR_EPROTO, "peer %" PRIu64 " cuts op %u otherwise",
		    event->from, op->tag);
	tr_status st = header->kind == SEGMENT_PARTIAL ? path_partial(core, op, from, event, error)
	                                               : path_result(core, op, from, event, error);
	if (st == TR_OK)
		window_advance(core, op);
	return st;
}

tr_status path_segment(struct group_core *core, const struct group_event *event,
    struct tr_error *error)
{
	const struct segment_header *header = event->segment.header;
	tr_status st = path_when(core, header);

	if (st == TR_EAGAIN)
		core->parked = true;
	if (st == TR_EPROTO)
		return tr_error_set(error, st,
		    "peer %" PRIu64 " is in another attempt of round %" PRIu64, event->from,
		    header->round);
	if (st != TR_OK)
		return st;
	unsigned who = roster_find(&core->roster, event->from);
	if (who == ROSTER_NONE || core->roster.me == ROSTER_NONE || who == core->roster.me)
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " does not take part in round %" PRIu64, event->from,
		    header->round);
	struct op *op = round_op(core, header->tag);
	if (!op && core->state == ROUND_CLOSED) {
		char what[96];
		(void)snprintf(what, sizeof(what), "op %u is unknown to peer %" PRIu64, header->tag,
		    core->peer);
		return path_mismatch(core, event->from, what);
	}
	if (!op) {
		core->parked = true;
		return TR_EAGAIN;
	}
	return path_take(core, op, who, event, error);
}
