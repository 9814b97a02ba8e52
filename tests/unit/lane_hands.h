/* A member's peer that is played by hand, on sockets: its link to us and ours to it. Static: a test program includes this once. */
#ifndef TR_TESTS_UNIT_LANE_HANDS_H
#define TR_TESTS_UNIT_LANE_HANDS_H

#include "tests/unit/frame_proxy.h"

static inline void take(int fd, void *bytes, size_t count)
{
	for (size_t had = 0; had < count;) {
		struct pollfd wait = { .fd = fd, .events = POLLIN };
		if (poll(&wait, 1, 1000 * FX_DEADLINE_S) != 1)
			fail_msg("waited in vain for %zu bytes", count);
		ssize_t n = recv(fd, (uint8_t *)bytes + had, count - had, 0);
		assert_true(n > 0);
		had += (size_t)n;
	}
}

static inline Traind__Peer__PeerMessage *take_message(int fd)
{
	uint8_t head[FRAME_HEADER_BYTES], payload[1024];
	struct frame_header header;
	take(fd, head, sizeof(head));
	assert_int_equal(frame_header_get(head, &header, NULL), TR_OK);
	assert_int_equal(header.type, FRAME_PEER);
	assert_true(header.length <= sizeof(payload));
	take(fd, payload, header.length);
	Traind__Peer__PeerMessage *message = traind__peer__peer_message__unpack(NULL, header.length,
	    payload);
	assert_non_null(message);
	return message;
}

static inline void say(int fd, const Traind__Peer__PeerMessage *message)
{
	uint8_t bytes[FRAME_HEADER_BYTES + 256];
	assert_true(traind__peer__peer_message__get_packed_size(message) <= 256);
	struct frame_header header = { .type = FRAME_PEER,
		.length = (uint32_t)traind__peer__peer_message__pack(message,
		    bytes + FRAME_HEADER_BYTES) };
	frame_header_put(&header, bytes);
	size_t all = FRAME_HEADER_BYTES + header.length;
	assert_int_equal(send(fd, bytes, all, MSG_NOSIGNAL), all);
}

static inline void say_received(int fd, uint32_t lane, bool ended)
{
	Traind__Peer__LaneReceived received = TRAIND__PEER__LANE_RECEIVED__INIT;
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	received.lane = lane;
	received.ended = ended;
	received.as_one = true;
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_LANE_RECEIVED;
	message.lane_received = &received;
	say(fd, &message);
}

/* Host 1's lane `number` to host 0. */
static inline int dial_lane(const struct fx *fx, uint32_t number)
{
	Traind__Peer__PeerHello hello = TRAIND__PEER__PEER_HELLO__INIT;
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	struct sockaddr_in address = fp_address(fx->hosts[0].address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(send(fd, FRAME_GREETING, FRAME_GREETING_BYTES, MSG_NOSIGNAL),
	    FRAME_GREETING_BYTES);
	hello.group = fx->group;
	hello.from = FX_PEER(1);
	hello.to = FX_PEER(0);
	hello.link = 77;
	hello.lane = number;
	hello.token_low = FX_TOKEN_LOW;
	hello.token_high = FX_TOKEN_HIGH;
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_HELLO;
	message.hello = &hello;
	say(fd, &message);
	return fd;
}

/* Of two hosts the first one, in a view with the second one, whose part is done by hand. */
static inline struct fx *begin_beside_a_hand(void)
{
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	fx_found_alone(fx, 2);
	return fx;
}

/* Host 0's three lanes to host 1, which is a port of ours; that is returned. */
static inline int take_lanes(struct fx *fx, int lanes[3])
{
	const struct engine_links links = { .transport = TR_TRANSPORT_TCP, .sockets = 3 };
	int port = fx_hand_port(&fx->hosts[1], 3);
	assert_int_equal(engine_set_links(fx->hosts[0].engine, &links, NULL), TR_OK);
	fx_found_alone(fx, 2);
	for (unsigned i = 0; i < 3; i++) {
		uint8_t greeting[FRAME_GREETING_BYTES];
		int fd = accept(port, NULL, NULL);
		take(fd, greeting, sizeof(greeting));
		Traind__Peer__PeerMessage *hello = take_message(fd);
		assert_int_equal(hello->body_case, TRAIND__PEER__PEER_MESSAGE__BODY_HELLO);
		assert_true(hello->hello->lane < 3);
		lanes[hello->hello->lane] = fd;
		traind__peer__peer_message__free_unpacked(hello, NULL);
	}
	return port;
}

#endif
