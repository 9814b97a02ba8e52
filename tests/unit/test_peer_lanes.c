/* Lanes that have closed, before the link hears of it: in the same turn of the loop there is more to send, and they are looked at. Lanes that are only memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/engine/peer_link.h"

#define LANES  3
#define FRAMES 20
#define ROOM   (1u << 20)

struct fake {
	struct lane lane; /* first */
	bool closed;      /* sends nothing, knows nothing */
	unsigned sent;
	struct lane_path path;
	struct lane_glance glance;
};

static struct fake *of(struct lane *lane)
{
	return (struct fake *)lane;
}

static tr_status send_frame(struct lane *lane, const struct lane_send *frame)
{
	(void)frame;
	if (of(lane)->closed)
		return TR_EUNAVAILABLE;
	of(lane)->sent++;
	return TR_OK;
}

/* As that of a connection: its unsent bytes go when it is freed. */
static size_t room(struct lane *lane)
{
	return ROOM - of(lane)->sent;
}

static size_t unsent(const struct lane *lane)
{
	(void)lane;
	return 0;
}

static void close_lane(struct lane *lane, const char *reason)
{
	(void)reason;
	of(lane)->closed = true;
}

static void set_patience(struct lane *lane, uint32_t patience_ms)
{
	(void)lane;
	(void)patience_ms;
}

static void counters(const struct lane *lane, struct lane_counters *counted)
{
	(void)lane;
	*counted = (struct lane_counters){ 0 };
}

static void path(struct lane *lane, struct lane_path *path)
{
	*path = of(lane)->closed ? (struct lane_path){ .congestion = "" } : of(lane)->path;
}

static void glance(const struct lane *lane, struct lane_glance *glance)
{
	const struct fake *fake = (const struct fake *)lane;
	*glance = fake->closed ? (struct lane_glance){ 0 } : fake->glance;
}

static const struct lane_ops ops = { .name = "fake",
	.send = send_frame,
	.room = room,
	.unsent = unsent,
	.close = close_lane,
	.set_patience = set_patience,
	.counters = counters,
	.path = path,
	.glance = glance };

struct fixture {
	struct engine *engine;
	struct member member;
	struct peer_link link;
	struct peer_lane lanes[LANES];
	struct fake fakes[LANES];
};

static struct fixture *make(void)
{
	struct fixture *f = calloc(1, sizeof(*f));
	assert_non_null(f);
	f->engine = calloc(1, sizeof(*f->engine));
	assert_non_null(f->engine);
	f->engine->members = &f->member;
	f->member.engine = f->engine;
	f->member.links = &f->link;
	f->link = (struct peer_link){ .member = &f->member,
		.peer = 1,
		.striped = true,
		.distant = true,
		.lanes = f->lanes };
	stripe_init(&f->link.stripe, LANES);
	for (unsigned c = 0; c < OUTGOING_CLASSES; c++)
		outgoing_list_init(&f->link.queue[c]);
	for (unsigned i = 0; i < LANES; i++) {
		f->fakes[i] = (struct fake){ .lane = { .ops = &ops },
			.path = { .rtt_us = 100000,
			    .acked_bytes = 1000000,
			    .retransmits = 10,
			    .congestion = "cubic" },
			.glance = { .rtt_us = 100000,
			    .now_rtt_us = 100000,
			    .retransmits = 10,
			    .packets_out = 1000,
			    .packet_bytes_out = 1448 } };
		f->lanes[i] = (struct peer_lane){ .next = i + 1 < LANES ? &f->lanes[i + 1] : NULL,
			.link = &f->link,
			.lane = &f->fakes[i].lane,
			.number = i,
			.up = true };
		outgoing_list_init(&f->lanes[i].kept);
	}
	return f;
}

static void unmake(struct fixture *f)
{
	for (unsigned c = 0; c < OUTGOING_CLASSES; c++)
		outgoing_drop_all(&f->link.queue[c]);
	for (unsigned i = 0; i < LANES; i++)
		outgoing_drop_all(&f->lanes[i].kept);
	free(f->engine);
	free(f);
}

static unsigned count(const struct outgoing_list *list)
{
	unsigned frames = 0;
	for (const struct outgoing *out = list->first; out != NULL; out = out->next)
		frames++;
	return frames;
}

static void queue_segments(struct fixture *f, unsigned frames)
{
	static const uint8_t body[64];
	const struct group_action action = { .kind = GROUP_DO_SEND_SEGMENT,
		.header = { .kind = SEGMENT_PARTIAL },
		.payload = body,
		.payload_bytes = sizeof(body) };
	for (unsigned i = 0; i < frames; i++) {
		struct outgoing *out = outgoing_segment(&f->link, &action);
		assert_non_null(out);
		out->number = f->link.queued++;
		outgoing_append(&f->link.queue[out->class], out);
	}
}

static void queue_message(struct fixture *f)
{
	Traind__Peer__Vote vote = TRAIND__PEER__VOTE__INIT;
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_VOTE;
	message.vote = &vote;
	struct outgoing *out = outgoing_message(&f->link, &message);
	assert_non_null(out);
	outgoing_append(&f->link.queue[OUTGOING_CONTROL], out);
}

/* All that waited went to the one that could not send any of it, since that always had the most room: it was sent again a round trip later, when it was known what had come. */
static void the_other_lanes_take_what_waits(void **state)
{
	(void)state;
	struct fixture *f = make();
	f->fakes[0].closed = true;
	queue_segments(f, FRAMES);
	peer_lane_feed(&f->link);
	assert_int_equal(count(&f->lanes[0].kept), 1);
	assert_int_equal(f->fakes[1].sent + f->fakes[2].sent, FRAMES - 1);
	assert_null(f->link.queue[OUTGOING_OWN].first);
	unmake(f);
}

/* They stay in order: the first of them was perhaps the last that came. */
static void votes_wait_until_it_is_known_what_came(void **state)
{
	(void)state;
	struct fixture *f = make();
	f->fakes[0].closed = true;
	for (unsigned i = 0; i < 3; i++)
		queue_message(f);
	peer_lane_feed(&f->link);
	peer_lane_feed(&f->link);
	assert_int_equal(count(&f->lanes[0].kept), 1);
	assert_int_equal(count(&f->link.queue[OUTGOING_CONTROL]), 2);
	assert_int_equal(f->fakes[1].sent + f->fakes[2].sent, 0);
	unmake(f);
}

/* The other end has said that it lost the first lane, which is closed in the loop's next turn: then what had not come goes out again, before what waits. */
static void votes_wait_until_a_lane_that_ended_is_settled(void **state)
{
	(void)state;
	struct fixture *f = make();
	f->lanes[0].up = false;
	f->lanes[0].ended = true;
	queue_message(f);
	peer_lane_feed(&f->link);
	assert_int_equal(count(&f->link.queue[OUTGOING_CONTROL]), 1);
	f->link.lanes = &f->lanes[1];
	peer_lane_feed(&f->link);
	assert_int_equal(f->fakes[1].sent, 1);
	unmake(f);
}

/* Its million bytes were taken back, and as many less came through than nothing: 2^64, which no rate came near to again. */
static void what_came_through_stays(void **state)
{
	(void)state;
	struct fixture *f = make();
	peer_stripe_look(&f->link);
	assert_int_equal(f->link.acked_bytes, LANES * 1000000);
	assert_int_equal(f->link.retransmits, LANES * 10);
	f->fakes[1].closed = true;
	f->fakes[2].path.acked_bytes += 5000;
	peer_stripe_look(&f->link);
	assert_int_equal(f->link.acked_bytes, LANES * 1000000 + 5000);
	assert_int_equal(f->link.retransmits, LANES * 10);
	unmake(f);
}

/* 2^32 packets less than it had sent were counted as sent, and as many as sent again. */
static void a_closed_one_has_sent_nothing_since(void **state)
{
	(void)state;
	struct fixture *f = make();
	struct gauge_sum sum = { .now_us = 1000 };
	peer_link_gauge(&f->member, &sum);
	f->fakes[0].closed = true;
	f->fakes[1].glance.packets_out += 100;
	f->fakes[1].glance.retransmits += 1;
	sum = (struct gauge_sum){ .now_us = 5000 };
	peer_link_gauge(&f->member, &sum);
	assert_int_equal(sum.sent_packets, 100);
	assert_int_equal(sum.resent_packets, 1);
	assert_int_equal(sum.rtt_us, 100000);
	unmake(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_other_lanes_take_what_waits),
		cmocka_unit_test(votes_wait_until_it_is_known_what_came),
		cmocka_unit_test(votes_wait_until_a_lane_that_ended_is_settled),
		cmocka_unit_test(what_came_through_stays),
		cmocka_unit_test(a_closed_one_has_sent_nothing_since),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
