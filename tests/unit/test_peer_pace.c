/* Which connection gets which part of a pace, and that none keeps one that it should not have: links and lanes that are only memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/engine/peer_link.h"

#define LOOK_US 4000u
#define RTT_US  100000u
#define LINKS   3
#define LANES   2

struct fake {
	struct lane lane; /* first */
	size_t unsent;
	double pace;
	unsigned said; /* times that it was told one */
};

static size_t unsent(const struct lane *lane)
{
	return ((const struct fake *)lane)->unsent;
}

static void set_pace(struct lane *lane, double bytes_per_s)
{
	((struct fake *)lane)->pace = bytes_per_s;
	((struct fake *)lane)->said++;
}

static const struct lane_ops ops = { .name = "fake", .unsent = unsent, .set_pace = set_pace };

struct fixture {
	struct engine *engine;
	struct member member;
	struct peer_link links[LINKS];
	struct peer_lane lanes[LINKS][LANES]; /* the second of each is not up, unless a test says so */
	struct fake fakes[LINKS][LANES];
	uint64_t now_us;
};

static struct fixture *make(void)
{
	struct fixture *f = calloc(1, sizeof(*f));
	assert_non_null(f);
	f->engine = calloc(1, sizeof(*f->engine));
	assert_non_null(f->engine);
	f->engine->members = &f->member;
	f->member.engine = f->engine;
	f->member.links = f->links;
	f->now_us = 1000000;
	for (unsigned i = 0; i < LINKS; i++) {
		struct peer_link *link = &f->links[i];
		*link = (struct peer_link){ .member = &f->member,
			.next = i + 1 < LINKS ? link + 1 : NULL,
			.peer = i + 1,
			.distant = true,
			.lanes = f->lanes[i] };
		for (unsigned k = 0; k < LANES; k++) {
			f->fakes[i][k].lane.ops = &ops;
			f->lanes[i][k] = (struct peer_lane){ .next = k + 1 < LANES
				    ? &f->lanes[i][k + 1]
				    : NULL,
				.link = link,
				.lane = &f->fakes[i][k].lane,
				.up = k == 0 };
		}
	}
	return f;
}

static void unmake(struct fixture *f)
{
	free(f->engine);
	free(f);
}

/* For so long links that have something to send get a pace of it all; each takes that many bytes/s. */
static void pass(struct fixture *f, double bytes_per_s, uint64_t us, const double takes[LINKS])
{
	for (uint64_t until_us = f->now_us + us; f->now_us < until_us;) {
		f->now_us += LOOK_US;
		for (unsigned i = 0; i < LINKS; i++)
			f->lanes[i][0].gauged.bytes += (uint64_t)(takes[i] * LOOK_US / 1e6);
		peer_pace_all(f->engine, bytes_per_s, RTT_US, f->now_us);
	}
}

static const double nothing[LINKS];

static void near_to(double got, double wanted)
{
	if (got < 0.95 * wanted || got > 1.05 * wanted)
		fail_msg("%.0f, not %.0f", got, wanted);
}

static void links_that_have_something_share_it(void **state)
{
	(void)state;
	struct fixture *f = make();
	pass(f, 12e6, LOOK_US, nothing);
	for (unsigned i = 0; i < LINKS; i++)
		assert_int_equal(f->fakes[i][0].said, 0);
	f->links[0].unwritten = 1;
	pass(f, 12e6, LOOK_US, nothing);
	near_to(f->fakes[0][0].pace, 12e6);
	f->links[1].unwritten = f->links[2].unwritten = 1;
	pass(f, 12e6, LOOK_US, nothing);
	for (unsigned i = 0; i < LINKS; i++)
		near_to(f->fakes[i][0].pace, 4e6);
	unsigned said = f->fakes[0][0].said;
	pass(f, 12.1e6, LOOK_US, nothing); /* noise */
	assert_int_equal(f->fakes[0][0].said, said);
	pass(f, 12e6, 2100000, nothing); /* each second */
	assert_int_equal(f->fakes[0][0].said, said + 2);
	/* Two are done: the kernel still has some of them, for a round trip. */
	f->links[1].unwritten = f->links[2].unwritten = 0;
	pass(f, 12e6, RTT_US / 2, nothing);
	near_to(f->fakes[0][0].pace, 4e6);
	pass(f, 12e6, RTT_US, nothing);
	near_to(f->fakes[0][0].pace, 12e6);
	unmake(f);
}

static void what_a_slow_link_leaves_is_the_others(void **state)
{
	(void)state;
	struct fixture *f = make();
	const double takes[LINKS] = { 4e6, 4e6, 0.5e6 };
	for (unsigned i = 0; i < LINKS; i++)
		f->links[i].unwritten = 1;
	pass(f, 12e6, RTT_US, takes);
	near_to(f->fakes[0][0].pace, 4e6); /* too early to tell */
	pass(f, 12e6, 10 * RTT_US, takes);
	near_to(f->fakes[0][0].pace, (12e6 - 1.5 * 0.5e6) / 2);
	near_to(f->fakes[1][0].pace, (12e6 - 1.5 * 0.5e6) / 2);
	near_to(f->fakes[2][0].pace, 4e6); /* it may be fast again at any moment */
	unmake(f);
}

static void lanes_that_carry_something_share_their_links(void **state)
{
	(void)state;
	struct fixture *f = make();
	f->links[0].unwritten = 1;
	f->lanes[0][1].up = true;
	f->fakes[0][0].unsent = 1000;
	pass(f, 12e6, LOOK_US, nothing);
	near_to(f->fakes[0][0].pace, 12e6);
	near_to(f->fakes[0][1].pace, 12e6);
	f->fakes[0][1].unsent = 1000;
	pass(f, 12e6, LOOK_US, nothing);
	near_to(f->fakes[0][0].pace, 6e6);
	near_to(f->fakes[0][1].pace, 6e6);
	f->fakes[0][0].unsent = f->fakes[0][1].unsent = 0;
	f->lanes[0][1].gauged.moved_us = f->now_us;
	f->lanes[0][0].gauged.moved_us = f->now_us;
	pass(f, 12e6, LOOK_US, nothing);
	near_to(f->fakes[0][1].pace, 6e6);
	unmake(f);
}

static void none_keeps_a_pace_that_it_should_not_have(void **state)
{
	(void)state;
	struct fixture *f = make();
	for (unsigned i = 0; i < LINKS; i++)
		f->links[i].unwritten = 1;
	pass(f, 90, LOOK_US, nothing); /* never so little that votes do not go */
	for (unsigned i = 0; i < LINKS; i++)
		near_to(f->fakes[i][0].pace, 64e3);
	f->links[0].distant = false;
	peer_pace_let_go(&f->links[0]);
	assert_true(f->fakes[0][0].pace == 0);
	pass(f, 12e6, LOOK_US, nothing);
	assert_true(f->fakes[0][0].pace == 0 && f->links[0].pace.is.bytes_per_s == 0);
	near_to(f->fakes[1][0].pace, 6e6);
	f->links[1].unwritten = 0;
	pass(f, 0, LOOK_US, nothing); /* not paced any more: those that are idle too */
	for (unsigned i = 0; i < LINKS; i++) {
		assert_true(f->fakes[i][0].pace == 0);
		assert_true(f->links[i].pace.is.bytes_per_s == 0);
	}
	unmake(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(links_that_have_something_share_it),
		cmocka_unit_test(what_a_slow_link_leaves_is_the_others),
		cmocka_unit_test(lanes_that_carry_something_share_their_links),
		cmocka_unit_test(none_keeps_a_pace_that_it_should_not_have),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
