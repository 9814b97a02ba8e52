#include "collectives/core/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/segment.h"

#define SEGMENT_ALIGN     8u /* the widest element: a segment never splits one */
#define OP_SEGMENTS_LEAST 8u
#define OP_SEGMENTS_MOST  4096u
#define BANDWIDTH_MAX     0x1p40 /* bytes/s; what shares_weigh takes */

tr_status view_check(const Traind__Peer__View *message, struct tr_error *error)
{
	size_t n = message->n_peers;
	bool seen[TR_GROUP_PEERS_MAX] = { false };

	if (message->number == 0 || n == 0 || n > TR_GROUP_PEERS_MAX)
		return tr_error_set(error, TR_EPROTO, "bad view %lu: %zu peers",
		    (unsigned long)message->number, n);
	if (message->n_ring != n || message->hub >= n)
		return tr_error_set(error, TR_EPROTO, "bad view: ring of %zu, hub %u, %zu peers",
		    message->n_ring, message->hub, n);
	for (size_t i = 0; i < n; i++) {
		const Traind__Peer__ViewPeer *peer = message->peers[i];
		if (peer->peer == 0 || (i > 0 && peer->peer <= message->peers[i - 1]->peer))
			return tr_error_set(error, TR_EPROTO, "bad view: peer ids do not ascend");
		if (peer->contribute_from < peer->participate_from)
			return tr_error_set(error, TR_EPROTO,
			    "bad view: peer %lu contributes before it participates",
			    (unsigned long)peer->peer);
		uint32_t place = message->ring[i];
		if (place >= n || seen[place])
			return tr_error_set(error, TR_EPROTO, "bad view: ring is no permutation");
		seen[place] = true;
	}
	return TR_OK;
}

static uint32_t view_segment_bytes(uint32_t wanted)
{
	const uint32_t most = TR_FRAME_DATA_MAX - SEGMENT_HEADER_BYTES;
	uint32_t bytes = wanted == 0 ? TR_SEGMENT_BYTES : wanted < most ? wanted : most;
	bytes -= bytes % SEGMENT_ALIGN;
	return bytes < SEGMENT_ALIGN ? SEGMENT_ALIGN : bytes;
}

static uint32_t view_op_segments(uint32_t wanted)
{
	if (wanted < OP_SEGMENTS_LEAST)
		return 0;
	return wanted < OP_SEGMENTS_MOST ? wanted : OP_SEGMENTS_MOST;
}

/* Figures come from a message: no NaN, nothing negative or absurd goes on. */
static double view_figure(double figure)
{
	return figure > 0 && figure <= BANDWIDTH_MAX ? figure : 0;
}

static unsigned view_host(const Traind__Peer__View *message, unsigned peer)
{
	const char *host = message->peers[peer]->host;

	for (unsigned i = 0; host && host[0] != '\0' && i < peer; i++)
		if (message->peers[i]->host && strcmp(message->peers[i]->host, host) == 0)
			return i;
	return peer;
}

void view_owners(const struct view *view, const unsigned *who, unsigned count, const bool *live,
    uint8_t owners[SHARES_OWNERS])
{
	uint64_t bandwidth[TR_GROUP_PEERS_MAX] = { 0 }, weight[TR_GROUP_PEERS_MAX], owned = 0;

	for (unsigned i = 0; i < count; i++)
		bandwidth[i] = (uint64_t)view->peers[who[i]].bandwidth_bytes_per_s;
	shares_weigh(bandwidth, count, weight);
	for (unsigned i = 0; live && i < count; i++)
		owned += weight[i] *= live[i];
	/* The slow ones that were to own nothing are all that is left. */
	for (unsigned i = 0; live && owned == 0 && i < count; i++)
		weight[i] = live[i];
	shares_table(weight, count, owners);
}

tr_status view_init(struct view *view, const Traind__Peer__View *message, struct tr_error *error)
{
	tr_status st = view_check(message, error);
	if (st != TR_OK)
		return st;
	*view = (struct view){
		.number = message->number,
		.count = (unsigned)message->n_peers,
		.hub = message->hub,
		.policy = message->policy,
		.algorithm = message->algorithm,
		.deterministic = message->deterministic,
		.nobody_follows = message->nobody_follows,
		.latency_s = view_figure(message->latency_s),
		.bandwidth_bytes_per_s = view_figure(message->bandwidth_bytes_per_s),
		.segment_bytes = view_segment_bytes(message->segment_bytes),
		.op_segments = view_op_segments(message->op_segments),
	};
	view->peers = calloc(view->count, sizeof(*view->peers));
	view->ring = calloc(view->count, sizeof(*view->ring));
	if (!view->peers || !view->ring) {
		view_finish(view);
		return tr_error_set(error, TR_ENOMEM, "out of memory for a view");
	}
	unsigned all[TR_GROUP_PEERS_MAX];
	for (unsigned i = 0; i < view->count; i++) {
		const Traind__Peer__ViewPeer *from = message->peers[i];
		struct view_peer *peer = &view->peers[i];
		peer->peer = from->peer;
		peer->participate_from = from->participate_from;
		peer->contribute_from = from->contribute_from;
		peer->donor = from->donor;
		(void)snprintf(peer->address, sizeof(peer->address), "%s",
		    from->address ? from->address : "");
		peer->host = view_host(message, i);
		peer->maps = from->local_address != NULL && from->local_address[0] != '\0';
		peer->latency_s = view_figure(from->latency_s);
		peer->bandwidth_bytes_per_s = view_figure(from->bandwidth_bytes_per_s);
		view->ring[i] = message->ring[i];
		all[i] = i;
	}
	view_owners(view, all, view->count, NULL, view->owners);
	return TR_OK;
}

void view_measured(struct view *view, uint32_t latency_us, const uint64_t *bandwidth)
{
	unsigned all[TR_GROUP_PEERS_MAX];

	view->latency_s = latency_us / 1e6;
	view->bandwidth_bytes_per_s = 0;
	for (unsigned i = 0; i < view->count; i++) {
		double figure = view_figure((double)bandwidth[i]);
		view->peers[i].bandwidth_bytes_per_s = figure;
		if (figure > 0 &&
		    (view->bandwidth_bytes_per_s == 0 || figure < view->bandwidth_bytes_per_s))
			view->bandwidth_bytes_per_s = figure;
		all[i] = i;
	}
	view_owners(view, all, view->count, NULL, view->owners);
}

void view_finish(struct view *view)
{
	free(view->peers);
	free(view->ring);
	*view = (struct view){ 0 };
}

const struct view_peer *view_find(const struct view *view, uint64_t peer)
{
	unsigned low = 0, high = view->count;

	while (low < high) {
		unsigned middle = low + (high - low) / 2;
		if (view->peers[middle].peer == peer)
			return &view->peers[middle];
		if (view->peers[middle].peer < peer)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}
