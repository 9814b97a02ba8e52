#include "collectives/transport/packing.h"

#include <stdbool.h>
#include <stdlib.h>
#include <zlib.h>

/* Raw deflate: frames have their own length, and bytes are checked by TCP and TLS as those of a segment that is not packed. */
#define WINDOW_BITS_MAX    15
#define WINDOW_BITS_UNPACK (-WINDOW_BITS_MAX)
#define PACE_NS            UINT64_C(100000000) /* that are looked back on */

void packing_took(struct packing_pace *pace, size_t bytes, uint64_t ns)
{
	if (bytes < PACKING_BYTES_MIN)
		return;
	pace->bytes += bytes;
	pace->ns += ns;
	if (pace->ns > PACE_NS) {
		pace->bytes /= 2;
		pace->ns /= 2;
	}
}

bool packing_pays(bool encoded, bool distant, double way_bytes_per_s,
    const struct packing_pace *pace)
{
	double most = PACKING_RATE_MAX;
	if (pace->ns > 0) {
		double own = PACKING_RATE_PART * 1e9 * (double)pace->bytes / (double)pace->ns;
		most = own < most ? own : most;
	}
	return encoded && distant && way_bytes_per_s < most;
}

static int least_bits(size_t bytes, int least, int most)
{
	int bits = least;
	while (bits < most && (size_t)1 << bits < bytes)
		bits++;
	return bits;
}

/* The least memory, which zlib clears, with which one code is made for all bytes, of 32,768 at most, and the window does not move among them: without matches nothing is looked for in it, but with
 * each move zlib goes through its whole table of hashes (a window of 512 bytes takes six times as long). */
static bool begin(z_stream *stream, size_t bytes)
{
	return deflateInit2(stream, 1, Z_DEFLATED, -least_bits(bytes, 9, WINDOW_BITS_MAX),
	           least_bits(bytes, 7, WINDOW_BITS_MAX) - 6, Z_HUFFMAN_ONLY) == Z_OK;
}

/* Packed into less than `room`. */
static bool deflated(const void *body, size_t bytes, struct packing_packed *packed, size_t room)
{
	z_stream stream = { 0 };
	if (!begin(&stream, bytes))
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
