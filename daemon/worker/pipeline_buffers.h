/* Inside pipeline.c: the arrays that messages are sent from and received into. A buffer is ours from buffers_take to buffers_give, and with the channel from its send or
 * receive until that says it is idle; free is what is neither. */
#ifndef TR_DAEMON_WORKER_PIPELINE_BUFFERS_H
#define TR_DAEMON_WORKER_PIPELINE_BUFFERS_H

#include "daemon/worker/pipeline.h"

#define BUFFERS_NONE UINT32_MAX

enum buffers_kind { BUFFERS_SENT_F, BUFFERS_SENT_B, BUFFERS_RECEIVED_F, BUFFERS_RECEIVED_B };
#define BUFFERS_KINDS 4

struct message_buffer {
	real *data;
	uint64_t ticket;
	bool ours, lent;
	uint8_t kind;  /* of its last message */
	uint32_t next; /* in the list that it is in; BUFFERS_NONE: none */
};

struct buffers_list {
	uint32_t first, last;
};

struct buffers_of_messages {
	const struct pipeline_channel *channel;
	size_t numbers; /* of a buffer */
	struct message_buffer *at;
	uint32_t count, room;
	struct buffers_list free;
	struct buffers_list
	    waiting[BUFFERS_KINDS]; /* for the channel, which is done with the first one first */
};

void buffers_init(struct buffers_of_messages *buffers, const struct pipeline_channel *channel,
    size_t numbers);
void buffers_finish(struct buffers_of_messages *buffers);
void buffers_forget(struct buffers_of_messages *buffers);

/* False: there is no memory. *buffer was BUFFERS_NONE. */
bool buffers_take(struct buffers_of_messages *buffers, uint32_t *buffer);
/* *buffer is BUFFERS_NONE then; accepts that. */
void buffers_give(struct buffers_of_messages *buffers, uint32_t *buffer);
real *buffers_data(const struct buffers_of_messages *buffers, uint32_t buffer); /* NULL of none */

/* The channel's calls of these names. */
bool buffers_send(struct buffers_of_messages *buffers, uint32_t buffer,
    const struct pipeline_message *message, size_t count);
bool buffers_receive(struct buffers_of_messages *buffers, uint32_t buffer,
    const struct pipeline_message *message, size_t count);
bool buffers_wait(const struct buffers_of_messages *buffers, uint32_t buffer);

#endif
