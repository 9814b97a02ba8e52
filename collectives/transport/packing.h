/* A segment's encoded elements in fewer bytes, without loss, for ways on which each byte takes its time. A codec's codes are not equally frequent: most numbers of a
 * block are small beside its largest, by which the others are scaled. Huffman's code for bytes (RFC 1951, made by zlib, without looking for repetitions, of which
 * there are none) takes of a block's bytes, measured by tests/unit/test_packing.c:
 *
 * | codec | Gaussian data | Laplacian data |
 * |---|---|---|
 * | bf16 | 0.78 | 0.79 |
 * | int8 | 0.95 | 0.89 |
 * | int4 | 0.91 | 0.79 |
 * | e3m0 | 0.89 | 0.93 |
 * | int2 | 0.96 | 0.91 |
 *
 * It takes 5 to 8 ns a byte (4 KiB and more), 120 to 200 MB/s of a core, to pack, and half of that to unpack: so it is done for distant peers only, and while the ways carry much less than
 * this processor packs (packing_pays).
 *
 *	struct packing_packed *packed = packing_pack(body, bytes);        // NULL: send it as it is
 *	packing_unpack(packed->bytes, packed->count, out, bytes, &error); // there
 *
 * Pure. Any thread.
 */
#ifndef TR_COLLECTIVES_TRANSPORT_PACKING_H
#define TR_COLLECTIVES_TRANSPORT_PACKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define PACKING_BYTES_MIN 1024 /* a smaller body has less to give than a table takes */
/* Bytes a second of ways on which packing still gains, and the same as a part of what is packed in a second: a way may seem slow because its sender packs. */
#define PACKING_RATE_MAX  32e6
#define PACKING_RATE_PART 0.3

/* What packing took lately. Zeros: nothing was packed. */
struct packing_pace {
	uint64_t bytes, ns;
};

/* `ns` of a processor: that the thread was not let run in between says nothing of how fast it packs, and who is taken for slow packs no more, so nothing would put that right. Of what
 * is too small to be packed nothing is learned. */
void packing_took(struct packing_pace *pace, size_t bytes, uint64_t ns);
/* Whether elements are to be packed that are encoded or not, for a peer that is distant (a millisecond and more) or not. `way_bytes_per_s`: what all long ways carry together, no more than that;
 * 0: it is not known, and few bytes are the better guess. */
bool packing_pays(bool encoded, bool distant, double way_bytes_per_s,
    const struct packing_pace *pace);

struct packing_packed {
	size_t count;
	uint8_t bytes[];
};

/* One allocation, the caller's to free. NULL: too small, not smaller by a sixty-fourth, or no memory. */
struct packing_packed *packing_pack(const void *body, size_t bytes);

/* Exactly `bytes` into `out`, out of exactly `count`; else TR_EPROTO, with anything in `out`. TR_ENOMEM. Any input is safe. */
tr_status packing_unpack(const void *packed, size_t count, void *out, size_t bytes,
    struct tr_error *error);

#endif
