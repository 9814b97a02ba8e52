/* What a joiner asks of whom: its donor, and other members that hold the state. Ops may need no link to them: then one is made, and they are asked when it is up. */
#include <string.h>

#include "collectives/engine/peer_link.h"
#include "collectives/engine/state_receive.h"

static void request(struct member *member, const struct state_source *source,
    const struct group_wish *wish)
{
	Traind__Peer__StateRequest request = TRAIND__PEER__STATE_REQUEST__INIT;
	Traind__Peer__PeerMessage message = TRAIND__PEER__PEER_MESSAGE__INIT;
	request.view = member->view;
	request.round = member->state_receive->round;
	request.digests_only = wish->digests_only;
	request.pieces = wish->pieces;
	request.take_back = wish->take_back;
	request.any = source->peer != member->state_receive->from;
	request.first = wish->first;
	request.end = wish->end;
	request.layout = (ProtobufCBinaryData){ .len = sizeof(member->state_receive->layout),
		.data = member->state_receive->layout };
	message.body_case = TRAIND__PEER__PEER_MESSAGE__BODY_STATE_REQUEST;
	message.state_request = &request;
	peer_link_say(member, source->peer, &message);
}

struct group_wish state_ask_wish(const Traind__Peer__StateRequest *request)
{
	return (struct group_wish){ .digests_only = request->digests_only,
		.pieces = request->pieces,
		.any = request->any,
		.take_back = request->take_back,
		.view = request->view,
		.first = request->first,
		.end = request->end };
}

static bool digests_come(const struct state_receive *receive)
{
	for (unsigned i = 0; i < receive->plan.count; i++)
		if (receive->carriers[i].digests && !receive->carriers[i].silent)
			return true;
	return receive->told;
}

/* What `robbed` was asked for ends earlier. If nothing is left of it, it may be asked for something else. */
static void take_back(struct member *member, struct state_source *robbed)
{
	struct carrier *carrier = carrier_of(member->state_receive, robbed);
	bool nothing = robbed->next == robbed->end;
	request(member, robbed,
	    &(struct group_wish){ .take_back = true,
	        .first = carrier->asked_first,
	        .end = nothing ? carrier->asked_first : robbed->end });
	if (nothing && !carrier->digests)
		carrier->waits = false;
}

/* What it was asked for and may be about to send: asked for again it stays the same. */
static bool assigned(const struct carrier *carrier, const struct state_source *source)
{
	return carrier->waits && source->next < source->end;
}

void state_ask(struct member *member, struct state_source *source)
{
	struct state_receive *receive = member->state_receive;
	struct carrier *carrier = carrier_of(receive, source);
	carrier->digests = false;
	bool digests = !digests_come(receive);
	struct group_wish wish = { .pieces = !digests };
	struct state_source *robbed = NULL;
	if (assigned(carrier, source)) {
		wish.first = carrier->asked_first;
		wish.end = source->end;
	} else if (!receive->local && state_plan_assign(&receive->plan, source, &robbed)) {
		wish.first = source->next;
		wish.end = source->end;
	} else if (digests) {
		wish.digests_only = true;
	} else {
		return;
	}
	if (!carrier->waits)
		carrier->heard_ms = now_ms(member);
	carrier->asked_first = wish.first;
	carrier->waits = true;
	carrier->digests = digests;
	bool held = member_hold_posts(member);
	request(member, source, &wish);
	if (robbed != NULL)
		take_back(member, robbed);
	member_let_posts(member, held);
}

struct state_source *state_ask_source(struct state_receive *receive, uint64_t peer)
{
	struct state_plan *plan = &receive->plan;
	struct state_source *source = state_plan_find(plan, peer);
	if (source == NULL)
		source = state_plan_add(plan, peer);
	for (unsigned i = 0; source == NULL && i < plan->count; i++)
		if (receive->carriers[i].in == NULL) {
			source = &plan->sources[i];
			*source = (struct state_source){ .peer = peer };
			receive->carriers[i] = (struct carrier){ 0 };
		}
	return source;
}

void state_ask_forget(struct state_receive *receive)
{
	for (unsigned i = 0; i < receive->plan.count; i++) {
		struct carrier *carrier = &receive->carriers[i];
		carrier->digests = false;
		if (carrier->in == NULL) {
			*carrier = (struct carrier){ 0 };
			state_plan_release(&receive->plan.sources[i]);
		}
	}
	if (receive->local || receive->alone)
		state_ask_nobody(receive);
}

void state_ask_nobody(struct state_receive *receive)
{
	receive->plan.count = 0;
	memset(receive->carriers, 0, sizeof(receive->carriers));
}

static bool node_sends(struct member *member, const struct view_peer_entry *peer)
{
	struct state_plan *plan = &member->state_receive->plan;
	for (unsigned i = 0; i < plan->count; i++) {
		const struct view_peer_entry *other = member_view_peer(member,
		    plan->sources[i].peer);
		if (other != NULL && strcmp(other->node_name, peer->node_name) == 0)
			return true;
	}
	return false;
}

/* It holds the state, and its node sends nothing yet, unless `any_node`. */
static bool may_send(struct member *member, const struct view_peer_entry *peer, bool any_node)
{
	struct state_receive *receive = member->state_receive;
	return peer->peer != member->peer && !peer->gradual &&
	    peer->participate_from <= receive->round &&
	    state_plan_find(&receive->plan, peer->peer) == NULL &&
	    (any_node || !node_sends(member, peer));
}

/* Those to whom there is a link, and links to as many more as are of use; one of each node first. */
static void add_donors(struct member *member)
{
	struct state_receive *receive = member->state_receive;
	/* Room for a donor that takes another one's place. */
	uint64_t most = receive->plan.missing * receive->plan.chunk_bytes / TR_STATE_DONOR_BYTES;
	if (most > TR_STATE_DONORS_MAX - 1)
		most = TR_STATE_DONORS_MAX - 1;
	for (unsigned any = 0; any < 2; any++)
		for (size_t i = 0; i < member->view_peer_count; i++) {
			const struct view_peer_entry *peer = &member->view_peers[i];
			if (receive->plan.count < most && may_send(member, peer, any == 1) &&
			    peer_link_is_up(member, peer->peer))
				(void)state_plan_add(&receive->plan, peer->peer);
		}
	uint64_t found = receive->plan.count;
	for (unsigned any = 0; any < 2; any++)
		for (size_t i = 0; i < member->view_peer_count && found < most; i++) {
			const struct view_peer_entry *peer = &member->view_peers[i];
			if (!may_send(member, peer, true) || node_sends(member, peer) != (any == 1))
				continue;
			peer_link_connect(member, peer->peer);
			found++;
		}
}

/* It was asked, and does not move, or has forgotten it: others may have its rest. If all are silent, all are tried again. */
static void note_silence(struct member *member)
{
	struct state_receive *receive = member->state_receive;
	struct state_plan *plan = &receive->plan;
	unsigned silent = 0;
	for (unsigned i = 0; i < plan->count; i++) {
		struct carrier *carrier = &receive->carriers[i];
		bool rests = carrier->waits || carrier->digests ||
		    plan->sources[i].next < plan->sources[i].end;
		bool forgot = carrier->in == NULL && receive->view != member->view;
		if (rests && now_ms(member) - carrier->heard_ms > TR_STATE_SILENT_MS)
			carrier->silent = true;
		if (rests && (carrier->silent || forgot)) {
			carrier->waits = carrier->digests = false;
			state_plan_release(&plan->sources[i]);
		}
		silent += carrier->silent ||
		    member_view_peer(member, plan->sources[i].peer) == NULL;
	}
	receive->view = member->view;
	for (unsigned i = 0; silent == plan->count && i < plan->count; i++)
		receive->carriers[i].silent = false;
}

void state_ask_others(struct member *member)
{
	struct state_receive *receive = member->state_receive;
	if (member->over || receive == NULL || receive->local || receive->alone ||
	    receive->paused || (receive->plan.missing == 0 && receive->told))
		return;
	struct state_plan *plan = &receive->plan;
	bool held = member_hold_posts(member);
	add_donors(member);
	if (plan->count > 1)
		note_silence(member);
	for (unsigned i = 0; i < plan->count; i++) {
		const struct carrier *carrier = &receive->carriers[i];
		if (carrier->in == NULL && !carrier->waits && !carrier->silent &&
		    member_view_peer(member, plan->sources[i].peer) != NULL)
			state_ask(member, &plan->sources[i]);
	}
	member_let_posts(member, held);
}
