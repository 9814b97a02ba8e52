#include "proto/frame.h"

#include <xxhash.h>

#include "common/limits.h"
#include "proto/bytes.h"

/* Length and type; the check covers these. */
#define CHECKED_BYTES 6

static uint16_t frame_check(const uint8_t *bytes)
{
	return (uint16_t)XXH3_64bits(bytes, CHECKED_BYTES);
}

void frame_header_put(const struct frame_header *header, uint8_t out[FRAME_HEADER_BYTES])
{
	bytes_put_u32(out, header->length);
	bytes_put_u16(out + 4, header->type);
	bytes_put_u16(out + 6, frame_check(out));
}

static uint32_t frame_length_max(uint16_t type)
{
	switch (type) {
	case FRAME_TO_MEMBER:
	case FRAME_TO_NODE:
	case FRAME_PEER:
		return TR_FRAME_CONTROL_MAX;
	case FRAME_SEGMENT:
	case FRAME_STATE:
	case FRAME_PACKED:
		return TR_FRAME_DATA_MAX;
	default:
		return 0;
	}
}

tr_status frame_header_get(const uint8_t in[FRAME_HEADER_BYTES], struct frame_header *header,
    struct tr_error *error)
{
	uint32_t length = bytes_get_u32(in);
	uint16_t type = bytes_get_u16(in + 4);

	if (bytes_get_u16(in + 6) != frame_check(in))
		return tr_error_set(error, TR_EPROTO, "bad frame: header check does not match");
	uint32_t max = frame_length_max(type);
	if (max == 0)
		return tr_error_set(error, TR_EPROTO, "bad frame: unknown type %u", type);
	if (length > max)
		return tr_error_set(error, TR_EPROTO,
		    "bad frame: %u bytes, at most %u in a frame of type %u", length, max, type);
	*header = (struct frame_header){ .length = length, .type = type };
	return TR_OK;
}
