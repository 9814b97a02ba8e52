#include "daemon/api/grpc_frame.h"

void grpc_frame_put_prefix(uint8_t prefix[GRPC_FRAME_PREFIX_BYTES], uint32_t message_bytes)
{
	prefix[0] = 0;
	for (unsigned i = 0; i < 4; i++)
		prefix[1 + i] = (uint8_t)(message_bytes >> (24 - 8 * i));
}

enum grpc_frame_state grpc_frame_look(const uint8_t *data, size_t length, size_t limit,
    struct grpc_frame *frame)
{
	*frame = (struct grpc_frame){ NULL, 0 };
	if (length > 0 && data[0] > 1)
		return GRPC_FRAME_MALFORMED;
	if (length < GRPC_FRAME_PREFIX_BYTES)
		return GRPC_FRAME_PARTIAL;
	if (data[0] == 1)
		return GRPC_FRAME_COMPRESSED;
	for (unsigned i = 0; i < 4; i++)
		frame->bytes = frame->bytes << 8 | data[1 + i];
	if (frame->bytes > limit)
		return GRPC_FRAME_TOO_LONG;
	if (length - GRPC_FRAME_PREFIX_BYTES < frame->bytes)
		return GRPC_FRAME_PARTIAL;
	frame->message = data + GRPC_FRAME_PREFIX_BYTES;
	return GRPC_FRAME_WHOLE;
}
