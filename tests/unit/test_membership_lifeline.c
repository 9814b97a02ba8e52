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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lifeline),
		cmocka_unit_test(test_lifeline_of_a_lost_node),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
