/* Messages of a call that wait to be sent, framed. Pure. */
#ifndef TR_DAEMON_API_GRPC_OUTBOX_H
#define TR_DAEMON_API_GRPC_OUTBOX_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct grpc_outbox_message;

struct grpc_outbox {
	struct grpc_outbox_message *first, *last;
	size_t unsent; /* bytes, prefixes included */
};

/* Copies the message. TR_ELIMIT: longer than a prefix can say. */
tr_status grpc_outbox_add(struct grpc_outbox *outbox, const void *message, size_t bytes);
/* Moves at most `capacity` bytes out. */
size_t grpc_outbox_read(struct grpc_outbox *outbox, uint8_t *out, size_t capacity);
void grpc_outbox_finish(struct grpc_outbox *outbox);

#endif
