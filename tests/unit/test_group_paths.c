/* The pure parts: ring arithmetic over all small sizes, rosters, views from hostile messages, the choice of algorithm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/core/ring.h"
#include "collectives/core/roster.h"
#include "collectives/core/select.h"
#include "collectives/core/view.h"

#define N_MAX 7

/* Every path visits everybody once, starts at a contributor, and the result reaches everybody once. */
static void one_path(uint32_t segment, unsigned n, const bool *contributes)
{
	unsigned start = ring_start(segment, n, contributes), seen = 0;

	assert_true(start < n && contributes[start]);
	unsigned place = start;
	for (unsigned d = 0; d < n; d++, place = ring_next(place, n)) {
		assert_int_equal(ring_distance(place, start, n), d);
		assert_int_equal(ring_previous(ring_next(place, n), n), place);
		seen |= 1u << place;
	}
	assert_int_equal(seen, (1u << n) - 1);
	unsigned sealer = ring_previous(start, n), have = 1u << sealer;
	place = sealer;
	while (ring_passes_result(ring_distance(place, start, n), n)) {
		place = ring_next(place, n);
		assert_int_equal(have & 1u << place, 0);
		have |= 1u << place;
	}
	assert_int_equal(have, (1u << n) - 1);
}

static void ring_paths(void **state)
{
	(void)state;
	for (unsigned n = 1; n <= N_MAX; n++)
		for (unsigned mask = 1; mask < 1u << n; mask++) {
			bool contributes[N_MAX];
			for (unsigned i = 0; i < n; i++)
				contributes[i] = mask >> i & 1;
			for (uint32_t segment = 0; segment < 3 * n; segment++)
				one_path(segment, n, contributes);
			one_path(UINT32_MAX, n, contributes);
		}
	bool nobody[3] = { false };
	assert_int_equal(ring_start(1, 3, nobody), 3);
	bool everybody[3] = { true, true, true };
	for (uint32_t segment = 0; segment < 9; segment++)
		assert_int_equal(ring_start(segment, 3, everybody), segment % 3);
}

struct sample {
	Traind__Peer__View view;
	Traind__Peer__ViewPeer peers[5], *list[5];
	uint32_t ring[5];
};

static void sample_init(struct sample *s)
{
	static const uint64_t ids[] = { 3, 5, 8, 9, 12 };
	static const uint32_t ring[] = { 2, 0, 4, 1, 3 };
	traind__peer__view__init(&s->view);
	for (unsigned i = 0; i < 5; i++) {
		traind__peer__view_peer__init(&s->peers[i]);
		s->peers[i].peer = ids[i];
		s->peers[i].participate_from = i == 3 ? 11 : 1;
		s->peers[i].contribute_from = i == 3 ? 12 : 1;
		s->list[i] = &s->peers[i];
		s->ring[i] = ring[i];
	}
	s->view.number = 4;
	s->view.n_peers = s->view.n_ring = 5;
	s->view.peers = s->list;
	s->view.ring = s->ring;
	s->view.hub = 3;
}

static void rosters(void **state)
{
	(void)state;
	struct sample s;
	struct view view;
	struct roster roster;

	sample_init(&s);
	assert_int_equal(view_init(&view, &s.view, NULL), TR_OK);
	/* Round 10: the joiner does not take part; the hub is its stand-in. */
	assert_int_equal(roster_init(&roster, &view, 10, 4, NULL, 0, 8, NULL), TR_OK);
	assert_int_equal(roster.n, 4);
	assert_int_equal(roster.contributor_count, 4);
	assert_int_equal(roster.live_count, 4);
	assert_int_equal(roster.peers[roster.me], 8);
	assert_int_equal(roster.hub, 0);
	static const uint64_t ring[] = { 8, 3, 12, 5 };
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(roster.peers[roster.order[i]], ring[i]);
		assert_int_equal(roster.place[roster.order[i]], i);
	}
	roster_finish(&roster);
	/* Round 11: it does, and its data does not count yet. */
	assert_int_equal(roster_init(&roster, &view, 11, 4, NULL, 0, 9, NULL), TR_OK);
	assert_int_equal(roster.n, 5);
	assert_int_equal(roster.contributor_count, 4);
	assert_int_equal(roster.peers[roster.hub], 9);
	assert_false(roster.live[roster.me]);
	assert_int_equal(roster.bit[roster.me], ROSTER_NONE);
	roster_finish(&roster);
	/* Round 10 goes on under an attempt in which peer 4 contributed; it died. Bits keep their places. */
	static const uint64_t contributors[] = { 3, 4, 8, 9, 12 };
	assert_int_equal(roster_init(&roster, &view, 10, 2, contributors, 5, 5, NULL), TR_OK);
	assert_int_equal(roster.contributor_count, 5);
	assert_int_equal(roster.live_count, 3);
	assert_false(roster.live[roster.me]);
	assert_int_equal(roster.bit[roster_find(&roster, 8)], 2);
	assert_int_equal(roster.bit[roster_find(&roster, 12)], 4);
	roster_finish(&roster);
	/* Round 11 of an attempt with 9, which was taken out and joined again: its data does not count. */
	assert_int_equal(roster_init(&roster, &view, 11, 2, contributors, 5, 5, NULL), TR_OK);
	assert_false(roster.live[roster_find(&roster, 9)]);
	roster_finish(&roster);
	view_finish(&view);
	/* Deterministic: the ring is in ascending ids whatever the view's ring says. */
	s.view.deterministic = true;
	assert_int_equal(view_init(&view, &s.view, NULL), TR_OK);
	assert_int_equal(roster_init(&roster, &view, 11, 4, NULL, 0, 8, NULL), TR_OK);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(roster.order[i], i);
	roster_finish(&roster);
	view_finish(&view);
}

static void bad_views(void **state)
{
	(void)state;
	struct sample s;
	struct view view;

	for (int what = 0; what < 9; what++) {
		sample_init(&s);
		switch (what) {
		case 0:
			s.view.number = 0;
			break;
		case 1:
			s.view.n_peers = 0;
			break;
		case 2:
			s.view.n_ring = 4;
			break;
		case 3:
			s.view.hub = 5;
			break;
		case 4:
			s.ring[1] = 2;
			break;
		case 5:
			s.ring[1] = 5;
			break;
		case 6:
			s.peers[2].peer = 5;
			break;
		case 7:
			s.peers[0].peer = 0;
			break;
		case 8:
			s.peers[3].contribute_from = 10;
			break;
		}
		assert_int_equal(view_init(&view, &s.view, NULL), TR_EPROTO);
	}
	sample_init(&s);
	static const uint32_t segment_bytes[][2] = { { 0, TR_SEGMENT_BYTES }, { 1, 8 }, { 13, 8 },
		{ 64, 64 }, { UINT32_MAX, TR_FRAME_DATA_MAX - 96 } };
	for (size_t i = 0; i < sizeof(segment_bytes) / sizeof(segment_bytes[0]); i++) {
		s.view.segment_bytes = segment_bytes[i][0];
		assert_int_equal(view_init(&view, &s.view, NULL), TR_OK);
		assert_int_equal(view.segment_bytes, segment_bytes[i][1]);
		view_finish(&view);
	}
}

/* FIELD notes of the project: n = 8, RTT 100 ms, 100 Mbit/s: ring and pipelined star cross near twice half a bandwidth-delay product. */
static void cost_model(void **state)
{
	(void)state;
	char reason[200];
	struct select_input wan = { .latency_s = 0.05, .bandwidth_bytes_per_s = 12.5e6, .peers = 8 };

	wan.bytes = 500000;
	assert_int_equal(select_algorithm(&wan, reason, sizeof(reason)), TR_STAR);
	assert_non_null(strstr(reason, "star: "));
	assert_true(select_ring_s(&wan) > 0.76 && select_ring_s(&wan) < 0.78);
	wan.bytes = 4000000;
	assert_int_equal(select_algorithm(&wan, reason, sizeof(reason)), TR_RING);
	assert_non_null(strstr(reason, "ring: 1.26e+03 ms against"));
	wan.wanted = TR_STAR;
	assert_int_equal(select_algorithm(&wan, NULL, 0), TR_STAR);
	wan.wanted = TR_AUTO;
	double n = 8, cross = 0.05 * 12.5e6 * 2 * (n - 2) / (n - 1 - 2 * (n - 1) / n);
	wan.bytes = (uint64_t)(0.99 * cross);
	assert_int_equal(select_algorithm(&wan, NULL, 0), TR_STAR);
	wan.bytes = (uint64_t)(1.01 * cross);
	assert_int_equal(select_algorithm(&wan, NULL, 0), TR_RING);
	struct select_input alone = { .peers = 1, .wanted = TR_STAR, .bytes = 1 };
	assert_int_equal(select_algorithm(&alone, NULL, 0), TR_RING);
	struct select_input unmeasured = { .peers = 4, .bytes = 4 };
	assert_int_equal(select_algorithm(&unmeasured, NULL, 0), TR_STAR);
	unmeasured.bytes = 64 << 20;
	assert_int_equal(select_algorithm(&unmeasured, NULL, 0), TR_RING);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ring_paths),
		cmocka_unit_test(rosters),
		cmocka_unit_test(bad_views),
		cmocka_unit_test(cost_model),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
