#include "collectives/engine/inbound_link.h"

#include <inttypes.h>
#include <stdlib.h>

#include "collectives/engine/engine_internal.h"
#include "collectives/engine/peer_link.h"

tr_status inbound_link_join(struct member *member, uint64_t from, uint64_t name, uint32_t lane,
    struct inbound_link **joined, struct tr_error *error)
{
	uint64_t frames;
	struct inbound_link *link = member->inbound_links;
	while (link != NULL && (link->from != from || link->name != name))
		link = link->next;
	/* It was on its way while the sender gave it up: what is on it has come again by now. */
	if (link != NULL && inbound_link_ended(link, lane, &frames))
		return tr_error_set(error, TR_EPROTO,
		    "connection %" PRIu32 " of its link has ended", lane);
	if (link == NULL) {
		link = calloc(1, sizeof(*link));
		if (link == NULL)
			return tr_error_set(error, TR_ENOMEM, "no memory for a link");
		link->from = from;
		link->name = name;
		link->next = member->inbound_links;
		member->inbound_links = link;
	}
	link->open++;
	link->several = link->several || link->open > 1;
	*joined = link;
	return TR_OK;
}

void inbound_link_end(struct inbound_link *link, uint32_t lane, uint64_t frames)
{
	link->ended[link->ended_count % TR_LANES_MAX].lane = lane;
	link->ended[link->ended_count % TR_LANES_MAX].frames = frames;
	link->ended_count++;
}

void inbound_link_part(struct member *member, struct inbound_link *link, uint32_t lane,
    uint64_t frames)
{
	struct inbound_link **at = &member->inbound_links;
	inbound_link_end(link, lane, frames);
	if (--link->open > 0)
		return;
	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	free(link);
}

bool inbound_link_ended(const struct inbound_link *link, uint32_t lane, uint64_t *frames)
{
	for (unsigned i = 0; i < link->ended_count && i < TR_LANES_MAX; i++) {
		if (link->ended[i].lane != lane)
			continue;
		*frames = link->ended[i].frames;
		return true;
	}
	return false;
}

tr_status inbound_link_tell(struct lane *through, uint32_t lane, uint64_t frames, bool ended)
{
	Traind__Peer__LaneReceived received = TRAIND__PEER__LANE_RECEIVED__INIT;
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	received.lane = lane;
	received.frames = frames;
	received.ended = ended;
	received.as_one = true;
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_LANE_RECEIVED;
	message.lane_received = &received;
	return peer_lane_say(through, &message);
}
