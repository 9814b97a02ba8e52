/* What a peer of the host shows is mapped here, and stays so until the next view: how much of it, when that peer comes again and again. The peer
 * is played by hand, over lanes of shared memory.
 */
#include "tests/unit/engine_fixture.h"

#include <sys/mman.h>
#include <unistd.h>

#include "collectives/transport/lane.h"
#include "collectives/transport/shm_export.h"
#include "collectives/transport/shm_hub.h"
#include "collectives/transport/shm_memory.h"
#include "proto/frame.h"
#include "proto/segment.h"

#define PIECE       "traind-test-piece"
#define PIECE_BYTES 16384
#define BODY_BYTES  8192 /* less is copied into the ring */
#define TIMES       (3 * TR_SHM_IMPORTS_MAX)

/* The peer: one piece of memory, and a lane at a time beside the first. */
struct hand {
	uv_loop_t loop;
	struct shm_hub *hub;
	struct shm_exports exports;
	void *piece;
	int fd;
	bool opened, closed;
	char reason[256];
};

static void on_accepted(void *arg, struct lane *lane)
{
	(void)arg;
	lane_close(lane, "nobody is here");
}

static void on_opened(void *arg, struct lane *lane)
{
	struct hand *hand = arg;
	(void)lane;
	hand->opened = true;
}

static void on_closed(void *arg, struct lane *lane, const char *reason)
{
	struct hand *hand = arg;
	(void)lane;
	hand->closed = true;
	(void)snprintf(hand->reason, sizeof(hand->reason), "%s", reason);
}

static tr_status on_frame(void *arg, struct lane *lane, const struct lane_frame *frame,
    struct tr_error *error)
{
	(void)arg;
	(void)lane;
	(void)frame;
	(void)error;
	return TR_OK; /* how much came: of no interest */
}

static const struct lane_callbacks lane_callbacks = { .opened = on_opened,
	.closed = on_closed,
	.frame = on_frame };

static void turn_until(struct hand *hand, const bool *what)
{
	uint64_t until_ns = uv_hrtime() + (uint64_t)FX_DEADLINE_S * 1000000000u;
	while (!*what) {
		assert_true(uv_hrtime() < until_ns);
		(void)uv_run(&hand->loop, UV_RUN_NOWAIT);
	}
}

/* How often the piece is mapped in this process, which is both the peer's and the engine's. */
static unsigned mapped(void)
{
	char line[512];
	unsigned count = 0;
	FILE *maps = fopen("/proc/self/maps", "re");
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps) != NULL)
		count += strstr(line, PIECE) != NULL;
	(void)fclose(maps);
	return count;
}

static void turn_until_mapped(struct hand *hand, unsigned count)
{
	uint64_t until_ns = uv_hrtime() + (uint64_t)FX_DEADLINE_S * 1000000000u;
	while (mapped() != count) {
		if (uv_hrtime() > until_ns)
			fail_msg("mapped %u times, not %u; %s", mapped(), count, hand->reason);
		(void)uv_run(&hand->loop, UV_RUN_NOWAIT);
	}
}

static void ignore(void *arg, bool sent)
{
	(void)arg;
	(void)sent;
}

/* Peer 11's hello, then a segment of view 1 that lies in the piece: of a round that is over, so that nobody takes it. */
static void speak(const struct hand *hand, struct lane *lane, uint32_t number)
{
	Traind__Peer__PeerHello hello = TRAIND__PEER__PEER_HELLO__INIT;
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	uint8_t packed[256], head[SEGMENT_HEADER_BYTES];
	hello.group = FX_GROUP;
	hello.from = FX_PEER(1);
	hello.to = FX_PEER(0);
	hello.link = 1;
	hello.lane = number;
	hello.token_low = FX_TOKEN_LOW;
	hello.token_high = FX_TOKEN_HIGH;
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_HELLO;
	message.hello = &hello;
	struct lane_send frame = { .type = FRAME_PEER,
		.body = packed,
		.body_bytes = traind__peer__peer_message__pack(&message, packed) };
	assert_int_equal(lane_send(lane, &frame), TR_OK);
	segment_header_put(&(struct segment_header){ .view = 1,
	                       .signature = { .count = BODY_BYTES / 4,
	                           .dtype = TR_F32,
	                           .reduce = TR_SUM },
	                       .kind = SEGMENT_PARTIAL,
	                       .elements = BODY_BYTES / 4,
	                       .bytes = BODY_BYTES },
	    head);
	frame = (struct lane_send){ .type = FRAME_SEGMENT,
		.head = head,
		.head_bytes = sizeof(head),
		.body = hand->piece,
		.body_bytes = BODY_BYTES,
		.released = ignore };
	assert_int_equal(lane_send(lane, &frame), TR_OK);
}

static const struct shm_claim claim = { FX_GROUP, FX_PEER(0), { FX_TOKEN_LOW, FX_TOKEN_HIGH } };

static struct lane *dial(struct hand *hand, const char *address, uint32_t number)
{
	struct lane *lane = NULL;
	struct tr_error error = { 0 };
	hand->opened = hand->closed = false;
	if (shm_hub_dial(hand->hub, address, &claim, &hand->exports, &lane_callbacks, hand, &lane,
	        &error) != TR_OK)
		fail_msg("%s", error.text);
	turn_until(hand, &hand->opened);
	speak(hand, lane, number);
	return lane;
}

static void hand_start(struct hand *hand)
{
	static const struct shm_hub_callbacks callbacks = { .accepted = on_accepted };
	*hand = (struct hand){ .fd = -1 };
	assert_int_equal(uv_loop_init(&hand->loop), 0);
	assert_int_equal(shm_hub_create(&hand->loop, &callbacks, hand, &hand->hub, NULL), TR_OK);
	assert_int_equal(shm_memory_create(PIECE, PIECE_BYTES, &hand->fd, &hand->piece, NULL),
	    TR_OK);
	assert_int_equal(shm_exports_add(&hand->exports, hand->fd, hand->piece, PIECE_BYTES, true),
	    TR_OK);
	assert_int_equal(mapped(), 1);
}

static void hand_stop(struct hand *hand)
{
	shm_hub_close(hand->hub);
	(void)uv_run(&hand->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&hand->loop), 0);
	shm_exports_finish(&hand->exports);
	(void)munmap(hand->piece, PIECE_BYTES);
	(void)close(hand->fd);
}

static void a_peer_that_comes_again_and_again(void **state)
{
	(void)state;
	struct fx *fx = fx_start(2, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	bool first[FX_HOSTS_MAX] = { true };
	const char *address = engine_local_address(fx->hosts[0].engine);
	struct hand hand;
	hand_start(&hand);
	fx_found_alone(fx, 2);
	struct lane *stays = dial(&hand, address, 0);
	turn_until_mapped(&hand, 2);
	for (uint32_t i = 1; i <= TIMES; i++) {
		struct lane *lane = dial(&hand, address, i);
		if (i < TR_SHM_IMPORTS_MAX)
			turn_until_mapped(&hand, 2 + i);
		lane_finish(lane, "it goes");
		turn_until(&hand, &hand.closed);
	}
	turn_until_mapped(&hand, 1 + TR_SHM_IMPORTS_MAX);
	/* What it has is not taken from it: the first lane is still there. */
	assert_true(lane_room(stays) > 0);
	/* With the next view what ended is let go of, and it may come again. */
	fx_change_view(fx, first);
	FX_WAIT(fx, fx->hosts[0].installed == 2);
	turn_until(&hand, &hand.closed);
	turn_until_mapped(&hand, 1);
	stays = dial(&hand, address, 0);
	turn_until_mapped(&hand, 2);
	lane_close(stays, "the end");
	turn_until(&hand, &hand.closed);
	hand_stop(&hand);
	fx_stop(fx);
}

/* A process of this host that does not have the group's token: none of its memory is mapped. */
static void memory_of_a_stranger_is_not_mapped(void **state)
{
	(void)state;
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	const char *address = engine_local_address(fx->hosts[0].engine);
	struct hand hand;
	hand_start(&hand);
	fx_found_alone(fx, 1);
	for (unsigned wrong = 0; wrong < 4; wrong++) {
		struct shm_claim bad = claim;
		struct lane *lane = NULL;
		bad.group += wrong == 0;
		bad.to += wrong == 1;
		bad.token[0] ^= wrong == 2 ? 1 : 0;
		bad.token[1] ^= wrong == 3 ? UINT64_C(1) << 63 : 0;
		hand.opened = hand.closed = false;
		assert_int_equal(shm_hub_dial(hand.hub, address, &bad, &hand.exports,
		                     &lane_callbacks, &hand, &lane, NULL),
		    TR_OK);
		turn_until(&hand, &hand.closed);
		assert_false(hand.opened);
		assert_string_equal(hand.reason, "it wants none");
		assert_int_equal(mapped(), 1);
	}
	hand_stop(&hand);
	fx_stop(fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_of_a_stranger_is_not_mapped),
		cmocka_unit_test(a_peer_that_comes_again_and_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
