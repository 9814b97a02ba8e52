#include "proto/probe.h"

#include <string.h>

#include "proto/bytes.h"

/* 0 u32 kind, 4 zeros, 8 u64 value[2], 24 zeros */
#define USED_BYTES 24

void probe_message_put(const struct probe_message *message, uint8_t out[PROBE_MESSAGE_BYTES])
{
	memset(out, 0, PROBE_MESSAGE_BYTES);
	bytes_put_u32(out, (uint32_t)message->kind);
	bytes_put_u64(out + 8, message->value[0]);
	bytes_put_u64(out + 16, message->value[1]);
}

tr_status probe_message_get(const uint8_t in[PROBE_MESSAGE_BYTES], struct probe_message *message,
    struct tr_error *error)
{
	uint32_t kind = bytes_get_u32(in);
	if (kind < PROBE_OPEN || kind > PROBE_GIVE_BESIDE)
		return tr_error_set(error, TR_EPROTO, "a probe's message of kind %u", kind);
	if (bytes_get_u32(in + 4) != 0 || bytes_get_u64(in + USED_BYTES) != 0)
		return tr_error_set(error, TR_EPROTO,
		    "a probe's message with something where nothing belongs");
	*message = (struct probe_message){ .kind = (enum probe_kind)kind,
		.value = { bytes_get_u64(in + 8), bytes_get_u64(in + 16) } };
	return TR_OK;
}
