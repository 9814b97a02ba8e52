/* What a joiner says to whom (state_ask.c), with a double of the links: what is asked again, taken back, and what if it cannot be said. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/state_receive.h"

#define DONOR  10
#define OTHER  11
#define THIRD  13
#define ROUND  4
#define CHUNKS 64u

struct said {
	uint64_t to;
	struct group_wish wish;
};

static struct said said[16];
static unsigned said_count, failures; /* so many of the next words cannot be said */
static bool holding, posted;
static unsigned lets, connects;
static uint64_t unlinked; /* to whom there is no link; 0: nobody */

/* ---- the double ---- */

void peer_link_say(struct member *member, uint64_t peer, const Traind__Peer__PeerMessage *message)
{
	const Traind__Peer__StateRequest *request = message->state_request;
	assert_int_equal(message->body_case, TRAIND__PEER__PEER_MESSAGE__BODY_STATE_REQUEST);
	assert_int_equal(request->round, member->state_receive->round);
	assert_int_equal(request->view, member->view);
	assert_int_equal(request->any, peer != DONOR);
	if (failures > 0) {
		assert_true(
		    holding); /* else the core would hear of it now, and might ask for something else */
		failures--;
		posted = true;
		return;
	}
	assert_in_range(said_count, 0, 15);
	said[said_count++] = (struct said){ peer,
		{ .digests_only = request->digests_only,
		    .pieces = request->pieces,
		    .take_back = request->take_back,
		    .first = request->first,
		    .end = request->end } };
}

bool peer_link_is_up(struct member *member, uint64_t peer)
{
	(void)member;
	return peer != unlinked;
}

void peer_link_connect(struct member *member, uint64_t peer)
{
	(void)member;
	assert_int_equal(peer, unlinked);
	connects++;
}

const struct view_peer_entry *member_view_peer(const struct member *member, uint64_t peer)
{
	for (size_t i = 0; i < member->view_peer_count; i++)
		if (member->view_peers[i].peer == peer)
			return &member->view_peers[i];
	return NULL;
}

bool member_hold_posts(struct member *member)
{
	bool held = !holding;
	(void)member;
	holding = true;
	return held;
}

static struct state_receive *gone; /* as it was: whoever still looks at it finds members to ask */

static void receive_free(struct state_receive *receive)
{
	if (receive == NULL)
		return;
	state_plan_finish(&receive->plan);
	free(receive);
}

/* The worst that can follow: there is nothing to receive any more. */
void member_let_posts(struct member *member, bool held)
{
	if (!held)
		return;
	holding = false;
	lets++;
	if (posted) {
		gone = member->state_receive;
		member->state_receive = NULL;
	}
	posted = false;
}

/* ---- a joiner ---- */

struct joiner {
	struct engine engine;
	struct member member;
	struct view_peer_entry peers[4];
};

static struct joiner *joiner_start(void)
{
	struct joiner *j = calloc(1, sizeof(*j));
	struct state_receive *receive = calloc(1, sizeof(*receive));
	assert_non_null(j);
	assert_non_null(receive);
	assert_true(state_plan_make(&receive->plan, CHUNKS, TR_STATE_CHUNK_BYTES));
	receive->from = DONOR;
	receive->round = ROUND;
	receive->view = 2;
	j->peers[0] = (struct view_peer_entry){ .peer = DONOR, .participate_from = 1 };
	j->peers[1] = (struct view_peer_entry){ .peer = OTHER, .participate_from = 1 };
	j->peers[2] = (struct view_peer_entry){ .peer = 12, .participate_from = ROUND + 1 };
	j->peers[3] = (struct view_peer_entry){ .peer = THIRD, .participate_from = 1 };
	j->member = (struct member){ .engine = &j->engine,
		.peer = 12,
		.view = 2,
		.view_peers = j->peers,
		.view_peer_count = 3,
		.state_receive = receive };
	said_count = failures = 0;
	holding = posted = false;
	lets = connects = 0;
	unlinked = 0;
	return j;
}

static void joiner_stop(struct joiner *j)
{
	receive_free(j->member.state_receive);
	receive_free(gone);
	gone = NULL;
	assert_false(holding);
	free(j);
}

static void is_said(unsigned number, uint64_t to, struct group_wish wish)
{
	assert_in_range(number, 0, said_count - 1);
	assert_int_equal(said[number].to, to);
	assert_int_equal(said[number].wish.take_back, wish.take_back);
	assert_int_equal(said[number].wish.pieces, wish.pieces);
	assert_int_equal(said[number].wish.digests_only, wish.digests_only);
	assert_int_equal(said[number].wish.first, wish.first);
	assert_int_equal(said[number].wish.end, wish.end);
}

static struct state_source *ask_donor(struct joiner *j)
{
	struct state_source *donor = state_ask_source(j->member.state_receive, DONOR);
	state_ask(&j->member, donor);
	return donor;
}

static void come(struct joiner *j, struct state_source *source, uint64_t chunks)
{
	carrier_of(j->member.state_receive, source)->waits = false;
	while (chunks-- > 0)
		assert_true(state_plan_got(&j->member.state_receive->plan, source, source->next));
}

static void who_comes_later_gets_half(void **state)
{
	(void)state;
	struct joiner *j = joiner_start();
	(void)ask_donor(j);
	state_ask_others(&j->member);
	assert_int_equal(said_count, 3);
	is_said(0, DONOR, (struct group_wish){ .end = CHUNKS });
	is_said(1, OTHER, (struct group_wish){ .pieces = true, .first = 32, .end = CHUNKS });
	is_said(2, DONOR, (struct group_wish){ .take_back = true, .end = 32 });
	joiner_stop(j);
}

/* 64 chunks of 64 KiB are 4 MiB. */
static void another_donor_is_asked_for_its_worth_in_bytes(void **state)
{
	(void)state;
	struct joiner *j = joiner_start();
	struct state_plan *plan = &j->member.state_receive->plan;
	plan->chunk_bytes = TR_STATE_DONOR_BYTES / CHUNKS;
	(void)ask_donor(j);
	state_ask_others(&j->member);
	assert_int_equal(plan->count, 1);
	assert_int_equal(said_count, 1);
	joiner_stop(j);
}

/* It may be about to send what it was asked for first, and the word that this is another one comes too late. */
static void who_has_no_link_gets_one(void **state)
{
	(void)state;
	struct joiner *j = joiner_start();
	unlinked = OTHER;
	(void)ask_donor(j);
	state_ask_others(&j->member);
	assert_true(said_count == 1 && connects == 1);
	unlinked = 0;
	state_ask_others(&j->member);
	assert_true(said_count == 3 && connects == 1);
	assert_int_equal(said[1].to, OTHER);
	joiner_stop(j);
}

static void what_is_asked_again_stays_the_same(void **state)
{
	(void)state;
	struct joiner *j = joiner_start();
	struct state_plan *plan = &j->member.state_receive->plan;
	(void)ask_donor(j);
	state_ask_others(&j->member);
	struct state_source *other = state_plan_find(plan, OTHER),
	                    *third = state_plan_add(plan, THIRD);
	state_ask(&j->member, third);
	is_said(said_count - 1, DONOR, (struct group_wish){ .take_back = true, .end = 16 });
	state_plan_release(other); /* now more than the donor has is free */
	(void)ask_donor(j);
	is_said(said_count - 1, DONOR, (struct group_wish){ .end = 16 });
	joiner_stop(j);
}

/* It has sent its half, and the donor nothing: but for the digests, that is not asked for any more. */
static void a_silent_rest_is_taken_whole(void **state)
{
	(void)state;
	struct joiner *j = joiner_start();
	struct state_plan *plan = &j->member.state_receive->plan;
	struct state_source *donor = ask_donor(j);
	state_ask_others(&j->member);
	struct state_source *other = state_plan_find(plan, OTHER);
	assert_non_null(other);
	while (plan->missing > 0) {
		come(j, other, other->end - other->next);
		state_ask_others(&j->member);
	}
	is_said(said_count - 2, OTHER, (struct group_wish){ .pieces = true, .end = 4 });
	is_said(said_count - 1, DONOR, (struct group_wish){ .take_back = true });
	assert_true(carrier_of(j->member.state_receive, donor)->waits);
	joiner_stop(j);
}

/* Whoever has nothing else to say may be asked for something new. All that it was asked for is taken back, what is here too. */
static void who_lost_all_may_be_asked_again(void **state)
{
	(void)state;
	struct joiner *j = joiner_start();
	struct state_receive *receive = j->member.state_receive;
	struct state_source *donor = ask_donor(j);
	state_ask_others(&j->member);
	struct state_source *other = state_plan_find(&receive->plan, OTHER);
	assert_true(state_plan_got(&receive->plan, donor, 32)); /* on an earlier connection */
	while (other->end - other->next > 1) {
		come(j, donor, donor->end - donor->next);
		state_ask(&j->member, donor);
		if (other->next == other->end)
			break;
	}
	is_said(said_count - 1, OTHER,
	    (struct group_wish){ .take_back = true, .first = 32, .end = 32 });
	assert_false(carrier_of(receive, other)->waits);
	joiner_stop(j);
}

/* What cannot be said the core hears when all is said: it may ask for another state then. */
static void what_cannot_be_said_is_told_afterwards(void **state)
{
	(void)state;
	for (unsigned lost = 1; lost <= 3; lost++) {
		struct joiner *j = joiner_start();
		struct state_source *donor = state_ask_source(j->member.state_receive, DONOR);
		j->member.view_peer_count = 4;
		failures = lost == 1 ? 1 : 0;
		state_ask(&j->member, donor);
		assert_int_equal(lets, 1);
		if (lost > 1) {
			failures = lost - 1; /* of four: two of each theft */
			state_ask_others(&j->member);
			assert_int_equal(lets, 2);
		}
		assert_int_equal(failures, 0);
		assert_null(j->member.state_receive);
		state_ask_others(&j->member); /* nothing is awaited */
		joiner_stop(j);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_comes_later_gets_half),
		cmocka_unit_test(another_donor_is_asked_for_its_worth_in_bytes),
		cmocka_unit_test(who_has_no_link_gets_one),
		cmocka_unit_test(what_is_asked_again_stays_the_same),
		cmocka_unit_test(a_silent_rest_is_taken_whole),
		cmocka_unit_test(who_lost_all_may_be_asked_again),
		cmocka_unit_test(what_cannot_be_said_is_told_afterwards),
	};
	return cmocka_run_group_tests_name("state ask", tests, NULL, NULL);
}
