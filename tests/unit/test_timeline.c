/* Predicted step times: the bubbles of the formulas on free links; slow links, shared links, reductions and updates as computed by hand;
 * and what must hold of any cluster. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/rng.h"
#include "daemon/plan/timeline.h"

#define RANKS  16
#define STAGES 128
#define LINKS  (RANKS * RANKS + 1)

/* A cluster of `p` ranks whose links are each their own, and one for all reductions. */
struct cluster {
	struct schedule schedule;
	struct timeline_stage stages[STAGES];
	struct timeline_rank ranks[RANKS];
	struct flow_link links[LINKS];
	uint32_t link_of[RANKS * RANKS];
	struct timeline_input in;
};

static void cluster_init(struct cluster *c, enum schedule_kind kind, uint32_t p, uint32_t m,
    uint32_t v)
{
	struct tr_error error;

	memset(c, 0, sizeof(*c));
	if (schedule_create(&(struct schedule_shape){ kind, p, m, v }, &c->schedule, &error) !=
	    TR_OK)
		fail_msg("%s", error.text);
	for (uint32_t i = 0; i < p * v; i++)
		c->stages[i] = (struct timeline_stage){ .forward_s = 1,
			.backward_s = 2,
			.boundary_bytes = 100,
			.activation_bytes = 10 };
	for (uint32_t i = 0; i < p; i++)
		c->ranks[i].reduce_link = TIMELINE_NO_LINK;
	for (uint32_t i = 0; i < p * p; i++)
		c->link_of[i] = i;
	for (uint32_t i = 0; i < LINKS; i++)
		c->links[i] = (struct flow_link){ 0, INFINITY };
	c->in = (struct timeline_input){ &c->schedule, c->stages, c->ranks, c->links, p * p + 1,
		c->link_of, true, true, NULL, 0 };
}

static struct timeline_result run(struct cluster *c)
{
	struct timeline_result result;
	struct tr_error error;

	if (timeline_run(&c->in, &result, &error) != TR_OK)
		fail_msg("%s", error.text);
	return result;
}

static double step_of(struct cluster *c)
{
	struct timeline_result result = run(c);
	double step = result.step_s;

	timeline_finish(&result);
	return step;
}

static bool is_near(double a, double b)
{
	return fabs(a - b) <= 1e-9 * (1 + fabs(b));
}

#define assert_near(a, b) assert_true(is_near(a, b))

static void free_links_give_the_formulas(void **state)
{
	unsigned shapes = 0;

	(void)state;
	for (int kind = 0; kind < SCHEDULE_KINDS; kind++)
		for (uint32_t p = 2; p <= 8; p++)
			for (uint32_t v = kind == SCHEDULE_INTERLEAVED ? 2 : 1;
			     v <= (kind == SCHEDULE_INTERLEAVED ? 4u : 1u); v++)
				for (uint32_t groups = 1; groups <= 6; groups++, shapes++) {
					struct cluster c;
					/* Any m for the plain ones; a multiple of p for the formula of the interleaved one. */
					uint32_t m = kind == SCHEDULE_INTERLEAVED ? groups * p
					                                          : 3 * groups + 1;
					cluster_init(&c, (enum schedule_kind)kind, p, m, v);
					struct timeline_result result = run(&c);
					assert_near(result.bubble,
					    schedule_bubble(&c.schedule.shape));
					assert_near(result.step_s, 3.0 * m * v + 3.0 * (p - 1));
					for (uint32_t r = 0; r < p; r++) {
						assert_near(result.ranks[r].busy_s, 3.0 * m * v);
						assert_int_equal(result.ranks[r].in_flight,
						    schedule_in_flight(&c.schedule.shape, r));
						assert_near(result.ranks[r].activation_bytes,
						    10.0 * result.ranks[r].in_flight);
					}
					timeline_finish(&result);
					schedule_finish(&c.schedule);
				}
	assert_int_equal(shapes, 2 * 7 * 6 + 7 * 3 * 6);
}

/* Two ranks, one microbatch, 100 bytes at 50 a second and 0.25 s: 1, 2.25 under way, 1, 2, 2.25 back, 2. */
static void one_message_by_hand(void **state)
{
	struct cluster c;

	(void)state;
	cluster_init(&c, SCHEDULE_1F1B, 2, 1, 1);
	c.links[0 * 2 + 1] = (struct flow_link){ 0.25, 50 };
	c.links[1 * 2 + 0] = (struct flow_link){ 0.25, 50 };
	struct timeline_result result = run(&c);
	assert_near(result.step_s, 1 + 2.25 + 1 + 2 + 2.25 + 2);
	assert_near(result.ranks[0].idle_s, 2.25 + 3 + 2.25);
	assert_near(result.link_bytes[1], 100);
	assert_near(result.link_bytes[2], 100);
	assert_near(result.link_busy_s[1], 2);
	assert_near(result.link_bytes[0], 0);
	timeline_finish(&result);
	schedule_finish(&c.schedule);
}

/* A link that takes 3 s for a message, and four of them, begun at 1, 2, 3 and 4. */
static void messages_share_a_link(void **state)
{
	struct flow_link link = { 0, 100.0 / 3 };
	const struct flow_way way = { .count = 1, .links = { 0 }, .parts = { 1 } };
	struct flow flow;
	uint64_t tag;
	double there[4];

	(void)state;
	assert_int_equal(flow_init(&flow, &link, 1, NULL), TR_OK);
	for (unsigned i = 0; i < 4; i++) {
		flow_advance(&flow, 1 + i);
		assert_int_equal(flow_start(&flow, &way, 100, i, NULL), TR_OK);
	}
	for (unsigned i = 0; i < 4; i++) {
		flow_advance(&flow, flow_next_s(&flow));
		assert_true(flow_take(&flow, &tag));
		assert_int_equal(tag, i);
		there[i] = flow.now_s;
	}
	/* In thirds of 100 bytes: the first has had 1 + 1/2 + 1/3 when the fourth comes at 4, and needs 7/6 more at 1/4 a second. */
	assert_near(there[0], 4 + 4 * (3 - 11.0 / 6));
	/* Work is conserved: the last is there when four messages' bytes have gone. */
	assert_near(there[3], 1 + 12);
	assert_near(flow.busy_s[0], 12);
	assert_near(flow.carried_bytes[0], 400);
	assert_true(there[0] < there[1] && there[1] < there[2] && there[2] < there[3]);
	assert_true(isinf(flow_next_s(&flow)));
	flow_finish(&flow);
}

/* Two links of 100 bytes/s and one of 25, all by a card of 100: two messages of 100 bytes have half of it each; beside one on the slow link another has half too, and what is left nobody gets. */
static void messages_share_a_card(void **state)
{
	const struct flow_link links[] = { { 0, 100 }, { 0, 100 }, { 0, 25 }, { 0, 100 } };
	const struct flow_way ways[] = { { 2, { 0, 3 }, { 1, 1 } }, { 2, { 1, 3 }, { 1, 1 } },
		{ 2, { 2, 3 }, { 1, 1 } }, { 2, { 0, 3 }, { 1, 2 } } };
	static const struct {
		unsigned ways[2];
		double first_s, all_s;
	} cases[] = { { { 0, 1 }, 2, 2 }, { { 0, 2 }, 2, 4 }, { { 3, 1 }, 2, 3 } };

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		struct flow flow;
		uint64_t tag;
		assert_int_equal(flow_init(&flow, links, 4, NULL), TR_OK);
		for (unsigned k = 0; k < 2; k++)
			assert_int_equal(flow_start(&flow, &ways[cases[i].ways[k]], 100, k, NULL),
			    TR_OK);
		assert_near(flow_next_s(&flow), cases[i].first_s);
		for (unsigned left = 2; left > 0;) {
			flow_advance(&flow, flow_next_s(&flow));
			while (flow_take(&flow, &tag))
				left--;
		}
		assert_near(flow.now_s, cases[i].all_s);
		/* The last case has twice its bytes at the card. */
		assert_near(flow.carried_bytes[3], i == 2 ? 300 : 200);
		flow_finish(&flow);
	}
}

/* Without overlap rank 0 stands still while it sends: (1 + 3) each; the last message is there at 16, as if in turn. */
static void a_sender_that_waits(void **state)
{
	struct cluster c;

	(void)state;
	cluster_init(&c, SCHEDULE_GPIPE, 2, 4, 1);
	c.links[1].bandwidth_bytes_per_s = 100.0 / 3;
	c.in.overlap = false;
	/* Forwards at rank 1 end at 17, then its four backwards, each taken up at once by rank 0 (free link): 17 + 8 + 2. */
	assert_near(step_of(&c), 17 + 8 + 2);
	c.in.overlap = true;
	/* Sent at 1, 2, 3 and 4, one behind the other: there at 4, 7, 10 and 13. */
	assert_near(step_of(&c), 14 + 8 + 2);
	/* With forwards as long as a message the last rank waits for the first one alone. */
	c.stages[1].forward_s = 3;
	assert_near(step_of(&c), 4 + 4 * 3 + 8 + 2);
	schedule_finish(&c.schedule);
}

/* One rank, one microbatch, forward 1 and backward 4 s; 80 bytes in 4 buckets over 10 bytes/s: ready at 2, 3, 4, 5, each 2 s. */
static void buckets_overlap_the_backward(void **state)
{
	struct cluster c;

	(void)state;
	cluster_init(&c, SCHEDULE_1F1B, 1, 1, 1);
	c.stages[0] = (struct timeline_stage){ .forward_s = 1,
		.backward_s = 4,
		.reduce_bytes = 80,
		.buckets = 4 };
	c.ranks[0] = (struct timeline_rank){ .reduce_link = 0,
		.optimizer_s = 0.5,
		.gather_bytes = 40 };
	c.links[0].bandwidth_bytes_per_s = 10;
	struct timeline_result result = run(&c);
	assert_near(result.reduced_s, 2 + 4 * 2);
	assert_near(result.ranks[0].reduced_s, 10);
	assert_near(result.pipeline_s, 5);
	assert_near(result.step_s, 10 + 0.5 + 4);
	assert_near(result.link_bytes[0], 120);
	timeline_finish(&result);
	c.in.overlap_reduction = false;
	assert_near(step_of(&c), 5 + 8 + 0.5 + 4);
	c.in.overlap_reduction = true;
	c.stages[0].buckets = 1;
	assert_near(step_of(&c), 5 + 8 + 0.5 + 4);
	c.stages[0].buckets = 4;
	c.stages[0].reduce_latency_s = 0.25;
	assert_near(step_of(&c), 2 + 4 * 2.25 + 0.5 + 4);
	schedule_finish(&c.schedule);
}

/* Two ranks reduce over one link at the same time: half of it each, while both do. */
static void reductions_share_a_link(void **state)
{
	struct cluster c;

	(void)state;
	cluster_init(&c, SCHEDULE_1F1B, 2, 1, 1);
	for (unsigned i = 0; i < 2; i++) {
		c.stages[i].reduce_bytes = 100;
		c.ranks[i].reduce_link = 4;
	}
	c.links[4].bandwidth_bytes_per_s = 25;
	/* Rank 1's last backward ends at 4, rank 0's at 6: 2 s alone make 50 bytes, then 50 and 100 share: 50 at 4 s, and 50 alone 2 s. */
	assert_near(step_of(&c), 6 + 4 + 2);
	schedule_finish(&c.schedule);
}

/* The first chunk's gradients are reduced while the others are still at work. */
static void chunks_are_reduced_as_they_end(void **state)
{
	struct cluster c;
	double overlapped, after;

	(void)state;
	cluster_init(&c, SCHEDULE_INTERLEAVED, 2, 2, 2);
	for (unsigned i = 0; i < 4; i++)
		c.stages[i].reduce_bytes = 40;
	for (unsigned i = 0; i < 2; i++)
		c.ranks[i].reduce_link = i;
	c.links[0].bandwidth_bytes_per_s = c.links[1].bandwidth_bytes_per_s = 10;
	c.link_of[1] = c.link_of[2] = TIMELINE_NO_LINK;
	overlapped = step_of(&c);
	c.in.overlap_reduction = false;
	after = step_of(&c);
	/* 15 s of pipeline; both chunks behind it 8 s; overlapped, what is left behind is the last chunk's 4 s. */
	assert_near(after, 15 + 8);
	assert_near(overlapped, 15 + 4);
	schedule_finish(&c.schedule);
}

static void randomise(struct cluster *c, uint64_t seed)
{
	struct rng_key key = rng_key(seed, 5, 0);
	const struct schedule_shape *shape = &c->schedule.shape;

	for (uint32_t i = 0; i < shape->ranks * shape->chunks; i++)
		c->stages[i] = (struct timeline_stage){ .forward_s = 0.5 + rng_unit(key, 0, i),
			.backward_s = 1 + rng_unit(key, 1, i),
			.boundary_bytes = 1000 * rng_unit(key, 2, i),
			.reduce_bytes = 5000 * rng_unit(key, 3, i),
			.buckets = 1 + i % 4 };
	for (uint32_t i = 0; i < shape->ranks; i++)
		c->ranks[i] = (struct timeline_rank){ .reduce_link = i * shape->ranks,
			.optimizer_s = rng_unit(key, 4, i),
			.gather_bytes = 100 };
	for (uint32_t i = 0; i < c->in.link_count; i++)
		c->links[i] = (struct flow_link){ 0.1 * rng_unit(key, 6, i),
			300 + 3000 * rng_unit(key, 7, i) };
}

/* What holds of any cluster: no rank and no link works more than the step lasts; all bytes are carried; no time is lost or made. */
static void of_any_cluster(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 300; seed++) {
		struct rng_key key = rng_key(seed, 6, 0);
		enum schedule_kind kind = (enum schedule_kind)(seed % SCHEDULE_KINDS);
		uint32_t p = 2 + (uint32_t)rng_below(key, 0, 0, 7),
		         m = p + (uint32_t)rng_below(key, 0, 1, 12);
		uint32_t v = kind == SCHEDULE_INTERLEAVED ? 2 + (uint32_t)rng_below(key, 0, 2, 3)
		                                          : 1;
		struct cluster c;
		double carried = 0, wanted = 0, longest = 0;
		cluster_init(&c, kind, p, m, v);
		randomise(&c, seed);
		c.in.overlap = seed % 2 == 0;
		struct timeline_result result = run(&c);
		for (uint32_t i = 0; i < p * v; i++) {
			wanted += c.stages[i].reduce_bytes +
			    (i + 1 < p * v ? 2.0 * m * c.stages[i].boundary_bytes : 0);
			longest += (c.stages[i].forward_s + c.stages[i].backward_s);
		}
		for (uint32_t r = 0; r < p; r++) {
			wanted += 100;
			assert_true(result.ranks[r].busy_s <= result.pipeline_s + 1e-9);
			assert_true(result.ranks[r].end_s <= result.pipeline_s &&
			    result.ranks[r].reduced_s <= result.reduced_s);
			assert_near(result.ranks[r].busy_s + result.ranks[r].idle_s,
			    result.pipeline_s);
			assert_int_equal(result.ranks[r].in_flight,
			    schedule_in_flight(&c.schedule.shape, r));
		}
		for (uint32_t i = 0; i < result.link_count; i++) {
			carried += result.link_bytes[i];
			assert_true(result.link_busy_s[i] <= result.step_s + 1e-9);
			assert_near(result.link_busy_s[i],
			    result.link_bytes[i] / c.links[i].bandwidth_bytes_per_s);
		}
		assert_near(carried, wanted);
		assert_true(
		    result.pipeline_s >= longest); /* one microbatch through all stages and back */
		assert_true(
		    result.pipeline_s <= result.reduced_s && result.reduced_s <= result.step_s);
		timeline_finish(&result);
		schedule_finish(&c.schedule);
	}
}

/* Faster computers or links never make GPipe or 1F1B slower where no two messages share a link (each list is in a fixed order, and a
 * message is there no later). And twice as fast everything takes half the time. */
static void faster_is_not_slower(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 200; seed++) {
		struct rng_key key = rng_key(seed, 8, 0);
		uint32_t p = 2 + (uint32_t)rng_below(key, 0, 0, 5),
		         m = p + (uint32_t)rng_below(key, 0, 1, 8);
		struct cluster c;
		cluster_init(&c, seed % 2 == 0 ? SCHEDULE_GPIPE : SCHEDULE_1F1B, p, m, 1);
		randomise(&c, seed);
		/* Without overlap a rank has one message under way: none shares. */
		c.in.overlap = false;
		double before = step_of(&c);
		uint32_t stage = (uint32_t)rng_below(key, 0, 2, p),
		         link = (uint32_t)rng_below(key, 0, 3, p * p);
		c.stages[stage].forward_s *= 0.7;
		c.stages[stage].backward_s *= 0.8;
		double faster_stage = step_of(&c);
		assert_true(faster_stage <= before + 1e-9);
		c.links[link].bandwidth_bytes_per_s *= 2;
		c.links[link].latency_s /= 2;
		double faster_link = step_of(&c);
		assert_true(faster_link <= faster_stage + 1e-9);
		for (uint32_t i = 0; i < p; i++) {
			c.stages[i].forward_s /= 2;
			c.stages[i].backward_s /= 2;
			c.ranks[i].optimizer_s /= 2;
		}
		for (uint32_t i = 0; i < c.in.link_count; i++) {
			c.links[i].bandwidth_bytes_per_s *= 2;
			c.links[i].latency_s /= 2;
		}
		assert_near(step_of(&c), faster_link / 2);
		schedule_finish(&c.schedule);
	}
}

static void refused(struct cluster *c, const char *words)
{
	struct timeline_result result = { .step_s = 77 };
	struct tr_error error = { 0 };

	assert_int_equal(timeline_run(&c->in, &result, &error), TR_EINVAL);
	assert_string_equal(error.text, words);
	assert_true(result.step_s == 77);
}

static void what_is_no_input(void **state)
{
	struct cluster c;

	(void)state;
	cluster_init(&c, SCHEDULE_1F1B, 2, 2, 1);
	c.stages[1].backward_s = -1;
	refused(&c, "timeline: stage 1 has a time or size below 0 or without end");
	c.stages[1].backward_s = 1;
	c.links[2].bandwidth_bytes_per_s = 0;
	refused(&c, "timeline: link 2 has no bandwidth, or a latency below 0");
	c.links[2].bandwidth_bytes_per_s = NAN;
	refused(&c, "timeline: link 2 has no bandwidth, or a latency below 0");
	c.links[2].bandwidth_bytes_per_s = 1;
	c.link_of[1] = 9;
	refused(&c, "timeline: no link 9, for what rank 0 sends to 1");
	c.link_of[1] = 1;
	c.ranks[1].reduce_link = 9;
	refused(&c, "timeline: rank 1 has no such link, or a time below 0");
	c.ranks[1].reduce_link = 0;
	struct flow_way ways[4] = { { 1, { 0 }, { 1 } }, { 1, { 1 }, { 1 } }, { 1, { 2 }, { 1 } },
		{ 2, { 3, 9 }, { 1, 1 } } };
	c.in.ways = ways;
	c.in.way_count = 4;
	refused(&c, "timeline: way 3 has no links, or no such ones");
	c.in.ways = NULL;
	c.in.way_count = 0;
	c.schedule.lists[1].at[0] = (struct schedule_instruction){ 0, 0, SCHEDULE_RECV_B };
	refused(&c, "rank 0 waits for ever: this schedule does not pass schedule_check");
	schedule_finish(&c.schedule);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(free_links_give_the_formulas),
		cmocka_unit_test(one_message_by_hand),
		cmocka_unit_test(messages_share_a_link),
		cmocka_unit_test(messages_share_a_card),
		cmocka_unit_test(a_sender_that_waits),
		cmocka_unit_test(buckets_overlap_the_backward),
		cmocka_unit_test(reductions_share_a_link),
		cmocka_unit_test(chunks_are_reduced_as_they_end),
		cmocka_unit_test(of_any_cluster),
		cmocka_unit_test(faster_is_not_slower),
		cmocka_unit_test(what_is_no_input),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
