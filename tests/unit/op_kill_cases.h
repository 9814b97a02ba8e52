/* Cases of the kill matrix of all collectives (test_group_op_kills.c): what each peer gives, and what becomes of a segment by who is in it.
 * All of it is static.
 */
#ifndef TR_TESTS_OP_KILL_CASES_H
#define TR_TESTS_OP_KILL_CASES_H

#include <string.h>

#include "tests/unit/group_pump.h"
#include "tests/unit/kill_reference.h"

#include "collectives/core/op.h"

#define COUNT 46
#define BETA  0.5f

struct kill_case {
	enum tr_collective collective;
	enum tr_codec codec;
	enum tr_algorithm algorithm;
	Traind__Peer__Policy policy;
	unsigned n, victim, after, start;
	bool in_place, feedback, deterministic;
};

static inline bool is_sum(const struct kill_case *c)
{
	return c->collective == TR_ALL_REDUCE || c->collective == TR_REDUCE_SCATTER;
}

/* Sums of several, in an order that the case says? Without one only whole numbers have exact ones. */
static inline bool ordered(const struct kill_case *c)
{
	bool reduced = c->collective == TR_ALL_REDUCE;

	return c->deterministic || c->codec != TR_CODEC_NONE ||
	    !(reduced || c->collective == TR_REDUCE_SCATTER) ||
	    (reduced && (c->algorithm == TR_RING || c->algorithm == TR_ONE_SHOT));
}

/* Of the peer, not of its index. Each order of a sum has bits of its own, if there is one: with a codec too, since large numbers of two peers
 * cancel, in a quarter of the op. */
static inline float value(const struct kill_case *c, unsigned peer, size_t k)
{
	float whole = (float)((peer * 5 + k * 3) % 16);

	if (!ordered(c))
		return whole;
	if (k % 16 >= 12 && (peer == 1 || peer == 3))
		return (float)(k % 4 + 1) * (peer == 1 ? 0x1p26f : -0x1p26f);
	return (whole - 4.5f) / 3 * (float)(1u << (peer + k) % 3);
}

static inline float residual(unsigned peer, size_t k)
{
	return (float)((peer * 3 + k) % 8) / 8 - 0.5f;
}

/* As everybody cuts the op: the segment with element k. */
struct piece {
	uint32_t segment;
	size_t first, n;
};

static inline struct piece piece_of(const struct kill_case *c, unsigned contributors, size_t k)
{
	struct cut cut;
	bool blocks = c->collective == TR_ALL_GATHER || c->collective == TR_REDUCE_SCATTER;
	uint32_t bytes = op_segment_bytes(COUNT * sizeof(float), SEGMENT_BYTES, 0);

	assert_int_equal(cut_init(&cut, COUNT, bytes / sizeof(float), blocks ? contributors : 0,
	                     NULL),
	    TR_OK);
	uint32_t segment = cut_segment(&cut, k);
	return (struct piece){ segment, cut_first(&cut, segment), cut_elements(&cut, segment) };
}

/* What `peer` gives, encoded; `next` gets what that leaves out. */
static inline void encode(const struct kill_case *c, unsigned peer, const struct piece *piece,
    uint8_t *wire, float *next)
{
	float x[COUNT], held[COUNT];

	for (size_t i = 0; i < piece->n; i++) {
		x[i] = value(c, peer, piece->first + i);
		held[i] = residual(peer, piece->first + i);
	}
	if (c->feedback)
		plain_encode_feedback(c->codec, BETA, wire, x, held, next, piece->n);
	else
		plain_encode(c->codec, wire, x, piece->n);
}

/* Not the order of ids, and of the survivors another one than it was of all. */
static inline void ring_of(unsigned count, uint32_t *ring)
{
	for (unsigned i = 0; i < count; i++)
		ring[i] = count % 2 ? count - 1 - i : (count + 2 - i) % count;
}

/* Peer ids of an attempt that has so many contributors. */
static inline void peers_of(const struct kill_case *c, unsigned contributors, uint64_t *peers)
{
	for (unsigned i = 0; i < contributors; i++)
		peers[i] = i + 1 + (contributors < c->n && i >= c->victim);
}

/* A chain has an order of its own, and encodes at each hop. */
static inline bool is_chain(const struct kill_case *c)
{
	return c->algorithm == TR_RING && c->collective == TR_ALL_REDUCE && !c->deterministic;
}

/* In the order in which their sum is taken: all peers' data is in what was sealed before one died, and in nothing later. */
static inline void order_of(const struct kill_case *c, uint32_t segment, const uint64_t *set,
    size_t count, uint64_t *order)
{
	uint64_t peers[PUMP_MEMBERS], by_place[PUMP_MEMBERS];
	uint32_t ring[PUMP_MEMBERS];

	memcpy(order, set, count * sizeof(*set));
	if (!is_chain(c))
		return;
	peers_of(c, (unsigned)count, peers);
	assert_memory_equal(set, peers, count * sizeof(*set));
	ring_of((unsigned)count, ring);
	for (size_t i = 0; i < count; i++)
		by_place[i] = peers[ring[i]];
	reference_chain(by_place, count, segment, order);
}

/* What a segment is with the data of these. */
static inline void sum_of(const struct kill_case *c, const struct piece *piece, const uint64_t *set,
    size_t count, float *sum)
{
	uint8_t rows[PUMP_MEMBERS][REFERENCE_BYTES] = { { 0 } };
	uint64_t order[PUMP_MEMBERS];
	float unused[COUNT];

	order_of(c, piece->segment, set, count, order);
	for (size_t i = 0; i < count; i++)
		encode(c, (unsigned)order[i], piece, rows[i], unused);
	reference_sum(c->codec, is_chain(c), (const uint8_t(*)[REFERENCE_BYTES])rows, count,
	    piece->n, sum);
}

#endif
