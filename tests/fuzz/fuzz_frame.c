/* A stream of frames: each header is decoded, and what decodes must encode to the same bytes. */
#include <assert.h>
#include <string.h>

#include "common/limits.h"
#include "proto/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	while (size >= FRAME_HEADER_BYTES) {
		struct frame_header header;
		struct tr_error error;
		if (frame_header_get(data, &header, &error) != TR_OK) {
			assert(strlen(error.text) > 0);
			return 0;
		}
		assert(header.length <= TR_FRAME_CONTROL_MAX);
		uint8_t again[FRAME_HEADER_BYTES];
		frame_header_put(&header, again);
		assert(memcmp(again, data, sizeof(again)) == 0);
		data += FRAME_HEADER_BYTES;
		size -= FRAME_HEADER_BYTES;
		if (header.length > size)
			return 0;
		data += header.length;
		size -= header.length;
	}
	return 0;
}
