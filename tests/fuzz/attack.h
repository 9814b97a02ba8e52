/* What a peer says, near the truth of the attacked group, and what our caller and memberd do meanwhile. Shared by the fuzzers
 * of a live engine (live.h); how it reaches the engine is theirs. Static.
 */
#ifndef TR_TESTS_FUZZ_ATTACK_H
#define TR_TESTS_FUZZ_ATTACK_H

#include <assert.h>

#include "proto/frame.h"
#include "tests/fuzz/live.h"
#include "tests/fuzz/script.h"
#include "tests/fuzz/script_segment.h"

#define ATTACK_ELEMENTS    40
#define ATTACK_STATE_BYTES 256
#define ATTACK_FRAME_MAX   4096
#define ATTACK_SCRIPT_MAX  3000

/* The attacked member, as those know it who speak to it. */
struct attack {
	struct live_worker worker;
	const char *address, *local_address; /* of all others; the second may be NULL */
	uint64_t view, round, attempt;
	bool joins, donates;
	uint8_t algorithm, hub;
	uint32_t next_lane;
};

struct attack_frame {
	uint16_t type;
	size_t bytes;
	uint8_t payload[ATTACK_FRAME_MAX];
};

static struct attack attack;

#define SAY(frame, kind, KIND, value)                                              \
	do {                                                                       \
		Traind__Peer__PeerMessage says = TRAIND__PEER__PEER_MESSAGE__INIT; \
		says.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_##KIND;          \
		says.kind = (value);                                               \
		message(frame, &says);                                             \
	} while (0)

static void message(struct attack_frame *frame, const Traind__Peer__PeerMessage *says)
{
	frame->type = FRAME_PEER;
	frame->bytes = traind__peer__peer_message__get_packed_size(says);
	assert(frame->bytes <= sizeof(frame->payload));
	(void)traind__peer__peer_message__pack(says, frame->payload);
}

static uint64_t attack_peer(struct script *script)
{
	return script_about(script, LIVE_ME + 1 + script_byte(script) % 3);
}

/* Of a peer of the attacked group; or of the honest one's, by somebody who has not got its token; or of ours, with a wrong one. By a byte
 * that is looked at and left for what it means further on. */
static unsigned attack_forger(const struct script *script)
{
	uint8_t how = script->left > 0 ? script->at[0] : 0;
	return how >= 0xf0 ? 1 : how >= 0xe8 ? 2 : 0;
}

static void attack_hello(struct script *script, struct attack_frame *frame)
{
	Traind__Peer__PeerHello hello = TRAIND__PEER__PEER_HELLO__INIT;
	unsigned forger = attack_forger(script);
	hello.group = script_about(script, LIVE_ATTACKED);
	hello.from = attack_peer(script);
	hello.to = script_about(script, LIVE_ME);
	if (forger == 1) {
		hello.group = LIVE_HONEST;
		hello.from = LIVE_ME + 1;
		hello.to = LIVE_ME;
	}
	hello.token_low = live_token(LIVE_ATTACKED)[0];
	hello.token_high = live_token(LIVE_ATTACKED)[1] + (forger == 2);
	hello.link = script_about(script, script_byte(script) % 3);
	hello.lane = (uint32_t)script_about(script, attack.next_lane++ % 4);
	SAY(frame, hello, HELLO, &hello);
}

static void attack_segment(struct script *script, struct attack_frame *frame)
{
	const struct script_truth truth = { attack.view, attack.round, attack.attempt,
		ATTACK_ELEMENTS, 3, 65 };
	uint8_t *payload = frame->payload;
	struct segment_header header = script_segment(script, &truth);
	header.bytes = (uint32_t)script_about(script, header.bytes);
	header.contributors[0] = (uint8_t)script_about(script, script_byte(script) % 16);
	header.contributors[TR_GROUP_PEERS_MAX / 8 - 1] = (uint8_t)script_about(script, 0);
	segment_header_put(&header, payload);
	size_t bytes = header.bytes <= 64 * 8 ? header.bytes : 64 * 8;
	for (size_t i = 0; i < bytes; i += 8)
		payload[SEGMENT_HEADER_BYTES + i] = script_byte(script);
	frame->type = FRAME_SEGMENT;
	frame->bytes = SEGMENT_HEADER_BYTES + bytes;
}

static void attack_vote(struct script *script, struct attack_frame *frame)
{
	Traind__Peer__Vote vote = TRAIND__PEER__VOTE__INIT;
	vote.view = script_about(script, attack.view);
	vote.round = script_about(script, attack.round);
	vote.attempt = script_about(script, attack.attempt);
	vote.digest_low = script_about(script, 1);
	vote.digest_high = script_about(script, 1);
	vote.signatures = script_about(script, 0);
	vote.pairs = script_about(script, 0);
	vote.early = script_byte(script) % 4 == 3;
	SAY(frame, vote, VOTE, &vote);
}

static void attack_commit(struct script *script, struct attack_frame *frame)
{
	Traind__Peer__Commit commit = TRAIND__PEER__COMMIT__INIT;
	char reason[] = "a peer's words";
	commit.view = script_about(script, attack.view);
	commit.round = script_about(script, attack.round);
	commit.attempt = script_about(script, attack.attempt);
	commit.status = (int32_t)script_about(script, 0);
	if (script_byte(script) % 2 != 0)
		commit.reason = reason;
	SAY(frame, commit, COMMIT, &commit);
}

/* ---- state */

static void attack_state_request(struct script *script, struct attack_frame *frame)
{
	Traind__Peer__StateRequest request = TRAIND__PEER__STATE_REQUEST__INIT;
	request.view = script_about(script, attack.view);
	request.round = script_about(script, attack.round - 1);
	size_t more = script->left; /* as good as chance, and takes no byte of what follows */
	request.digests_only = more & 1;
	request.pieces = more & 2;
	request.any = more & 4;
	request.take_back = more & 8;
	request.first = more >> 4 & 1;
	request.end = more >> 5 & 3;
	SAY(frame, state_request, STATE_REQUEST, &request);
}

static void attack_state_begin(struct script *script, struct attack_frame *frame)
{
	Traind__Peer__StateBegin begin = TRAIND__PEER__STATE_BEGIN__INIT;
	Traind__Peer__StateTensor tensor = TRAIND__PEER__STATE_TENSOR__INIT,
	                          *tensors[3] = { &tensor, &tensor, &tensor };
	char name[] = "w";
	uint8_t header[16] = { 0 };
	begin.round = script_about(script, attack.round - 1);
	tensor.name = name;
	tensor.bytes = script_about(script, ATTACK_STATE_BYTES);
	begin.tensors = tensors;
	begin.n_tensors = script_about(script, 1) % 4;
	begin.header = (ProtobufCBinaryData){ script_byte(script) % 16, header };
	SAY(frame, state_begin, STATE_BEGIN, &begin);
}

static void attack_state_chunk(struct script *script, struct attack_frame *frame)
{
	uint8_t *payload = frame->payload;
	struct state_header header = { .round = script_about(script, attack.round - 1),
		.offset = script_about(script, 0),
		.tensor = (uint32_t)script_about(script, 0) };
	size_t bytes = script_about(script, ATTACK_STATE_BYTES) % (ATTACK_STATE_BYTES + 1);
	header.bytes = (uint32_t)script_about(script, bytes);
	state_header_put(&header, payload);
	frame->type = FRAME_STATE;
	frame->bytes = STATE_HEADER_BYTES + bytes;
}

static void attack_state_end(struct script *script, struct attack_frame *frame)
{
	Traind__Peer__StateEnd end = TRAIND__PEER__STATE_END__INIT;
	uint64_t digests[4] = { script_about(script, 1), script_about(script, 1) };
	char error[] = "the donor's words";
	end.round = script_about(script, attack.round - 1);
	end.digest_low = end.digest_high = digests;
	end.n_digest_low = script_about(script, 1) % 4;
	end.n_digest_high = script_about(script, 1) % 4;
	if (script_byte(script) % 4 == 3)
		end.error = error;
	SAY(frame, state_end, STATE_END, &end);
}

static void attack_state(struct script *script, struct attack_frame *frame)
{
	static void (*const kinds[])(struct script *,
	    struct attack_frame *) = { attack_state_request, attack_state_begin, attack_state_chunk,
		attack_state_end };
	kinds[script_byte(script) % 4](script, frame);
}

/* ---- lanes */

static void attack_lanes(struct script *script, struct attack_frame *frame)
{
	Traind__Peer__Pulse pulse = TRAIND__PEER__PULSE__INIT;
	Traind__Peer__LaneLost lost = TRAIND__PEER__LANE_LOST__INIT;
	Traind__Peer__LaneReceived received = TRAIND__PEER__LANE_RECEIVED__INIT;
	Traind__Peer__Goodbye goodbye = TRAIND__PEER__GOODBYE__INIT;
	char reason[] = "leaves";
	switch (script_byte(script) % 4) {
	case 0:
		SAY(frame, pulse, PULSE, &pulse);
		break;
	case 1:
		lost.lane = (uint32_t)script_about(script, script_byte(script) % 4);
		SAY(frame, lane_lost, LANE_LOST, &lost);
		break;
	case 2:
		received.lane = (uint32_t)script_about(script, 0);
		received.frames = script_about(script, script_byte(script) % 8);
		received.ended = script_byte(script) % 2;
		SAY(frame, lane_received, LANE_RECEIVED, &received);
		break;
	default:
		goodbye.reason = reason;
		SAY(frame, goodbye, GOODBYE, &goodbye);
	}
}

/* One of them, by a number from 3 to 10. false: it is none. */
static bool attack_says(struct script *script, unsigned which, struct attack_frame *frame)
{
	static void (*const kinds[])(struct script *, struct attack_frame *) = { attack_segment,
		attack_segment, attack_segment, attack_vote, attack_commit, attack_state,
		attack_state, attack_lanes };
	if (which < 3 || which > 10)
		return false;
	kinds[which - 3](script, frame);
	return true;
}

/* It has the honest group's token: no forger any more, but a member. Half of it is enough to be suspected. */
static bool attack_knows(const uint8_t *data, size_t size)
{
	for (unsigned i = 0; i < 2; i++)
		if (memmem(data, size, &live_token(LIVE_HONEST)[i], sizeof(uint64_t)) != NULL)
			return true;
	return false;
}

/* ---- our caller and memberd, within their contracts */

static void install(bool again)
{
	const uint64_t from = attack.joins ? attack.round : 1;
	const struct live_peer peers[] = {
		{ LIVE_ME, from, attack.joins ? from + 1 : from,
		    attack.joins ? (uint64_t)LIVE_ME + 1 : 0, listener_address(live.victim_port),
		    attack.local_address != NULL ? engine_local_address(live.victim) : NULL },
		{ LIVE_ME + 1, 1, 1, 0, attack.address, attack.local_address },
		{ LIVE_ME + 2, 1, 1, 0, attack.address, attack.local_address },
		{ LIVE_ME + 3, attack.donates ? attack.round : 1,
		    attack.donates ? attack.round + 1 : 1, attack.donates ? (uint64_t)LIVE_ME : 0,
		    attack.address, attack.local_address },
	};
	/* The second view is without the last peer. */
	live_install(live.victim,
	    &(struct live_view){ .group = LIVE_ATTACKED,
	        .number = attack.view,
	        .base_round = attack.round,
	        .peers = peers,
	        .count = again ? 3 : 4,
	        .hub = attack.hub % 3u,
	        .algorithm = attack.algorithm,
	        .segment_bytes = 64,
	        .started = again });
}

static void submit(uint32_t tag)
{
	live_submit(&attack.worker,
	    (struct channel_submission){ .tag = tag,
	        .count = ATTACK_ELEMENTS,
	        .dtype = TR_F32,
	        .reduce = TR_SUM });
}

static void attack_ours(struct script *script)
{
	switch (script_byte(script) % 6) {
	case 0:
		live_call(&attack.worker, (struct channel_submission){ .call = CHANNEL_BEGIN });
		break;
	case 1:
		submit(1);
		break;
	case 2:
		live_call(&attack.worker, (struct channel_submission){ .call = CHANNEL_COMMIT });
		break;
	case 3:
		live_call(&attack.worker,
		    (struct channel_submission){ .call = CHANNEL_RECEIVE_STATE });
		break;
	case 4:
		live_propose(live.victim, LIVE_ATTACKED, attack.view + 1);
		break;
	default:
		attack.attempt = ++attack.view;
		install(true);
	}
	live_turn();
	(void)live_answered(&attack.worker);
}

static void attack_begin(uint8_t how)
{
	attack.joins = how & 1;
	attack.donates = how & 2;
	attack.algorithm = (how >> 2) & 3;
	attack.hub = (how >> 4) & 3;
	attack.view = attack.attempt = 1;
	attack.round = attack.joins ? 4 : 1;
	attack.next_lane = 0;
	live_worker_start(live.victim, LIVE_ATTACKED, LIVE_ME, &attack.worker);
	memset(attack.worker.data, 0, ATTACK_STATE_BYTES);
	if (channel_worker_state(attack.worker.channel, "w", 0, 0, ATTACK_STATE_BYTES, 0, NULL) !=
	    TR_OK)
		live_die("cannot declare its state");
	live_call(&attack.worker,
	    (struct channel_submission){
	        .call = CHANNEL_READY,
	    });
	live_turn();
	install(false);
	live_call(&attack.worker, (struct channel_submission){ .call = CHANNEL_BEGIN });
	submit(0);
	live_turn();
}

#endif
