/* Actions out of a member's core. */
#include "collectives/engine/engine_internal.h"

#include <stdio.h>

#include "common/log.h"

static void send_vote(struct member *member, struct group_action *action)
{
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_VOTE;
	message.vote = &action->vote;
	peer_link_say(member, action->to, &message);
}

static void send_commit(struct member *member, struct group_action *action)
{
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_COMMIT;
	message.commit = &action->commit;
	peer_link_say(member, action->to, &message);
}

static void send_submitted(struct member *member, const struct group_action *action)
{
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_SUBMITTED;
	message.submitted = action->submitted;
	peer_link_say(member, action->to, &message);
}

static void tell_report(struct member *member, struct group_action *action)
{
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_VIEW_REPORT;
	message.view_report = action->report;
	engine_tell(member->engine, &message);
}

static void tell_link_lost(struct member *member, struct group_action *action)
{
	Traind__Peer__LinkLost lost = TRAIND__PEER__LINK_LOST__INIT;
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	lost.group = member->group;
	lost.view = member->view;
	lost.peer = member->peer;
	lost.lost = action->to;
	lost.reason = action->text;
	lost.heard = inbound_has(member, action->to);
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_LINK_LOST;
	message.link_lost = &lost;
	engine_tell(member->engine, &message);
}

static void fail(struct member *member, struct group_action *action)
{
	log_warn("engine", "peer %lu of group %lu failed: %s", (unsigned long)member->peer,
	    (unsigned long)member->group, action->text);
	notices_flush(member); /* a checkpoint, say, that the job goes on from */
	member_refused(member, action->status, action->refused ? action->round : 0, action->text);
	member_calls_end(member, action->status, action->text);
}

void member_act(struct member *member, struct group_action *action)
{
	switch (action->kind) {
	case GROUP_DO_SEND_SEGMENT:
		peer_link_segment(member, action);
		break;
	case GROUP_DO_SPREAD:
		member_board_spread(member, action);
		break;
	case GROUP_DO_SEND_VOTE:
		send_vote(member, action);
		break;
	case GROUP_DO_SEND_COMMIT:
		send_commit(member, action);
		break;
	case GROUP_DO_SEND_SUBMITTED:
		send_submitted(member, action);
		break;
	case GROUP_DO_DROP_SENDS:
		peer_link_drop_segments(member);
		break;
	case GROUP_DO_REPORT:
		tell_report(member, action);
		break;
	case GROUP_DO_LINK_LOST:
		tell_link_lost(member, action);
		break;
	case GROUP_DO_CONNECT:
		peer_link_connect(member, action->to);
		break;
	case GROUP_DO_BEGAN:
		member_calls_began(member, &action->round_info);
		break;
	case GROUP_DO_OP_DONE:
		member_calls_op_done(member, action->tag, action->status, action->text);
		break;
	case GROUP_DO_DECIDED:
		peer_link_round_over(member);
		if (action->status == TR_OK)
			state_send_round_over(member, action->round);
		state_gradual_decided(member, action->status, action->round);
		member_calls_decided(member, action->status, &action->round_info, action->text);
		break;
	case GROUP_DO_RECORD:
		notices_record(member, action->record);
		action->record = NULL;
		break;
	case GROUP_DO_STATE_SEND:
		state_send_start(member, action->to, action->round, &action->wish);
		break;
	case GROUP_DO_STATE_ASK:
		state_receive_ask(member, action->to, action->round);
		break;
	case GROUP_DO_FAIL:
		fail(member, action);
		break;
	case GROUP_DO_RETRY:
		held_retry(member, action);
		inbound_resume_all(member);
		break;
	}
}
