/* One group member against peers and a membership service that say anything at any time. The input is a script:
 * one byte chooses an event, the next ones its fields, near what would be right unless a byte says otherwise. Whatever
 * comes, the core answers with a status: it trips no assertion and touches no memory that is not its own.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/group.h"
#include "tests/fuzz/script.h"
#include "tests/fuzz/script_segment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ME       5
#define PEERS    4
#define ELEMENTS 40
#define TAGS     3

struct member {
	struct group_core *core;
	struct group_actions actions;
	uint64_t view, round, attempt, now_us;
	double memory[TAGS][ELEMENTS]; /* large enough for every dtype */
	uint8_t sink;
};

static uint64_t peer_of(struct script *script)
{
	return script_about(script, 4 + script_byte(script) % PEERS);
}

static void act(struct member *member)
{
	struct group_actions *actions = &member->actions;
	for (size_t i = 0; i < actions->count; i++) {
		struct group_action *action = &actions->items[i];
		if (action->kind == GROUP_DO_SEND_SEGMENT) {
			const uint8_t *payload = action->payload;
			for (size_t k = 0; k < action->payload_bytes; k++)
				member->sink ^= payload[k];
			if (action->buffer != NULL)
				group_buffer_release(member->core, action->buffer);
		}
		if (action->kind == GROUP_DO_BEGAN) {
			member->round = action->round;
			member->attempt = member->view;
		}
		if (action->kind == GROUP_DO_REPORT)
			assert(action->report != NULL && action->report->peer == ME);
	}
	group_actions_clear(actions);
}

static tr_status step(struct member *member, struct group_event event)
{
	struct tr_error error = { 0 };
	event.now_us = member->now_us += 1000;
	tr_status status = group_core_step(member->core, &event, &member->actions, &error);
	if (status != TR_OK && status != TR_EAGAIN && status != TR_ESTALE)
		assert(error.text[0] != '\0');
	act(member);
	return status;
}

static void segment(struct member *member, struct script *script)
{
	static const uint8_t payload[64 * 8];
	const struct script_truth truth = { member->view, member->round, member->attempt, ELEMENTS,
		TAGS, 64 };
	struct segment_header header = script_segment(script, &truth);
	header.contributors[0] = (uint8_t)script_about(script, script_byte(script));
	header.contributors[TR_GROUP_PEERS_MAX / 8 - 1] = (uint8_t)script_about(script, 0);
	/* Through the decoder, as from the wire: what it refuses never reaches the core. */
	uint8_t frame[SEGMENT_HEADER_BYTES + sizeof(payload)] = { 0 };
	segment_header_put(&header, frame);
	size_t bytes = SEGMENT_HEADER_BYTES + header.bytes;
	if (segment_header_get(frame, bytes, &header, NULL) != TR_OK)
		return;
	struct group_event event = { .kind = GROUP_SEGMENT, .from = peer_of(script) };
	uint8_t *exact = malloc(bytes - SEGMENT_HEADER_BYTES + 1);
	assert(exact != NULL);
	memcpy(exact, payload, bytes - SEGMENT_HEADER_BYTES);
	event.segment.header = &header;
	event.segment.payload = exact;
	(void)step(member, event);
	free(exact);
}

static void vote(struct member *member, struct script *script)
{
	Traind__Peer__Vote vote = TRAIND__PEER__VOTE__INIT;
	vote.view = script_about(script, member->view);
	vote.round = script_about(script, member->round);
	vote.attempt = script_about(script, member->attempt);
	vote.digest_low = script_about(script, 1);
	vote.digest_high = script_about(script, 1);
	vote.salt = script_about(script, 0);
	vote.asks = vote.salt % 2 == 1;
	(void)step(member,
	    (struct group_event){ .kind = GROUP_VOTE, .from = peer_of(script), .vote = &vote });
}

static void commit(struct member *member, struct script *script)
{
	Traind__Peer__Commit commit = TRAIND__PEER__COMMIT__INIT;
	char reason[] = "a peer's words";
	commit.view = script_about(script, member->view);
	commit.round = script_about(script, member->round);
	commit.attempt = script_about(script, member->attempt);
	commit.status = (int32_t)script_about(script, 0);
	if (script_byte(script) % 2 != 0)
		commit.reason = reason;
	struct group_event event = { .kind = GROUP_COMMIT,
		.from = peer_of(script),
		.commit = &commit };
	(void)step(member, event);
}

static void submitted(struct member *member, struct script *script)
{
	Traind__Peer__Submitted word = TRAIND__PEER__SUBMITTED__INIT;
	uint32_t tags[] = { script_byte(script) % TAGS, script_byte(script) };
	word.view = script_about(script, member->view);
	word.round = script_about(script, member->round);
	word.attempt = script_about(script, member->attempt);
	word.tags = tags;
	word.n_tags = script_byte(script) % 3;
	(void)step(member,
	    (struct group_event){ .kind = GROUP_SUBMITTED,
	        .from = peer_of(script),
	        .submitted = &word });
}

static void propose(struct member *member, struct script *script)
{
	Traind__Peer__ViewPropose propose = TRAIND__PEER__VIEW_PROPOSE__INIT;
	uint64_t members[] = { ME, peer_of(script) };
	propose.group = 2;
	propose.number = script_about(script, member->view + 1);
	propose.n_members = script_byte(script) % 3;
	propose.members = members;
	(void)step(member, (struct group_event){ .kind = GROUP_PROPOSE, .propose = &propose });
}

static void resume_of(struct member *member, struct script *script, Traind__Peer__Resume *resume,
    Traind__Peer__OpHolders *op, Traind__Peer__Holder *holder, uint8_t *sealed,
    uint64_t *contributors)
{
	resume->base_round = script_about(script, member->round == 0 ? 1 : member->round);
	resume->finish = script_byte(script) % 2;
	resume->base_attempt = script_about(script, member->attempt);
	resume->abandoned = script_byte(script) % 2;
	resume->n_contributors = script_byte(script) % (PEERS + 1);
	for (uint64_t i = 0; i < PEERS; i++)
		contributors[i] = script_about(script, 4 + i);
	resume->contributors = contributors;
	op->tag = (uint32_t)script_about(script, script_byte(script) % TAGS);
	op->segments = (uint32_t)script_about(script, 3);
	holder->peer = peer_of(script);
	*sealed = (uint8_t)script_about(script, script_byte(script) % 8);
	holder->sealed = (ProtobufCBinaryData){ script_byte(script) % 2, sealed };
	op->n_holders = script_byte(script) % 2;
	resume->n_ops = script_byte(script) % 2;
}

static void install(struct member *member, struct script *script)
{
	Traind__Peer__ViewPeer rows[PEERS], *peers[PEERS];
	uint32_t ring[PEERS];
	char address[] = "127.0.0.1:7000";
	Traind__Peer__View view = TRAIND__PEER__VIEW__INIT;
	for (uint32_t i = 0; i < PEERS; i++) {
		traind__peer__view_peer__init(&rows[i]);
		rows[i].peer = script_about(script, 4 + i);
		rows[i].address = address;
		rows[i].participate_from = script_about(script, 1);
		uint8_t late = script_byte(script);
		rows[i].contribute_from = script_about(script, rows[i].participate_from + late % 2);
		if ((late & 24) == 24) /* its state comes gradually */
			rows[i].contribute_from = TR_ROUND_LATER;
		rows[i].donor = script_byte(script) % 8 == 0 ? peer_of(script) : 0;
		peers[i] = &rows[i];
		ring[i] = (uint32_t)script_about(script, i);
	}
	view.group = 2;
	view.number = script_about(script, member->view + 1);
	view.n_peers = view.n_ring = 1 + script_byte(script) % PEERS;
	view.peers = peers;
	view.ring = ring;
	view.hub = (uint32_t)script_about(script, script_byte(script) % view.n_peers);
	view.policy = script_byte(script) % 3;
	view.algorithm = script_byte(script) % 3;
	view.deterministic = script_byte(script) % 2;
	view.segment_bytes = (uint32_t)script_about(script, 64);
	Traind__Peer__Resume resume = TRAIND__PEER__RESUME__INIT;
	Traind__Peer__OpHolders op = TRAIND__PEER__OP_HOLDERS__INIT, *ops[] = { &op };
	Traind__Peer__Holder holder = TRAIND__PEER__HOLDER__INIT, *holders[] = { &holder };
	uint64_t contributors[PEERS];
	uint8_t sealed;
	resume_of(member, script, &resume, &op, &holder, &sealed, contributors);
	resume.ops = ops;
	op.holders = holders;
	Traind__Peer__ViewInstall install = TRAIND__PEER__VIEW_INSTALL__INIT;
	install.view = &view;
	install.resume = script_byte(script) % 8 == 0 ? NULL : &resume;
	install.recorded_round = script_about(script, 0);
	if (step(member, (struct group_event){ .kind = GROUP_INSTALL, .install = &install }) ==
	    TR_OK)
		member->view = view.number;
}

/* What our own side does: within its contract, as a caller must be. */
static void caller(struct member *member, struct script *script)
{
	struct group_event event = { 0 };
	uint32_t tag = script_byte(script) % TAGS;
	switch (script_byte(script) % 4) {
	case 0:
		event.kind = GROUP_BEGIN;
		break;
	case 1:
		event.kind = GROUP_SUBMIT;
		event.submit.tag = tag;
		event.submit.data = member->memory[tag];
		event.submit.count = ELEMENTS;
		event.submit.dtype = TR_F32;
		event.submit.reduce = TR_SUM;
		event.submit.contribute = script_byte(script) % 4 != 0;
		break;
	case 2:
		event.kind = GROUP_CLOSE;
		event.close = (struct tr_commit){ .samples = 8, .flags = tag % 2 * TR_DEFER_STATE };
		break;
	default:
		event.kind = tag % 2 == 0 ? GROUP_READY : GROUP_WAIT;
		event.tag = tag;
		event.round = event.kind == GROUP_READY ? script_byte(script) % 3 : 0;
	}
	(void)step(member, event);
}

static void transfer(struct member *member, struct script *script)
{
	static const enum group_event_kind kinds[] = { GROUP_STATE_ASKED, GROUP_STATE_SENT,
		GROUP_STATE_GOT, GROUP_LINK_LOST, GROUP_TICK };
	struct group_event event = {
		.kind = kinds[script_byte(script) % 5],
		.from = peer_of(script),
		.round = script_about(script, member->round == 0 ? 0 : member->round - 1),
		.status = script_byte(script) % 2 == 0 ? TR_OK : TR_EDIGEST,
		.reason = "reset by peer",
	};
	uint8_t more = script_byte(script); /* of time, and of what is wanted */
	member->now_us += (uint64_t)more << 16;
	event.wish = (struct group_wish){ .digests_only = more & 1,
		.pieces = more & 2,
		.any = more & 4,
		.take_back = more & 8,
		.view = member->view + more % 3 - 1,
		.first = more >> 6,
		.end = more >> 4 & 7 };
	(void)step(member, event);
}

static void event_of(struct member *member, struct script *script)
{
	uint8_t what = script_byte(script);
	switch (what % 8) {
	case 0:
	case 1:
		if (what < 192)
			segment(member, script);
		else
			submitted(member, script);
		break;
	case 2:
		vote(member, script);
		break;
	case 3:
		commit(member, script);
		break;
	case 4:
		propose(member, script);
		break;
	case 5:
		install(member, script);
		break;
	case 6:
		transfer(member, script);
		break;
	default:
		caller(member, script);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script script = { data, size < 2000 ? size : 2000 };
	struct member member = { 0 };
	struct group_core_options options = { .group = 2, .peer = ME, .ahead_bytes = 512 };
	tr_status created = group_core_create(&options, &member.core);
	assert(created == TR_OK);
	while (script.left > 0) {
		event_of(&member, &script);
		struct group_core_progress progress;
		group_core_progress(member.core, false, &progress);
		assert(progress.waits_for_count <= 8);
		(void)group_core_deadline_us(member.core);
		uint64_t peers[PEERS];
		size_t count = 0;
		(void)group_core_contributors(member.core, 0, 0, peers, PEERS, &count);
	}
	group_core_destroy(member.core);
	group_actions_finish(&member.actions);
	return 0;
}
