/* A joiner's state from those who hold it: straight into the worker's memory, chunk by chunk (state_plan.h), each tensor with its
 * digest. Its donor says the digests and sends what nobody else does; others to whom there is a link send pieces too. What has come
 * stays, whoever dies; what an earlier connection still carries is refused. Until the digests agree nobody is told that it is here.
 *
 * If a worker that died here left just that state (leftover.h), it is copied from there while the donor is asked for its digests
 * only. The tensors that differ were damaged: they are asked for.
 */
#include "collectives/engine/state_receive.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "collectives/core/bits.h"
#include "common/log.h"

static void receive_free(struct state_receive *receive)
{
	if (receive == NULL)
		return;
	if (receive->hash != NULL)
		(void)XXH3_freeState(receive->hash);
	state_map_finish(&receive->map);
	state_plan_finish(&receive->plan);
	free(receive->ours);
	free(receive->theirs);
	free(receive);
}

void state_receive_free(struct member *member)
{
	receive_free(member->state_receive);
	member->state_receive = NULL;
}

static struct state_receive *receive_make(const struct channel_host *host)
{
	struct state_receive *receive = calloc(1, sizeof(*receive));
	bool made = receive != NULL && state_work_cut(host, &receive->map) &&
	    state_plan_make(&receive->plan, state_map_chunks(&receive->map),
	        receive->map.chunk_bytes);
	if (made) {
		state_send_layout(host, receive->layout);
		receive->hash = XXH3_createState();
		receive->ours = calloc(host->tensor_count + 1u, sizeof(*receive->ours));
		receive->theirs = calloc(host->tensor_count + 1u, sizeof(*receive->theirs));
		made = receive->hash != NULL && receive->ours != NULL && receive->theirs != NULL;
	}
	if (made) {
		(void)XXH3_128bits_reset(receive->hash);
		return receive;
	}
	receive_free(receive);
	return NULL;
}

void state_receive_close(struct member *member, const char *reason)
{
	struct state_receive *receive = member->state_receive;
	for (unsigned i = 0; i < receive->plan.count; i++)
		inbound_close_one(member, receive->carriers[i].in, reason);
}

static void over(struct member *member, tr_status status, const char *reason)
{
	struct state_receive *receive = member->state_receive;
	uint64_t from = receive->from, round = receive->round;
	state_receive_close(member, "the state is here");
	state_receive_free(member);
	member_post(member, GROUP_STATE_GOT, from, round, status, reason);
	member_calls_state_here(member, status, reason);
}

/* Is it what the worker before left? That is of no use for any later round. */
static void look_at_leftover(struct member *member)
{
	struct state_receive *receive = member->state_receive;
	uint64_t round;
	if (!leftover_round(member, &round))
		return;
	if (round != receive->round) {
		log_info("engine",
		    "peer %" PRIu64 ": the state after round %" PRIu64
		    " that was left here is too old: needed is that after %" PRIu64,
		    member->peer, round, receive->round);
		leftover_drop(member);
		return;
	}
	receive->local = true;
	leftover_copy_begin(member);
	state_work_wake(member);
}

/* What came of that round's state stays, whoever the donor is now. */
static bool expect(struct member *member, uint64_t from, uint64_t round)
{
	struct state_receive *receive = member->state_receive;
	if (receive != NULL && receive->round == round) {
		state_gradual_resume(member);
		if (receive->from != from)
			state_ask_forget(receive);
		receive->from = from;
		return true;
	}
	if (receive != NULL)
		state_receive_close(member, "another state is needed");
	state_receive_free(member);
	member->state_receive = receive = receive_make(member->host);
	if (receive == NULL) {
		member_post(member, GROUP_STATE_GOT, from, round, TR_ENOMEM,
		    "no memory to receive the state");
		return false;
	}
	receive->from = from;
	receive->round = round;
	receive->view = member->view;
	member->state_awaited = true;
	member->state_here = false;
	look_at_leftover(member);
	return true;
}

void state_receive_ask(struct member *member, uint64_t from, uint64_t round)
{
	if (!expect(member, from, round))
		return;
	struct state_receive *receive = member->state_receive;
	struct state_source *donor = state_ask_source(receive, from);
	if (donor == NULL)
		return;
	const struct carrier *carrier = carrier_of(receive, donor);
	bool moves = carrier->in != NULL && now_ms(member) - carrier->heard_ms < TR_STATE_STALL_MS;
	/* It may be that only the donor does not see the end of it, and serves nothing else meanwhile. */
	if (carrier->in != NULL && !moves)
		inbound_close_one(member, carrier->in, "nothing came of the state for long");
	if (!moves && !(receive->local && receive->told) &&
	    !(carrier->silent && receive->plan.count > 1))
		state_ask(member, donor);
	state_ask_others(member);
}

void state_receive_link_up(struct member *member)
{
	state_ask_others(member);
}

/* ---- are they the same bits? ---- */

static void local_agrees(struct member *member)
{
	const struct view_peer_entry *me = member_view_peer(member, member->peer);
	char text[256];
	(void)snprintf(text, sizeof(text),
	    "worker of rank %" PRIu32 " restarted on %s from its own memory (round %" PRIu64
	    ", %.1f MB, no network)",
	    member->rank, me != NULL ? me->node_name : "its node", member->state_receive->round,
	    (double)leftover_bytes(member) / 1e6);
	log_info("engine", "peer %" PRIu64 ": %s", member->peer, text);
	notices_event(member, text);
	leftover_drop(member);
	over(member, TR_OK, "");
}

void state_receive_hash_again(struct state_receive *receive)
{
	receive->hashed = 0;
	receive->hashed_bytes = 0;
	(void)XXH3_128bits_reset(receive->hash);
}

static void spoil(struct state_receive *receive, unsigned tensor)
{
	state_plan_spoilt(&receive->plan, receive->map.first[tensor],
	    receive->map.first[tensor + 1]);
	if (tensor < receive->hashed)
		receive->hashed = tensor;
	receive->hashed_bytes = 0;
	(void)XXH3_128bits_reset(receive->hash);
}

/* All tensors that differ are missing again. The first of them; tensors: none. */
static unsigned find_spoilt(struct state_receive *receive)
{
	unsigned first = receive->map.tensors;
	for (unsigned i = receive->map.tensors; i-- > 0;) {
		if (XXH128_isEqual(receive->ours[i], receive->theirs[i]))
			continue;
		spoil(receive, i);
		first = i;
	}
	return first;
}

static void local_differs(struct member *member, const char *name)
{
	struct state_receive *receive = member->state_receive;
	char text[256];
	(void)snprintf(text, sizeof(text),
	    "worker of rank %" PRIu32
	    ": the crashed worker's memory was damaged in state \"%.60s\": "
	    "fetching it from peer p%" PRIu64,
	    member->rank, name, receive->from);
	log_warn("engine", "peer %" PRIu64 ": %s", member->peer, text);
	notices_event(member, text);
	leftover_drop(member);
	receive->local = false;
	struct state_source *donor = state_ask_source(receive, receive->from);
	if (donor != NULL)
		state_ask(member, donor);
	state_ask_others(member);
}

/* The core counts how often, and asks again. From now on nobody but the donor is believed. */
static void differs(struct member *member, const char *name)
{
	struct state_receive *receive = member->state_receive;
	char text[160];
	(void)snprintf(text, sizeof(text),
	    "state \"%.60s\" from peer %" PRIu64 " differs from its digest", name, receive->from);
	log_warn("engine", "peer %" PRIu64 ": %s", member->peer, text);
	state_receive_close(member, "the state differs from its digest");
	receive->told = false;
	receive->alone = true;
	state_ask_nobody(receive);
	member_post(member, GROUP_STATE_GOT, receive->from, receive->round, TR_EDIGEST, text);
}

/* Our worker has died as well: what was left is kept for the one that follows it, and this member ends. */
static bool leftover_gone(const struct member *member)
{
	uint64_t round;
	return member->state_receive->local && !leftover_round(member, &round);
}

static void settle(struct member *member)
{
	struct state_receive *receive = member->state_receive;
	const struct channel_host *host = member->host;
	if (receive->deferred || leftover_gone(member) || !receive->told ||
	    receive->plan.missing > 0 || receive->hashed < receive->map.tensors)
		return;
	unsigned spoilt = find_spoilt(receive);
	if (spoilt < receive->map.tensors && receive->local) {
		local_differs(member, host->tensors[spoilt].name);
	} else if (spoilt < receive->map.tensors) {
		differs(member, host->tensors[spoilt].name);
	} else if (receive->local) {
		local_agrees(member);
	} else {
		log_info("engine",
		    "peer %" PRIu64 ": has the state after round %" PRIu64 " from peer %" PRIu64
		    "%s",
		    member->peer, receive->round, receive->from,
		    receive->plan.count > 1 ? " and others" : "");
		over(member, TR_OK, "");
	}
}

/* Of what is here without a gap. true: there is more than one turn's worth. */
static bool hash_some(struct member *member)
{
	struct state_receive *receive = member->state_receive;
	const struct state_map *map = &receive->map;
	uint64_t budget = TR_STATE_TURN_BYTES;
	while (receive->hashed < map->tensors && !receive->deferred) {
		unsigned tensor = receive->hashed;
		if (receive->hashed_bytes == map->bytes[tensor]) {
			receive->ours[receive->hashed++] = XXH3_128bits_digest(receive->hash);
			receive->hashed_bytes = 0;
			(void)XXH3_128bits_reset(receive->hash);
			continue;
		}
		uint64_t chunk = map->first[tensor] + receive->hashed_bytes / TR_STATE_CHUNK_BYTES;
		uint64_t bytes = state_map_at(map, chunk).bytes;
		if (!bits_get(receive->plan.have, chunk))
			return false;
		if (bytes > budget)
			return true;
		(void)XXH3_128bits_update(receive->hash,
		    member->host->tensors[tensor].data + receive->hashed_bytes, bytes);
		receive->hashed_bytes += bytes;
		budget -= bytes;
	}
	return false;
}

static void local_copied(struct member *member)
{
	struct state_receive *receive = member->state_receive;
	memcpy(receive->ours, leftover_digests(member),
	    receive->map.tensors * sizeof(receive->ours[0]));
	receive->hashed = receive->map.tensors;
	for (uint64_t i = 0; i < receive->plan.chunks; i++)
		bits_set(receive->plan.have, i);
	receive->plan.missing = 0;
	receive->copied = true;
}

bool state_receive_turn(struct member *member)
{
	struct state_receive *receive = member->state_receive;
	if (receive == NULL || member->over || receive->paused ||
	    (receive->local && receive->copied) || leftover_gone(member))
		return false;
	if (receive->local && !leftover_copy(member))
		return true;
	if (receive->local)
		local_copied(member);
	else if (hash_some(member))
		return true;
	settle(member);
	return false;
}

/* ---- what comes ---- */

/* What comes is not what we declared: no donor can help. */
static tr_status unfit(struct member *member, tr_status status, struct tr_error *error)
{
	over(member, status, error->text);
	return status;
}

/* Somebody who was asked. */
static struct state_source *asked(struct member *member, uint64_t from, struct tr_error *error)
{
	struct state_receive *receive = member->state_receive;
	struct state_source *source = receive == NULL ? NULL
	                                              : state_plan_find(&receive->plan, from);
	if (source == NULL)
		(void)tr_error_set(error, TR_ESTALE,
		    "peer %" PRIu64 " sends state that nobody awaits", from);
	return source;
}

/* The frame is one of the transfer that is awaited. */
static struct state_source *carried(struct member *member, uint64_t from, const struct inbound *in,
    struct tr_error *error)
{
	struct state_source *source = asked(member, from, error);
	if (source == NULL)
		return NULL;
	struct carrier *carrier = carrier_of(member->state_receive, source);
	if (carrier->in != in) {
		(void)tr_error_set(error, TR_ESTALE,
		    "peer %" PRIu64 " sends its state over another connection", from);
		return NULL;
	}
	carrier->heard_ms = now_ms(member);
	carrier->silent = carrier->waits = false;
	source->heard = true;
	return source;
}

static tr_status check_tensors(struct member *member, uint64_t from,
    const Traind__Peer__StateBegin *begin, struct tr_error *error)
{
	const struct channel_host *host = member->host;
	if (begin->same)
		return TR_OK; /* each request says ours */
	if (begin->n_tensors != host->tensor_count)
		return tr_error_set(error, TR_EMISMATCH,
		    "peer %" PRIu64 " has %zu pieces of state, peer %" PRIu64 " has %u", from,
		    begin->n_tensors, member->peer, host->tensor_count);
	for (unsigned i = 0; i < host->tensor_count; i++) {
		if (strcmp(begin->tensors[i]->name, host->tensors[i].name) == 0 &&
		    begin->tensors[i]->bytes == host->tensors[i].bytes)
			continue;
		return tr_error_set(error, TR_EMISMATCH,
		    "state %u is \"%.60s\" of %" PRIu64 " bytes at peer %" PRIu64
		    " and \"%.60s\" of %" PRIu64 " at peer %" PRIu64,
		    i, begin->tensors[i]->name, begin->tensors[i]->bytes, from,
		    host->tensors[i].name, host->tensors[i].bytes, member->peer);
	}
	return TR_OK;
}

tr_status state_receive_begin(struct member *member, uint64_t from, const struct inbound *in,
    const Traind__Peer__StateBegin *begin, struct tr_error *error)
{
	struct state_source *source = asked(member, from, error);
	if (source == NULL)
		return TR_ESTALE;
	struct state_receive *receive = member->state_receive;
	if (begin->round != receive->round)
		return tr_error_set(error, TR_ESTALE,
		    "peer %" PRIu64 " sends the state after round %" PRIu64 ", awaited is %" PRIu64,
		    from, begin->round, receive->round);
	if (check_tensors(member, from, begin, error) != TR_OK)
		return unfit(member, TR_EMISMATCH, error);
	carrier_of(receive, source)->in = in;
	(void)carried(member, from, in, error);
	return TR_OK;
}

tr_status state_receive_chunk(struct member *member, uint64_t from, const struct inbound *in,
    const uint8_t *payload, size_t bytes, struct tr_error *error)
{
	struct state_header header;
	tr_status st = state_header_get(payload, bytes, &header, error);
	if (st != TR_OK)
		return st;
	struct state_source *source = carried(member, from, in, error);
	if (source == NULL)
		return TR_ESTALE;
	struct state_receive *receive = member->state_receive;
	const struct state_chunk chunk = { header.tensor, header.offset, header.bytes };
	uint64_t index = state_map_index(&receive->map, &chunk);
	if (receive->local || header.round != receive->round || index == STATE_NO_CHUNK)
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " sends state that was not asked for", from);
	if (!state_plan_got(&receive->plan, source, index))
		return TR_OK;
	memcpy(member->host->tensors[header.tensor].data + header.offset,
	    payload + STATE_HEADER_BYTES, header.bytes);
	if (hash_some(member))
		state_work_wake(member);
	else
		settle(member);
	return TR_OK;
}

static void take_digests(struct state_receive *receive, const Traind__Peer__StateEnd *end)
{
	for (unsigned i = 0; i < receive->map.tensors; i++)
		receive->theirs[i] = (XXH128_hash_t){ end->digest_low[i], end->digest_high[i] };
	receive->told = true;
}

tr_status state_receive_finish(struct member *member, uint64_t from, const struct inbound *in,
    const Traind__Peer__StateEnd *end, struct tr_error *error)
{
	struct state_source *source = carried(member, from, in, error);
	if (source == NULL)
		return TR_ESTALE;
	struct state_receive *receive = member->state_receive;
	unsigned count = receive->map.tensors;
	struct carrier *carrier = carrier_of(receive, source);
	bool digests = end->n_digest_low == count && end->n_digest_high == count;
	if (end->round != receive->round || (end->n_digest_low > 0 && !digests))
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " says other digests than there are tensors", from);
	if (digests && !receive->told)
		take_digests(receive, end);
	carrier->digests = false;
	carrier->in = NULL; /* it may close now */
	state_plan_release(source);
	if (hash_some(member))
		state_work_wake(member);
	else if (!receive->local || receive->copied)
		settle(member);
	state_ask_others(member);
	return TR_OK;
}

void state_receive_broken(struct member *member, const struct inbound *in, const char *reason)
{
	struct state_receive *receive = member->state_receive;
	for (unsigned i = 0; receive != NULL && i < receive->plan.count; i++) {
		struct state_source *source = &receive->plan.sources[i];
		if (receive->carriers[i].in != in)
			continue;
		receive->carriers[i] = (struct carrier){ .silent = true };
		state_plan_release(source);
		log_info("engine",
		    "peer %" PRIu64 ": state from peer %" PRIu64 ": %s; %" PRIu64 " of %" PRIu64
		    " chunks are missing",
		    member->peer, source->peer, reason, receive->plan.missing,
		    receive->plan.chunks);
		if (source->peer == receive->from)
			member_post(member, GROUP_STATE_GOT, receive->from, receive->round, TR_EIO,
			    reason);
		state_ask_others(member);
		return;
	}
}
