#include "daemon/plan/timeline.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* What a transfer of the flow is, in its tag. */
enum tag_kind { TAG_MESSAGE, TAG_BUCKET, TAG_GATHER };

struct bucket {
	double ready_s, bytes, latency_s;
};

struct rank_state {
	uint32_t next;  /* instruction */
	double until_s; /* busy with one until then */
	bool sending;   /* and may not go on before that has left */
	uint32_t in_flight;
	double activation_bytes;
	struct bucket *buckets; /* in the order in which they become ready */
	uint32_t bucket_count, bucket_next;
	bool reducing;
	double reduced_until_s; /* latency of the newest bucket */
	bool ended, gathering, updated;
};

struct message {
	double there_s; /* INFINITY: not yet */
	double bytes;
	size_t behind; /* the one that waits for it, if there is one */
};

/* From one rank to another: one message at a time, in the order in which they are sent. */
struct lane {
	uint32_t waiting; /* with the one under way */
	size_t last;
};

struct timeline {
	const struct timeline_input *in;
	const struct schedule_shape *shape;
	struct timeline_result *result;
	struct flow flow;
	struct rank_state *ranks;
	struct message *messages; /* [stage][microbatch][backward], by the stage that gets it */
	struct lane *lanes;       /* [p * p], as link_of */
	double now_s;
	bool update; /* the update has begun */
};

static uint64_t make_tag(enum tag_kind kind, uint64_t what)
{
	return (uint64_t)kind << 56 | what;
}

static size_t message_index(const struct timeline *t, uint32_t stage, uint32_t microbatch,
    bool backward)
{
	return ((size_t)stage * t->shape->microbatches + microbatch) * 2 + backward;
}

static const struct schedule_instruction *current(const struct timeline *t, uint32_t rank)
{
	const struct schedule_list *list = &t->in->schedule->lists[rank];

	return t->ranks[rank].next < list->count ? &list->at[t->ranks[rank].next] : NULL;
}

/* Those of a chunk whose last backward begins now. */
static void plan_buckets(struct timeline *t, uint32_t rank, const struct timeline_stage *stage)
{
	struct rank_state *state = &t->ranks[rank];
	uint32_t buckets = stage->buckets > 0 ? stage->buckets : 1;

	for (uint32_t i = 0; i < buckets && stage->reduce_bytes > 0; i++)
		state->buckets[state->bucket_count++] = (struct bucket){ t->now_s +
			    stage->backward_s * (i + 1) / buckets,
			stage->reduce_bytes / buckets, stage->reduce_latency_s };
}

static void compute(struct timeline *t, uint32_t rank, const struct schedule_instruction *what)
{
	const struct timeline_stage
	    *stage = &t->in->stages[schedule_stage(t->shape, rank, what->chunk)];
	struct rank_state *state = &t->ranks[rank];
	struct timeline_rank_result *result = &t->result->ranks[rank];
	bool forward = what->op == SCHEDULE_FWD;
	double takes = forward ? stage->forward_s : stage->backward_s;

	if (forward) {
		state->in_flight++;
		state->activation_bytes += stage->activation_bytes;
		if (state->in_flight > result->in_flight)
			result->in_flight = state->in_flight;
		result->activation_bytes = fmax(result->activation_bytes, state->activation_bytes);
	} else {
		state->in_flight--; /* at its end; nothing of this rank comes in between */
		state->activation_bytes -= stage->activation_bytes;
		if (what->microbatch + 1 == t->shape->microbatches)
			plan_buckets(t, rank, stage);
	}
	result->busy_s += takes;
	state->until_s = t->now_s + takes;
}

static struct flow_way way_at(const struct timeline_input *in, uint32_t number)
{
	return in->ways != NULL
	    ? in->ways[number]
	    : (struct flow_way){ .count = 1, .links = { number }, .parts = { 1 } };
}

static tr_status start(struct timeline *t, uint32_t number, double bytes, uint64_t tag,
    struct tr_error *error)
{
	struct flow_way way = way_at(t->in, number);

	return flow_start(&t->flow, &way, bytes, tag, error);
}

static tr_status start_message(struct timeline *t, uint32_t lane, size_t index,
    struct tr_error *error)
{
	return start(t, t->in->link_of[lane], t->messages[index].bytes,
	    make_tag(TAG_MESSAGE, (uint64_t)lane << 32 | index), error);
}

static tr_status send(struct timeline *t, uint32_t rank, const struct schedule_instruction *what,
    struct tr_error *error)
{
	bool backward = what->op == SCHEDULE_SEND_B;
	uint32_t peer = schedule_peer(t->shape, rank, what);
	uint32_t to = schedule_stage(t->shape, peer, schedule_peer_chunk(t->shape, rank, what));
	uint32_t lane = rank * t->shape->ranks + peer;
	size_t index = message_index(t, to, what->microbatch, backward);

	if (t->in->link_of[lane] == TIMELINE_NO_LINK) {
		t->messages[index].there_s = t->now_s;
		return TR_OK;
	}
	t->ranks[rank].sending = !t->in->overlap;
	/* A gradient is as large as the output of the stage that gets it. */
	uint32_t from = schedule_stage(t->shape, rank, what->chunk);
	t->messages[index].bytes = t->in->stages[backward ? to : from].boundary_bytes;
	struct lane *at = &t->lanes[lane];
	if (at->waiting > 0)
		t->messages[at->last].behind = index;
	at->last = index;
	return at->waiting++ == 0 ? start_message(t, lane, index, error) : TR_OK;
}

static bool message_there(const struct timeline *t, uint32_t rank,
    const struct schedule_instruction *what)
{
	size_t index = message_index(t, schedule_stage(t->shape, rank, what->chunk),
	    what->microbatch, what->op == SCHEDULE_RECV_B);

	return t->messages[index].there_s <= t->now_s;
}

/* As far as a rank gets at this moment. */
static tr_status run_rank(struct timeline *t, uint32_t rank, bool *moved, struct tr_error *error)
{
	struct rank_state *state = &t->ranks[rank];

	while (!state->ended && !state->sending && state->until_s <= t->now_s) {
		const struct schedule_instruction *what = current(t, rank);
		tr_status st = TR_OK;
		if (what == NULL) {
			state->ended = *moved = true;
			t->result->ranks[rank].end_s = t->now_s;
			break;
		}
		if ((what->op == SCHEDULE_RECV_F || what->op == SCHEDULE_RECV_B) &&
		    !message_there(t, rank, what))
			break;
		if (what->op == SCHEDULE_SEND_F || what->op == SCHEDULE_SEND_B)
			st = send(t, rank, what, error);
		else if (what->op == SCHEDULE_FWD || what->op == SCHEDULE_BWD)
			compute(t, rank, what);
		if (st != TR_OK)
			return st;
		state->next++;
		*moved = true;
	}
	return TR_OK;
}

/* The next bucket of a rank, if it may go. */
static tr_status reduce(struct timeline *t, uint32_t rank, bool *moved, struct tr_error *error)
{
	struct rank_state *state = &t->ranks[rank];
	uint32_t link = t->in->ranks[rank].reduce_link;

	while (!state->reducing && state->bucket_next < state->bucket_count &&
	    state->reduced_until_s <= t->now_s) {
		const struct bucket *bucket = &state->buckets[state->bucket_next];
		if (bucket->ready_s > t->now_s || (!t->in->overlap_reduction && !state->ended))
			break;
		*moved = true;
		if (link == TIMELINE_NO_LINK) {
			state->reduced_until_s = t->now_s + bucket->latency_s;
			state->bucket_next++;
			continue;
		}
		state->reducing = true;
		return start(t, link, bucket->bytes, make_tag(TAG_BUCKET, rank), error);
	}
	return TR_OK;
}

static bool is_reduced(const struct timeline *t, uint32_t rank)
{
	const struct rank_state *state = &t->ranks[rank];

	return state->ended && state->bucket_next == state->bucket_count && !state->reducing &&
	    state->reduced_until_s <= t->now_s;
}

static bool all_reduced(const struct timeline *t)
{
	for (uint32_t rank = 0; rank < t->shape->ranks; rank++)
		if (!is_reduced(t, rank))
			return false;
	return true;
}

static tr_status update(struct timeline *t, uint32_t rank, bool *moved, struct tr_error *error)
{
	struct rank_state *state = &t->ranks[rank];
	const struct timeline_rank *in = &t->in->ranks[rank];

	if (state->updated || state->gathering || state->until_s > t->now_s)
		return TR_OK;
	*moved = true;
	if (in->gather_bytes <= 0 || in->reduce_link == TIMELINE_NO_LINK) {
		state->updated = true;
		return TR_OK;
	}
	state->gathering = true;
	return start(t, in->reduce_link, in->gather_bytes, make_tag(TAG_GATHER, rank), error);
}

static void begin_update(struct timeline *t)
{
	t->update = true;
	t->result->reduced_s = t->now_s;
	for (uint32_t rank = 0; rank < t->shape->ranks; rank++) {
		t->ranks[rank].until_s = t->now_s + t->in->ranks[rank].optimizer_s;
		t->result->pipeline_s = fmax(t->result->pipeline_s, t->result->ranks[rank].end_s);
	}
}

/* Everything that can happen without time passing. */
static tr_status settle(struct timeline *t, struct tr_error *error)
{
	bool moved = true;
	tr_status st = TR_OK;

	while (moved && st == TR_OK) {
		moved = false;
		for (uint32_t rank = 0; rank < t->shape->ranks && st == TR_OK; rank++) {
			st = run_rank(t, rank, &moved, error);
			if (st == TR_OK)
				st = reduce(t, rank, &moved, error);
			if (st == TR_OK && is_reduced(t, rank) &&
			    t->result->ranks[rank].reduced_s == 0)
				t->result->ranks[rank].reduced_s = t->now_s;
			if (st == TR_OK && t->update)
				st = update(t, rank, &moved, error);
		}
		if (!t->update && all_reduced(t)) {
			begin_update(t);
			moved = true;
		}
	}
	return st;
}

static tr_status take_message(struct timeline *t, uint32_t number, size_t index,
    struct tr_error *error)
{
	struct lane *lane = &t->lanes[number];
	struct flow_way way = way_at(t->in, t->in->link_of[number]);

	t->messages[index].there_s = t->now_s + t->in->links[way.links[0]].latency_s;
	t->ranks[number / t->shape->ranks].sending = false;
	return --lane->waiting > 0 ? start_message(t, number, t->messages[index].behind, error)
	                           : TR_OK;
}

static tr_status take_transfer(struct timeline *t, uint64_t tag, struct tr_error *error)
{
	enum tag_kind kind = (enum tag_kind)(tag >> 56);
	uint32_t what = (uint32_t)tag;

	if (kind == TAG_MESSAGE)
		return take_message(t, (uint32_t)(tag >> 32 & 0xffffff), what, error);
	struct rank_state *state = &t->ranks[what];
	if (kind == TAG_BUCKET) {
		state->reduced_until_s = t->now_s + state->buckets[state->bucket_next].latency_s;
		state->bucket_next++;
		state->reducing = false;
	} else {
		state->gathering = false;
		state->updated = true;
	}
	return TR_OK;
}

/* Nothing happens between now and then. */
static double next_s(const struct timeline *t)
{
	double next = flow_next_s(&t->flow);

	for (uint32_t rank = 0; rank < t->shape->ranks; rank++) {
		const struct rank_state *state = &t->ranks[rank];
		const struct schedule_instruction *what = current(t, rank);
		if (state->until_s > t->now_s)
			next = fmin(next, state->until_s);
		if (state->reduced_until_s > t->now_s)
			next = fmin(next, state->reduced_until_s);
		if (state->bucket_next < state->bucket_count &&
		    state->buckets[state->bucket_next].ready_s > t->now_s)
			next = fmin(next, state->buckets[state->bucket_next].ready_s);
		if (what != NULL && (what->op == SCHEDULE_RECV_F || what->op == SCHEDULE_RECV_B)) {
			double there = t
			                   ->messages[message_index(t,
			                       schedule_stage(t->shape, rank, what->chunk),
			                       what->microbatch, what->op == SCHEDULE_RECV_B)]
			                   .there_s;
			if (there > t->now_s)
				next = fmin(next, there);
		}
	}
	return next;
}

static tr_status run(struct timeline *t, struct tr_error *error)
{
	for (;;) {
		uint64_t tag;
		tr_status st = settle(t, error);
		if (st != TR_OK)
			return st;
		double next = next_s(t);
		if (isinf(next))
			break;
		flow_advance(&t->flow, next);
		t->now_s = next;
		while (st == TR_OK && flow_take(&t->flow, &tag))
			st = take_transfer(t, tag, error);
		if (st != TR_OK)
			return st;
	}
	for (uint32_t rank = 0; rank < t->shape->ranks; rank++)
		if (!t->ranks[rank].updated)
			return tr_error_set(error, TR_EINVAL,
			    "rank %u waits for ever: this schedule does not pass schedule_check",
			    rank);
	t->result->step_s = t->now_s;
	return TR_OK;
}

static bool is_amount(double value)
{
	return isfinite(value) && value >= 0;
}

static bool is_link(const struct timeline_input *in, uint32_t link)
{
	return link == TIMELINE_NO_LINK ||
	    link < (in->ways != NULL ? in->way_count : in->link_count);
}

static tr_status check_ways(const struct timeline_input *in, struct tr_error *error)
{
	for (uint32_t i = 0; i < in->way_count; i++) {
		const struct flow_way *way = &in->ways[i];
		bool good = way->count > 0 && way->count <= FLOW_WAY_LINKS;
		for (uint32_t k = 0; good && k < way->count; k++)
			good = way->links[k] < in->link_count && is_amount(way->parts[k]);
		if (!good)
			return tr_error_set(error, TR_EINVAL,
			    "timeline: way %u has no links, or no such ones", i);
	}
	return TR_OK;
}

static tr_status check_input(const struct timeline_input *in, struct tr_error *error)
{
	const struct schedule_shape *shape = &in->schedule->shape;

	assert(shape->ranks > 0);
	for (uint32_t i = 0; i < shape->ranks * shape->chunks; i++) {
		const struct timeline_stage *stage = &in->stages[i];
		if (!is_amount(stage->forward_s) || !is_amount(stage->backward_s) ||
		    !is_amount(stage->boundary_bytes) || !is_amount(stage->activation_bytes) ||
		    !is_amount(stage->reduce_bytes) || !is_amount(stage->reduce_latency_s))
			return tr_error_set(error, TR_EINVAL,
			    "timeline: stage %u has a time or size below 0 or without end", i);
	}
	for (uint32_t i = 0; i < in->link_count; i++)
		if (!is_amount(in->links[i].latency_s) || !(in->links[i].bandwidth_bytes_per_s > 0))
			return tr_error_set(error, TR_EINVAL,
			    "timeline: link %u has no bandwidth, or a latency below 0", i);
	for (uint32_t i = 0; i < shape->ranks; i++)
		if (!is_link(in, in->ranks[i].reduce_link) ||
		    !is_amount(in->ranks[i].optimizer_s) || !is_amount(in->ranks[i].gather_bytes))
			return tr_error_set(error, TR_EINVAL,
			    "timeline: rank %u has no such link, or a time below 0", i);
	for (uint32_t i = 0; i < shape->ranks * shape->ranks; i++)
		if (!is_link(in, in->link_of[i]))
			return tr_error_set(error, TR_EINVAL,
			    "timeline: no link %u, for what rank %u sends to %u", in->link_of[i],
			    i / shape->ranks, i % shape->ranks);
	return check_ways(in, error);
}

static bool rank_alloc(const struct timeline *t, uint32_t rank)
{
	size_t buckets = 0;

	for (uint32_t chunk = 0; chunk < t->shape->chunks; chunk++) {
		uint32_t of = t->in->stages[schedule_stage(t->shape, rank, chunk)].buckets;
		buckets += of > 0 ? of : 1;
	}
	t->ranks[rank].buckets = calloc(buckets, sizeof(*t->ranks[rank].buckets));
	return t->ranks[rank].buckets != NULL;
}

static bool timeline_alloc(struct timeline *t)
{
	size_t messages = (size_t)t->shape->ranks * t->shape->chunks * t->shape->microbatches * 2;
	struct timeline_result *result = t->result;

	result->rank_count = t->shape->ranks;
	result->link_count = t->in->link_count;
	result->ranks = calloc(t->shape->ranks, sizeof(*result->ranks));
	result->link_bytes = calloc(t->in->link_count + 1u, sizeof(*result->link_bytes));
	result->link_busy_s = calloc(t->in->link_count + 1u, sizeof(*result->link_busy_s));
	t->ranks = calloc(t->shape->ranks, sizeof(*t->ranks));
	t->messages = calloc(messages, sizeof(*t->messages));
	t->lanes = calloc((size_t)t->shape->ranks * t->shape->ranks, sizeof(*t->lanes));
	if (result->ranks == NULL || result->link_bytes == NULL || result->link_busy_s == NULL ||
	    t->ranks == NULL || t->messages == NULL || t->lanes == NULL)
		return false;
	for (size_t i = 0; i < messages; i++)
		t->messages[i].there_s = INFINITY;
	for (uint32_t rank = 0; rank < t->shape->ranks; rank++)
		if (!rank_alloc(t, rank))
			return false;
	return true;
}

static void sum_up(struct timeline *t)
{
	struct timeline_result *result = t->result;
	double idle = 0, busy = 0;

	for (uint32_t rank = 0; rank < t->shape->ranks; rank++) {
		result->ranks[rank].idle_s = result->pipeline_s - result->ranks[rank].busy_s;
		idle += result->ranks[rank].idle_s;
		busy += result->ranks[rank].busy_s;
	}
	result->bubble = busy > 0 ? idle / busy : 0;
	for (uint32_t link = 0; link < t->in->link_count; link++) {
		result->link_bytes[link] = t->flow.carried_bytes[link];
		result->link_busy_s[link] = t->flow.busy_s[link];
	}
}

tr_status timeline_run(const struct timeline_input *input, struct timeline_result *result,
    struct tr_error *error)
{
	struct timeline_result made = { 0 };
	struct timeline t = { .in = input, .shape = &input->schedule->shape, .result = &made };
	tr_status st = check_input(input, error);

	if (st != TR_OK)
		return st;
	if (!timeline_alloc(&t))
		st = tr_error_set(error, TR_ENOMEM, "no memory for a timeline of %u ranks",
		    t.shape->ranks);
	if (st == TR_OK)
		st = flow_init(&t.flow, input->links, input->link_count, error);
	if (st == TR_OK)
		st = run(&t, error);
	if (st == TR_OK) {
		sum_up(&t);
		*result = made;
	} else {
		timeline_finish(&made);
	}
	for (uint32_t rank = 0; rank < t.shape->ranks && t.ranks != NULL; rank++)
		free(t.ranks[rank].buckets);
	free(t.ranks);
	free(t.messages);
	free(t.lanes);
	flow_finish(&t.flow);
	return st;
}

void timeline_finish(struct timeline_result *result)
{
	free(result->ranks);
	free(result->link_bytes);
	free(result->link_busy_s);
	*result = (struct timeline_result){ 0 };
}
