/* Golden traces: the connection that closes first when a process dies. */
#include "tests/unit/membership_harness.h"

static void tie(struct world *w, uint64_t conn, uint64_t node, uint64_t incarnation)
{
	Traind__Peer__Lifeline body = TRAIND__PEER__LIFELINE__INIT;
	body.node_id = node;
	body.incarnation = incarnation;
	MESSAGE(w, conn, LIFELINE, lifeline, &body);
}

/* The second connection of a process closes first when it is killed. */
static void test_lifeline(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	tie(&w, 20, 2, 102);
	tie(&w, 21, 2, 999); /* of another process */
	tie(&w, 22, 77, 102);
	tie(&w, 1, 1, 101); /* on the first connection */
	expect(&w,
	    "close c21: the lifeline of a node that is not here\n"
	    "close c22: the lifeline of a node that is not here\n"
	    "close c1: the lifeline of a node that is not here\n");
	world_closed(&w, 21, "closed");
	world_closed(&w, 22, "closed");
	tie(&w, 23, 2, 102); /* memberd's answer was lost: once more */
	expect(&w, "close c20: replaced by a newer lifeline\n");
	world_closed(&w, 20, "closed");
	expect(&w, "");
	world_closed(&w, 23, "closed by peer");
	expect(&w,
	    "close c2: its process ended (its lifeline closed)\n"
	    "append node_gone n2: its process ended (its lifeline closed)\n"
	    "append peer_moved p6 lost: node node-2 was lost: its process ended (its lifeline "
	    "closed)\n"
	    "send c1 view_propose 2 to p5,p7\n"
	    "send c3 view_propose 2 to p5,p7\n");
	world_closed(&w, 2, "closed by peer");
	expect(&w, "");
	world_finish(&w);
}

/* It goes with its node, whose loss has another reason. */
static void test_lifeline_of_a_lost_node(void **state)
{
	struct world w;
	(void)state;
	training(&w);
	tie(&w, 20, 2, 102);
	world_closed(&w, 2, "reset by peer");
	expect(&w,
	    "close c20: its connection closed: reset by peer\n"
	    "append node_gone n2: its connection closed: reset by peer\n"
	    "append peer_moved p6 lost: node node-2 was lost: its connection closed: reset by "
	    "peer\n"
	    "send c1 view_propose 2 to p5,p7\n"
	    "send c3 view_propose 2 to p5,p7\n");
	world_closed(&w, 20, "closed");
	expect(&w, "");
	world_finish(&w);
}

static void call(struct world *w, uint64_t conn, uint32_t number)
{
	Traind__Peer__NodeHello body = TRAIND__PEER__NODE_HELLO__INIT;
	char name[] = "node-1", address[] = "10.0.0.1:7000";
	body.node_id = 1;
	body.incarnation = 101;
	body.name = name;
	body.address = address;
	body.pid = 1001;
	body.slots = 1;
	body.call = number;
	MESSAGE(w, conn, HELLO, hello, &body);
}

static bool is_closed(struct world *w, const char *words)
{
	bool found = strstr(w->trace, words) != NULL;
	skip_trace(w);
	return found;
}

/* Twice the way was cut just after a connection was there: what was said on it comes when the node has long been back by another one. */
static void test_what_comes_late(void **state)
{
	struct world w;
	Traind__Peer__Lifeline late = TRAIND__PEER__LIFELINE__INIT;
	(void)state;
	world_init(&w);
	world_lead(&w);
	hello(&w, 1, 0, 101, 1);
	skip_trace(&w);
	call(&w, 3, 3);
	assert_true(is_closed(&w, "close c1: replaced by a newer connection of the same node"));
	call(&w, 2, 2);
	assert_true(is_closed(&w, "close c2: its node has said hello on a newer connection"));
	late.node_id = 1;
	late.incarnation = 101;
	late.call = 2;
	MESSAGE(&w, 20, LIFELINE, lifeline, &late);
	assert_true(is_closed(&w, "close c20: the lifeline of a connection that its node has left"));
	world_closed(&w, 1, "closed by peer");
	world_closed(&w, 2, "closed by peer");
	world_closed(&w, 20, "closed by peer");
	assert_false(is_closed(&w, "close c3"));
	world_finish(&w);
}

/* What it says of itself is still on its way into the log. */
static void test_a_newer_connection_while_its_node_registers(void **state)
{
	struct world w;
	(void)state;
	world_init(&w);
	world_lead(&w);
	hello(&w, 1, 0, 101, 1);
	skip_trace(&w);
	w.hold = true;
	hello(&w, 11, 1, 101, 1);
	hello(&w, 21, 1, 101, 1);
	expect(&w,
	    "close c1: replaced by a newer connection of the same node\n"
	    "send c11 welcome n1\n"
	    "append node_seen n1\n"
	    "close c11: replaced by a newer connection of the same node\n"
	    "send c21 welcome n1\n"
	    "append node_seen n1\n");
	hello(&w, 31, 1, 102, 1); /* another process */
	assert_true(is_closed(&w,
	    "close c31: another process of this node is registering just now: try again"));
	w.hold = false;
	world_apply(&w);
	assert_false(is_closed(&w, "close c21"));
	world_finish(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lifeline),
		cmocka_unit_test(test_lifeline_of_a_lost_node),
		cmocka_unit_test(test_what_comes_late),
		cmocka_unit_test(test_a_newer_connection_while_its_node_registers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
