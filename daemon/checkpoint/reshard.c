#include "daemon/checkpoint/reshard.h"

#include <stdlib.h>
#include <string.h>

/* ---- what two shards have in common ---- */

/* A piece as rows and columns of the whole tensor. */
struct rectangle {
	size_t row, column, rows, columns;
};

static struct rectangle rectangle_of(const struct layout_tensor *whole,
    const struct shard_piece *piece)
{
	size_t at = piece->whole - whole->offset;
	return (struct rectangle){ at / whole->columns, at % whole->columns, piece->rows,
		piece->columns };
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* False: nothing. */
static bool intersect(const struct layout_tensor *whole, const struct shard_piece *old,
    const struct shard_piece *new, struct reshard_block *block)
{
	struct rectangle a = rectangle_of(whole, old), b = rectangle_of(whole, new);
	size_t row = larger(a.row, b.row), row_end = smaller(a.row + a.rows, b.row + b.rows);
	size_t column = larger(a.column, b.column);
	size_t column_end = smaller(a.column + a.columns, b.column + b.columns);
	if (row >= row_end || column >= column_end)
		return false;
	*block = (struct reshard_block){ .rows = row_end - row,
		.columns = column_end - column,
		.from = old->local + (row - a.row) * old->local_stride + (column - a.column),
		.from_stride = old->local_stride,
		.to = new->local + (row - b.row) * new->local_stride + (column - b.column),
		.to_stride = new->local_stride };
	return true;
}

static size_t pieces_of(const struct mesh_shards *shards, uint32_t number, size_t tensor,
    struct shard_piece pieces[SHARD_PIECES_MAX])
{
	struct shard shard;
	const struct layout *layout = mesh_shards_layout(shards, number, &shard);
	size_t local = mesh_shards_tensor(shards, number, tensor);
	return local != LAYOUT_NONE ? shard_pieces(shards->whole, layout, &shard, local, pieces)
	                            : 0;
}

size_t reshard_common(const struct layout_tensor *whole, const struct shard_piece *has, size_t had,
    const struct shard_piece *needs, size_t needed, struct reshard_block blocks[RESHARD_BLOCKS_MAX])
{
	size_t count = 0;
	for (size_t i = 0; i < had; i++)
		for (size_t k = 0; k < needed; k++)
			count += intersect(whole, &has[i], &needs[k], &blocks[count]);
	return count;
}

size_t reshard_blocks(const struct mesh_shards *old, uint32_t from, const struct mesh_shards *new,
    uint32_t to, size_t tensor, struct reshard_block blocks[RESHARD_BLOCKS_MAX])
{
	struct shard_piece has[SHARD_PIECES_MAX], needs[SHARD_PIECES_MAX];
	size_t had = pieces_of(old, from, tensor, has), needed = pieces_of(new, to, tensor, needs);
	return reshard_common(&old->whole->tensors[tensor], has, had, needs, needed, blocks);
}

static size_t numbers_of(const struct reshard_block *blocks, size_t count)
{
	size_t numbers = 0;
	for (size_t i = 0; i < count; i++)
		numbers += blocks[i].rows * blocks[i].columns;
	return numbers;
}

/* ---- the plan ---- */

struct planner {
	struct reshard *plan;
	const uint32_t *held, *wanted;
	uint32_t peers;
	size_t *sends; /* numbers, by peer */
	size_t message_room, copy_room;
};

/* `array` with room for one more of `size` bytes; NULL: no memory, and it stays as it is. */
static void *grow(void *array, size_t count, size_t *room, size_t size)
{
	if (count < *room)
		return array;
	size_t more = 2 * *room + 64;
	void *grown = realloc(array, more * size);
	if (grown != NULL)
		*room = more;
	return grown;
}

/* The first stage of the old mesh that has this tensor: there always is one. */
static uint32_t stage_with(const struct mesh_shards *shards, size_t tensor)
{
	uint32_t stage = 0, tp = shards->mesh.size[MESH_TP];
	while (mesh_shards_tensor(shards, stage * tp, tensor) == LAYOUT_NONE)
		stage++;
	return stage;
}

/* Parts that the old mesh has of a tensor, one for each place along tp; or it is the same at all. */
static uint32_t parts_of(const struct mesh_shards *shards, size_t tensor)
{
	uint32_t tp = shards->mesh.size[MESH_TP], stage = stage_with(shards, tensor);
	size_t local = mesh_shards_tensor(shards, stage * tp, tensor);
	return shard_whole(shards->whole, &shards->stages[stage], local) ? 1 : tp;
}

static bool has_part(const struct planner *p, uint32_t peer, size_t tensor, uint32_t parts,
    uint32_t part)
{
	const struct mesh_shards *old = p->plan->old;
	uint32_t shard = p->held[peer];
	return shard != RESHARD_NONE && mesh_shards_tensor(old, shard, tensor) != LAYOUT_NONE &&
	    (parts == 1 || shard % old->mesh.size[MESH_TP] == part);
}

static uint32_t sender_of(const struct planner *p, uint32_t receiver, size_t tensor, uint32_t parts,
    uint32_t part)
{
	uint32_t best = RESHARD_NONE;
	if (has_part(p, receiver, tensor, parts, part))
		return receiver;
	for (uint32_t i = 0; i < p->peers; i++)
		if (has_part(p, i, tensor, parts, part) &&
		    (best == RESHARD_NONE || p->sends[i] < p->sends[best]))
			best = i;
	return best;
}

static bool add_copy(struct planner *p, const struct reshard_copy *copy)
{
	struct reshard *plan = p->plan;
	struct reshard_copy *grown = grow(plan->copies, plan->copy_count, &p->copy_room,
	    sizeof(*grown));
	if (grown == NULL)
		return false;
	plan->copies = grown;
	plan->copies[plan->copy_count++] = *copy;
	return true;
}

static bool plan_tensor(struct planner *p, uint32_t receiver, size_t tensor)
{
	struct reshard *plan = p->plan;
	struct reshard_block blocks[RESHARD_BLOCKS_MAX];
	uint32_t parts = parts_of(plan->old, tensor), to = p->wanted[receiver];
	uint32_t first = stage_with(plan->old, tensor) * plan->old->mesh.size[MESH_TP];
	for (uint32_t part = 0; part < parts; part++) {
		size_t count = reshard_blocks(plan->old, first + part, plan->new, to, tensor,
		    blocks);
		if (count == 0)
			continue;
		uint32_t sender = sender_of(p, receiver, tensor, parts, part);
		if (sender == RESHARD_NONE) {
			plan->lost = first + part < plan->lost ? first + part : plan->lost;
			continue;
		}
		if (sender != receiver)
			p->sends[sender] += numbers_of(blocks, count);
		if (!add_copy(p, &(struct reshard_copy){ sender, p->held[sender], to, tensor }))
			return false;
	}
	return true;
}

static size_t numbers_of_copy(const struct reshard *plan, const struct reshard_copy *copy,
    struct reshard_block blocks[RESHARD_BLOCKS_MAX], size_t *count)
{
	*count = reshard_blocks(plan->old, copy->from, plan->new, copy->to, copy->tensor, blocks);
	return numbers_of(blocks, *count);
}

static int by_sender(const void *a, const void *b)
{
	const struct reshard_copy *x = a, *y = b;
	if (x->sender != y->sender)
		return x->sender < y->sender ? -1 : 1;
	if (x->tensor != y->tensor)
		return x->tensor < y->tensor ? -1 : 1;
	return x->from < y->from ? -1 : x->from > y->from;
}

/* The copies from `first` on, which are all of this receiver's, as messages. */
static bool make_messages(struct planner *p, uint32_t receiver, size_t first)
{
	struct reshard *plan = p->plan;
	struct reshard_block blocks[RESHARD_BLOCKS_MAX];
	struct reshard_message *message = NULL;
	if (first == plan->copy_count)
		return true;
	qsort(plan->copies + first, plan->copy_count - first, sizeof(*plan->copies), by_sender);
	for (size_t i = first, count; i < plan->copy_count; i++) {
		if (message == NULL || message->from != plan->copies[i].sender) {
			message = grow(plan->messages, plan->message_count, &p->message_room,
			    sizeof(*message));
			if (message == NULL)
				return false;
			plan->messages = message;
			message += plan->message_count++;
			*message = (struct reshard_message){ .from = plan->copies[i].sender,
				.to = receiver,
				.first = i };
		}
		message->copies++;
		message->numbers += numbers_of_copy(plan, &plan->copies[i], blocks, &count);
	}
	return true;
}

static bool plan_receiver(struct planner *p, uint32_t receiver)
{
	struct reshard *plan = p->plan;
	size_t first = plan->copy_count, tensors = plan->new->whole->tensor_count;
	for (size_t tensor = 0; tensor < tensors; tensor++)
		if (mesh_shards_tensor(plan->new, p->wanted[receiver], tensor) != LAYOUT_NONE &&
		    !plan_tensor(p, receiver, tensor))
			return false;
	return make_messages(p, receiver, first);
}

tr_status reshard_plan(const struct mesh_shards *old, const uint32_t *held,
    const struct mesh_shards *new, const uint32_t *wanted, uint32_t peers, struct reshard *out,
    struct tr_error *error)
{
	struct reshard plan = { .old = old, .new = new, .lost = RESHARD_NONE };
	struct planner p = { .plan = &plan,
		.held = held,
		.wanted = wanted,
		.peers = peers,
		.sends = calloc((size_t)peers + 1, sizeof(*p.sends)) };
	bool planned = p.sends != NULL;
	for (uint32_t i = 0; i < peers && planned; i++)
		if (wanted[i] != RESHARD_NONE)
			planned = plan_receiver(&p, i);
	free(p.sends);
	if (!planned) {
		reshard_finish(&plan);
		return tr_error_set(error, TR_ENOMEM,
		    "mesh: no memory for a plan of what goes where");
	}
	*out = plan;
	return TR_OK;
}

void reshard_finish(struct reshard *plan)
{
	free(plan->messages);
	free(plan->copies);
	memset(plan, 0, sizeof(*plan));
}

static size_t count_numbers(const struct reshard *plan, bool kept)
{
	size_t numbers = 0;
	for (size_t i = 0; i < plan->message_count; i++)
		if ((plan->messages[i].from == plan->messages[i].to) == kept)
			numbers += plan->messages[i].numbers;
	return numbers;
}

size_t reshard_moved(const struct reshard *plan)
{
	return count_numbers(plan, false);
}

size_t reshard_busiest(const struct reshard *plan)
{
	size_t sent[TR_GROUP_PEERS_MAX] = { 0 }, got[TR_GROUP_PEERS_MAX] = { 0 }, most = 0;
	for (size_t i = 0; i < plan->message_count; i++) {
		const struct reshard_message *m = &plan->messages[i];
		if (m->from == m->to)
			continue;
		sent[m->from] += m->numbers;
		got[m->to] += m->numbers;
		most = sent[m->from] > most ? sent[m->from] : most;
		most = got[m->to] > most ? got[m->to] : most;
	}
	return most;
}

size_t reshard_kept(const struct reshard *plan)
{
	return count_numbers(plan, true);
}

/* ---- numbers ---- */

/* A packed message has its blocks one after the other, each row by row. */
static void copy_block(const struct reshard_block *block, const float *from, size_t from_stride,
    float *to, size_t to_stride)
{
	for (size_t row = 0; row < block->rows; row++)
		memcpy(to + row * to_stride, from + row * from_stride, block->columns * sizeof(*to));
}

void reshard_pack(const struct reshard *plan, const struct reshard_message *message,
    const float *array, float *packed)
{
	struct reshard_block blocks[RESHARD_BLOCKS_MAX];
	for (size_t i = 0, count; i < message->copies; i++) {
		(void)numbers_of_copy(plan, &plan->copies[message->first + i], blocks, &count);
		for (size_t b = 0; b < count; b++) {
			copy_block(&blocks[b], array + blocks[b].from, blocks[b].from_stride,
			    packed, blocks[b].columns);
			packed += blocks[b].rows * blocks[b].columns;
		}
	}
}

void reshard_unpack(const struct reshard *plan, const struct reshard_message *message,
    const float *packed, float *array)
{
	struct reshard_block blocks[RESHARD_BLOCKS_MAX];
	for (size_t i = 0, count; i < message->copies; i++) {
		(void)numbers_of_copy(plan, &plan->copies[message->first + i], blocks, &count);
		for (size_t b = 0; b < count; b++) {
			copy_block(&blocks[b], packed, blocks[b].columns, array + blocks[b].to,
			    blocks[b].to_stride);
			packed += blocks[b].rows * blocks[b].columns;
		}
	}
}

void reshard_keep(const struct reshard *plan, const struct reshard_message *message,
    const float *old_array, float *new_array)
{
	struct reshard_block blocks[RESHARD_BLOCKS_MAX];
	for (size_t i = 0, count; i < message->copies; i++) {
		(void)numbers_of_copy(plan, &plan->copies[message->first + i], blocks, &count);
		for (size_t b = 0; b < count; b++)
			copy_block(&blocks[b], old_array + blocks[b].from, blocks[b].from_stride,
			    new_array + blocks[b].to, blocks[b].to_stride);
	}
}
