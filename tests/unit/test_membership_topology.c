/* What memberd puts into a view of how far its members are: ring and hub are those of topology.h, of what the heartbeats said last; ops are cut by how
 * far the founders were, in all views of the group. */
#include "tests/unit/membership_harness.h"

#include "daemon/membership/core/topology.h"

#define COUNT 5u
/* Nodes are 1 to COUNT, on connections of the same numbers. */
#define GROUP      (COUNT + 1)
#define FIRST_PEER (COUNT + 2)

struct figures {
	const char *host;
	double rtt_s, bandwidth_bytes_per_s;
	uint32_t cores;
};

/* The slowest is first, the nearest is neither first nor last, and two of one host are apart. */
static const struct figures at_first[COUNT] = {
	{ "a", 0.080, 1e6, 1 },
	{ "b", 0.030, 9e7, 1 },
	{ "c", 0.050, 2e7, 1 },
	{ "b", 0.004, 8e7, 1 },
	{ "d", 0.020, 5e8, 1 },
};
/* The last one, without the fifth: the first is fast, the third is the nearest. Round trips only fall here: memberd goes by the least of late. */
static const struct figures later[COUNT - 1] = {
	{ "a", 0.060, 6e8, 1 },
	{ "b", 0.030, 3e6, 1 },
	{ "c", 0.002, 2e7, 1 },
	{ "b", 0.004, 8e7, 1 },
};

static void hello_from(struct world *w, uint64_t conn, const struct figures *of)
{
	Traind__Peer__NodeHello body = TRAIND__PEER__NODE_HELLO__INIT;
	char name[32], address[32];
	(void)snprintf(name, sizeof(name), "node-%llu", (unsigned long long)conn);
	(void)snprintf(address, sizeof(address), "10.0.0.%llu:7000", (unsigned long long)conn);
	body.incarnation = 100 + conn;
	body.name = name;
	body.address = address;
	body.host = (char *)(uintptr_t)of->host;
	body.cores = of->cores;
	body.slots = 1;
	MESSAGE(w, conn, HELLO, hello, &body);
}

static void heartbeats(struct world *w, const struct figures *figures, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		Traind__Peer__Heartbeat beat = TRAIND__PEER__HEARTBEAT__INIT;
		beat.rtt_s = figures[i].rtt_s;
		beat.bandwidth_bytes_per_s = figures[i].bandwidth_bytes_per_s;
		MESSAGE(w, i + 1, HEARTBEAT, heartbeat, &beat);
	}
}

/* All of them got the same view, in which nobody's place is by its number. */
static void check_views(struct world *w, const struct figures *figures, unsigned count,
    uint64_t number)
{
	struct topology_peer peers[COUNT];
	uint32_t ring[COUNT];
	bool differs = false;
	for (unsigned i = 0; i < count; i++)
		peers[i] = (struct topology_peer){ .latency_s = figures[i].rtt_s / 2,
			.bandwidth_bytes_per_s = figures[i].bandwidth_bytes_per_s,
			.host = figures[i].host,
			.may_be_hub = true };
	topology_ring(peers, count, ring);
	uint32_t hub = topology_hub(peers, count);
	for (unsigned i = 0; i < count; i++)
		differs |= ring[i] != i;
	assert_true(differs && hub != 0); /* else this proves nothing */
	for (unsigned conn = 1; conn <= count; conn++) {
		const Traind__Peer__View *view = w->install[conn]->view_install->view;
		assert_int_equal(view->number, number);
		assert_int_equal(view->n_peers, count);
		assert_int_equal(view->n_ring, count);
		assert_int_equal(view->hub, hub);
		for (unsigned i = 0; i < count; i++) {
			const Traind__Peer__ViewPeer *row = view->peers[i];
			assert_int_equal(row->peer, FIRST_PEER + i);
			assert_string_equal(row->host, figures[i].host);
			assert_true(row->latency_s == figures[i].rtt_s / 2);
			assert_true(row->bandwidth_bytes_per_s == figures[i].bandwidth_bytes_per_s);
			assert_int_equal(view->ring[i], ring[i]);
		}
	}
}

static void first_view_of(struct world *w, const struct figures *figures, unsigned count)
{
	uint64_t group = count + 1, first_peer = count + 2;
	world_init(w);
	world_lead(w);
	for (unsigned i = 0; i < count; i++)
		hello_from(w, i + 1, &figures[i]);
	heartbeats(w, figures, count);
	submit(w, 1, "a", native_spec(count));
	for (unsigned i = 0; i < count; i++)
		ready(w, i + 1, group, first_peer + i, 0);
	for (unsigned i = 0; i < count; i++)
		report(w, i + 1, group, first_peer + i, 1, 0, 0, 0, 0, false, 0, 0);
}

static void first_view(struct world *w, const struct figures *figures)
{
	first_view_of(w, figures, COUNT);
}

/* The last one is lost. */
static void second_view(struct world *w, const struct figures *figures)
{
	world_closed(w, COUNT, "closed by peer");
	world_tick(w, 6000); /* it does not come back */
	heartbeats(w, figures, COUNT - 1);
	for (unsigned i = 0; i < COUNT - 1; i++)
		report(w, i + 1, GROUP, FIRST_PEER + i, 2, 1, 0, 0, 0, false, 0, 0);
}

static void test_views_follow_what_heartbeats_say(void **state)
{
	struct world w;
	(void)state;
	first_view(&w, at_first);
	check_views(&w, at_first, COUNT, 1);
	heartbeats(&w, later, COUNT - 1);
	check_views(&w, at_first, COUNT, 1); /* a view stays as it was made */
	second_view(&w, later);
	check_views(&w, later, COUNT - 1, 2);
	world_finish(&w);
}

/* Both views; `far`: a host is, in the first one and then no more. */
static void check_cut(const char *const hosts[COUNT], bool far, uint32_t segments, uint32_t most)
{
	struct figures first[COUNT], second[COUNT];
	struct world w;
	for (unsigned i = 0; i < COUNT; i++) {
		first[i] = (struct figures){ hosts[i], far && i == 2 ? 0.004 : 0.0039, 1e8,
			COUNT - 1 };
		second[i] = (struct figures){ hosts[i], 0.0002, 1e8, 64 };
	}
	first_view(&w, first);
	assert_int_equal(w.install[1]->view_install->view->op_segments, segments);
	assert_int_equal(w.install[1]->view_install->view->segment_bytes, most);
	second_view(&w, second);
	assert_int_equal(w.install[1]->view_install->view->number, 2);
	assert_true(w.install[1]->view_install->view->latency_s == 0.0001);
	assert_int_equal(w.install[1]->view_install->view->op_segments, segments);
	assert_int_equal(w.install[1]->view_install->view->segment_bytes, most);
	world_finish(&w);
}

static void test_ops_are_cut_by_how_far_the_founders_were(void **state)
{
	static const char *const apart[COUNT] = { "a", "b", "c", "b", "d" };
	static const char *const together[COUNT] = { "a", "a", "a", "a", "a" };
	static const char *const unknown[COUNT] = { "", "", "", "", "" };
	(void)state;
	check_cut(apart, true, TR_OP_SEGMENTS_LONG, TR_SEGMENT_BYTES_LONG);
	check_cut(apart, false, 0, TR_SEGMENT_BYTES);
	check_cut(together, true, TR_OP_SEGMENTS_HOST,
	    TR_SEGMENT_BYTES); /* it is memberd that is far */
	check_cut(unknown, true, 0, TR_SEGMENT_BYTES);
}

/* More of them than the least that one may run on, or two. */
static void test_ops_of_one_host_are_cut_by_its_cores(void **state)
{
	static const struct {
		unsigned founders;
		uint32_t cores, segments;
	} cases[] = { { 2, 0, TR_OP_SEGMENTS_HOST }, { 2, 64, TR_OP_SEGMENTS_HOST },
		{ 3, 2, TR_OP_SEGMENTS_HOST }, { 3, 3, 0 }, { 3, 0, 0 },
		{ 8, 7, TR_OP_SEGMENTS_HOST }, { 1, 1, 0 } };
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct figures figures[TR_OP_SEGMENTS_HOST];
		struct world w;
		for (unsigned k = 0; k < cases[i].founders; k++)
			figures[k] = (struct figures){ "a", 1e-4, 1e9,
				k == 0 ? 64 : cases[i].cores };
		first_view_of(&w, figures, cases[i].founders);
		assert_int_equal(w.install[1]->view_install->view->op_segments, cases[i].segments);
		world_finish(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_views_follow_what_heartbeats_say),
		cmocka_unit_test(test_ops_are_cut_by_how_far_the_founders_were),
		cmocka_unit_test(test_ops_of_one_host_are_cut_by_its_cores),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
