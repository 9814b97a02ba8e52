/* The group as the channel of a pipeline (pipeline.h): messages as sends and receives, each in a scope of two.
 *
 * A message's memory is the pipeline's again (tr_release) when the other end has it: pipeline_messages.h.
 *
 *	sharded_channel_init(t, &channel, &error);
 *	... pipeline_create with sharded_channel_calls(&channel)
 *	sharded_channel_begin_round(&channel);                       // pipeline_forget, too
 *	sharded_channel_begin_run(&channel, &shape, train, &lists);
 *	... pipeline_gradient or pipeline_loss                      // false: channel.status and .error say why, unless it was for something else
 *	messages_end_run(&channel.messages);
 */
#ifndef TR_DAEMON_WORKER_SHARDED_CHANNEL_H
#define TR_DAEMON_WORKER_SHARDED_CHANNEL_H

#include "daemon/worker/pipeline_messages.h"

struct trainer;

struct sharded_channel {
	struct trainer *t;
	struct schedule steps, forward; /* of the newest runs of either kind */
	struct messages messages;
	float **buffers; /* as long as the channel is there */
	size_t buffer_count, buffer_room, handed_out;
	tr_status status; /* of the first that failed */
	struct tr_error error;
};

tr_status sharded_channel_init(struct trainer *t, struct sharded_channel *channel,
    struct tr_error *error);
void sharded_channel_finish(
    struct sharded_channel *channel); /* after pipeline_destroy; accepts a zeroed one */
struct pipeline_channel sharded_channel_calls(struct sharded_channel *channel);
/* The pipeline was destroyed: the next one gets the same memory. */
static inline void sharded_channel_forget(struct sharded_channel *channel)
{
	channel->handed_out = 0;
}
void sharded_channel_begin_round(struct sharded_channel *channel);
/* *lists: of all ranks for so many microbatches, the channel's; kept as long as their number is the same. */
tr_status sharded_channel_begin_run(struct sharded_channel *channel,
    const struct schedule_shape *shape, bool train, const struct schedule **lists);

#endif
