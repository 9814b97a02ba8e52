/* Members that cannot dial each other: who relays between them, who is told, and what happens when nobody can. */
#include "tests/unit/membership_harness.h"

static void in_vain(struct world *w, uint64_t conn, uint64_t view, uint64_t from, uint64_t about,
    bool heard)
{
	Traind__Peer__LinkLost lost = TRAIND__PEER__LINK_LOST__INIT;
	char reason[64];
	(void)snprintf(reason, sizeof(reason), "cannot reach 10.0.0.%llu:7000: no answer",
	    (unsigned long long)about - 4);
	lost.group = 4;
	lost.view = view;
	lost.peer = from;
	lost.lost = about;
	lost.reason = reason;
	lost.heard = heard;
	MESSAGE(w, conn, LINK_LOST, link_lost, &lost);
}

static void all_report(struct world *w, uint64_t number, uint64_t view)
{
	for (uint64_t c = 1; c <= 3; c++)
		report(w, c, 4, 4 + c, number, view, 0, 0, 0, false, 0, 0);
}

static const Traind__Peer__View *view_of(const struct world *w, uint64_t conn, uint64_t number)
{
	assert_non_null(w->install[conn]);
	assert_int_equal(w->install[conn]->view_install->view->number, number);
	return w->install[conn]->view_install->view;
}

static const Traind__Peer__RelayDuties *duties_of(const struct world *w, uint64_t conn)
{
	const Traind__Peer__ToNode *said = w->last[conn];
	return said != NULL && said->body_case == TRAIND__PEER__TO_NODE__BODY_RELAY_DUTIES
	    ? said->relay_duties
	    : NULL;
}

static void is_row(const Traind__Peer__Relayed *row, uint64_t from, uint64_t to, uint64_t node)
{
	char address[32] = ""; /* memberd's each of them has */
	/* n8 came as the fourth */
	if (node != 0)
		(void)snprintf(address, sizeof(address), "10.0.0.%llu:7000",
		    (unsigned long long)(node == 8 ? 4 : node));
	assert_int_equal(row->group, 4);
	assert_int_equal(row->from, from);
	assert_int_equal(row->to, to);
	assert_int_equal(row->node, node);
	assert_string_equal(row->address, address);
	assert_true(row->token_low != 0 && row->token_high != 0);
}

/* p7 dials p5 and not the other way around: p5's own node lets p7 wait for it. */
static void one_way(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	in_vain(&w, 1, 1, 5, 7, true);
	world_tick(&w, 500);
	expect(&w,
	    "send c1 view_propose 2 to p5,p6,p7\n"
	    "send c2 view_propose 2 to p5,p6,p7\n"
	    "send c3 view_propose 2 to p5,p6,p7\n");
	all_report(&w, 2, 1);
	assert_int_equal(view_of(&w, 1, 2)->n_relayed, 1);
	is_row(view_of(&w, 1, 2)->relayed[0], 5, 7, 1);
	assert_int_equal(view_of(&w, 2, 2)->n_relayed, 0); /* not its affair, nor its token */
	assert_int_equal(view_of(&w, 3, 2)->n_relayed, 0);
	const Traind__Peer__RelayDuties *relay = duties_of(&w, 1), *target = duties_of(&w, 3);
	assert_int_equal(relay->n_relays, 1);
	assert_int_equal(relay->n_waits, 0);
	is_row(relay->relays[0], 5, 7, 1);
	assert_int_equal(target->n_relays, 0);
	assert_int_equal(target->n_waits, 1);
	is_row(target->waits[0], 5, 7, 1);
	assert_int_equal(target->waits[0]->token_low, view_of(&w, 1, 2)->relayed[0]->token_low);
	assert_null(duties_of(&w, 2));
	world_finish(&w);
}

/* Neither can: a third one, with a token for each direction. The next view has the same. */
static void both_ways(struct world *w)
{
	in_vain(w, 1, 1, 5, 7, false);
	in_vain(w, 3, 1, 7, 5, false);
	world_tick(w, 500);
	all_report(w, 2, 1);
	is_row(view_of(w, 1, 2)->relayed[0], 5, 7, 2);
	is_row(view_of(w, 3, 2)->relayed[0], 7, 5, 2);
	assert_int_equal(view_of(w, 1, 2)->n_relayed, 1);
	assert_int_equal(view_of(w, 3, 2)->n_relayed, 1);
	assert_true(
	    view_of(w, 1, 2)->relayed[0]->token_low != view_of(w, 3, 2)->relayed[0]->token_low);
	assert_int_equal(duties_of(w, 1)->n_waits, 1);
	assert_int_equal(duties_of(w, 2)->n_relays, 2);
	assert_int_equal(duties_of(w, 2)->n_waits, 0);
	assert_int_equal(duties_of(w, 3)->n_waits, 1);
	assert_int_equal(duties_of(w, 1)->n_relays + duties_of(w, 3)->n_relays, 0);
}

static void the_third(void **state)
{
	struct world w;
	Traind__Peer__LinkLost broke = TRAIND__PEER__LINK_LOST__INIT;
	(void)state;
	training(&w);
	both_ways(&w);
	uint64_t token = view_of(&w, 1, 2)->relayed[0]->token_high;
	broke.group = 4, broke.view = 2, broke.peer = 5, broke.lost = 6;
	broke.reason = (char *)(uintptr_t) "reset by peer";
	MESSAGE(&w, 1, LINK_LOST, link_lost, &broke);
	world_tick(&w, 100);
	skip_trace(&w);
	all_report(&w, 3, 2);
	is_row(view_of(&w, 1, 3)->relayed[0], 5, 7, 2);
	assert_int_equal(view_of(&w, 1, 3)->relayed[0]->token_high, token);
	assert_null(strstr(w.trace, "relay_duties")); /* nothing new */
	world_finish(&w);
}

/* Three say it at once of two: each direction has its own way. */
static void several_at_once(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	in_vain(&w, 1, 1, 5, 7, false);
	in_vain(&w, 3, 1, 7, 5, false);
	in_vain(&w, 2, 1, 6, 5, true);
	world_tick(&w, 500);
	all_report(&w, 2, 1);
	is_row(view_of(&w, 1, 2)->relayed[0], 5, 7, 2);
	is_row(view_of(&w, 2, 2)->relayed[0], 6, 5, 2); /* itself */
	is_row(view_of(&w, 3, 2)->relayed[0], 7, 5, 2);
	world_finish(&w);
}

/* A node without a worker of the job helps out when the member cannot; then nobody is left, and the words say what to do. */
static void until_nobody_is_left(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	hello(&w, 4, 0, 104, 1);
	both_ways(&w);
	in_vain(&w, 1, 2, 5, 7, false);
	world_tick(&w, 500);
	all_report(&w, 3, 2);
	is_row(view_of(&w, 1, 3)->relayed[0], 5, 7, 8);
	is_row(view_of(&w, 3, 3)->relayed[0], 7, 5, 2);
	assert_int_equal(duties_of(&w, 4)->n_relays, 1);
	assert_int_equal(duties_of(&w, 2)->n_relays, 1);
	in_vain(&w, 1, 3, 5, 7, false);
	skip_trace(&w);
	world_tick(&w, 500);
	assert_non_null(strstr(w.trace,
	    "append peer_moved p7 lost: 1 member cannot reach it; peer p5: cannot reach "
	    "10.0.0.3:7000: no answer; nor does a relay: open its port, or start a traind that "
	    "both reach\n"));
	assert_non_null(strstr(w.trace, "send c2 relay_duties\n")); /* nothing any more */
	assert_non_null(strstr(w.trace, "send c4 relay_duties\n"));
	world_finish(&w);
}

static void its_relay_goes(struct world *w)
{
	both_ways(w);
	world_closed(w, 2, "reset by peer");
	report(w, 1, 4, 5, 3, 2, 0, 0, 0, false, 0, 0);
	report(w, 3, 4, 7, 3, 2, 0, 0, 0, false, 0, 0);
}

/* The relay dies: its member is replaced as always, and another node relays. */
static void the_relay_dies(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	hello(&w, 4, 0, 104, 1);
	its_relay_goes(&w);
	is_row(view_of(&w, 1, 3)->relayed[0], 5, 7, 8);
	is_row(view_of(&w, 3, 3)->relayed[0], 7, 5, 8);
	world_finish(&w);
}

/* ... or nobody does: then the direct way is tried again, and the words say what to do. */
static void the_only_relay_dies(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	its_relay_goes(&w);
	assert_int_equal(view_of(&w, 1, 3)->n_relayed, 0);
	in_vain(&w, 1, 3, 5, 7, false);
	in_vain(&w, 3, 3, 7, 5, false);
	skip_trace(&w);
	world_tick(&w, 500);
	assert_non_null(strstr(w.trace, "nor does a relay: open its port"));
	world_finish(&w);
}

/* Silence is not cured by a relay: who was connected, and is heard no more, goes. */
static void silence_is_another_matter(void **state)
{
	struct world w;
	Traind__Peer__LinkLost lost = TRAIND__PEER__LINK_LOST__INIT;
	(void)state;
	training(&w);
	in_vain(&w, 1, 1, 5, 7, false);
	lost.group = 4, lost.view = 1, lost.peer = 6, lost.lost = 7;
	lost.reason = (char *)(uintptr_t) "silent for 1.0 s";
	MESSAGE(&w, 2, LINK_LOST, link_lost, &lost);
	world_tick(&w, 500);
	assert_non_null(strstr(w.trace, "append peer_moved p7 lost: 2 members cannot reach it"));
	world_finish(&w);
}

/* Nodes on connections from `first` + 1 on, the members with that view. */
static void come_back(struct world *w, uint64_t first, uint64_t view, uint64_t count)
{
	Traind__Peer__NodeHello hello = TRAIND__PEER__NODE_HELLO__INIT;
	Traind__Peer__PeerHere here = TRAIND__PEER__PEER_HERE__INIT, *heres[1] = { &here };
	for (uint64_t c = 1; c <= count; c++) {
		char name[16], address[32];
		(void)snprintf(name, sizeof(name), "node-%llu", (unsigned long long)c);
		(void)snprintf(address, sizeof(address), "10.0.0.%llu:7000", (unsigned long long)c);
		hello.node_id = c == 4 ? 8 : c;
		hello.incarnation = 100 + c;
		hello.name = name;
		hello.address = address;
		hello.pid = (uint32_t)(1000 + c);
		hello.slots = 1;
		hello.relays = true;
		here.job_id = 1, here.group = 4, here.peer = 4 + c, here.view = view,
		here.ready = true;
		hello.peers = heres;
		hello.n_peers = c == 4 ? 0 : 1;
		MESSAGE(w, first + c, HELLO, hello, &hello);
	}
}

/* memberd comes back: nodes say that they have duties, and are told all of them, or that there are none. */
static void a_restart(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	hello_with(&w, 4, 0, 104, 1, NULL, 0);
	both_ways(&w);
	uint64_t token = view_of(&w, 1, 2)->relayed[0]->token_high;
	world_restart(&w);
	world_lead(&w);
	come_back(&w, 20, 2, 4);
	assert_int_equal(duties_of(&w, 21)->n_waits, 1);
	assert_int_equal(duties_of(&w, 22)->n_relays, 2);
	assert_int_equal(duties_of(&w, 23)->n_waits, 1);
	assert_int_equal(duties_of(&w, 24)->n_relays + duties_of(&w, 24)->n_waits, 0);
	assert_int_equal(duties_of(&w, 23)->waits[0]->token_high, token);
	world_finish(&w);
}

/* ---- memberd as the last relay */

static int we_relay(void **state)
{
	(void)state;
	world_options.relays = true;
	return 0;
}

static int we_do_not(void **state)
{
	(void)state;
	world_options.relays = false;
	return 0;
}

static const Traind__Peer__RelayDuties *our_duties(const struct world *w)
{
	return duties_of(w, 0);
}

/* p5 gets to p7 through node 2 in view 2, in vain, and through memberd in view 3; p7 gets to p5 through node 2. */
static void through_memberd(struct world *w)
{
	training(w);
	both_ways(w);
	assert_null(our_duties(w)); /* a node first */
	in_vain(w, 1, 2, 5, 7, false);
	world_tick(w, 500);
	all_report(w, 3, 2);
	is_row(view_of(w, 1, 3)->relayed[0], 5, 7, 0);
	is_row(view_of(w, 3, 3)->relayed[0], 7, 5, 2);
	assert_int_equal(our_duties(w)->n_waits, 0);
	assert_int_equal(our_duties(w)->n_relays, 1);
	is_row(our_duties(w)->relays[0], 5, 7, 0);
	assert_int_equal(duties_of(w, 2)->n_relays, 1);
	assert_int_equal(duties_of(w, 3)->n_waits, 1);
	is_row(duties_of(w, 3)->waits[0], 5, 7, 0);
}

static uint64_t token_of(const struct world *w, uint64_t view)
{
	return view_of(w, 1, view)->relayed[0]->token_high;
}

static uint64_t proposed_to(const struct world *w, uint64_t conn)
{
	assert_int_equal(w->last[conn]->body_case, TRAIND__PEER__TO_NODE__BODY_VIEW_PROPOSE);
	return w->last[conn]->view_propose->number;
}

/* p5 says once more that it cannot get to p7, and all have the next view. Its number. */
static uint64_t next_view(struct world *w, uint64_t view)
{
	in_vain(w, 1, view, 5, 7, false);
	world_tick(w, 500);
	uint64_t next = proposed_to(w, 1);
	all_report(w, next, view);
	return next;
}

static void expect_nobody_left(struct world *w, uint64_t view)
{
	in_vain(w, 1, view, 5, 7, false);
	skip_trace(w);
	world_tick(w, 500);
	assert_non_null(strstr(w->trace, "nor does a relay: open its port"));
}

static void memberd_is_the_last(void **state)
{
	struct world w;
	(void)state;
	through_memberd(&w);
	expect_nobody_left(&w, 3);
	assert_non_null(strstr(w.trace, "append peer_moved p7 lost: 1 member cannot reach it"));
	assert_non_null(strstr(w.trace, "send c0 relay_duties\n"));
	assert_int_equal(our_duties(&w)->n_relays, 0);
	world_finish(&w);
}

/* What memberd carried broke with it. It carries it again, with the same token. That somebody found it gone meanwhile is no
 * failure of its, nor does it remember which nodes were: they come first again, and then it. */
static void memberd_comes_back(void **state)
{
	struct world w;
	(void)state;
	through_memberd(&w);
	uint64_t token = token_of(&w, 3);
	world_restart(&w);
	skip_trace(&w);
	world_lead(&w);
	assert_non_null(strstr(w.trace, "send c0 relay_duties\n"));
	is_row(our_duties(&w)->relays[0], 5, 7, 0);
	assert_int_equal(our_duties(&w)->relays[0]->token_high, token);
	come_back(&w, 0, 3, 3);
	uint64_t first = next_view(&w, 3);
	is_row(view_of(&w, 1, first)->relayed[0], 5, 7, 2);
	uint64_t second = next_view(&w, first);
	is_row(view_of(&w, 1, second)->relayed[0], 5, 7, 0);
	assert_true(token_of(&w, second) != token);
	expect_nobody_left(&w, second);
	world_finish(&w);
}

/* ... with --no-relay: what it carried it carries no more. */
static void memberd_comes_back_without(void **state)
{
	struct world w;
	(void)state;
	through_memberd(&w);
	world_options.relays = false;
	world_restart(&w);
	skip_trace(&w);
	world_lead(&w);
	assert_null(strstr(w.trace, "send c0 relay_duties\n"));
	come_back(&w, 0, 3, 3);
	uint64_t first = next_view(&w, 3);
	is_row(view_of(&w, 1, first)->relayed[0], 5, 7, 2);
	expect_nobody_left(&w, first);
	world_finish(&w);
}

/* Members say it until the next view is there: that it is said again is not the new relay's failure. */
static void said_again(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	in_vain(&w, 1, 1, 5, 7, false);
	in_vain(&w, 3, 1, 7, 5, false);
	world_tick(&w, 500);
	in_vain(&w, 1, 1, 5, 7, false);
	in_vain(&w, 3, 1, 7, 5, false);
	all_report(&w, 2, 1);
	is_row(view_of(&w, 1, 2)->relayed[0], 5, 7, 2);
	is_row(view_of(&w, 3, 2)->relayed[0], 7, 5, 2);
	world_finish(&w);
}

#define WHERE_WE_RELAY(f) cmocka_unit_test_setup_teardown(f, we_relay, we_do_not)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_way),
		cmocka_unit_test(the_third),
		cmocka_unit_test(several_at_once),
		cmocka_unit_test(until_nobody_is_left),
		cmocka_unit_test(the_relay_dies),
		cmocka_unit_test(the_only_relay_dies),
		cmocka_unit_test(silence_is_another_matter),
		cmocka_unit_test(a_restart),
		cmocka_unit_test(said_again),
		WHERE_WE_RELAY(memberd_is_the_last),
		WHERE_WE_RELAY(memberd_comes_back),
		WHERE_WE_RELAY(memberd_comes_back_without),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
