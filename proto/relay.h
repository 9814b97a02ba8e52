/* What is said to a relay and what it answers, behind RELAY_GREETING: one message of fixed size each way, then bytes as they are. Pure.
 * The whole conversation: docs/protocol.md, "Relays".
 */
#ifndef TR_PROTO_RELAY_H
#define TR_PROTO_RELAY_H

#include <stdint.h>

#include "common/error.h"

#define RELAY_GREETING      "TRELAY1\n" /* as long as FRAME_GREETING */
#define RELAY_MESSAGE_BYTES 64

enum relay_kind {
	RELAY_CALL = 1,    /* to the relay: I dial for `from` whom `to` is to hear */
	RELAY_WAIT = 2,    /* to the relay: I am where `to` is, and wait for the next call */
	RELAY_JOINED = 3,  /* from the relay: what follows is the other end's */
	RELAY_REFUSED = 4, /* from the relay, which closes: `cause` */
};

enum relay_cause {
	RELAY_CAUSE_NONE = 0,
	RELAY_CAUSE_UNKNOWN = 1, /* it was not told of this pair, or of another token */
	RELAY_CAUSE_FULL = 2,    /* of this pair, or in all */
	RELAY_CAUSE_NOBODY = 3,  /* no RELAY_WAIT came in time */
};

struct relay_message {
	enum relay_kind kind;
	enum relay_cause cause; /* of RELAY_REFUSED */
	uint64_t group, from, to;
	uint64_t token[2]; /* the pair's, from memberd; 0 in answers */
};

void relay_message_put(const struct relay_message *message, uint8_t out[RELAY_MESSAGE_BYTES]);
/* TR_EPROTO: not one of these. */
tr_status relay_message_get(const uint8_t in[RELAY_MESSAGE_BYTES], struct relay_message *message,
    struct tr_error *error);
const char *relay_cause_words(enum relay_cause cause);

#endif
