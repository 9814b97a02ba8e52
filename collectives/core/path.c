/* Segments that come: sums of children, results from above. And how both are sent. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collectives/core/bits.h"
#include "collectives/core/coded.h"
#include "collectives/core/member.h"
#include "collectives/core/scope.h"
#include "collectives/kernels/copy.h"
#include "collectives/kernels/reduce.h"

/* A vector that is larger than this does not stay in the caches anyway. */
#ifndef PAST_CACHE_BYTES_MIN
#define PAST_CACHE_BYTES_MIN (4u << 20)
#endif

unsigned path_participant(const struct roster *roster, uint32_t contributor)
{
	unsigned who = contributor < roster->contributor_count
	    ? roster_find(roster, roster->contributors[contributor])
	    : ROSTER_NONE;

	return who != ROSTER_NONE && roster->live[who] ? who : ROSTER_NONE;
}

bool path_route_of(const struct op *op, uint32_t segment, struct route_of *of)
{
	*of = (struct route_of){ .roster = op->roster,
		.algorithm = op->algorithm,
		.tag = op->tag,
		.segment = segment,
		.kind = op->kind };
	if (op->kind == OP_REDUCED)
		return op->roster->live_count > 0;
	of->root = path_participant(op->roster, op_contributor(op, segment));
	of->relayed = op->source != ROSTER_NONE;
	if (op->kind == OP_PAIR)
		of->to = path_participant(op->roster, op->signature.root);
	return of->root != ROSTER_NONE && op->roster->live_count > 0;
}

bool path_needs(const struct op *op, uint32_t segment, unsigned who)
{
	return op_needs(op, segment, op->roster->bit[who]);
}

void path_full_set(const struct op *op, uint32_t segment, uint8_t *set)
{
	const struct roster *roster = op->roster;

	memset(set, 0, ROUTE_SET_BYTES);
	if (op->kind == OP_SOURCED || op->kind == OP_PAIR) {
		bits_set(set, op_contributor(op, segment));
		return;
	}
	for (unsigned i = 0; i < roster->n; i++)
		if (roster->live[i])
			bits_set(set, roster->bit[i]);
}

struct group_action *path_emit(struct group_core *core, const struct op *op, uint32_t segment,
    enum group_action_kind kind, unsigned copies, const struct path_frame *frame)
{
	struct op_segment *sent = &op->segment[segment];
	uint8_t given = (uint8_t)(1u << frame->kind);

	if (sent->given_before & given)
		core->counters.resent_bytes += copies * frame->bytes;
	sent->given |= given;
	struct group_action *action = emit(core, kind);
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
	memcpy(action->header.contributors, frame->set, bits_bytes(op->roster->contributor_count));
	action->payload = frame->payload;
	action->payload_bytes = frame->bytes;
	action->buffer = frame->buffer;
	if (frame->buffer)
		frame->buffer->references++;
	return action;
}

void path_send_now(struct group_core *core, const struct op *op, uint32_t segment, unsigned to,
    const struct path_frame *frame)
{
	emit_connect(core, op->roster->peers[to]);
	path_emit(core, op, segment, GROUP_DO_SEND_SEGMENT, 1, frame)->to = op->roster->peers[to];
}

void path_send(struct group_core *core, struct op *op, uint32_t segment, unsigned to,
    const struct path_frame *frame)
{
	if (!ahead_keeps(core, op, segment, to, frame))
		path_send_now(core, op, segment, to, frame);
}

static void path_send_sealed(struct group_core *core, struct op *op, uint32_t segment, unsigned to,
    const struct op_result *result, struct group_buffer *encoded)
{
	bool is_void = op_is_void(op, segment);
	enum segment_encoding form = encoded ? SEGMENT_ENCODED : SEGMENT_PLAIN;
	struct group_buffer *buffer = encoded ? encoded : result->buffer;

	if (buffer)
		outlet_staged(core, op, segment, buffer);
	path_send(core, op, segment, to,
	    &(struct path_frame){ .kind = SEGMENT_SEALED,
	        .encoding = form,
	        .set = op_set(op, segment),
	        .payload = encoded ? encoded->data : result->data,
	        .bytes = is_void ? 0 : op_form_bytes(op, segment, form),
	        .buffer = buffer });
}

tr_status path_send_input(struct group_core *core, struct op *op, uint32_t segment, unsigned to)
{
	struct fold_part own;
	tr_status st = op_own(op, &core->pool, segment, &own);

	if (st != TR_OK)
		return st;
	const struct op_result result = { .data = (uint8_t *)(uintptr_t)own.data,
		.buffer = own.buffer };
	path_send_sealed(core, op, segment, to, &result,
	    own.form == SEGMENT_ENCODED ? own.buffer : NULL);
	buffer_put(&core->pool, own.buffer);
	op_own_drop(op, &core->pool, segment);
	return TR_OK;
}

/* The encoded bytes of a result, or NULL: they would not be decoded to the same ones, or there is no memory. */
static struct group_buffer *path_encode_result(struct group_core *core, const struct op *op,
    uint32_t segment, const void *result)
{
	struct group_buffer *encoded = NULL;

	if (op->codec != TR_CODEC_NONE && !op_is_void(op, segment))
		encoded = buffer_get(&core->pool, op_form_bytes(op, segment, SEGMENT_ENCODED));
	core->served_bytes += encoded ? op_bytes(op, segment) : 0;
	if (!encoded || coded_encode_result(op, result, op_elements(op, segment), encoded->data))
		return encoded;
	buffer_put(&core->pool, encoded);
	return NULL;
}

tr_status path_send_result(struct group_core *core, struct op *op, uint32_t segment, const bool *to)
{
	struct route route;

	route_none(&route);
	for (unsigned i = 0; i < op->roster->n; i++)
		if (to[i])
			route.down_to[route.down_count++] = (uint8_t)i;
	return path_pass_on_again(core, op, segment, &route);
}

tr_status path_pass_on_again(struct group_core *core, struct op *op, uint32_t segment,
    const struct route *route)
{
	struct op_result result;
	tr_status st = op_result_read(op, &core->pool, segment, &result);

	if (st != TR_OK)
		return st;
	struct group_buffer *encoded = path_encode_result(core, op, segment, result.data);
	path_pass_on(core, op, segment, route, &result, encoded);
	buffer_put(&core->pool, encoded);
	buffer_put(&core->pool, result.buffer);
	return TR_OK;
}

void path_pass_on(struct group_core *core, struct op *op, uint32_t segment,
    const struct route *route, const struct op_result *result, struct group_buffer *encoded)
{
	for (unsigned i = 0; i < route->down_count; i++)
		path_send_sealed(core, op, segment, route->down_to[i], result, encoded);
}

/* With a codec all is encoded, but for results that were to be encoded again, as they are served after a view change or passed on late, and would not be decoded to what everybody has. */
static bool path_coded_expected(const struct op *op, const struct segment_header *header)
{
	bool again = op->kind == OP_SOURCED || op->segment[header->segment].server != ROSTER_NONE;

	return header->encoding == SEGMENT_ENCODED ||
	    (header->encoding == SEGMENT_PLAIN && header->kind != SEGMENT_PARTIAL && again);
}

/* A sum of f16 or bf16 travels as f32 once it is one of several. */
static bool path_encoding_expected(const struct op *op, const struct segment_header *header)
{
	enum segment_encoding form = (enum segment_encoding)header->encoding;
	unsigned contributors = bits_count(header->contributors, sizeof(header->contributors));
	bool partial = header->kind == SEGMENT_PARTIAL;

	if (!partial && contributors == 0)
		return form == SEGMENT_PLAIN && header->bytes == 0 && op->kind != OP_REDUCED;
	bool wide = partial && reduce_is_wide(op->dtype) && contributors > 1;
	if (op->codec != TR_CODEC_NONE ? !path_coded_expected(op, header)
	                               : form != (wide ? SEGMENT_WIDE : SEGMENT_PLAIN))
		return false;
	return header->bytes == op_form_bytes(op, header->segment, form);
}

static tr_status path_partial(struct group_core *core, struct op *op, unsigned from,
    const struct group_event *event, struct tr_error *error)
{
	const struct roster *roster = op->roster;
	const struct segment_header *header = event->segment.header;
	struct op_segment *segment = &op->segment[header->segment];
	struct route_of of;
	uint8_t expected[ROUTE_SET_BYTES];
	struct route route;

	if (segment->sealed || segment->passed || segment->server != ROSTER_NONE ||
	    !path_route_of(op, header->segment, &of))
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
		.form = (enum segment_encoding)header->encoding,
	};
	return fold_add(core, op, header->segment, &route, from, &payload, error);
}

/* Of contributors of this attempt; of one source, that one. Nobody: its source is dead (keep). */
static bool path_set_valid(const struct op *op, uint32_t segment, const uint8_t *set)
{
	unsigned bits = op->roster->contributor_count, count = bits_count(set, ROUTE_SET_BYTES);

	if (bits_any_from(set, ROUTE_SET_BYTES, bits))
		return false;
	if (op->kind == OP_REDUCED || op->kind == OP_SCATTERED)
		return count > 0;
	return count == 0 || (count == 1 && bits_get(set, op_contributor(op, segment)));
}

/* Holds the encoded bytes that are passed on. One reference; NULL: out of memory. */
static struct group_buffer *path_hold(struct group_core *core, const struct group_event *event)
{
	struct group_buffer *held = core->incoming;
	size_t bytes = event->segment.header->bytes;

	if (held && held->data == event->segment.payload) {
		core->incoming = NULL;
		return held;
	}
	held = buffer_get(&core->pool, bytes);
	if (held && bytes > 0)
		memcpy(held->data, event->segment.payload, bytes);
	return held;
}

/* Of what was hashed as it came. */
static const struct tr_digest_stream *path_landed_hash(const struct group_core *core,
    const struct segment_header *header)
{
	const struct group_buffer *buffer = core->incoming;

	return buffer && buffer->hash.bytes == header->bytes && header->bytes > 0 ? &buffer->hash
	                                                                          : NULL;
}

static tr_status path_result_take(struct group_core *core, struct op *op,
    const struct group_event *event, const struct route *route)
{
	const struct segment_header *header = event->segment.header;
	uint32_t s = header->segment;
	bool encoded = header->encoding == SEGMENT_ENCODED;
	struct group_buffer *held = NULL;
	struct op_result result;
	tr_status st = op_result_make(op, &core->pool, s, &result);

	if (st != TR_OK)
		return st;
	bool waits = outlet_waits(op, encoded || result.buffer, route);
	/* Before the result is written, in place over our input: without it this segment is not sealed, and may have to be made again. */
	if (encoded && route->down_count > 0 && !waits && !(held = path_hold(core, event))) {
		buffer_put(&core->pool, result.buffer);
		return TR_ENOMEM;
	}
	if (encoded)
		coded_decode(op, result.data, event->segment.payload, header->elements);
	else if (event->segment.payload == result.data)
		result.hash = path_landed_hash(core, header); /* it landed there */
	else if (!result.buffer && op->signature.count * op->element_bytes >= PAST_CACHE_BYTES_MIN) {
		/* A peer's memory that is mapped here is hashed where it lies: the copy is not in the cache. */
		copy_past_cache(result.data, event->segment.payload, header->bytes);
		result.hot = event->segment.payload;
	} else if (header->bytes > 0) {
		memcpy(result.data, event->segment.payload, header->bytes);
	}
	op_seal(op, &core->pool, s, &result, header->contributors);
	if (waits)
		outlet_owe(op, s); /* it is in the caller's memory, and read there again */
	else
		path_pass_on(core, op, s, route, &result, held);
	buffer_put(&core->pool, held);
	buffer_put(&core->pool, result.buffer);
	return TR_OK;
}

/* Participant that sends this segment's result to us. `route`: our place, if it comes along one. */
static unsigned path_result_from(const struct op *op, uint32_t s, struct route *route)
{
	unsigned server = op->segment[s].server;
	struct route_of of;

	route_none(route);
	if (server != ROSTER_NONE)
		return server;
	if (path_route_of(op, s, &of))
		route_find(&of, op->roster->me, route);
	return route->down_from;
}

static tr_status path_result(struct group_core *core, struct op *op, unsigned from,
    const struct group_event *event, struct tr_error *error)
{
	const struct roster *roster = op->roster;
	const struct segment_header *header = event->segment.header;
	uint32_t s = header->segment, server = op->segment[s].server;
	struct route route;

	if (op->segment[s].sealed || from != path_result_from(op, s, &route))
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " sent a result nobody waits for", roster->peers[from]);
	if (!path_set_valid(op, s, header->contributors))
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " sent a result of unknown contributors", roster->peers[from]);
	if (bits_count(header->contributors, ROUTE_SET_BYTES) > 0)
		return path_result_take(core, op, event, &route);
	if (server == ROSTER_NONE)
		return tr_error_set(error, TR_EPROTO, "peer %" PRIu64 " sent a result of nobody",
		    roster->peers[from]);
	op_seal_void(op, &core->pool, s);
	return TR_OK;
}

static void path_mismatch(struct group_core *core, uint64_t from, const char *what)
{
	char reason[200];

	(void)snprintf(reason, sizeof(reason),
	    "peers %" PRIu64 " and %" PRIu64 " disagree in round %" PRIu64 ": %s", from, core->peer,
	    core->round, what);
	commit_differs(core, from, reason);
}

static const char *path_collective(unsigned collective)
{
	static const char *const names[] = { "all-reduce", "reduce-scatter", "all-gather",
		"broadcast", "barrier", "send/recv", "send/recv" };

	return collective <= TR_RECV ? names[collective] : "a collective";
}

/* A send that this peer means to get from somebody else, or its own that comes back. */
static bool path_other_pair(const struct op *op, unsigned from)
{
	return op->kind == OP_PAIR && op->roster->bit[from] != op->source &&
	    op->roster->bit[from] != op->signature.root;
}

static bool path_same(const struct op_signature *a, const struct op_signature *b)
{
	return a->count == b->count && a->dtype == b->dtype && a->reduce == b->reduce &&
	    a->codec == b->codec && a->collective == b->collective && a->root == b->root &&
	    a->algorithm == b->algorithm && scope_same(&a->scope, &b->scope);
}

tr_status path_compare(struct group_core *core, uint64_t from, const struct op *op,
    const struct segment_header *header)
{
	const struct op_signature *theirs = &header->signature, *ours;
	char what[160];

	if (!op) {
		(void)snprintf(what, sizeof(what), "op %u is %s peer %" PRIu64, header->tag,
		    release_has(&core->released, header->tag) ? "another one, and over, at"
		                                              : "unknown to",
		    core->peer);
		path_mismatch(core, from, what);
		return TR_EMISMATCH;
	}
	ours = &op->signature;
	unsigned who = roster_find(op->roster, from);
	if (who != ROSTER_NONE && scope_same(&theirs->scope, &ours->scope) &&
	    path_other_pair(op, who)) {
		(void)snprintf(what, sizeof(what),
		    "op %u is between other peers at peer %" PRIu64 " than at peer %" PRIu64,
		    op->tag, from, core->peer);
		path_mismatch(core, from, what);
		return TR_EMISMATCH;
	}
	if (path_same(theirs, ours))
		return TR_OK;
	if (!scope_same(&theirs->scope, &ours->scope))
		(void)snprintf(what, sizeof(what),
		    "op %u is in a scope of %u at peer %" PRIu64
		    " and in another one, of %u, at peer %" PRIu64 " (0: of all)",
		    op->tag, theirs->scope.count, from, ours->scope.count, core->peer);
	else if (theirs->collective != ours->collective || theirs->root != ours->root)
		(void)snprintf(what, sizeof(what),
		    "op %u is %s of root %u at peer %" PRIu64 " and %s of root %u at peer %" PRIu64,
		    op->tag, path_collective(theirs->collective), theirs->root, from,
		    path_collective(ours->collective), ours->root, core->peer);
	else if (theirs->codec != ours->codec || theirs->algorithm != ours->algorithm)
		(void)snprintf(what, sizeof(what),
		    "op %u has codec %u, algorithm %u at peer %" PRIu64
		    " and codec %u, algorithm %u at peer %" PRIu64,
		    op->tag, theirs->codec, theirs->algorithm, from, ours->codec, ours->algorithm,
		    core->peer);
	else
		(void)snprintf(what, sizeof(what),
		    "op %u has %" PRIu64 " elements of dtype %u, reduce op %u at peer %" PRIu64
		    " and %" PRIu64 ", %u, %u at peer %" PRIu64,
		    op->tag, theirs->count, theirs->dtype, theirs->reduce, from, ours->count,
		    ours->dtype, ours->reduce, core->peer);
	path_mismatch(core, from, what);
	return TR_EMISMATCH;
}

tr_status path_when(const struct group_core *core, const struct segment_header *header)
{
	if (core->state == ROUND_FAILED || header->view < core->view.number)
		return TR_ESTALE;
	if (header->view > core->view.number)
		return TR_EAGAIN;
	if (core->proposal != 0 || core->stuck || header->round < core->round)
		return TR_ESTALE;
	if (header->round > core->round || !round_active(core))
		return TR_EAGAIN;
	return header->attempt == core->roster.attempt ? TR_OK : TR_EPROTO;
}

static bool path_cut_alike(const struct op *op, const struct segment_header *header)
{
	return header->segment < op->segments &&
	    header->elements == op_elements(op, header->segment) &&
	    path_encoding_expected(op, header);
}

bool path_awaits(const struct group_core *core, const struct op *op, unsigned from,
    const struct segment_header *header)
{
	struct route route;

	return path_when(core, header) == TR_OK && path_same(&header->signature, &op->signature) &&
	    path_cut_alike(op, header) && !op->segment[header->segment].sealed &&
	    from == path_result_from(op, header->segment, &route) &&
	    path_set_valid(op, header->segment, header->contributors) &&
	    bits_count(header->contributors, ROUTE_SET_BYTES) > 0;
}

static tr_status path_take(struct group_core *core, struct op *op, const struct group_event *event,
    struct tr_error *error)
{
	const struct segment_header *header = event->segment.header;
	unsigned from = roster_find(op->roster, event->from);

	if (path_compare(core, event->from, op, header) != TR_OK)
		return TR_OK;
	if (from == ROSTER_NONE)
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " is not in the scope of op %u", event->from, op->tag);
	if (!path_cut_alike(op, header))
		return tr_error_set(error, TR_EPROTO, "peer %" PRIu64 " cuts op %u otherwise",
		    event->from, op->tag);
	tr_status st = header->kind == SEGMENT_PARTIAL ? path_partial(core, op, from, event, error)
	                                               : path_result(core, op, from, event, error);
	if (st == TR_OK)
		window_advance(core, op);
	return st;
}

/* Who has not begun the round, or begins it again, can say that it lacks the op; `when`: as path_when says. */
static bool path_answers(const struct group_core *core, const struct segment_header *header,
    tr_status when)
{
	return when == TR_EAGAIN && header->kind == SEGMENT_AWAITED &&
	    header->encoding == SEGMENT_ASKS_LACKS && header->view == core->view.number &&
	    header->round == core->round && header->attempt == core->roster.attempt;
}

tr_status path_segment(struct group_core *core, const struct group_event *event,
    struct tr_error *error)
{
	const struct segment_header *header = event->segment.header;
	tr_status st = path_when(core, header);

	if (!group_core_expects(core, header->view))
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " sent a segment of view %" PRIu64 ", which cannot be",
		    event->from, header->view);
	if (path_answers(core, header, st))
		st = TR_OK;
	if (st == TR_EAGAIN && header->kind >= SEGMENT_AWAITED)
		return TR_ESTALE; /* it is said again */
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
	if (header->kind == SEGMENT_AWAITED)
		return wait_asked(core, who, header, error);
	if (header->kind == SEGMENT_LACKED)
		return lack_told(core, who, header, error);
	struct op *op = round_op(core, header->tag);
	bool released = !op && release_has(&core->released, header->tag);
	if (!op &&
	    (released ? release_differs(&core->released, header) : core->state == ROUND_CLOSED)) {
		(void)path_compare(core, event->from, NULL, header);
		return TR_OK;
	}
	ahead_offered(core, who, header, op || released, event->segment.counted);
	if (released) { /* we have all of it; who sends does not know, as release.h says */
		ahead_say_released(core, who, header->tag);
		return TR_OK;
	}
	if (!op) {
		core->parked = true;
		return TR_EAGAIN;
	}
	return path_take(core, op, event, error);
}
