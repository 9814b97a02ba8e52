/* What two daemons say to each other to measure the way between them, behind PROBE_GREETING: messages of fixed size, and blocks that begin
 * with one. Pure. The whole conversation: docs/protocol.md, "Probes".
 */
#ifndef TR_PROTO_PROBE_H
#define TR_PROTO_PROBE_H

#include <stdint.h>

#include "common/error.h"

#define PROBE_GREETING      "TPROBE1\n" /* as long as FRAME_GREETING */
#define PROBE_MESSAGE_BYTES 32
#define PROBE_BLOCK_BYTES   (16u << 10) /* its message included */

enum probe_kind {
	PROBE_OPEN = 1, /* from who dials, first: `token` of the other end's daemon, which memberd has given out */
	PROBE_ECHO = 2, /* comes back as it is */
	PROBE_TAKE = 3, /* blocks of mine follow; answered by PROBE_TOOK when the last one is there */
	PROBE_TOOK = 4, /* value[0]: bytes per second at which they came */
	PROBE_GIVE = 5, /* send blocks, for value[0] microseconds or value[1] bytes, whichever is less */
	PROBE_BLOCK = 6,        /* head of a block, of which others follow */
	PROBE_LAST = 7,         /* head of the last one */
	PROBE_OPENED = 8,       /* answer to PROBE_OPEN */
	PROBE_REFUSED = 9,      /* the same: the token is another, or too many probe already */
	PROBE_TAKE_BESIDE = 10, /* as PROBE_TAKE and PROBE_GIVE, while others measure: none ends before its time, and what came from the half to seven eighths of it, after the first byte, counts, when all others are in the midst of theirs */
	PROBE_GIVE_BESIDE = 11,
};

struct probe_message {
	enum probe_kind kind;
	uint64_t value[2]; /* PROBE_OPEN: the token */
};

void probe_message_put(const struct probe_message *message, uint8_t out[PROBE_MESSAGE_BYTES]);
/* TR_EPROTO: not one of these. */
tr_status probe_message_get(const uint8_t in[PROBE_MESSAGE_BYTES], struct probe_message *message,
    struct tr_error *error);

#endif
