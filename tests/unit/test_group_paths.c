/* The pure parts beside routes: rosters, views from hostile messages, the choice of algorithm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/core/op.h"
#include "collectives/core/roster.h"
#include "collectives/core/select.h"
#include "collectives/core/view.h"

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

/* Who owns what, and who shares a host, among those who take part. */
static void hosts_and_owners(void **state)
{
	(void)state;
	struct sample s;
	struct view view;
	struct roster roster;
	unsigned owned[5] = { 0 };

	sample_init(&s);
	s.peers[0].host = s.peers[2].host = s.peers[3].host = (char *)"a";
	s.peers[4].host = (char *)"b";
	for (unsigned i = 0; i < 5; i++)
		s.peers[i].bandwidth_bytes_per_s = i == 1 ? 2e9 : i == 3 ? 0 : 1e9;
	s.peers[4].bandwidth_bytes_per_s = -1; /* nonsense is no figure */
	for (unsigned i = 0; i < 5; i++)
		s.peers[i].local_address = (char *)(i == 3
		        ? ""
		        : "@engine"); /* who sits out does not count */
	assert_int_equal(view_init(&view, &s.view, NULL), TR_OK);
	assert_true(view.peers[4].bandwidth_bytes_per_s == 0);
	assert_int_equal(roster_init(&roster, &view, 10, 4, NULL, 0, 8, NULL), TR_OK);
	static const unsigned hosts[] = { 0, 1, 0, 2 }; /* of 3, 5, 8, 12 */
	assert_int_equal(roster.host_count, 3);
	assert_int_equal(roster.host_peers, 2);
	assert_true(roster.maps);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(roster.host[i], hosts[i]);
	assert_int_equal(roster.by_host[1], 2);
	for (unsigned k = 0; k < SHARES_OWNERS; k++)
		owned[roster.owners[k]]++;
	assert_int_equal(owned[4], 0); /* four take part */
	assert_true(owned[1] > owned[0] && owned[1] > owned[2] && owned[1] > owned[3]);
	assert_true(roster.bandwidth_bytes_per_s == 1e9);
	roster_finish(&roster);
	view_finish(&view);
	s.peers[0].local_address = (char *)"";
	assert_int_equal(view_init(&view, &s.view, NULL), TR_OK);
	assert_int_equal(roster_init(&roster, &view, 10, 4, NULL, 0, 8, NULL), TR_OK);
	assert_false(roster.maps);
	roster_finish(&roster);
	view_finish(&view);
}

/* n = 8, RTT 100 ms, 100 Mbit/s: 0.5 MB ring 0.85 s (what is sent after a pause takes a fifth longer), direct 0.16; 4 MB 0.88 and, with a quarter more for what eight senders to one lose, 0.75;
 * 400 MB 56 and 70. */
static void cost_model(void **state)
{
	(void)state;
	char reason[256];
	struct select_input wan = { .latency_s = 0.05, .bandwidth_bytes_per_s = 12.5e6, .peers = 8 };

	wan.bytes = 500000;
	assert_int_equal(select_algorithm(&wan, reason, sizeof(reason)), TR_DIRECT);
	assert_non_null(strstr(reason, "direct: 155 ms against 845 ms (ring), 434 ms (star)"));
	assert_true(fabs(select_cost_s(&wan, TR_RING) - 0.845) < 0.005);
	assert_true(fabs(select_cost_s(&wan, TR_DIRECT) - 0.155) < 0.005);
	wan.bytes = 4000000;
	assert_true(fabs(select_cost_s(&wan, TR_RING) - 0.88) < 0.005);
	assert_true(fabs(select_cost_s(&wan, TR_STAR) - 2.63) < 0.005);
	assert_true(fabs(select_cost_s(&wan, TR_DIRECT) - 0.755) < 0.005);
	wan.bytes = 400000000;
	assert_true(fabs(select_cost_s(&wan, TR_RING) - 56.1) < 0.1);
	assert_true(fabs(select_cost_s(&wan, TR_DIRECT) - 69.5) < 0.1);
	/* One trip instead of two, as long as the bytes do not matter. */
	wan.bytes = 100;
	assert_int_equal(select_algorithm(&wan, NULL, 0), TR_ONE_SHOT);
	/* A barrier has no bytes, and its star is no worse than a byte's. */
	wan.bytes = 0;
	assert_true(select_cost_s(&wan, TR_STAR) < 0.14);
	(void)select_algorithm(&wan, reason, sizeof(reason));
	assert_null(strstr(reason, "nan"));
	/* A hub with a much better link than the others: it may be worth more than everybody's link to everybody. */
	struct select_input hub = { .latency_s = 1e-4,
		.bandwidth_bytes_per_s = 1e7,
		.peers = 4,
		.hub_bandwidth_bytes_per_s = 1e9,
		.direct_load = 1.5,
		.bytes = 1000000 };
	assert_int_equal(select_algorithm(&hub, NULL, 0), TR_STAR);
	struct select_input alone = { .peers = 1, .wanted = TR_STAR, .bytes = 1 };
	assert_int_equal(select_algorithm(&alone, NULL, 0), TR_RING);
	struct select_input unmeasured = { .peers = 4, .bytes = 4 };
	assert_int_equal(select_algorithm(&unmeasured, reason, sizeof(reason)), TR_ONE_SHOT);
	assert_non_null(strstr(reason, "not measured yet"));
	unmeasured.bytes = 64 << 20;
	assert_int_equal(select_algorithm(&unmeasured, NULL, 0), TR_DIRECT);
	/* Of two, each folds the whole vector with one-shot, and half of it otherwise; the bytes are the same. */
	unmeasured.peers = 2;
	assert_int_not_equal(select_algorithm(&unmeasured, NULL, 0), TR_ONE_SHOT);
}

/* What was measured among members with 100 Mbit/s each (docs/results/README.md, "The choice of an algorithm"). */
static void long_ways(void **state)
{
	(void)state;
	static const struct {
		unsigned peers;
		double one_way_s;
		uint64_t bytes;
		enum tr_algorithm algorithm;
		double took_s;
	} measured[] = {
		{ 4, 0.1, 1 << 20, TR_DIRECT, 0.292 },
		{ 4, 0.1, 1 << 20, TR_RING, 0.68 },
		{ 4, 0.1, 1 << 20, TR_STAR, 0.486 },
		{ 4, 0.1, 1 << 20, TR_ONE_SHOT, 0.368 },
		{ 4, 0.1, 64 << 10, TR_DIRECT, 0.263 },
		{ 4, 0.1, 64 << 10, TR_RING, 0.69 },
		{ 4, 0.1, 64 << 10, TR_STAR, 0.3 },
		{ 4, 0.1, 64 << 10, TR_ONE_SHOT, 0.139 },
		{ 4, 0.1, 16 << 20, TR_DIRECT, 2.35 },
		{ 4, 0.1, 16 << 20, TR_RING, 2.28 },
		{ 4, 0.1, 16 << 20, TR_STAR, 5.14 },
		{ 4, 0.1, 16 << 20, TR_ONE_SHOT, 5.0 },
		{ 4, 0.01, 64 << 10, TR_ONE_SHOT, 0.0282 },
		{ 4, 0.01, 64 << 10, TR_DIRECT, 0.0364 },
		{ 4, 0.01, 64 << 10, TR_RING, 0.081 },
		{ 4, 0.01, 64 << 10, TR_STAR, 0.0417 },
		{ 4, 0.01, 1 << 20, TR_STAR, 0.305 },
		{ 4, 0.01, 1 << 20, TR_RING, 0.148 },
		{ 4, 0.01, 1 << 20, TR_DIRECT, 0.155 },
		{ 4, 0.01, 1 << 20, TR_ONE_SHOT, 0.284 },
		{ 4, 0.01, 16 << 20, TR_STAR, 4.84 },
		{ 8, 0.01, 64 << 10, TR_DIRECT, 0.0401 },
		{ 8, 0.01, 64 << 10, TR_RING, 0.168 },
		{ 8, 0.01, 64 << 10, TR_STAR, 0.0705 },
		{ 8, 0.01, 64 << 10, TR_ONE_SHOT, 0.0535 },
		{ 8, 0.01, 1 << 20, TR_DIRECT, 0.216 },
		{ 8, 0.01, 1 << 20, TR_RING, 0.185 },
		{ 8, 0.01, 1 << 20, TR_STAR, 0.717 },
		{ 8, 0.01, 1 << 20, TR_ONE_SHOT, 0.699 },
		{ 8, 0.1, 64 << 10, TR_RING, 1.72 },
		{ 8, 0.1, 64 << 10, TR_STAR, 0.287 },
		{ 8, 0.1, 64 << 10, TR_ONE_SHOT, 0.143 },
		{ 8, 0.1, 1 << 20, TR_DIRECT, 0.31 },
		{ 8, 0.1, 1 << 20, TR_RING, 1.54 },
		{ 8, 0.1, 1 << 20, TR_STAR, 0.842 },
	};
	struct select_input way = { .host_peers = 1 };
	char reason[256];
	for (size_t i = 0; i < sizeof(measured) / sizeof(measured[0]); i++) {
		way.peers = way.hosts = measured[i].peers;
		way.latency_s = measured[i].one_way_s;
		way.bandwidth_bytes_per_s = 12.5e6 * 1448 / 1500;
		way.bytes = measured[i].bytes;
		way.segment_bytes = op_segment_bytes(way.bytes, TR_SEGMENT_BYTES,
		    TR_OP_SEGMENTS_LONG);
		double model = select_cost_s(&way, measured[i].algorithm);
		if (fabs(measured[i].took_s / model - 1) > 0.15)
			fail_msg("%s, %u peers, %g s, %llu bytes: %g s, the model says %g",
			    select_name(measured[i].algorithm), measured[i].peers,
			    measured[i].one_way_s, (unsigned long long)measured[i].bytes,
			    measured[i].took_s, model);
	}
	/* Nothing is known of the rate: no loopback's is taken for it, which would have everybody send everything to everybody. */
	way.latency_s = 0.1;
	way.bandwidth_bytes_per_s = 0;
	assert_int_equal(select_algorithm(&way, reason, sizeof(reason)), TR_DIRECT);
	assert_non_null(strstr(reason, "12.5 MB/s (not measured yet)"));
	/* Two segments among eight: who owns one takes it from seven, and then sends its sum to seven. */
	way = (struct select_input){ .latency_s = 0.01,
		.bandwidth_bytes_per_s = 12.5e6,
		.peers = 8,
		.bytes = 64 << 10,
		.segment_bytes = 32 << 10 };
	assert_true(fabs(select_cost_s(&way, TR_DIRECT) - (0.024 + 2 * 7 * 32768 / 12.5e6)) < 0.001);
}

/* One of a tenth of the rate owns nothing: it sends its input and gets the result, and that is all that there is to wait for. */
static void one_slow_among_fast(void **state)
{
	(void)state;
	struct sample s;
	struct view view;
	struct roster roster;
	sample_init(&s);
	for (unsigned i = 0; i < 5; i++) {
		s.peers[i].bandwidth_bytes_per_s = i == 2 ? 1.25e6 : 12.5e6;
		s.peers[i].participate_from = s.peers[i].contribute_from = 1;
	}
	assert_int_equal(view_init(&view, &s.view, NULL), TR_OK);
	assert_int_equal(roster_init(&roster, &view, 10, 4, NULL, 0, 8, NULL), TR_OK);
	struct select_input way = { .latency_s = 0.01,
		.bandwidth_bytes_per_s = roster.bandwidth_bytes_per_s,
		.direct_load = roster.direct_load,
		.direct_given = roster.direct_given,
		.peers = 5,
		.bytes = 1250000 };
	assert_true(fabs(select_cost_s(&way, TR_DIRECT) - (0.024 + 1.1)) < 0.005);
	roster_finish(&roster);
	view_finish(&view);
}

static void wishes(void **state)
{
	(void)state;
	char reason[256];

	for (int wish = TR_RING; wish <= TR_ONE_SHOT; wish++) {
		struct select_input input = { .wanted = (enum tr_algorithm)wish,
			.peers = 4,
			.hosts = 2,
			.host_peers = 2,
			.bytes = 1000 };
		assert_int_equal(select_algorithm(&input, reason, sizeof(reason)), wish);
		assert_non_null(strstr(reason, "as asked"));
		assert_non_null(strstr(reason, select_name((enum tr_algorithm)wish)));
	}
	static const unsigned hosts[] = { 2, 1, 4, 0 };
	static const char *const why[] = { "one order", "all peers share", "no two peers",
		"no two peers" };
	for (unsigned i = 0; i < 4; i++) {
		struct select_input input = { .wanted = TR_HIERARCHICAL,
			.peers = 4,
			.hosts = hosts[i],
			.host_peers = 2,
			.bytes = 1000,
			.deterministic = i == 0 };
		assert_int_equal(select_algorithm(&input, reason, sizeof(reason)), TR_DIRECT);
		assert_non_null(strstr(reason, why[i]));
	}
}

/* Two hosts of four: their memory carries what would otherwise go over the network four times. */
static void hosts_in_the_model(void **state)
{
	(void)state;
	struct select_input input = { .latency_s = 1e-3,
		.bandwidth_bytes_per_s = 1e8,
		.peers = 8,
		.hosts = 2,
		.host_peers = 4,
		.bytes = 64 << 20 };

	assert_int_equal(select_algorithm(&input, NULL, 0), TR_HIERARCHICAL);
	input.deterministic = true;
	assert_int_equal(select_algorithm(&input, NULL, 0), TR_DIRECT);
	input.deterministic = false;
	input.bytes = 8;
	assert_int_equal(select_algorithm(&input, NULL, 0), TR_ONE_SHOT);
	/* All on one machine: messages cost more than trips, unless they are shown to all at once. */
	struct select_input crowd = { .peers = 8,
		.hosts = 1,
		.host_peers = 8,
		.bytes = 4,
		.shown = true };
	assert_int_equal(select_algorithm(&crowd, NULL, 0), TR_ONE_SHOT);
	crowd.shown = false;
	assert_int_equal(select_algorithm(&crowd, NULL, 0), TR_STAR);
	/* A loaded machine's heartbeats are late; its memory is not. */
	crowd.latency_s = 1e-3;
	assert_int_equal(select_algorithm(&crowd, NULL, 0), TR_STAR);
	/* One of them need not add up everything if there is much of it. */
	crowd.bytes = 64 << 20;
	assert_int_equal(select_algorithm(&crowd, NULL, 0), TR_DIRECT);
	/* Where they have only sockets, the ring's streams stay in the caches; of small ops the trips count, and two have one stream either way. */
	crowd.sockets = true;
	crowd.peers = crowd.host_peers = 4;
	assert_int_equal(select_algorithm(&crowd, NULL, 0), TR_RING);
	crowd.bytes = 64 << 10;
	assert_int_not_equal(select_algorithm(&crowd, NULL, 0), TR_RING);
	crowd.peers = crowd.host_peers = 2;
	assert_true(fabs(select_cost_s(&crowd, TR_DIRECT) - select_cost_s(&crowd, TR_RING)) < 1e-9);
	/* Two have a core each. */
	crowd = (struct select_input){ .peers = 2, .hosts = 1, .host_peers = 2, .bytes = 4 };
	assert_int_equal(select_algorithm(&crowd, NULL, 0), TR_ONE_SHOT);
}

static void sizes_of_segments(void **state)
{
	(void)state;
	static const uint64_t cases[][4] = { /* op, most, segments, segment */
		{ 0, 256 << 10, 0, 16 << 10 }, { 64 << 10, 256 << 10, 0, 16 << 10 },
		{ 1 << 20, 256 << 10, 0, 43 << 10 }, { 2 << 20, 256 << 10, 0, 86 << 10 },
		{ 4 << 20, 256 << 10, 0, 171 << 10 }, { 5 << 20, 256 << 10, 0, 171 << 10 },
		{ 8 << 20, 256 << 10, 0, 256 << 10 }, { 16 << 20, 1 << 20, 0, 512 << 10 },
		{ 1 << 30, 256 << 10, 0, 256 << 10 }, { 1 << 20, 64, 0, 64 }, { 1 << 20, 8, 0, 8 },
		{ 1 << 30, TR_FRAME_DATA_MAX - 96, 0, 1047552 },
		{ 1 << 20, 256 << 10, 120, 16 << 10 }, { 4 << 20, 256 << 10, 120, 35 << 10 },
		{ 16 << 20, 256 << 10, 120, 137 << 10 }, { 1 << 30, 256 << 10, 120, 256 << 10 },
		{ 4 << 20, 64, 120, 64 }, { 4, 1 << 20, 8, 128 << 10 },
		{ 256 << 10, 1 << 20, 8, 128 << 10 }, { 1 << 20, 1 << 20, 8, 128 << 10 },
		{ 1536 << 10, 1 << 20, 8, 192 << 10 }, { 4 << 20, 1 << 20, 8, 256 << 10 },
		{ 8 << 20, 1 << 20, 8, 256 << 10 }, { 16 << 20, 1 << 20, 8, 512 << 10 },
		{ 64 << 20, 1047552, 8, 1047552 }, { 1 << 20, 64, 8, 64 }
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(op_segment_bytes(cases[i][0], (uint32_t)cases[i][1],
		                     (uint32_t)cases[i][2]),
		    cases[i][3]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hosts_and_owners),
		cmocka_unit_test(rosters),
		cmocka_unit_test(bad_views),
		cmocka_unit_test(cost_model),
		cmocka_unit_test(long_ways),
		cmocka_unit_test(one_slow_among_fast),
		cmocka_unit_test(wishes),
		cmocka_unit_test(hosts_in_the_model),
		cmocka_unit_test(sizes_of_segments),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
