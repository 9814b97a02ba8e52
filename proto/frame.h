/* Frames on every TCP connection between daemons (docs/protocol.md).
 *
 * A connection starts with the 8-byte greeting FRAME_GREETING, so that one port can also serve
 * HTTP/2 (gRPC), whose preface starts with "PRI ". Then frames follow, little-endian:
 *
 *	u32 length   payload bytes, at most TR_FRAME_CONTROL_MAX or TR_FRAME_DATA_MAX by type
 *	u16 type     enum frame_type
 *	u16 check    low 16 bits of XXH3-64 over the first 6 bytes: a stream that lost its step is
 *	             noticed at once
 *	payload
 *
 * Pure: no sockets here. A peer's bytes can only ever yield a status.
 */
#ifndef TR_PROTO_FRAME_H
#define TR_PROTO_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define FRAME_GREETING            "TRAIND6\n"
#define FRAME_GREETING_BYTES      8
#define FRAME_GREETING_NAME_BYTES 6 /* then comes the version of frames */
#define FRAME_HEADER_BYTES        8

enum frame_type {
	FRAME_TO_MEMBER = 1, /* traind.peer.ToMember */
	FRAME_TO_NODE = 2,   /* traind.peer.ToNode */
	FRAME_PEER = 3,      /* traind.peer.PeerMessage */
	FRAME_SEGMENT = 4,   /* struct segment_header, then elements */
	FRAME_STATE = 5,     /* struct state_header, then bytes */
	FRAME_PACKED = 6, /* struct segment_header, then its payload packed (collectives/transport/packing.h) */
};

struct frame_header {
	uint32_t length;
	uint16_t type;
};

void frame_header_put(const struct frame_header *header, uint8_t out[FRAME_HEADER_BYTES]);
/* TR_EPROTO with the cause: bad check, unknown type, or a length over its type's limit. */
tr_status frame_header_get(const uint8_t in[FRAME_HEADER_BYTES], struct frame_header *header,
    struct tr_error *error);

#endif
