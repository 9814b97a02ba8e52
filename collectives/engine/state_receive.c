/* A joiner's state from its donor: straight into the worker's memory, tensor by tensor, each with its digest. It comes
 * over one connection; what an earlier one still carries is refused. Until the digests agree nobody is told that it is here.
 *
 * If a worker that died here left just that state (leftover.h), it is copied from there while the donor is asked for its digests
 * only. If they differ, that memory was damaged: the state is asked for.
 */
#include "collectives/engine/engine_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/log.h"

struct state_receive {
	uint64_t from, round;
	const struct inbound *source; /* NULL: not begun */
	uint64_t heard_ms;            /* the newest frame of it came */
	unsigned tensor;
	uint64_t offset;
	XXH3_state_t *hash;
	XXH128_hash_t *digests; /* of what came; local: those of the donor */
	bool local;             /* from what a worker before left */
	bool copied, told;      /* local: all of that is here; the donor's digests are */
};

void state_receive_free(struct member *member)
{
	struct state_receive *receive = member->state_receive;
	if (receive == NULL)
		return;
	if (receive->hash != NULL)
		(void)XXH3_freeState(receive->hash);
	free(receive->digests);
	free(receive);
	member->state_receive = NULL;
}

bool state_receive_moves(const struct member *member, uint64_t from, uint64_t round)
{
	const struct state_receive *receive = member->state_receive;
	if (receive == NULL || receive->from != from || receive->round != round)
		return false;
	return receive->told ||
	    (receive->source != NULL &&
	        uv_now(&member->engine->loop) - receive->heard_ms < TR_STATE_STALL_MS);
}

bool state_receive_local(const struct member *member)
{
	return member->state_receive->local;
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

bool state_receive_expect(struct member *member, uint64_t from, uint64_t round)
{
	struct state_receive *receive = member->state_receive;
	if (receive != NULL && receive->from == from && receive->round == round)
		return true;
	state_receive_free(member);
	receive = calloc(1, sizeof(*receive));
	if (receive != NULL) {
		receive->hash = XXH3_createState();
		receive->digests = calloc(member->host->tensor_count + 1u,
		    sizeof(*receive->digests));
	}
	member->state_receive = receive;
	if (receive == NULL || receive->hash == NULL || receive->digests == NULL) {
		member_post(member, GROUP_STATE_GOT, from, round, TR_ENOMEM,
		    "no memory to receive the state");
		state_receive_free(member);
		return false;
	}
	receive->from = from;
	receive->round = round;
	member->state_awaited = true;
	member->state_here = false;
	look_at_leftover(member);
	return true;
}

static struct state_receive *expected(struct member *member, uint64_t from, struct tr_error *error)
{
	struct state_receive *receive = member->state_receive;
	if (receive != NULL && receive->from == from)
		return receive;
	(void)tr_error_set(error, TR_ESTALE, "peer %" PRIu64 " sends state that nobody awaits",
	    from);
	return NULL;
}

static void over(struct member *member, tr_status status, const char *reason)
{
	uint64_t from = member->state_receive->from, round = member->state_receive->round;
	state_receive_free(member);
	member_post(member, GROUP_STATE_GOT, from, round, status, reason);
	member_calls_state_here(member, status, reason);
}

/* ---- from what a worker before left ---- */

static void local_differs(struct member *member, const char *name)
{
	struct state_receive *receive = member->state_receive;
	char text[256];
	(void)snprintf(text, sizeof(text),
	    "worker of rank %" PRIu32
	    ": the crashed worker's memory was damaged in state \"%.60s\": "
	    "fetching the state from peer p%" PRIu64,
	    member->rank, name, receive->from);
	log_warn("engine", "peer %" PRIu64 ": %s", member->peer, text);
	notices_event(member, text);
	leftover_drop(member);
	receive->local = receive->told = false;
	member_request_state(member, receive->from, receive->round, false);
}

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

static void local_settle(struct member *member)
{
	const struct state_receive *receive = member->state_receive;
	if (!receive->copied || !receive->told)
		return;
	const XXH128_hash_t *ours = leftover_digests(member);
	for (unsigned i = 0; i < member->host->tensor_count; i++)
		if (!XXH128_isEqual(ours[i], receive->digests[i])) {
			local_differs(member, member->host->tensors[i].name);
			return;
		}
	local_agrees(member);
}

bool state_receive_turn(struct member *member)
{
	struct state_receive *receive = member->state_receive;
	if (receive == NULL || !receive->local || receive->copied || member->over)
		return false;
	receive->copied = leftover_copy(member);
	if (!receive->copied)
		return true;
	local_settle(member);
	return false;
}

static tr_status local_finish(struct member *member, const Traind__Peer__StateEnd *end,
    struct tr_error *error)
{
	struct state_receive *receive = member->state_receive;
	unsigned count = member->host->tensor_count;
	if (end->round != receive->round || end->n_digest_low != count ||
	    end->n_digest_high != count)
		return tr_error_set(error, TR_EPROTO,
		    "peer %" PRIu64 " says other digests than were asked for", receive->from);
	for (unsigned i = 0; i < count; i++)
		receive->digests[i] = (XXH128_hash_t){ end->digest_low[i], end->digest_high[i] };
	receive->source = NULL; /* it may close now */
	receive->told = true;
	local_settle(member);
	return TR_OK;
}

/* ---- from a donor ---- */

/* What comes is not what we declared: no donor can help. */
static tr_status unfit(struct member *member, tr_status status, struct tr_error *error)
{
	over(member, status, error->text);
	return status;
}

/* The next tensor that has bytes; those without are complete as they are. */
static void skip_complete(struct member *member, struct state_receive *receive)
{
	while (receive->tensor < member->host->tensor_count &&
	    receive->offset == member->host->tensors[receive->tensor].bytes) {
		receive->digests[receive->tensor++] = XXH3_128bits_digest(receive->hash);
		receive->offset = 0;
		(void)XXH3_128bits_reset(receive->hash);
	}
}

/* The frame is one of the transfer that is awaited. */
static struct state_receive *carried(struct member *member, uint64_t from,
    const struct inbound *source, struct tr_error *error)
{
	struct state_receive *receive = expected(member, from, error);
	if (receive == NULL)
		return NULL;
	if (receive->source != source) {
		(void)tr_error_set(error, TR_ESTALE,
		    "peer %" PRIu64 " sends its state over another connection", from);
		return NULL;
	}
	receive->heard_ms = uv_now(&member->engine->loop);
	return receive;
}

tr_status state_receive_begin(struct member *member, uint64_t from, const struct inbound *source,
    const Traind__Peer__StateBegin *begin, struct tr_error *error)
{
	struct state_receive *receive = expected(member, from, error);
	if (receive == NULL)
		return TR_ESTALE;
	if (begin->round != receive->round)
		return tr_error_set(error, TR_ESTALE,
		    "peer %" PRIu64 " sends the state after round %" PRIu64 ", awaited is %" PRIu64,
		    from, begin->round, receive->round);
	const struct channel_host *host = member->host;
	if (begin->n_tensors != host->tensor_count) {
		(void)tr_error_set(error, TR_EMISMATCH,
		    "peer %" PRIu64 " has %zu pieces of state, peer %" PRIu64 " has %u", from,
		    begin->n_tensors, member->peer, host->tensor_count);
		return unfit(member, TR_EMISMATCH, error);
	}
	for (unsigned i = 0; i < host->tensor_count; i++) {
		if (strcmp(begin->tensors[i]->name, host->tensors[i].name) == 0 &&
		    begin->tensors[i]->bytes == host->tensors[i].bytes)
			continue;
		(void)tr_error_set(error, TR_EMISMATCH,
		    "state %u is \"%.60s\" of %" PRIu64 " bytes at peer %" PRIu64
		    " and \"%.60s\" of %" PRIu64 " at peer %" PRIu64,
		    i, begin->tensors[i]->name, begin->tensors[i]->bytes, from,
		    host->tensors[i].name, host->tensors[i].bytes, member->peer);
		return unfit(member, TR_EMISMATCH, error);
	}
	receive->source = source;
	receive->heard_ms = uv_now(&member->engine->loop);
	if (receive->local)
		return TR_OK;
	receive->tensor = 0;
	receive->offset = 0;
	(void)XXH3_128bits_reset(receive->hash);
	skip_complete(member, receive);
	return TR_OK;
}

tr_status state_receive_chunk(struct member *member, uint64_t from, const struct inbound *source,
    const uint8_t *payload, size_t bytes, struct tr_error *error)
{
	struct state_header header;
	tr_status st = state_header_get(payload, bytes, &header, error);
	if (st != TR_OK)
		return st;
	struct state_receive *receive = carried(member, from, source, error);
	if (receive == NULL)
		return TR_ESTALE;
	const struct channel_host *host = member->host;
	if (receive->local || header.round != receive->round || header.tensor != receive->tensor ||
	    header.tensor >= host->tensor_count || header.offset != receive->offset ||
	    header.bytes > host->tensors[header.tensor].bytes - receive->offset)
		return tr_error_set(error, TR_EPROTO, "peer %" PRIu64 " sends state out of order",
		    from);
	memcpy(host->tensors[header.tensor].data + header.offset, payload + STATE_HEADER_BYTES,
	    header.bytes);
	(void)XXH3_128bits_update(receive->hash, payload + STATE_HEADER_BYTES, header.bytes);
	receive->offset += header.bytes;
	skip_complete(member, receive);
	return TR_OK;
}

tr_status state_receive_finish(struct member *member, uint64_t from, const struct inbound *source,
    const Traind__Peer__StateEnd *end, struct tr_error *error)
{
	struct state_receive *receive = carried(member, from, source, error);
	if (receive == NULL)
		return TR_ESTALE;
	if (receive->local)
		return local_finish(member, end, error);
	const struct channel_host *host = member->host;
	if (end->round != receive->round || receive->tensor != host->tensor_count ||
	    end->n_digest_low != host->tensor_count || end->n_digest_high != host->tensor_count)
		return tr_error_set(error, TR_EPROTO, "peer %" PRIu64 " ends its state too early",
		    from);
	for (unsigned i = 0; i < host->tensor_count; i++)
		if (receive->digests[i].low64 != end->digest_low[i] ||
		    receive->digests[i].high64 != end->digest_high[i]) {
			(void)tr_error_set(error, TR_EDIGEST,
			    "state \"%.60s\" from peer %" PRIu64 " differs from its digest",
			    host->tensors[i].name, from);
			return unfit(member, TR_EDIGEST, error);
		}
	log_info("engine",
	    "peer %" PRIu64 ": has the state after round %" PRIu64 " from peer %" PRIu64,
	    member->peer, receive->round, from);
	over(member, TR_OK, "");
	return TR_OK;
}

void state_receive_broken(struct member *member, const struct inbound *source, const char *reason)
{
	if (member->state_receive != NULL && member->state_receive->source == source)
		over(member, TR_EIO, reason);
}
