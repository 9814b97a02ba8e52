/* Questions about a member: what its core, its links and its connections know of themselves. Asked by any thread of its caller's process,
 * answered at once; nothing is counted for them that is not counted anyway.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/engine_internal.h"
#include "collectives/kernels/codec.h"
#include "collectives/kernels/reduce.h"

void observe_ended(struct member *member, uint64_t peer, const struct traffic *carried)
{
	traffic_add(&member->ended, carried);
	for (size_t i = 0; i < member->view_peer_count; i++)
		if (member->view_peers[i].peer == peer)
			traffic_add(&member->view_peers[i].ended, carried);
}

static void open_traffic(const struct member *member, uint64_t peer, struct traffic *sum)
{
	peer_link_traffic(member, peer, sum);
	inbound_traffic(member, peer, sum);
	state_send_traffic(member, peer, sum);
}

static void tell_error(struct channel_told *told, tr_status status, const char *text)
{
	told->status = status;
	(void)snprintf(told->text, sizeof(told->text), "%s", text);
}

/* ---- the choice of an algorithm ---- */

static void explain(const struct member *member, const struct channel_question *asked,
    struct channel_told *told)
{
	struct group_submit op = { .collective = (enum tr_collective)asked->collective,
		.dtype = (enum tr_dtype)asked->dtype,
		.codec = (enum tr_codec)asked->codec,
		.algorithm = (enum tr_algorithm)asked->algorithm,
		.count = asked->count };
	enum tr_algorithm algorithm = TR_AUTO;
	if (asked->collective > TR_RECV || reduce_element_bytes(op.dtype) == 0 ||
	    !codec_known(op.codec) || asked->algorithm > TR_ONE_SHOT ||
	    asked->count > SIZE_MAX / 8) {
		(void)snprintf(told->text, sizeof(told->text),
		    "explain: collective %u, dtype %u, codec %u, algorithm %u, %" PRIu64
		    " elements",
		    asked->collective, asked->dtype, asked->codec, asked->algorithm, asked->count);
		told->status = TR_EINVAL;
		return;
	}
	told->status = group_core_explain(member->core, &op, &algorithm, told->text,
	    sizeof(told->text));
	told->algorithm = (uint32_t)algorithm;
}

/* ---- counters ---- */

static void fill_stats(const struct member *member, struct tr_stats *stats)
{
	const struct group_core_counters *core = group_core_counters(member->core);
	struct traffic sum = member->ended;
	open_traffic(member, 0, &sum);
	*stats = (struct tr_stats){ .size_of = sizeof(*stats),
		.view = core->view,
		.peers = core->peers,
		.views = core->views,
		.peers_lost = core->peers_lost,
		.rounds = core->rounds,
		.rounds_abandoned = core->rounds_abandoned,
		.rounds_repaired = core->rounds_repaired,
		.tcp_sent_bytes = sum.tcp_sent,
		.tcp_received_bytes = sum.tcp_received,
		.shm_sent_bytes = sum.shm_sent,
		.shm_received_bytes = sum.shm_received,
		.resent_bytes = core->resent_bytes + member->resent_bytes,
		.waited_us = channel_host_waited_us(member->host) };
	memcpy(stats->ops, core->ops, sizeof(stats->ops));
	memcpy(stats->op_bytes, core->op_bytes, sizeof(stats->op_bytes));
	channel_host_common(member->host, stats);
}

/* ---- links ---- */

static void fill_link(const struct member *member, const struct view_peer_entry *peer,
    struct tr_link *link)
{
	struct traffic sum = peer->ended;
	*link = (struct tr_link){ .size_of = sizeof(*link), .peer = peer->peer };
	(void)snprintf(link->node, sizeof(link->node), "%s", peer->node_name);
	(void)snprintf(link->address, sizeof(link->address), "%s", peer->address);
	peer_link_describe(member, peer->peer, link);
	inbound_describe(member, peer->peer, link);
	link->up = link->lanes_out > 0 || link->lanes_in > 0;
	open_traffic(member, peer->peer, &sum);
	link->sent_bytes = sum.tcp_sent + sum.shm_sent;
	link->received_bytes = sum.tcp_received + sum.shm_received;
}

/* NULL: no memory; told says so. */
static struct tr_link *fill_links(const struct member *member, struct channel_told *told)
{
	struct tr_link *links = calloc(member->view_peer_count + 1, sizeof(*links));
	if (links == NULL) {
		tell_error(told, TR_ENOMEM, "no memory to describe the links");
		return NULL;
	}
	for (size_t i = 0; i < member->view_peer_count && told->count < TR_GROUP_PEERS_MAX; i++)
		if (member->view_peers[i].peer != member->peer)
			fill_link(member, &member->view_peers[i], &links[told->count++]);
	return links;
}

/* ---- serving ---- */

static void answer(struct member *member, const struct channel_question *question)
{
	struct channel_told told = { .status = TR_OK };
	struct tr_link *links = NULL;
	bool viewless = group_core_counters(member->core)->view == 0;
	if (question->kind == CHANNEL_STATS)
		fill_stats(member, &told.stats);
	else if (question->kind != CHANNEL_EXPLAIN && question->kind != CHANNEL_LINKS)
		tell_error(&told, TR_EINVAL, "a question of unknown kind");
	else if (viewless)
		tell_error(&told, TR_EUNAVAILABLE, "the group is in no view yet");
	else if (question->kind == CHANNEL_EXPLAIN)
		explain(member, question, &told);
	else
		links = fill_links(member, &told);
	channel_host_tell(member->host, &told, links);
	free(links);
}

bool observe_serve(struct member *member)
{
	struct channel_question question;
	if (member->over || member->worker_gone || !channel_host_question(member->host, &question))
		return false;
	answer(member, &question);
	return true;
}
