/* The link to memberd reads no more while what was said before is still to be done, so that no queue grows by what memberd says; and heartbeats on it. */
#include "tests/unit/link_fixture.h"

static void no_more_is_read_than_can_be_done(void **state)
{
	(void)state;
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__Welcome welcome = TRAIND__PEER__WELCOME__INIT;
	Traind__Peer__RoundsRecorded recorded = TRAIND__PEER__ROUNDS_RECORDED__INIT;
	uv_loop_t loop;
	struct link link;
	int port, fd = begin(&loop, &link, &port);
	welcome.node_id = 1;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_WELCOME;
	message.welcome = &welcome;
	say(fd, &message);
	message.body_case = TRAIND__PEER__TO_NODE__BODY_ROUNDS_RECORDED;
	message.rounds_recorded = &recorded;
	for (unsigned i = 0; i < 3; i++)
		say(fd, &message);
	for (unsigned i = 0; i < 4; i++) { /* the first is the welcome, which is a message, too */
		turn(&loop, 50);
		assert_int_equal(heard.welcomes, 1);
		assert_int_equal(heard.messages, i);
		heard.behind = false;
	}
	turn(&loop, 50);
	end(&loop, &link, fd, port);
}

/* fuzz_node found what kept the number 0, and could not begin again. */
static void a_welcome_gives_a_number(void **state)
{
	(void)state;
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__Welcome welcome = TRAIND__PEER__WELCOME__INIT;
	uv_loop_t loop;
	struct link link;
	char byte;
	int port, fd = begin(&loop, &link, &port);
	message.body_case = TRAIND__PEER__TO_NODE__BODY_WELCOME;
	message.welcome = &welcome;
	say(fd, &message);
	turn(&loop, 50);
	assert_int_equal(heard.welcomes, 0);
	while (recv(fd, &byte, 1, MSG_DONTWAIT) == 1) /* its hello */
		;
	assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0); /* it hung up */
	end(&loop, &link, fd, port);
}

static void await_beats(uv_loop_t *loop, unsigned count)
{
	for (unsigned tries = 0; heard.beats < count; tries++) {
		assert_true(tries < 10000);
		turn(loop, 1);
	}
}

/* Over a long way further apart, while they have answers. */
static void heartbeats_are_as_far_apart_as_memberd_says(void **state)
{
	(void)state;
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__Welcome welcome = TRAIND__PEER__WELCOME__INIT;
	Traind__Peer__HeartbeatAck ack = TRAIND__PEER__HEARTBEAT_ACK__INIT;
	uv_loop_t loop;
	struct link link;
	int port, fd = begin(&loop, &link, &port);
	welcome.node_id = 1;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_WELCOME;
	message.welcome = &welcome;
	welcome.heartbeat_interval_ms = 50; /* the kernel may wait 40 with an answer */
	say(fd, &message);
	await_beats(&loop, 5);
	heard.behind = false;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_HEARTBEAT_ACK;
	message.heartbeat_ack = &ack;
	ack.interval_ms = 1000000;
	say(fd, &message);
	for (unsigned tries = 0; link.apart_ms != ack.interval_ms; tries++) {
		assert_true(tries < 10000);
		turn(&loop, 1);
	}
	turn(&loop, 200); /* what was on its way has an answer then */
	unsigned before = heard.beats;
	turn(&loop, 500);
	assert_true(heard.beats - before < 5); /* of ten */
	ack.interval_ms = 0;
	say(fd, &message);
	await_beats(&loop, heard.beats + 5);
	end(&loop, &link, fd, port);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(no_more_is_read_than_can_be_done),
		cmocka_unit_test(a_welcome_gives_a_number),
		cmocka_unit_test(heartbeats_are_as_far_apart_as_memberd_says) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
