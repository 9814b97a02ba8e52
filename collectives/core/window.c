/* Which segments this member begins, and when.
 *
 * Whoever starts segments (the first of a chain; with the other algorithms everybody who sends its input) has at most
 * `begun_max` of an op on the way: begun and not sealed here. A result comes back to everybody, so it is the credit for the
 * next one. That bounds the buffers of an op, and what has to be sent again when a member dies: of n members about
 * (n - 1) windows were on the way for nothing, which stays below 1.5 S/n if a window is 3S / 2n(n-1).
 *
 * Owners would get everybody's first segment at once: so each member begins at another place of every block of `rotation`
 * segments. A block is no longer than the window, and blocks are begun in order. Hence nobody waits for ever: of the oldest block
 * that is not sealed everywhere every member has begun all, or has room left to.
 *
 * A reduce-scatter gives its senders nothing back. There everybody goes through all blocks row by row (a row: one segment of each
 * block), at most `begun_max` rows ahead of what is sealed of its own block: that tells how far the slowest member is, since it takes
 * everybody's input. So an owner holds at most a window, however fast the others are. Nobody waits for ever: who is least far has
 * everything before its row sealed, since all have given it. Whose own block is complete, or empty, goes on to the end.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collectives/core/bits.h"
#include "collectives/core/member.h"

/* ---- which ---- */

static enum tr_algorithm window_asked(const struct group_core *core, enum tr_algorithm wish)
{
	return wish != TR_AUTO ? wish : (enum tr_algorithm)core->view.algorithm;
}

static struct select_input window_input(const struct group_core *core, const struct roster *roster,
    const struct window_wish *wish)
{
	const struct view *view = &core->view;
	uint64_t bytes = wish->bytes;

	return (struct select_input){
		.wanted = window_asked(core, wish->algorithm),
		.latency_s = view->latency_s,
		.bandwidth_bytes_per_s = roster->bandwidth_bytes_per_s,
		.hub_bandwidth_bytes_per_s = roster->hub_bandwidth_bytes_per_s,
		.direct_load = roster->direct_load,
		.direct_given = roster->direct_given,
		.bytes = bytes,
		.segment_bytes = op_segment_bytes(bytes, view->segment_bytes,
		    op_segments_of(view->op_segments, wish->codec)),
		.peers = roster->n,
		.hosts = roster->host_count,
		.host_peers = roster->host_peers,
		.sockets = !roster->maps,
		.shown = wish->kind == OP_REDUCED && wish->codec == TR_CODEC_NONE &&
		    spread_may(core, roster, bytes),
		.deterministic = view->deterministic,
	};
}

static bool window_same(const struct select_input *a, const struct select_input *b)
{
	return a->wanted == b->wanted && a->latency_s == b->latency_s &&
	    a->bandwidth_bytes_per_s == b->bandwidth_bytes_per_s &&
	    a->hub_bandwidth_bytes_per_s == b->hub_bandwidth_bytes_per_s &&
	    a->direct_load == b->direct_load && a->direct_given == b->direct_given &&
	    a->bytes == b->bytes && a->segment_bytes == b->segment_bytes && a->peers == b->peers &&
	    a->hosts == b->hosts && a->host_peers == b->host_peers && a->sockets == b->sockets &&
	    a->shown == b->shown && a->deterministic == b->deterministic;
}

enum tr_algorithm window_algorithm(const struct group_core *core, uint64_t bytes)
{
	const struct window_wish wish = { .algorithm = TR_AUTO,
		.collective = TR_ALL_REDUCE,
		.kind = OP_REDUCED,
		.codec = TR_CODEC_NONE,
		.bytes = bytes };
	const struct select_input input = window_input(core, &core->roster, &wish);

	return select_algorithm(&input, NULL, 0);
}

/* `found`: by the links. With a codec a partial sum loses something wherever it is encoded again: a chain only if it was asked for and bits may depend on it,
 * and hosts send as one by one. */
static enum tr_algorithm window_choose(const struct group_core *core,
    const struct window_wish *wish, enum tr_algorithm found)
{
	enum tr_algorithm asked = window_asked(core, wish->algorithm);

	if (found == TR_ONE_SHOT && wish->kind != OP_REDUCED)
		return TR_STAR; /* whose root is the given one */
	if (wish->codec == TR_CODEC_NONE || wish->kind == OP_PAIR)
		return found;
	/* Encoded bytes that are passed on are held until they have left, or made once more: in a ring all of them, by everybody. Over long ways a ring is worth that: it crosses each once. */
	if (wish->kind == OP_SOURCED && found == TR_RING && asked == TR_AUTO &&
	    !select_long(core->view.latency_s))
		return wish->collective == TR_ALL_GATHER ? TR_STAR : TR_DIRECT;
	if (wish->kind == OP_SOURCED)
		return found;
	if (found == TR_HIERARCHICAL ||
	    (found == TR_RING && (asked == TR_AUTO || core->view.deterministic)))
		return TR_DIRECT;
	return found;
}

/* As it looks from outside: of the trees of route.c only what carries something counts. `why`: not by the links; NULL. */
static enum tr_algorithm window_seen(const struct window_wish *wish, enum tr_algorithm chosen,
    const char **why)
{
	if (wish->kind == OP_PAIR) {
		*why = "one peer sends to one other";
		return TR_DIRECT;
	}
	if (wish->kind == OP_SCATTERED && chosen != TR_HIERARCHICAL) {
		*why = "sums go straight to whose block it is";
		return TR_DIRECT;
	}
	if (wish->collective == TR_ALL_GATHER && chosen == TR_STAR) {
		*why = "blocks go straight to everybody";
		return TR_DIRECT;
	}
	*why = wish->codec == TR_CODEC_NONE ? "around the given root"
	    : wish->kind == OP_SOURCED      ? "whoever passes on encoded bytes holds them"
	                                    : "sums with a codec lose something at every hop";
	return chosen;
}

enum tr_algorithm window_explain(const struct group_core *core, const struct window_wish *wish,
    char *reason, size_t reason_bytes)
{
	char links[256];
	const char *why;
	const struct select_input input = window_input(core, &core->roster, wish);
	enum tr_algorithm linked = select_algorithm(&input, links, sizeof(links));
	enum tr_algorithm seen = window_seen(wish, window_choose(core, wish, linked), &why);

	if (seen == linked)
		(void)snprintf(reason, reason_bytes, "%s", links);
	else
		(void)snprintf(reason, reason_bytes, "%s: %s; otherwise %s", select_name(seen), why,
		    links);
	return seen;
}

/* ---- how much ---- */

/* Of the window: what does not lie in a row, or has a codec, is in buffers, not where the caller has it: inputs, what has come, and results on their way. So it has a smaller
 * part of it, where ways are short and that keeps links busy too. Members may differ in theirs: a block is no longer than its member's window (above). */
static double window_part(const struct group_core *core, const struct op *op)
{
	bool rows = strided_contiguous(&op->data_layout) &&
	    (!op->input || strided_contiguous(&op->input_layout));

	if ((rows && op->codec == TR_CODEC_NONE) || select_long(core->view.latency_s))
		return 1;
	return rows && op->kind != OP_SCATTERED ? 0.5 : 0.25;
}

/* Bytes of the op that all members together may have on the way. */
static double window_bytes(const struct group_core *core, const struct op *op)
{
	double n = op->roster->n, most = (double)core->window_bytes * window_part(core, op);
	double bytes = 1.5 * (double)(op->signature.count * op->element_bytes) / (n * (n - 1));
	/* A link that carries B bytes/s for the four hops until the credit is back. */
	double least = 4 * core->view.latency_s * op->roster->bandwidth_bytes_per_s;
	bool ring = op->algorithm == TR_RING;
	/* Where that is known of a long way, more would only queue before its slowest end, and be lost there. A ring has no such end: what each member begins goes over 2(n-1) hops, as does what
	 * its link carries in that time of all members, so one hop's worth each keeps links busy where nothing waits; twice that, a round trip's, where something does. */
	bool known = least > 0 && !ring && select_long(core->view.latency_s);
	if (ring)
		least *= n / 2;
	double floor = known ? TR_OP_WINDOW_BYTES_LONG : TR_OP_WINDOW_BYTES_MIN;

	if (least < floor)
		least = floor;
	if (bytes < least)
		bytes = least;
	return bytes < most ? bytes : most;
}

static void window_limits(const struct group_core *core, struct op *op)
{
	unsigned n = op->roster->n, share = 1;
	size_t segment_bytes = op->cut.segment_elements * op->element_bytes;

	op->rotation = 1;
	op->begun_max = 1;
	if (n < 2 || op->segments == 1)
		return;
	if (op->kind != OP_SCATTERED && op->algorithm == TR_RING && !op->roster->deterministic)
		share = n; /* everybody starts chains, each of other segments */
	else if (op->kind == OP_SCATTERED || op->algorithm == TR_ONE_SHOT ||
	    (op->algorithm == TR_STAR && op->ordered))
		share = n - 1; /* one member holds what all the others began */
	double segments = window_bytes(core, op) / share / (double)segment_bytes;
	op->begun_max = segments < 2          ? 2
	    : segments > (double)op->segments ? op->segments
	                                      : (uint32_t)segments;
	if (op->algorithm == TR_DIRECT || op->algorithm == TR_HIERARCHICAL)
		op->rotation = op->begun_max < n ? op->begun_max : n;
}

/* ---- beginning ---- */

/* May the next one be begun, and is there one? */
static bool window_open(struct op *op)
{
	if (op->kind != OP_SCATTERED)
		return op->cursor < op->segments && op->begun < op->begun_max &&
		    (op->sends || op->kind == OP_REDUCED || outlet_open(op));
	return op->cursor < op->cut.blocks * cut_rows(&op->cut) &&
	    (op->sealed == op->needed || op->cursor / op->cut.blocks < op->sealed + op->begun_max);
}

/* The next one; false: there is none at the cursor's place. */
static bool window_next(struct op *op, uint32_t *segment)
{
	uint32_t at = op->cursor++;

	/* Each begins a row at another block. */
	if (op->kind == OP_SCATTERED)
		return cut_at(&op->cut, (at + op->roster->me + 1) % op->cut.blocks,
		    at / op->cut.blocks, segment);
	uint32_t first = at - at % op->rotation, length = op->segments - first;

	if (length > op->rotation)
		length = op->rotation;
	*segment = first + (at - first + op->roster->me) % length;
	return true;
}

static void window_begun(struct op *op, uint32_t segment)
{
	op->segment[segment].begun = true;
	op->begun++;
}

/* `set` becomes that of our input. */
static struct path_frame window_input_frame(const struct op *op, uint32_t segment,
    const struct fold_part *own, uint8_t set[ROUTE_SET_BYTES])
{
	memset(set, 0, ROUTE_SET_BYTES);
	bits_set(set, op->roster->bit[op->roster->me]);
	return (struct path_frame){ .kind = SEGMENT_PARTIAL,
		.encoding = own->form,
		.set = set,
		.payload = own->data,
		.bytes = op_form_bytes(op, segment, own->form),
		.buffer = own->buffer };
}

/* One-shot: to everybody, from a copy: the result may take the input's place before the last of them was sent. */
static tr_status window_spread(struct group_core *core, struct op *op, uint32_t segment,
    struct fold_part *own)
{
	if (!own->buffer && !op->input && !op->saved) {
		size_t bytes = op_bytes(op, segment);
		own->buffer = buffer_get(&core->pool, bytes);
		if (!own->buffer)
			return TR_ENOMEM;
		if (bytes > 0)
			memcpy(own->buffer->data, own->data, bytes);
		own->data = own->buffer->data;
	}
	uint8_t set[ROUTE_SET_BYTES];
	const struct path_frame frame = window_input_frame(op, segment, own, set);
	bool all = spread_send(core, op, segment, &frame);
	for (unsigned i = 1; i < op->roster->n && !all; i++)
		path_send(core, op, segment, (op->roster->me + i) % op->roster->n, &frame);
	window_begun(op, segment);
	return TR_OK;
}

/* Our input goes up, or to all. Without a result for us there is no credit to wait for. */
static tr_status window_give(struct group_core *core, struct op *op, uint32_t segment,
    const struct route *route)
{
	struct fold_part own;
	tr_status st = op_own(op, &core->pool, segment, &own);

	if (st != TR_OK)
		return st;
	if (route->spreads) {
		st = window_spread(core, op, segment, &own);
	} else {
		uint8_t set[ROUTE_SET_BYTES];
		const struct path_frame frame = window_input_frame(op, segment, &own, set);
		op->segment[segment].passed = true;
		path_send(core, op, segment, route->up, &frame);
		if (path_needs(op, segment, op->roster->me))
			window_begun(op, segment);
		op_own_drop(op, &core->pool, segment);
	}
	buffer_put(&core->pool, own.buffer);
	return st;
}

/* Its source is gone, and nobody has it. Only with `keep` may a round do without. Else the view would have begun the round again, had
 * memberd known of the op: nobody but its two ends knows of a send. */
static void window_void(struct group_core *core, struct op *op, uint32_t segment)
{
	if (core->view.policy == TRAIND__PEER__POLICY__POLICY_KEEP)
		op_seal_void(op, &core->pool, segment);
	else
		repair_stuck(core, "op %u waits for data of peer %" PRIu64 ", which was lost",
		    op->tag, op->roster->contributors[op_contributor(op, segment)]);
}

/* A send is done where it begins. */
static void window_send(struct group_core *core, struct op *op, uint32_t segment)
{
	uint8_t set[ROUTE_SET_BYTES];

	path_full_set(op, segment, set);
	op_seal(op, &core->pool, segment, &(struct op_result){ 0 }, set);
	outlet_owe(op, segment);
}

static tr_status window_begin(struct group_core *core, struct op *op, uint32_t segment)
{
	struct route_of of;
	struct route route;

	if (!path_route_of(op, segment, &of)) {
		if (op->kind != OP_SCATTERED)
			window_void(core, op, segment);
		return TR_OK;
	}
	if (op->sends) {
		window_send(core, op, segment);
		return TR_OK;
	}
	route_find(&of, op->roster->me, &route);
	if (route.spreads) {
		tr_status st = window_give(core, op, segment, &route);
		return st != TR_OK ? st : fold_own_given(core, op, segment, &route);
	}
	if (route.seals)
		return route.child_count == 0 ? fold_own_given(core, op, segment, &route) : TR_OK;
	if (route.up == ROSTER_NONE || route.child_count > 0)
		return TR_OK;
	return window_give(core, op, segment, &route);
}

void window_advance(struct group_core *core, struct op *op)
{
	while (!core->stuck && window_open(op)) {
		uint32_t segment;
		if (!window_next(op, &segment) || op->segment[segment].sealed ||
		    op->segment[segment].server != ROSTER_NONE)
			continue;
		tr_status st = window_begin(core, op, segment);
		if (st != TR_OK)
			core->status = st;
		if (st != TR_OK)
			return;
	}
	if (!core->stuck)
		outlet_give(core, op);
}

/* Ops of one size come in a row, and what is asked about them takes many divisions: the last answer is kept. */
static enum tr_algorithm window_of_op(struct group_core *core, const struct op *op)
{
	const struct window_wish wish = { .algorithm = (enum tr_algorithm)op->signature.algorithm,
		.kind = op->kind,
		.collective = (enum tr_collective)op->signature.collective,
		.codec = op->codec,
		.bytes = op->signature.count * op->element_bytes };
	const struct select_input input = window_input(core, op->roster, &wish);

	if (core->found == TR_AUTO || !window_same(&input, &core->found_for)) {
		core->found = select_algorithm(&input, NULL, 0);
		core->found_for = input;
	}
	return window_choose(core, &wish, core->found);
}

void window_start(struct group_core *core, struct op *op)
{
	uint32_t open = 0;

	op->algorithm = window_of_op(core, op);
	op->ordered = core->view.deterministic || op->algorithm == TR_ONE_SHOT ||
	    op->codec != TR_CODEC_NONE;
	op->cursor = op->begun = 0;
	while (open < op->segments &&
	    (op->segment[open].sealed || op->segment[open].server != ROSTER_NONE))
		open++;
	outlet_give(core, op); /* of what was sealed before this view */
	/* What is left may be results that only lost peers needed. */
	if (open == op->segments || (op->roster->live_count == 0 && op_done(op)))
		return;
	if (op->roster->live_count == 0) {
		emit_fail(core, TR_EPEERLOST,
		    "no contributor of round %" PRIu64 " is left in view %" PRIu64,
		    op->roster->round, core->view.number);
		return;
	}
	window_limits(core, op);
	window_advance(core, op);
}
