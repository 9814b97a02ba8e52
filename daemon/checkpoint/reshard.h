/* From the shards of one mesh to those of another, without the whole: which peer copies or sends which numbers to whom, and where they lie at both. Pure. All who know who holds which
 * shard make the same plan.
 *
 * Of each tensor that a peer's new shard has a part of, the parts of it that old shards have are copied one by one: from its own old shard if that has the part, else from the
 * holder that has to send least so far. What several old shards hold (norms, positions, a tied table of two stages) is copied from one of them.
 *
 *	reshard_plan(&old, held, &new, wanted, peers, &plan, &error);      // by peer: the shard's number, or RESHARD_NONE
 *	if (plan.lost != RESHARD_NONE) ...                                // an old shard of which something is needed that nobody holds
 *	for each message with from == self:  reshard_pack(&plan, message, mine, packed)      // message->numbers of them; and for each array
 *	for each with to == self:            reshard_unpack(&plan, message, packed, my_new)
 *	reshard_keep(&plan, self, mine, my_new)                           // what it has itself
 *	reshard_finish(&plan);
 */
#ifndef TR_DAEMON_CHECKPOINT_RESHARD_H
#define TR_DAEMON_CHECKPOINT_RESHARD_H

#include "daemon/checkpoint/mesh_shards.h"

#define RESHARD_NONE       UINT32_MAX
#define RESHARD_BLOCKS_MAX (SHARD_PIECES_MAX * SHARD_PIECES_MAX)

/* `rows` rows of `columns` numbers. */
struct reshard_block {
	size_t rows, columns;
	size_t from, from_stride; /* into the old shard's array, and the new one's */
	size_t to, to_stride;
};

/* What old shard `from` and new shard `to` have in common of a tensor (its number in the whole). Returns how many blocks: they share no number. */
size_t reshard_blocks(const struct mesh_shards *old, uint32_t from, const struct mesh_shards *new,
    uint32_t to, size_t tensor, struct reshard_block blocks[RESHARD_BLOCKS_MAX]);

/* The same of two shards whose parts of tensor `whole` are these (shard_pieces): has[had] of the old one, needs[needed] of the new one. */
size_t reshard_common(const struct layout_tensor *whole, const struct shard_piece *has, size_t had,
    const struct shard_piece *needs, size_t needed,
    struct reshard_block blocks[RESHARD_BLOCKS_MAX]);

/* All that one peer gets from another, or keeps. */
struct reshard_message {
	uint32_t from, to;    /* peers; the same: it keeps that */
	size_t numbers;       /* of one array */
	size_t first, copies; /* in the plan's copies */
};

/* Of a tensor, what the old shard and the new one have in common. */
struct reshard_copy {
	uint32_t sender;   /* peer */
	uint32_t from, to; /* shards */
	size_t tensor;
};

struct reshard {
	const struct mesh_shards *old, *new;
	struct reshard_message *messages; /* by receiver, then by sender */
	size_t message_count;
	struct reshard_copy *copies;
	size_t copy_count;
	uint32_t lost; /* RESHARD_NONE: all that is needed is held */
};

/* held[peers], wanted[peers]: numbers of the shards of `old` and `new`, or RESHARD_NONE. Both meshes stay borrowed until reshard_finish. TR_ENOMEM. */
tr_status reshard_plan(const struct mesh_shards *old, const uint32_t *held,
    const struct mesh_shards *new, const uint32_t *wanted, uint32_t peers, struct reshard *plan,
    struct tr_error *error);
void reshard_finish(struct reshard *plan); /* accepts a zeroed one */

/* `array`: of the old shard, resp. the new one, whose padding and gaps the caller has zeroed. */
void reshard_pack(const struct reshard *plan, const struct reshard_message *message,
    const float *array, float *packed);
void reshard_unpack(const struct reshard *plan, const struct reshard_message *message,
    const float *packed, float *array);
/* Of a message to oneself. */
void reshard_keep(const struct reshard *plan, const struct reshard_message *message,
    const float *old_array, float *new_array);
/* Numbers of one array that go from peer to peer, and that stay with who has them. */
size_t reshard_moved(const struct reshard *plan);
/* The most of those that one peer sends, or gets. */
size_t reshard_busiest(const struct reshard *plan);
size_t reshard_kept(const struct reshard *plan);

#endif
