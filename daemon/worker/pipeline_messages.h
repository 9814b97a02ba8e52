/* The messages of a pipeline's round, and when the memory of one may be used again. Pure: sharded_pipeline.c exchanges them with the group, tests with
 * simulated peers.
 *
 * What was received may be released once it was waited for. What was sent may be when the other end has waited for it, which nobody says: its list tells. Lists are run in their
 * order, so whoever has waited for a message that the peer sends after that receive knows: a gradient, or in forward passes alone a word (schedule_create_forward).
 *
 *	messages_begin_round(&m);
 *	messages_begin_run(&m, &schedule, &error);     // some microbatches; a round may have several runs
 *	messages_add(&m, &message, outgoing, &ticket); // tag: messages_tag(&m, ticket)
 *	messages_waited(&m, ticket);
 *	if (messages_idle(&m, ticket)) ...             // it may be released
 *	messages_end_run(&m);
 */
#ifndef TR_DAEMON_WORKER_PIPELINE_MESSAGES_H
#define TR_DAEMON_WORKER_PIPELINE_MESSAGES_H

#include "daemon/worker/pipeline.h"

/* Where a message is in the lists of its two ends. */
struct message_places {
	uint32_t sent, received;
};

struct message {
	uint32_t tag, peer; /* pipeline rank at the other end */
	uint32_t
	    done; /* with this instruction the peer has sent or received it: counted over the lists of a round, one after the other */
	bool outgoing, released;
};

struct messages {
	const struct schedule *schedule; /* of the run under way; borrowed as long as it is the same */
	struct schedule_shape shape;     /* that `places` are of; zeros: of none */
	bool forward;                    /* the same */
	struct message_places *places; /* by number (pipeline_message_number) */
	uint32_t *
	    seen; /* by pipeline rank: so many instructions of its lists are done, as far as is known */
	uint32_t ranks;
	uint32_t first_tag, first; /* of this run's messages and instructions */
	struct message *at;        /* of the round; tickets are places in it */
	uint32_t count, room;
};

/* TR_ENOMEM. */
tr_status messages_init(struct messages *messages, uint32_t ranks, struct tr_error *error);
void messages_finish(struct messages *messages); /* accepts a zeroed one */

/* Tags are `first_tag` and up. */
void messages_begin_round(struct messages *messages, uint32_t first_tag);
/* TR_ENOMEM. */
tr_status messages_begin_run(struct messages *messages, const struct schedule *schedule,
    struct tr_error *error);
void messages_end_run(struct messages *messages);

/* One that this rank sends or receives in the run under way. False: no memory. */
bool messages_add(struct messages *messages, const struct pipeline_message *message, bool outgoing,
    uint64_t *ticket);
void messages_waited(struct messages *messages, uint64_t ticket);
bool messages_idle(const struct messages *messages, uint64_t ticket);

#endif
