#include "collectives/transport/packing.h"

#include <stdbool.h>
#include <stdlib.h>
#include <zlib.h>

/* Raw deflate: frames have their own length and check. Without matches no window is looked at; the largest memLevel makes a code for 32,768 bytes at a time. */
#define WINDOW_BITS_PACK   (-9)
#define WINDOW_BITS_UNPACK (-15)
#define MEMORY_LEVEL       9

/* Packed into less than `room`. */
static bool deflated(const void *body, size_t bytes, struct packing_packed *packed, size_t room)
{
	z_stream stream = { 0 };
	if (deflateInit2(&stream, 1, Z_DEFLATED, WINDOW_BITS_PACK, MEMORY_LEVEL, Z_HUFFMAN_ONLY) !=
	    Z_OK)
		return false;
	stream.next_in = (z_const Bytef *)body;
	stream.avail_in = (uInt)bytes;
	stream.next_out = packed->bytes;
	stream.avail_out = (uInt)room;
	bool whole = deflate(&stream, Z_FINISH) == Z_STREAM_END;
	packed->count = room - stream.avail_out;
	(void)deflateEnd(&stream);
	return whole;
}

struct packing_packed *packing_pack(const void *body, size_t bytes)
{
	if (bytes < PACKING_BYTES_MIN || bytes > UINT32_MAX)
		return NULL;
	size_t room = bytes - bytes / 64;
	struct packing_packed *packed = malloc(sizeof(*packed) + room);
	if (packed != NULL && !deflated(body, bytes, packed, room)) {
		free(packed);
		packed = NULL;
	}
	return packed;
}

tr_status packing_unpack(const void *packed, size_t count, void *out, size_t bytes,
    struct tr_error *error)
{
	z_stream stream = { .next_in = (z_const Bytef *)packed, .avail_in = (uInt)count };
	if (count > UINT32_MAX || bytes > UINT32_MAX)
		return tr_error_set(error, TR_EPROTO, "bad packed segment: too long");
	if (inflateInit2(&stream, WINDOW_BITS_UNPACK) != Z_OK)
		return tr_error_set(error, TR_ENOMEM, "no memory to unpack a segment");
	stream.next_out = out;
	stream.avail_out = (uInt)bytes;
	int end = inflate(&stream, Z_FINISH);
	bool exact = end == Z_STREAM_END && stream.avail_in == 0 && stream.avail_out == 0;
	(void)inflateEnd(&stream);
	if (end == Z_MEM_ERROR)
		return tr_error_set(error, TR_ENOMEM, "no memory to unpack a segment");
	return exact
	    ? TR_OK
	    : tr_error_set(error, TR_EPROTO, "bad packed segment: it is not %zu bytes", bytes);
}
