#include "proto/relay.h"

#include <string.h>

#include "proto/bytes.h"

/* 0 u32 kind, 4 u32 cause, 8 u64 group, 16 u64 from, 24 u64 to, 32 u64 token[2], 48 zeros */
#define USED_BYTES 48

void relay_message_put(const struct relay_message *message, uint8_t out[RELAY_MESSAGE_BYTES])
{
	memset(out, 0, RELAY_MESSAGE_BYTES);
	bytes_put_u32(out, (uint32_t)message->kind);
	bytes_put_u32(out + 4, (uint32_t)message->cause);
	bytes_put_u64(out + 8, message->group);
	bytes_put_u64(out + 16, message->from);
	bytes_put_u64(out + 24, message->to);
	bytes_put_u64(out + 32, message->token[0]);
	bytes_put_u64(out + 40, message->token[1]);
}

tr_status relay_message_get(const uint8_t in[RELAY_MESSAGE_BYTES], struct relay_message *message,
    struct tr_error *error)
{
	uint32_t kind = bytes_get_u32(in), cause = bytes_get_u32(in + 4);
	if (kind < RELAY_CALL || kind > RELAY_REFUSED)
		return tr_error_set(error, TR_EPROTO, "a relay's message of kind %u", kind);
	if (cause > RELAY_CAUSE_NOBODY || (cause != RELAY_CAUSE_NONE) != (kind == RELAY_REFUSED))
		return tr_error_set(error, TR_EPROTO, "a relay's message with the cause %u", cause);
	for (unsigned i = USED_BYTES; i < RELAY_MESSAGE_BYTES; i++)
		if (in[i] != 0)
			return tr_error_set(error, TR_EPROTO,
			    "a relay's message with something behind its end");
	*message = (struct relay_message){ .kind = (enum relay_kind)kind,
		.cause = (enum relay_cause)cause,
		.group = bytes_get_u64(in + 8),
		.from = bytes_get_u64(in + 16),
		.to = bytes_get_u64(in + 24),
		.token = { bytes_get_u64(in + 32), bytes_get_u64(in + 40) } };
	return TR_OK;
}

const char *relay_cause_words(enum relay_cause cause)
{
	switch (cause) {
	case RELAY_CAUSE_UNKNOWN:
		return "the relay does not know this pair";
	case RELAY_CAUSE_FULL:
		return "the relay has no room for more connections of this pair";
	case RELAY_CAUSE_NOBODY:
		return "the other end does not wait at the relay";
	case RELAY_CAUSE_NONE:
		break;
	}
	return "refused by the relay";
}
