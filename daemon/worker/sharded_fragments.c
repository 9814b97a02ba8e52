/* Which numbers of a shard are of a fragment (sharded_stream.h): whole blocks of the whole model, dealt as tr_sync deals those of a worker that holds it (collectives/sync/create.c), and their sums over dp.
 * What is taken lies tensor after tensor, and so does what coding lost, fragment after fragment. */
#include <string.h>

#include "daemon/worker/trainer_inside.h"

static unsigned fragments(const struct trainer *t)
{
	return t->sharded->apart->options.fragments;
}

static unsigned fragment_of(const struct trainer *t, const struct layout *local, size_t tensor)
{
	const struct layout *whole = &t->sharded->whole;
	size_t number = local->tensors[tensor].number;
	return layout_block(whole, whole->tensors[number].offset) % fragments(t);
}

static size_t numbers_of(const struct trainer *t, const struct layout *local, unsigned fragment)
{
	size_t numbers = 0;
	for (size_t i = 0; i < local->tensor_count; i++)
		if (fragment_of(t, local, i) == fragment)
			numbers += layout_numbers(&local->tensors[i]);
	return numbers;
}

size_t sharded_fragment_numbers(const struct trainer *t, unsigned fragment)
{
	return numbers_of(t, &t->layout, fragment);
}

size_t sharded_fragment_most(const struct trainer *t)
{
	const struct mesh_shards *shards = &t->sharded->shards;
	size_t most = 1;
	for (uint32_t stage = 0; stage < shards->mesh.size[MESH_PP]; stage++)
		for (unsigned f = 0; f < fragments(t); f++) {
			size_t numbers = numbers_of(t, &shards->stages[stage], f);
			most = numbers > most ? numbers : most;
		}
	return most;
}

bool sharded_next_piece(const struct trainer *t, unsigned fragment, struct stream_piece *p)
{
	size_t i = p->count > 0 ? p->tensor + 1 : 0, table, numbers;
	while (i < t->layout.tensor_count && fragment_of(t, &t->layout, i) != fragment)
		i++;
	if (i == t->layout.tensor_count)
		return false;
	p->tensor = i;
	p->packed += p->count;
	p->offset = t->layout.tensors[i].offset;
	p->count = layout_numbers(&t->layout.tensors[i]);
	p->copied = t->layout.depth.head && sharded_has_copy(t, &table, &numbers) &&
	    table == p->offset;
	return true;
}

/* ---- sums ---- */

/* Before a copied table, and behind it. */
static void ranges_of(const struct trainer *t, unsigned fragment, struct owners_range ranges[2])
{
	struct stream_piece p = { 0 };
	ranges[0] = ranges[1] = (struct owners_range){ 0, 0 };
	while (sharded_next_piece(t, fragment, &p)) {
		if (p.copied)
			ranges[1].first = p.packed + p.count;
		else
			ranges[ranges[1].first > 0].end = p.packed + p.count;
	}
	if (ranges[1].end < ranges[1].first)
		ranges[1].end = ranges[1].first;
}

/* Where what coding lost of a fragment begins. */
static size_t lost_at(const struct trainer *t, unsigned fragment)
{
	size_t at = 0;
	for (unsigned f = 0; f < fragment; f++)
		at += sharded_fragment_numbers(t, f);
	return at;
}

static tr_status submit_range(struct trainer *t, unsigned which, struct owners_range range,
    size_t lost, struct tr_error *error)
{
	const struct sharded *s = t->sharded;
	const struct sharded_apart *a = s->apart;
	struct tr_op op = TR_OP_INIT;
	range = sharded_own_part(s, range.first, range.end);
	if (range.first == range.end)
		return TR_OK;
	op.tag = TAG_MERGE + which;
	op.input = sharded_apart_part(t)->trains ? a->stream.delta + range.first : NULL;
	op.output = a->stream.sum + range.first;
	op.count = range.end - range.first;
	op.reduce = TR_SUM;
	op.codec = a->options.codec;
	op.scope = (struct tr_scope){ s->dp.members, s->dp.count };
	if (a->lost.now != NULL) {
		op.residual = a->lost.now + lost + range.first;
		op.residual_next = a->lost.next + lost + range.first;
		op.beta = (float)a->options.feedback;
	}
	return tr_submit(t->group, &op, error);
}

tr_status sharded_submit_fragment(struct trainer *t, unsigned fragment, struct tr_error *error)
{
	struct owners_range ranges[2];
	tr_status status = TR_OK;
	if (t->sharded->dp.count < 2)
		return TR_OK;
	sharded_settle_lost(t);
	ranges_of(t, fragment, ranges);
	size_t lost = lost_at(t, fragment);
	for (unsigned i = 0; i < 2 && status == TR_OK; i++)
		status = submit_range(t, i, ranges[i], lost, error);
	return status;
}

tr_status sharded_wait_fragment(struct trainer *t, unsigned fragment, struct tr_error *error)
{
	const struct apart_stream *stream = &t->sharded->apart->stream;
	bool alone = t->sharded->dp.count < 2;
	struct stream_piece p = { 0 };
	struct owners_range ranges[2];
	tr_status status = TR_OK;
	ranges_of(t, fragment, ranges);
	for (unsigned i = 0; i < 2 && status == TR_OK && !alone; i++) {
		struct owners_range part = sharded_own_part(t->sharded, ranges[i].first,
		    ranges[i].end);
		if (part.first < part.end)
			status = tr_wait(t->group, TAG_MERGE + i, error);
		if (status == TR_OK)
			status = sharded_gather_parts(t, i, stream->sum, ranges[i], error);
	}
	while (status == TR_OK && sharded_next_piece(t, fragment, &p))
		if (alone || !p.copied)
			memcpy(t->arrays.grads + p.offset,
			    (alone ? stream->delta : stream->sum) + p.packed,
			    p.count * sizeof(float));
	return status;
}

void sharded_keep_fragment_lost(struct trainer *t, unsigned fragment)
{
	struct apart_lost *lost = &t->sharded->apart->lost;
	struct owners_range ranges[2];
	if (lost->now == NULL)
		return;
	ranges_of(t, fragment, ranges);
	size_t at = lost_at(t, fragment);
	for (unsigned i = 0; i < 2; i++)
		memcpy(lost->now + at + ranges[i].first, lost->next + at + ranges[i].first,
		    (ranges[i].end - ranges[i].first) * sizeof(float));
}
