/* The shared-memory channel between a worker and the engine in its traind: what both ends agree on.
 *
 * A UNIX socket pair (the worker inherits its end as TRAIND_WORKER_FD) carries what is rare or has a descriptor: the
 * engine's hello with the control page and the doorbells, the worker's arenas (memfds that are sealed against shrinking),
 * the names of its state, its reports. Its end of file is the other side's death.
 *
 * The control page holds two rings: submissions (worker -> engine) and answers (engine -> worker), each with one
 * producer and one consumer, counted by ever-growing 64-bit counters. Whoever adds an entry rings the other's eventfd,
 * unless the other has not caught up with earlier entries and so will look again anyway.
 *
 * Beside them there is room for one question about the member (tr_explain and its like) and what the engine tells: it is asked by
 * whatever thread of the worker wants to know, while another one waits for a call's answer. So it has a doorbell of its own.
 *
 * The engine trusts nothing in it: it copies an entry before looking at it, checks every offset, count and type, and
 * keeps its own copies of the counters that it writes. A worker in the same process (tr_group_join) uses the very same
 * channel.
 */
#ifndef TR_COLLECTIVES_ENGINE_CHANNEL_H
#define TR_COLLECTIVES_ENGINE_CHANNEL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/coll.h"
#include "collectives/transport/commons.h"
#include "common/limits.h"

#define CHANNEL_ENV     "TRAIND_WORKER_FD"
#define CHANNEL_MAGIC   0x314c4e4843525431u /* "1TRCHNL1" */
#define CHANNEL_VERSION 11u

enum channel_call {
	CHANNEL_SUBMIT = 1, /* an op; no answer: its errors come with the commit's */
	CHANNEL_READY,      /* .round */
	CHANNEL_BEGIN,      /* answer: .round, its contributors in .peers */
	CHANNEL_WAIT,       /* .tag, .count: 0, or how many ms it waits at most, and 1 */
	CHANNEL_RECEIVE_STATE, /* joiner; .count as of WAIT. Answer: with a limit .state, as it is then */
	CHANNEL_COMMIT,        /* .commit, .count as of WAIT; answer: .round */
	CHANNEL_CONTRIBUTORS, /* .tag, .offset = element; answer: peers in .peers */
	CHANNEL_RELEASE,      /* .tag; as SUBMIT, but it can wait until something else is said */
	CHANNEL_SCOPED, /* answer: noted. Ops in scopes may be made without the engine from now on (commons.h) */
};

struct channel_submission {
	uint64_t id; /* of a call that is answered; 0: SUBMIT, RELEASE */
	uint32_t call;
	uint32_t tag;
	uint64_t offset; /* into the arena, bytes */
	uint64_t count;
	uint64_t round;
	struct tr_commit commit;
	uint32_t arena;
	uint8_t dtype, reduce, contribute;
	uint8_t extended; /* the rest of it is in channel_control.extras, in the same place */
	uint8_t collective, codec, algorithm, unused;
	uint32_t root;
};

/* Of a SUBMIT that is not plainly in place: an op's input, blocks, error feedback. */
struct channel_block {
	uint32_t present, rank;
	uint64_t extents[TR_BLOCK_RANK_MAX], strides[TR_BLOCK_RANK_MAX];
};
struct channel_place {
	uint64_t offset;
	uint32_t arena, present;
};
struct channel_extra {
	struct channel_place input, residual, residual_next;
	uint64_t own_elements; /* of the caller's block, where it has memory of its own */
	struct channel_block input_block, output_block;
	float beta;
	uint32_t scope_count;                  /* 0: of all */
	uint8_t scope[TR_GROUP_PEERS_MAX / 8]; /* bits of the round's contributors */
};

struct channel_answer {
	uint64_t id;
	uint64_t abandons; /* BEGIN: channel_control.abandons from which this round counts */
	uint64_t attempt;  /* BEGIN: at the round: no two have the same number */
	int32_t status;
	uint32_t
	    count; /* BEGIN, CONTRIBUTORS: how many peers there are; RECEIVE_STATE: words of .state */
	uint64_t run; /* CONTRIBUTORS: elements of a segment of the op; 0: no such op */
	struct tr_round round;
	/* What is not said is not copied (channel_answer_bytes). */
	union {
		char text[TR_ERROR_TEXT_MAX];
		uint64_t peers[TR_GROUP_PEERS_MAX];
		struct tr_state_progress state;
	};
};

/* Of an answer whose count was checked; `text` is there if it failed, or else what `count` says. */
static inline size_t channel_answer_bytes(const struct channel_answer *answer)
{
	const size_t head = offsetof(struct channel_answer, text);
	return answer->status != TR_OK ? head + sizeof(answer->text)
	                               : head + answer->count * sizeof(answer->peers[0]);
}

enum channel_question_kind {
	CHANNEL_EXPLAIN = 1, /* .collective and the rest; told: .algorithm, .text */
	CHANNEL_STATS,       /* told: .stats */
	CHANNEL_LINKS,       /* told: .count of channel_control.links */
};

struct channel_question {
	uint32_t kind;
	uint32_t collective, dtype, codec, algorithm, unused;
	uint64_t count;
};

struct channel_told {
	int32_t status;
	uint32_t algorithm, count, unused;
	char text[TR_ERROR_TEXT_MAX]; /* of an explanation, or of an error */
	struct tr_stats stats;
};

struct channel_control {
	uint64_t magic;
	uint32_t version;
	uint32_t rank, world_size, threads, restarts;
	uint64_t job, group, peer;
	uint64_t spec_bytes; /* packed traind.v1.JobSpec behind this struct */
	uint32_t seat;       /* in the commons; COMMONS_NO_SEAT: it has none */

	/* Written by the worker. */
	_Alignas(64) _Atomic uint64_t submitted; /* entries ever put into `submissions` */
	_Atomic uint64_t answers_taken;
	_Atomic uint64_t progress; /* tr_progress */
	_Atomic uint64_t said;     /* messages ever sent on the socket */
	_Atomic uint64_t asked;    /* number of the newest question; written after `question` */
	_Atomic uint64_t waited;   /* channel_waited_us: that calls have waited */
	_Atomic uint64_t lacks;    /* peer for which it waits without the engine; 0: none */
	_Atomic uint64_t
	    lacked_us; /* when it said so last (channel_now_us), again and again: who was stopped meanwhile does not */
	/* Of committed rounds, made without the engine; by enum tr_collective. */
	_Atomic uint64_t common_ops[TR_COLLECTIVES_MAX], common_bytes[TR_COLLECTIVES_MAX];

	/* Written by the engine. */
	_Alignas(64) _Atomic uint64_t taken; /* entries ever taken out of `submissions` */
	_Atomic uint64_t answered;
	_Atomic uint64_t
	    told; /* of which question `of_question` and `links` are; written after them */
	_Atomic uint64_t
	    abandons; /* grows when a round under way is given up: what tr_progress looks at */
	_Atomic int32_t ended; /* not TR_OK: the member is over; written after ended_text */
	char ended_text[TR_ERROR_TEXT_MAX];

	_Alignas(64) struct channel_submission submissions[TR_CHANNEL_RING];
	_Alignas(64) struct channel_answer answers[TR_CHANNEL_ANSWERS];
	_Alignas(
	    64) struct channel_extra extras[TR_CHANNEL_RING]; /* pages that nobody uses cost nothing */

	_Alignas(64) struct channel_question question;
	_Alignas(64) struct channel_told of_question;
	struct tr_link links[TR_GROUP_PEERS_MAX];
};

/* Messages on the socket: this header, then `bytes` bytes. */
enum channel_message_kind {
	CHANNEL_HELLO = 1, /* engine: nothing; descriptors: control page, the doorbells of engine, calls and questions, and with a seat the commons */
	CHANNEL_ARENA, /* worker: u64 size; descriptor: a sealed memfd. Arenas are numbered as they come */
	CHANNEL_STATE,  /* worker: struct channel_state, then the name */
	CHANNEL_REPORT, /* worker: packed traind.peer.PeerReport */
};

struct channel_message {
	uint32_t kind, bytes;
};

struct channel_state {
	uint64_t offset, bytes;
	uint32_t arena, name_bytes;
	uint32_t gradual, unused; /* 1 + its unit (tr_state_add_gradual); 0: it is not */
};

uint64_t channel_now_us(void); /* since some moment that both ends share */
/* What `waited` of channel_control says: twice the time that calls have waited; while one waits, 1 more than twice the time at which it would have begun had all been one. A word, so that its reader sees all
 * of it, at any time. */
uint64_t channel_waited_us(uint64_t word);

/* Both ends of a channel's socket, close-on-exec. `ends[0]` is for engine_add_worker, `ends[1]` for the worker. */
tr_status channel_pair(int ends[2], struct tr_error *error);

/* Sends one message whole, waiting if it must. TR_EUNAVAILABLE: the other side is gone. */
tr_status channel_send(int fd, uint32_t kind, const void *head, size_t head_bytes, const void *body,
    size_t body_bytes, const int *descriptors, unsigned descriptor_count);

/* Receives messages piecewise; see channel.c. */
#define CHANNEL_DESCRIPTORS_MAX 8
struct channel_inbox {
	uint8_t bytes[2 * (TR_CHANNEL_MESSAGE_MAX + sizeof(struct channel_message))];
	size_t begin, end;
	int descriptors[CHANNEL_DESCRIPTORS_MAX];
	unsigned descriptor_count;
};
/* One receive without waiting. TR_OK: something came; TR_EAGAIN: nothing now; TR_EUNAVAILABLE: the other side is
 * gone; TR_EPROTO: more descriptors than any message has. */
tr_status channel_inbox_fill(struct channel_inbox *inbox, int fd);
/* The next whole message; its payload is borrowed until the next fill. TR_EAGAIN: none; TR_EPROTO. */
tr_status channel_inbox_next(struct channel_inbox *inbox, struct channel_message *message,
    const uint8_t **payload);
/* The oldest descriptor, now the caller's; -1: none. */
int channel_inbox_descriptor(struct channel_inbox *inbox);
void channel_inbox_finish(struct channel_inbox *inbox);

#endif
