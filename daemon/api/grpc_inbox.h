/* Bytes received on a call and not yet handed out, with the account of HTTP/2 flow control: a byte is "released" when the peer may
 * send another one for it. Bytes of the message that is being received are released as they come, so that it can arrive whole;
 * bytes behind it only when it was taken. So an inbox holds at most one message and one window. Pure.
 */
#ifndef TR_DAEMON_API_GRPC_INBOX_H
#define TR_DAEMON_API_GRPC_INBOX_H

#include "common/status.h"
#include "daemon/api/grpc_frame.h"

struct grpc_inbox {
	uint8_t *data;
	size_t start, length, capacity; /* data[start .. start + length) */
	size_t released;                /* of the first bytes in it */
};

tr_status grpc_inbox_add(struct grpc_inbox *inbox, const void *data, size_t length);
/* The message at the head; borrowed until the inbox changes. */
enum grpc_frame_state grpc_inbox_look(const struct grpc_inbox *inbox, size_t limit,
    struct grpc_frame *frame);
/* Both return how many bytes the peer's window gets back. */
size_t grpc_inbox_release_head(struct grpc_inbox *inbox, const struct grpc_frame *frame);
size_t grpc_inbox_take(struct grpc_inbox *inbox, const struct grpc_frame *frame);
size_t grpc_inbox_clear(struct grpc_inbox *inbox);
void grpc_inbox_finish(struct grpc_inbox *inbox);

#endif
