/* Pipeline schedules as data: for each pipeline rank a list of instructions, which the executor runs, the deadlock checker proves
 * (schedule_check.h) and the timeline simulates (timeline.h): one list, three readers. Pure.
 *
 * The layers are cut into p x v stages; stage s is chunk s / p on rank s % p, so that with v > 1 a microbatch goes round v times. m
 * microbatches pass forward through all stages and backward through all.
 *
 *	kind          warm-up forwards on rank r     bubble         activations in flight on rank r, in chunks
 *	gpipe         m                              (p-1)/m        m
 *	1f1b          p-r-1                          (p-1)/m        min(m, p-r)
 *	interleaved   2(p-r-1) + (v-1)g              (p-1)/(v m)    min(m v, 2(p-r-1) + (v-1)g + 1)
 *
 * The bubble is the time that a rank waits, of the time that it works, where all chunks take alike and links are free. GPipe: Huang et
 * al., arXiv 1811.06965. 1F1B: PipeDream, Harlap et al., arXiv 1806.03377, with a flush. Interleaved: Narayanan et al., arXiv
 * 2104.04473, section 2.2; its in flight is 1 + (p-1)/(p v) times that of 1F1B where g = p.
 *
 * An interleaved rank takes its microbatches in groups of g, each group through all of its chunks in turn. Megatron-LM wants m to be a
 * multiple of p, and g = p. Here m is cut into m/p (rounded down) groups that differ by at most one, the larger ones first, and g
 * is the largest: nothing less than p deadlocks, nothing more wastes memory. m < p is refused, since then rank 0 would wait for what
 * the last rank does only after it.
 *
 *	struct schedule schedule;
 *	st = schedule_create(&(struct schedule_shape){ SCHEDULE_1F1B, 4, 8, 1 }, &schedule, &error);
 *	for (i = 0; i < schedule.lists[rank].count; i++)
 *		... schedule.lists[rank].at[i]
 *	schedule_finish(&schedule);
 */
#ifndef TR_DAEMON_PLAN_SCHEDULE_H
#define TR_DAEMON_PLAN_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

#define SCHEDULE_WORDS 4

enum schedule_kind { SCHEDULE_GPIPE, SCHEDULE_1F1B, SCHEDULE_INTERLEAVED, SCHEDULE_KINDS };

struct schedule_shape {
	enum schedule_kind kind;
	uint32_t ranks;        /* p */
	uint32_t microbatches; /* m */
	uint32_t chunks;       /* v on each rank; 1 unless interleaved */
};

enum schedule_op {
	SCHEDULE_RECV_F, /* the input of a stage, from the stage before: none for the first */
	SCHEDULE_FWD,
	SCHEDULE_SEND_F, /* its output, to the next stage: none for the last */
	SCHEDULE_RECV_B, /* the gradient of its output: none for the last */
	SCHEDULE_BWD,
	SCHEDULE_SEND_B, /* the gradient of its input: none for the first */
	SCHEDULE_GRAD_READY, /* of all microbatches of this chunk: its reduction may begin. Microbatch is 0 */
	SCHEDULE_OPS
};

struct schedule_instruction {
	uint32_t microbatch;
	uint16_t chunk;
	uint16_t op; /* enum schedule_op */
};

struct schedule_list {
	struct schedule_instruction *at;
	uint32_t count;
};

struct schedule {
	struct schedule_shape shape;
	bool forward;                /* forward passes alone */
	struct schedule_list *lists; /* of each rank */
};

const char *schedule_kind_name(enum schedule_kind kind); /* "gpipe", "1f1b", "interleaved" */
const char *schedule_op_name(enum schedule_op op);       /* "RECV_F" */

/* TR_EINVAL: no such schedule; the words say what is allowed. */
tr_status schedule_shape_check(const struct schedule_shape *shape, struct tr_error *error);

/* TR_EINVAL, TR_ENOMEM. */
tr_status schedule_create(const struct schedule_shape *shape, struct schedule *schedule,
    struct tr_error *error);
/* The forward passes alone, as a validation runs them. No gradient comes back that would say how far the next rank is, so that one says it: a SEND_B of such a list, and its
 * RECV_B, is a word that the message of this microbatch and chunk has come, with all before it. There is one after every few messages (SCHEDULE_WORDS, or as many as the sender
 * has in flight if that is less), and before a forward there are at most so many without a word as are in flight otherwise, and a few. GPipe's are those of
 * 1F1B; interleaved may have fewer microbatches than ranks. */
tr_status schedule_create_forward(const struct schedule_shape *shape, struct schedule *schedule,
    struct tr_error *error);
void schedule_finish(struct schedule *schedule); /* accepts a zeroed one */

/* Of the p x v stages. */
static inline uint32_t schedule_stage(const struct schedule_shape *shape, uint32_t rank,
    uint32_t chunk)
{
	return chunk * shape->ranks + rank;
}
bool schedule_is_first(const struct schedule_shape *shape, uint32_t rank, uint32_t chunk);
bool schedule_is_last(const struct schedule_shape *shape, uint32_t rank, uint32_t chunk);

/* With whom a send or a receive is; and for a receive, the chunk there that sent it (its own number at the sender), for a send the chunk
 * that gets it: messages are told apart by (direction, microbatch, stage). */
uint32_t schedule_peer(const struct schedule_shape *shape, uint32_t rank,
    const struct schedule_instruction *what);
uint32_t schedule_peer_chunk(const struct schedule_shape *shape, uint32_t rank,
    const struct schedule_instruction *what);

/* The table above. */
uint32_t schedule_group(const struct schedule_shape *shape); /* g; 1 unless interleaved */
uint32_t schedule_warm_up(const struct schedule_shape *shape, uint32_t rank); /* at most m v */
uint32_t schedule_in_flight(const struct schedule_shape *shape, uint32_t rank);
/* Messages that a channel between neighbours has to hold so that nobody waits for ever; then receives are in the order of sends, so a
 * byte stream in each direction will do. 1, but g - p + 1 where groups are larger than p. */
uint32_t schedule_capacity(const struct schedule_shape *shape);
double schedule_bubble(const struct schedule_shape *shape);

#endif
