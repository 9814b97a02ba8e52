/* A segment's header near the truth, for the fuzzers that send segments. */
#ifndef TR_TESTS_FUZZ_SCRIPT_SEGMENT_H
#define TR_TESTS_FUZZ_SCRIPT_SEGMENT_H

#include "collectives/coll.h"
#include "proto/segment.h"
#include "tests/fuzz/script.h"

/* What would be right. */
struct script_truth {
	uint64_t view, round, attempt, count;
	unsigned tags;         /* tags from 0 */
	uint32_t elements_end; /* a segment has fewer */
};

/* All but its contributors; `bytes` fits the elements. The order in which bytes are taken is part of the committed corpora. */
static struct segment_header script_segment(struct script *script, const struct script_truth *truth)
{
	static const uint8_t sizes[] = { 1, 4, 8, 4, 8, 2, 2, 1 };
	struct segment_header header = { 0 };
	uint8_t dtype = (uint8_t)script_about(script, TR_F32);
	header.elements = (uint32_t)script_about(script, 16) % truth->elements_end;
	header.view = script_about(script, truth->view);
	header.round = script_about(script, truth->round);
	header.attempt = script_about(script, truth->attempt);
	header.tag = (uint32_t)script_about(script, script_byte(script) % truth->tags);
	header.segment = (uint32_t)script_about(script, script_byte(script) % 4);
	header.signature.count = script_about(script, truth->count);
	header.signature.dtype = dtype;
	header.signature.reduce = (uint8_t)script_about(script, TR_SUM);
	header.signature.codec = (uint8_t)script_about(script, 0);
	header.signature.collective = (uint8_t)script_about(script, TR_ALL_REDUCE);
	header.signature.root = (uint32_t)script_about(script, 0);
	header.signature.algorithm = (uint8_t)script_about(script, 0);
	header.kind = (uint8_t)script_about(script, 1 + script_byte(script) % 3);
	header.encoding = (uint8_t)script_about(script, 0);
	header.bytes = header.elements * sizes[dtype % sizeof(sizes)];
	return header;
}

#endif
