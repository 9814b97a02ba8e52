/* The laboratory's arithmetic: when a packet leaves a line, who loses it, what a line of a topology means. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "tests/wan/topology.h"

#define MS 1000000ull

static struct wire make(struct wire_shape shape)
{
	struct wire wire;
	wire_init(&wire, &shape, rng_key(7, 0, 1));
	return wire;
}

static uint64_t arrival(struct wire *wire, uint64_t now_ns, size_t bytes)
{
	uint64_t at = 0;
	assert_int_equal(wire_admit(wire, now_ns, bytes, &at), WIRE_ARRIVES);
	return at;
}

static void a_packet_takes_its_time_on_the_line_and_the_way(void **state)
{
	/* 12 Mbit/s: 1500 bytes in 1 ms */
	struct wire wire = make((struct wire_shape){ .rate = 12000000, .delay_ns = 50 * MS });
	(void)state;
	assert_int_equal(arrival(&wire, 0, 1500), 51 * MS);
	assert_int_equal(arrival(&wire, 0, 1500), 52 * MS);
	assert_int_equal(arrival(&wire, 0, 750), 52 * MS + MS / 2);
	assert_int_equal(arrival(&wire, 10 * MS, 1500), 61 * MS); /* the line was idle */
	wire = make((struct wire_shape){ .delay_ns = 5 });
	assert_int_equal(arrival(&wire, 3, 1500), 8);
	assert_int_equal(arrival(&wire, 3, 1500), 8);
}

static void a_full_queue_drops_the_newest(void **state)
{
	struct wire wire = make((struct wire_shape){ .rate = 12000000, .queue_bytes = 4500 });
	uint64_t at = 77;
	(void)state;
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(arrival(&wire, 0, 1500), (i + 1) * MS);
	assert_int_equal(wire_backlog(&wire, 0), 4500);
	assert_int_equal(wire_admit(&wire, 0, 1500, &at), WIRE_DROPPED);
	assert_int_equal(at, 77);
	assert_int_equal(wire_backlog(&wire, MS), 3000);
	assert_int_equal(arrival(&wire, MS, 1500), 4 * MS);
	assert_int_equal(wire.packets[WIRE_DROPPED], 1);
	/* chosen by nobody: a tenth of a second */
	wire = make((struct wire_shape){ .rate = 120000000 });
	for (unsigned i = 0; i < 1000; i++)
		(void)arrival(&wire, 0, 1500);
	assert_int_equal(wire_admit(&wire, 0, 1500, &at), WIRE_DROPPED);
}

static void a_bucket_goes_at_once_and_fills_again(void **state)
{
	struct wire wire = make((struct wire_shape){ .rate = 12000000, .burst_bytes = 3000 });
	(void)state;
	assert_int_equal(arrival(&wire, 9 * MS, 1500), 9 * MS);
	assert_int_equal(arrival(&wire, 9 * MS, 1500), 9 * MS);
	assert_int_equal(arrival(&wire, 9 * MS, 1500), 10 * MS);
	assert_int_equal(arrival(&wire, 11 * MS, 1500), 11 * MS); /* 1500 bytes' time has passed */
	assert_int_equal(arrival(&wire, 11 * MS, 1500), 12 * MS);
}

/* Over a second of being busy, whatever the sizes, the line carries its rate. */
static void a_busy_line_carries_its_rate(void **state)
{
	struct wire wire = make(
	    (struct wire_shape){ .rate = 97000000, .burst_bytes = 20000, .queue_bytes = 50000 });
	uint64_t now_ns = 0, at = 0, bytes = 0, last_ns = 0;
	(void)state;
	for (unsigned i = 0; now_ns < 1000 * MS; i++, now_ns += 40000) {
		size_t size = 40 + i * 577 % 1461;
		if (wire_admit(&wire, now_ns, size, &at) != WIRE_ARRIVES)
			continue;
		assert_true(at >= last_ns);
		last_ns = at;
		bytes += size;
	}
	double rate = (double)(bytes - 20000) * 8e9 / (double)last_ns;
	assert_true(rate > 96.9e6 && rate < 97.1e6);
	assert_true(wire.packets[WIRE_DROPPED] > 0);
}

static void jitter_keeps_the_order_unless_asked(void **state)
{
	struct wire_shape shape = { .delay_ns = 20 * MS, .jitter_ns = 5 * MS };
	struct wire wire = make(shape);
	uint64_t last = 0, least = UINT64_MAX, most = 0;
	unsigned overtook = 0;
	(void)state;
	for (uint64_t i = 0; i < 1000; i++) {
		uint64_t at = arrival(&wire, i * MS, 100);
		assert_true(at >= last);
		last = at;
	}
	shape.reorder = true;
	wire = make(shape);
	last = 0;
	for (uint64_t i = 0; i < 5000; i++) {
		uint64_t at = arrival(&wire, i * MS, 100), under_way = at - i * MS;
		overtook += at < last;
		last = at;
		least = under_way < least ? under_way : least;
		most = under_way > most ? under_way : most;
	}
	assert_true(overtook > 500);
	assert_true(least >= 15 * MS && least < 15 * MS + MS / 10);
	assert_true(most <= 25 * MS && most > 25 * MS - MS / 10);
}

static void losses_are_as_many_as_asked_and_the_seed_s(void **state)
{
	struct wire_shape shape = { .loss = 0.01 };
	struct wire wire = make(shape), same = make(shape), other;
	unsigned differ = 0, differ_other = 0;
	uint64_t at;
	(void)state;
	wire_init(&other, &shape, rng_key(8, 0, 1));
	for (unsigned i = 0; i < 200000; i++) {
		enum wire_fate fate = wire_admit(&wire, i, 100, &at);
		differ += fate != wire_admit(&same, i, 100, &at);
		differ_other += fate != wire_admit(&other, i, 100, &at);
	}
	assert_in_range(wire.packets[WIRE_LOST], 1900, 2100); /* 2.2 standard deviations */
	assert_int_equal(differ, 0);
	assert_in_range(differ_other, 3000, 4500);
}

static void a_new_shape_holds_from_now_on(void **state)
{
	struct wire_shape shape = { .rate = 12000000 };
	struct wire wire = make(shape);
	uint64_t at;
	(void)state;
	for (unsigned i = 0; i < 4; i++)
		(void)arrival(&wire, 0, 1500);
	shape.rate = 6000000; /* 3000 bytes still wait: 4 ms now */
	wire_reshape(&wire, &shape, 2 * MS);
	assert_int_equal(wire_backlog(&wire, 2 * MS), 3000);
	assert_int_equal(arrival(&wire, 2 * MS, 1500), 8 * MS);
	shape.rate = 0;
	wire_reshape(&wire, &shape, 3 * MS);
	assert_int_equal(arrival(&wire, 3 * MS, 1500), 8 * MS); /* behind the one before */
	shape.blackhole = true;
	wire_reshape(&wire, &shape, 3 * MS);
	assert_int_equal(wire_admit(&wire, 9 * MS, 1500, &at), WIRE_SWALLOWED);
	shape.blackhole = false;
	wire_reshape(&wire, &shape, 9 * MS);
	assert_int_equal(arrival(&wire, 9 * MS, 1500), 9 * MS);
}

/* ---- topologies ---- */

static struct topology read_topology(const char *text)
{
	struct topology topology = { 0 };
	struct tr_error error = { 0 };
	if (topology_lines(&topology, text, true, &error) != TR_OK)
		fail_msg("%s", error.text);
	return topology;
}

static void lines_mean_what_they_say(void **state)
{
	struct topology t = read_topology("# three\n"
	                                  "site a up=110mbit down=500mbit queue=50ms\n"
	                                  "site b\n\nsite c_2   # the last\n"
	                                  "link all all delay=10ms rate=1.5gbit\n"
	                                  "link a b delay=250us queue=1mb jitter=50us loss=0.1%\n"
	                                  "set b c_2 burst=64kb reorder=on loss=0.5 queue=2s\n"
	                                  "drop a b 7070\nblackhole c_2 a\n");
	const struct wire_shape *ab = &t.pairs[0][1].shape, *bc = &t.pairs[1][2].shape;
	struct tr_error error;
	(void)state;
	assert_int_equal(t.count, 3);
	assert_int_equal(topology_find(&t, "c_2"), 2);
	assert_int_equal(t.sites[0].up.rate, 110000000);
	assert_int_equal(t.sites[0].down.queue_bytes, 3125000);
	assert_int_equal(ab->delay_ns, 250000);
	assert_int_equal(ab->rate, 1500000000);
	assert_int_equal(ab->queue_bytes, 1000000);
	assert_true(ab->loss > 0.000999 && ab->loss < 0.001001);
	assert_memory_equal(ab, &t.pairs[1][0].shape, sizeof(*ab));
	assert_int_equal(bc->burst_bytes, 64000);
	assert_int_equal(bc->queue_bytes, 375000000);
	assert_true(bc->reorder && !t.pairs[2][1].shape.reorder);
	assert_int_equal(t.pairs[1][0].ports[0], 7070);
	assert_true(t.pairs[2][0].shape.blackhole && !t.pairs[0][2].shape.blackhole);
	assert_int_equal(topology_lines(&t, "cut b\nset b up=1mbit", false, &error), TR_OK);
	assert_true(t.pairs[1][0].shape.cut && t.pairs[0][1].shape.cut && t.pairs[2][1].shape.cut &&
	    t.pairs[1][2].shape.cut && !t.pairs[0][2].shape.cut);
	assert_int_equal(t.sites[1].up.rate, 1000000);
	assert_int_equal(topology_lines(&t, "heal all", false, &error), TR_OK);
	assert_false(t.pairs[1][0].shape.cut || t.pairs[2][0].shape.blackhole);
	assert_int_equal(t.pairs[1][0].ports[0], 0);
}

static void what_is_wrong_is_named_and_changes_nothing(void **state)
{
	static const char *const wrong[] = { "site x", "lnk a b delay=1ms", "link a",
		"link a a delay=1ms", "link a b", "link a b delay=1", "link a b delay=-1ms",
		"link a b delay=61s", "link a b loss=101%", "link a b loss=nan",
		"link a b queue=10ms", "link a z rate=1mbit", "link a b rate", "link a b pace=1ms",
		"set a rate=1mbit", "set a", "cut", "cut a b c", "drop a b", "drop a b 0",
		"drop a b 65536", "drop a b 1x", "blackhole a", "site B", "site all",
		"link a b reorder=maybe", "a b c d e f g h i j k l m n o p q" };
	struct topology t = read_topology("site a\nsite b\n"), before = t;
	struct tr_error error;
	char text[128];
	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		(void)snprintf(text, sizeof(text), "link a b delay=1ms\n%s\n", wrong[i]);
		memset(&error, 0, sizeof(error));
		if (topology_lines(&t, text, strncmp(wrong[i], "site x", 6) != 0, &error) == TR_OK)
			fail_msg("%s was accepted", wrong[i]);
		assert_non_null(strstr(error.text, "line 2: "));
		assert_memory_equal(&t, &before, sizeof(t));
	}
}

static void limits_hold(void **state)
{
	struct topology t = { 0 };
	struct tr_error error;
	char line[600];
	(void)state;
	for (unsigned i = 0; i < TOPOLOGY_SITES_MAX; i++) {
		(void)snprintf(line, sizeof(line), "site s%u", i);
		assert_int_equal(topology_line(&t, line, true, &error), TR_OK);
	}
	assert_int_equal(topology_line(&t, "site more", true, &error), TR_ELIMIT);
	assert_int_equal(topology_line(&t, "site s1", true, &error), TR_EINVAL);
	for (unsigned i = 0; i < TOPOLOGY_PORTS_MAX; i++) {
		(void)snprintf(line, sizeof(line), "drop s0 s1 %u", i + 1);
		assert_int_equal(topology_line(&t, line, false, &error), TR_OK);
	}
	assert_int_equal(topology_line(&t, "drop s0 s1 1", false, &error), TR_OK);
	assert_int_equal(topology_line(&t, "drop s0 s1 99", false, &error), TR_ELIMIT);
	memset(line, 'x', sizeof(line) - 1);
	line[sizeof(line) - 1] = '\0';
	assert_int_equal(topology_line(&t, line, false, &error), TR_EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_packet_takes_its_time_on_the_line_and_the_way),
		cmocka_unit_test(a_full_queue_drops_the_newest),
		cmocka_unit_test(a_bucket_goes_at_once_and_fills_again),
		cmocka_unit_test(a_busy_line_carries_its_rate),
		cmocka_unit_test(jitter_keeps_the_order_unless_asked),
		cmocka_unit_test(losses_are_as_many_as_asked_and_the_seed_s),
		cmocka_unit_test(a_new_shape_holds_from_now_on),
		cmocka_unit_test(lines_mean_what_they_say),
		cmocka_unit_test(what_is_wrong_is_named_and_changes_nothing),
		cmocka_unit_test(limits_hold),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
