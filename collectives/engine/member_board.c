/* A member's board and those of its peers (gather.h), where all of a view are on one host and share memory. */
#include "collectives/engine/engine_internal.h"

#include "collectives/transport/board.h"

void member_board_enter(struct member *member)
{
	uint64_t peers[BOARD_PEERS_MAX];
	size_t count = member->view_peer_count <= BOARD_PEERS_MAX ? member->view_peer_count : 0;
	for (size_t i = 0; i < count; i++) {
		peers[i] = member->view_peers[i].peer;
		if (member->view_peers[i].local_address[0] == '\0')
			count = 0; /* it is elsewhere, or shows nothing */
	}
	gather_enter(&member->gather, member->view, peers, count, member->peer);
}

void member_board_spread(struct member *member, const struct group_action *spread)
{
	if (gather_show(&member->gather, member->core, spread, member->held_count > 0)) {
		peer_link_nudge(member);
	} else {
		for (size_t i = 0; i < member->view_peer_count; i++) {
			if (member->view_peers[i].peer == member->peer)
				continue;
			const struct group_action one = group_action_to(spread,
			    member->view_peers[i].peer);
			peer_link_segment(member, &one);
		}
	}
	if (spread->buffer != NULL)
		group_buffer_release(member->core, spread->buffer);
}

static tr_status gathered(void *arg, struct group_event *event)
{
	struct tr_error error;
	return member_step(arg, event, &error);
}

static tr_status single(void *arg, uint64_t from, const uint8_t *frame, size_t bytes)
{
	struct member *member = arg;
	struct lane_frame is = { .type = FRAME_SEGMENT,
		.head = frame,
		.head_bytes = SEGMENT_HEADER_BYTES + bytes };
	struct tr_error error;
	tr_error_clear(&error);
	tr_status st = inbound_segment_or_hold(member, from, NULL, &is, &error);
	if (st != TR_OK && st != TR_EAGAIN)
		inbound_close_from(member, from, error.text);
	return st == TR_EAGAIN ? st : TR_OK;
}

bool member_board_look(struct member *member)
{
	const struct gather_calls calls = { .gathered = gathered, .single = single, .arg = member };
	if (member->over || member->gather.count == 0)
		return false;
	if (member->gather.unread > 0)
		inbound_attach_boards(member);
	return gather_look(&member->gather, member->core, &calls);
}

bool member_board_pending(struct member *member)
{
	return !member->over && gather_pending(&member->gather, member->core);
}

void member_board_settle(struct member *member)
{
	if (member->over)
		return;
	gather_split(&member->gather, member->core);
	(void)member_board_look(member);
}
