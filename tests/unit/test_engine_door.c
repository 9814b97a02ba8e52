/* Who is let in: connections to an engine by somebody who knows the group's and the peers' numbers and perhaps the token, and what
 * those can do to a round of two members that are what they say.
 */
#include "tests/unit/engine_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/core/member.h"
#include "collectives/engine/engine_internal.h"
#include "collectives/engine/inbound.h"
#include "proto/frame.h"
#include "proto/segment.h"

#define COUNT 1000

/* ---- a caller by hand */

struct claim {
	uint64_t from, link;
	bool knows; /* the token */
};

static int caller(const char *address)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const char *colon = strrchr(address, ':');
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	at.sin_port = htons((uint16_t)atoi(colon + 1));
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(send(fd, FRAME_GREETING, FRAME_GREETING_BYTES, MSG_NOSIGNAL),
	    FRAME_GREETING_BYTES);
	return fd;
}

/* It may be closed already: then nothing is sent. */
static void say_frame(int fd, enum frame_type type, const uint8_t *payload, size_t bytes)
{
	uint8_t whole[1024];
	struct frame_header header = { .type = (uint16_t)type, .length = (uint32_t)bytes };
	assert_true(FRAME_HEADER_BYTES + bytes <= sizeof(whole));
	frame_header_put(&header, whole);
	memcpy(whole + FRAME_HEADER_BYTES, payload, bytes);
	(void)send(fd, whole, FRAME_HEADER_BYTES + bytes, MSG_NOSIGNAL);
}

static void say(int fd, const Traind__Peer__PeerMessage *message)
{
	uint8_t packed[512];
	assert_true(traind__peer__peer_message__get_packed_size(message) <= sizeof(packed));
	say_frame(fd, FRAME_PEER, packed, traind__peer__peer_message__pack(message, packed));
}

static void say_hello(int fd, const struct claim *claim)
{
	Traind__Peer__PeerHello hello = TRAIND__PEER__PEER_HELLO__INIT;
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	hello.group = FX_GROUP;
	hello.from = claim->from;
	hello.to = FX_PEER(0);
	hello.link = claim->link;
	hello.token_low = claim->knows ? FX_TOKEN_LOW : FX_TOKEN_LOW ^ 1;
	hello.token_high = FX_TOKEN_HIGH;
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_HELLO;
	message.hello = &hello;
	say(fd, &message);
}

static void say_goodbye(int fd)
{
	Traind__Peer__Goodbye goodbye = TRAIND__PEER__GOODBYE__INIT;
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	goodbye.reason = (char *)(uintptr_t) "forged";
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_GOODBYE;
	message.goodbye = &goodbye;
	say(fd, &message);
}

/* Of round 0, which is over: dropped by its header, or kept until we have its view. */
static void say_segment(int fd, uint64_t view)
{
	uint8_t head[SEGMENT_HEADER_BYTES];
	segment_header_put(&(struct segment_header){ .view = view,
	                       .signature = { .dtype = TR_F32, .reduce = TR_SUM },
	                       .kind = SEGMENT_PARTIAL },
	    head);
	say_frame(fd, FRAME_SEGMENT, head, sizeof(head));
}

/* A message that no link may carry: whoever reads it closes the connection. */
static void say_nonsense(int fd)
{
	const Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	say(fd, &message);
}

static bool closed_now(int fd)
{
	uint8_t sink[512];
	ssize_t n;
	do {
		n = recv(fd, sink, sizeof(sink), MSG_DONTWAIT);
	} while (n > 0);
	return n == 0 || errno == ECONNRESET;
}

static void await_closed(int fd)
{
	for (unsigned i = 0; !closed_now(fd); i++) {
		struct pollfd wait = { .fd = fd, .events = POLLIN };
		if (poll(&wait, 1, FX_DEADLINE_S * 1000) <= 0)
			fail_msg("the connection stays open");
	}
}

/* What was sent before on other connections has been read: this one came later, and has been read to its end. */
static void let_it_read(const struct fx *fx)
{
	const struct claim stranger = { .from = FX_PEER(1), .link = 77 };
	for (unsigned i = 0; i < 2; i++) {
		int fd = caller(fx->hosts[0].address);
		say_hello(fd, &stranger);
		await_closed(fd);
		(void)close(fd);
	}
}

/* ---- the members */

static struct fx *two(void)
{
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	for (unsigned i = 0; i < 2; i++) {
		fx_ready(&fx->hosts[i]);
	}
	fx_found(fx, 2);
	for (unsigned i = 0; i < 2; i++)
		FX_WAIT(fx, fx->hosts[i].installed == 1);
	return fx;
}

static void begin(const struct fx_host *host)
{
	struct tr_round round;
	assert_int_equal(tr_round_begin(host->group, &round, NULL), TR_OK);
}

static void submit(const struct fx_host *host, float *data)
{
	struct tr_op op = TR_OP_INIT;
	op.output = data;
	op.count = COUNT;
	for (unsigned i = 0; i < COUNT; i++)
		data[i] = (float)(host->index + 1);
	struct tr_error error = { 0 };
	if (tr_submit(host->group, &op, &error) != TR_OK)
		fail_msg("%s", error.text);
}

static void *commit(void *arg)
{
	const struct fx_host *host = arg;
	const struct tr_commit how = { .samples = 1 };
	struct tr_round round;
	assert_int_equal(tr_round_commit(host->group, &how, &round, NULL), TR_OK);
	return NULL;
}

static unsigned links_lost(struct fx *fx)
{
	pthread_mutex_lock(&fx->lock);
	unsigned lost = fx->hosts[0].link_lost + fx->hosts[1].link_lost;
	pthread_mutex_unlock(&fx->lock);
	return lost;
}

/* In the middle of it `then` happens. */
static void a_round(struct fx *fx, void (*then)(struct fx *fx))
{
	float *data[2];
	pthread_t other;
	for (unsigned i = 0; i < 2; i++) {
		begin(&fx->hosts[i]);
		data[i] = tr_alloc(fx->hosts[i].group, COUNT * sizeof(float));
		assert_non_null(data[i]);
	}
	submit(&fx->hosts[0], data[0]);
	then(fx);
	submit(&fx->hosts[1], data[1]);
	assert_int_equal(pthread_create(&other, NULL, commit, &fx->hosts[1]), 0);
	(void)commit(&fx->hosts[0]);
	(void)pthread_join(other, NULL);
	for (unsigned i = 0; i < 2; i++)
		for (unsigned e = 0; e < COUNT; e++)
			assert_true(data[i][e] == 3.0f);
}

/* ---- the tests */

static void forge(struct fx *fx)
{
	for (uint64_t link = 0; link < 4; link++) {
		const struct claim claim = { .from = FX_PEER(1), .link = link };
		int fd = caller(fx->hosts[0].address);
		say_hello(fd, &claim);
		if (link % 2 == 0)
			say_goodbye(fd);
		await_closed(fd);
		(void)close(fd);
	}
}

static void who_has_no_token_moves_nothing(void **state)
{
	(void)state;
	struct fx *fx = two();
	a_round(fx, forge);
	assert_int_equal(links_lost(fx), 0);
	fx_stop(fx);
}

static void goodbye_without_a_word(struct fx *fx)
{
	for (uint64_t link = 0; link < 4; link++) {
		const struct claim claim = { .from = FX_PEER(1), .link = 100 + link, .knows = true };
		int fd = caller(fx->hosts[0].address);
		say_hello(fd, &claim);
		say_goodbye(fd);
		await_closed(fd);
		(void)close(fd);
	}
}

static void a_goodbye_closes_its_own_link_only(void **state)
{
	(void)state;
	struct fx *fx = two();
	a_round(fx, goodbye_without_a_word);
	assert_int_equal(links_lost(fx), 0);
	fx_stop(fx);
}

static void a_goodbye_after_frames_of_the_view_is_a_loss(void **state)
{
	(void)state;
	const struct claim claim = { .from = FX_PEER(1), .link = 100, .knows = true };
	struct fx *fx = two();
	int fd = caller(fx->hosts[0].address);
	say_hello(fd, &claim);
	say_segment(fd, 1);
	say_goodbye(fd);
	FX_WAIT(fx, fx->hosts[0].link_lost > 0);
	fx_lock(fx);
	assert_string_equal(fx->hosts[0].link_lost_reason, "it said goodbye: forged");
	pthread_mutex_unlock(&fx->lock);
	await_closed(fd);
	(void)close(fd);
	fx_stop(fx);
}

/* A joiner may have the view before us. */
static void a_peer_that_is_in_no_view_of_ours_waits_for_one(void **state)
{
	(void)state;
	const struct claim joiner = { .from = FX_PEER(1), .link = 1, .knows = true };
	bool both[FX_HOSTS_MAX] = { true, true }, first[FX_HOSTS_MAX] = { true };
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	fx_ready(&fx->hosts[0]);
	fx_found(fx, 1);
	FX_WAIT(fx, fx->hosts[0].installed == 1);
	int fd = caller(fx->hosts[0].address);
	say_hello(fd, &joiner);
	say_nonsense(fd);
	let_it_read(fx);
	assert_false(closed_now(fd));
	/* The second host has no member, so its report is ours to say. */
	fx->view = 1;
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__ViewPropose propose = TRAIND__PEER__VIEW_PROPOSE__INIT;
	uint64_t ids[] = { FX_PEER(0), FX_PEER(1) };
	fx->view = propose.number = 2;
	propose.group = FX_GROUP;
	propose.members = ids;
	propose.n_members = 2;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_VIEW_PROPOSE;
	message.view_propose = &propose;
	fx_tell(fx, first, &message);
	FX_WAIT(fx, fx->hosts[0].report != NULL && fx->hosts[0].report->proposal == 2);
	fx_install(fx, both, first);
	FX_WAIT(fx, fx->hosts[0].installed == 2);
	await_closed(fd); /* it was read, and what it said after its hello is nonsense */
	(void)close(fd);
	fx_stop(fx);
}

/* Before the first view the token is not known either. */
static void before_the_first_view_all_wait(void **state)
{
	(void)state;
	bool first[FX_HOSTS_MAX] = { true };
	int fds[2];
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	fx_ready(&fx->hosts[0]);
	FX_WAIT(fx, fx->hosts[0].ready);
	for (unsigned knows = 0; knows < 2; knows++) {
		const struct claim claim = { .from = FX_PEER(1), .link = 1, .knows = knows == 1 };
		fds[knows] = caller(fx->hosts[0].address);
		say_hello(fds[knows], &claim);
	}
	fx->view = 1;
	fx_install(fx, first, first);
	FX_WAIT(fx, fx->hosts[0].installed == 1);
	await_closed(fds[0]); /* its token is wrong */
	let_it_read(fx);
	assert_false(closed_now(fds[1])); /* it is not in the view */
	for (unsigned i = 0; i < 2; i++)
		(void)close(fds[i]);
	fx_stop(fx);
}

/* All others of the largest group may have its first view before us. */
static void a_large_group_waits_for_our_first_view(void **state)
{
	(void)state;
	static int fds[TR_GROUP_PEERS_MAX - 1];
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	fx_ready(&fx->hosts[0]);
	FX_WAIT(fx, fx->hosts[0].ready);
	for (unsigned i = 0; i < TR_GROUP_PEERS_MAX - 1; i++) {
		const struct claim claim = { .from = 1000 + i, .link = 1, .knows = true };
		fds[i] = caller(fx->hosts[0].address);
		say_hello(fds[i], &claim);
	}
	for (unsigned tries = 0, waiting = 0; waiting < TR_GROUP_PEERS_MAX - 1; tries++) {
		struct engine *engine = fx->hosts[0].engine;
		pthread_mutex_lock(&engine->turn);
		waiting = engine->waiting.count;
		pthread_mutex_unlock(&engine->turn);
		for (unsigned i = 0; i < TR_GROUP_PEERS_MAX - 1; i++)
			assert_false(closed_now(fds[i]));
		assert_true(tries < 1000 * FX_DEADLINE_S);
		(void)usleep(1000);
	}
	for (unsigned i = 0; i < TR_GROUP_PEERS_MAX - 1; i++)
		(void)close(fds[i]);
	fx_stop(fx);
}

static void so_many_wait_and_no_more(void **state)
{
	(void)state;
	static int fds[TR_HELLOS_WAITING_MAX + 1];
	struct fx *fx = two();
	for (unsigned i = 0; i <= TR_HELLOS_WAITING_MAX; i++) {
		const struct claim claim = { .from = 1000 + i, .link = 1, .knows = true };
		fds[i] = caller(fx->hosts[0].address);
		say_hello(fds[i], &claim);
		if (i % 64 == 63)
			let_it_read(fx);
	}
	await_closed(fds[TR_HELLOS_WAITING_MAX]);
	for (unsigned i = 0; i < TR_HELLOS_WAITING_MAX; i++)
		assert_false(closed_now(fds[i]));
	a_round(fx, goodbye_without_a_word);
	for (unsigned i = 0; i <= TR_HELLOS_WAITING_MAX; i++)
		(void)close(fds[i]);
	fx_stop(fx);
}

static void so_many_connections_of_a_peer_and_no_more(void **state)
{
	(void)state;
	static int fds[TR_INBOUND_PEER_MAX + 1];
	struct fx *fx = two();
	for (unsigned i = 0; i <= TR_INBOUND_PEER_MAX; i++) {
		const struct claim claim = { .from = FX_PEER(1), .link = 100 + i, .knows = true };
		fds[i] = caller(fx->hosts[0].address);
		say_hello(fds[i], &claim);
	}
	await_closed(fds[TR_INBOUND_PEER_MAX]);
	for (unsigned i = 0; i <= TR_INBOUND_PEER_MAX; i++)
		(void)close(fds[i]);
	fx_stop(fx);
}

/* ---- in time */

/* Looks at what the first host has, now and so much later, as its pulse timer does. */
static void look_later(const struct fx *fx, uint64_t ms)
{
	struct engine *engine = fx->hosts[0].engine;
	uint64_t now_ms = uv_hrtime() / 1000000;
	pthread_mutex_lock(&engine->turn);
	struct member *member = engine_find(engine, FX_GROUP, FX_PEER(0));
	assert_non_null(member);
	inbound_judge(member, now_ms, 0);
	held_judge(member, now_ms, 0);
	inbound_judge(member, now_ms + ms, 0);
	held_judge(member, now_ms + ms, 0);
	pthread_mutex_unlock(&engine->turn);
	(void)uv_async_send(&engine->wake);
}

static bool has_held(const struct fx *fx)
{
	struct engine *engine = fx->hosts[0].engine;
	pthread_mutex_lock(&engine->turn);
	bool has = engine_find(engine, FX_GROUP, FX_PEER(0))->held_count > 0;
	pthread_mutex_unlock(&engine->turn);
	return has;
}

static void who_says_nothing_after_its_hello_goes(void **state)
{
	(void)state;
	const struct claim claim = { .from = FX_PEER(1), .link = 100, .knows = true };
	struct fx *fx = two();
	int dumb = caller(fx->hosts[0].address), talks = caller(fx->hosts[0].address);
	say_hello(dumb, &claim);
	say_hello(talks, &claim);
	say_segment(talks, 1);
	let_it_read(fx);
	look_later(fx, TR_INBOUND_LIFELESS_MS - 1);
	let_it_read(fx);
	assert_false(closed_now(dumb));
	look_later(fx, TR_INBOUND_LIFELESS_MS);
	await_closed(dumb);
	assert_false(closed_now(talks));
	(void)close(dumb);
	(void)close(talks);
	fx_stop(fx);
}

static void a_segment_of_a_view_that_does_not_come_is_not_kept_for_ever(void **state)
{
	(void)state;
	const struct claim claim = { .from = FX_PEER(1), .link = 100, .knows = true };
	struct fx *fx = two();
	int fd = caller(fx->hosts[0].address);
	say_hello(fd, &claim);
	say_segment(fd, 1 + TR_VIEWS_AHEAD_MAX);
	let_it_read(fx);
	assert_true(has_held(fx));
	look_later(fx, TR_HELD_VIEW_MS - 1);
	assert_true(has_held(fx));
	look_later(fx, TR_HELD_VIEW_MS);
	assert_false(has_held(fx));
	await_closed(fd);
	(void)close(fd);
	fd = caller(fx->hosts[0].address);
	say_hello(fd, &claim);
	say_segment(fd, UINT64_MAX); /* such a view cannot be */
	await_closed(fd);
	assert_false(has_held(fx));
	(void)close(fd);
	fx_stop(fx);
}

/* Of a view that has not come, so large that it is received into staging. */
static void say_large_segment(int fd)
{
	static uint8_t whole[FRAME_HEADER_BYTES + TR_FRAME_DATA_MAX];
	const uint32_t elements = (TR_FRAME_DATA_MAX - SEGMENT_HEADER_BYTES) / sizeof(float);
	const uint32_t bytes = elements * (uint32_t)sizeof(float);
	const struct frame_header header = { .type = FRAME_SEGMENT,
		.length = SEGMENT_HEADER_BYTES + bytes };
	frame_header_put(&header, whole);
	segment_header_put(&(struct segment_header){ .view = 2,
	                       .signature = { .count = elements, .dtype = TR_F32, .reduce = TR_SUM },
	                       .kind = SEGMENT_PARTIAL,
	                       .elements = elements,
	                       .bytes = bytes },
	    whole + FRAME_HEADER_BYTES);
	(void)send(fd, whole, FRAME_HEADER_BYTES + header.length, MSG_NOSIGNAL);
}

static unsigned buffers(const struct fx *fx)
{
	struct engine *engine = fx->hosts[0].engine;
	pthread_mutex_lock(&engine->turn);
	unsigned live = (unsigned)engine_find(engine, FX_GROUP, FX_PEER(0))->core->pool.live;
	pthread_mutex_unlock(&engine->turn);
	return live;
}

/* Who sends more than is kept loses its connection, and nothing of what it sent stays. */
static void what_is_too_much_to_keep_is_given_back(void **state)
{
	(void)state;
	const struct claim claim = { .from = FX_PEER(1), .link = 100, .knows = true };
	struct fx *fx = two();
	int fd = caller(fx->hosts[0].address);
	say_hello(fd, &claim);
	for (unsigned i = 0; i <= TR_HELD_BYTES_MAX / TR_FRAME_DATA_MAX; i++)
		say_large_segment(fd);
	await_closed(fd);
	assert_true(buffers(fx) >= TR_HELD_BYTES_MAX / TR_FRAME_DATA_MAX);
	look_later(fx, TR_HELD_VIEW_MS);
	assert_false(has_held(fx));
	assert_int_equal(buffers(fx), 0);
	(void)close(fd);
	fx_stop(fx);
}

static void a_wait_for_a_view_ends(void **state)
{
	(void)state;
	const struct claim claim = { .from = 1000, .link = 1, .knows = true };
	struct fx *fx = two();
	struct engine *engine = fx->hosts[0].engine;
	int fd = caller(fx->hosts[0].address);
	say_hello(fd, &claim);
	let_it_read(fx);
	pthread_mutex_lock(&engine->turn);
	assert_int_equal(engine->waiting.count, 1);
	struct inbound *in = engine->waiting.first;
	assert_true(in->deadline_ms > uv_now(&engine->loop));
	assert_true(in->deadline_ms <= uv_now(&engine->loop) + TR_HELLO_WAIT_MS);
	in->deadline_ms = uv_now(&engine->loop);
	inbound_on_hello_timer(&engine->hello_timer);
	assert_int_equal(engine->waiting.count, 0);
	pthread_mutex_unlock(&engine->turn);
	(void)uv_async_send(&engine->wake);
	await_closed(fd);
	(void)close(fd);
	fx_stop(fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wait_for_a_view_ends),
		cmocka_unit_test(who_says_nothing_after_its_hello_goes),
		cmocka_unit_test(a_segment_of_a_view_that_does_not_come_is_not_kept_for_ever),
		cmocka_unit_test(what_is_too_much_to_keep_is_given_back),
		cmocka_unit_test(who_has_no_token_moves_nothing),
		cmocka_unit_test(a_goodbye_closes_its_own_link_only),
		cmocka_unit_test(a_goodbye_after_frames_of_the_view_is_a_loss),
		cmocka_unit_test(a_peer_that_is_in_no_view_of_ours_waits_for_one),
		cmocka_unit_test(before_the_first_view_all_wait),
		cmocka_unit_test(a_large_group_waits_for_our_first_view),
		cmocka_unit_test(so_many_wait_and_no_more),
		cmocka_unit_test(so_many_connections_of_a_peer_and_no_more),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
