/* Length-prefixed messages of gRPC (github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md): one byte "compressed", four bytes of
 * length, big-endian, then the message. Pure.
 */
#ifndef TR_DAEMON_API_GRPC_FRAME_H
#define TR_DAEMON_API_GRPC_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRPC_FRAME_PREFIX_BYTES 5

enum grpc_frame_state {
	GRPC_FRAME_PARTIAL,    /* more bytes are needed */
	GRPC_FRAME_WHOLE,      /* message and bytes are set */
	GRPC_FRAME_COMPRESSED, /* flag 1: identity is the only encoding here */
	GRPC_FRAME_MALFORMED,  /* flag neither 0 nor 1 */
	GRPC_FRAME_TOO_LONG,   /* more than `limit` */
};

struct grpc_frame {
	const uint8_t *message; /* borrowed from the bytes looked at; NULL unless whole */
	size_t bytes;           /* of the message; 0 while the prefix is incomplete */
};

void grpc_frame_put_prefix(uint8_t prefix[GRPC_FRAME_PREFIX_BYTES], uint32_t message_bytes);

/* Looks at the message that begins at `data`. The length is judged before the message is there. */
enum grpc_frame_state grpc_frame_look(const uint8_t *data, size_t length, size_t limit,
    struct grpc_frame *frame);

#endif
