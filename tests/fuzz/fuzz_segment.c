/* The fixed headers of bulk frames. First byte: which one; the rest is the frame's payload. */
#include <assert.h>
#include <string.h>

#include "proto/segment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void segment(const uint8_t *data, size_t size)
{
	struct segment_header header;
	struct tr_error error;
	if (segment_header_get(data, size, &header, &error) != TR_OK) {
		assert(strlen(error.text) > 0);
		return;
	}
	assert(header.segment < TR_OP_SEGMENTS_MAX && header.elements <= header.signature.count);
	uint8_t again[SEGMENT_HEADER_BYTES];
	segment_header_put(&header, again);
	assert(memcmp(again, data, sizeof(again)) == 0);
}

static void state(const uint8_t *data, size_t size)
{
	struct state_header header;
	struct tr_error error;
	if (state_header_get(data, size, &header, &error) != TR_OK) {
		assert(strlen(error.text) > 0);
		return;
	}
	assert(header.bytes == size - STATE_HEADER_BYTES);
	assert(header.offset + header.bytes >= header.offset);
	uint8_t again[STATE_HEADER_BYTES];
	state_header_put(&header, again);
	assert(memcmp(again, data, sizeof(again)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	if (data[0] % 2 == 0)
		segment(data + 1, size - 1);
	else
		state(data + 1, size - 1);
	return 0;
}
