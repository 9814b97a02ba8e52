#include "daemon/plan/flow.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* Bytes of a sum of floating-point steps that are none. */
#define NOTHING_BYTES 1e-3

tr_status flow_init(struct flow *flow, const struct flow_link *links, uint32_t count,
    struct tr_error *error)
{
	*flow = (struct flow){ .links = links, .link_count = count };
	flow->sharing = calloc(count + 1u, sizeof(*flow->sharing));
	flow->part_s = calloc(count + 1u, sizeof(*flow->part_s));
	flow->carried_bytes = calloc(count + 1u, sizeof(*flow->carried_bytes));
	flow->busy_s = calloc(count + 1u, sizeof(*flow->busy_s));
	if (flow->sharing != NULL && flow->part_s != NULL && flow->carried_bytes != NULL &&
	    flow->busy_s != NULL)
		return TR_OK;
	flow_finish(flow);
	return tr_error_set(error, TR_ENOMEM, "no memory for %u links", count);
}

void flow_finish(struct flow *flow)
{
	free(flow->sharing);
	free(flow->part_s);
	free(flow->carried_bytes);
	free(flow->busy_s);
	free(flow->transfers);
	*flow = (struct flow){ 0 };
}

/* A transfer on each link of a way begins, or has ended. */
static void share(struct flow *flow, const struct flow_way *way, bool begins)
{
	for (uint32_t i = 0; i < way->count; i++) {
		uint32_t link = way->links[i];
		if (begins)
			flow->sharing[link]++;
		else
			flow->sharing[link]--;
		flow->part_s[link] = flow->sharing[link] / flow->links[link].bandwidth_bytes_per_s;
	}
	for (uint32_t i = 0; i < flow->count; i++) {
		struct flow_transfer *transfer = &flow->transfers[i];
		transfer->byte_s = 0;
		for (uint32_t k = 0; k < transfer->way.count; k++)
			transfer->byte_s = fmax(transfer->byte_s,
			    transfer->way.parts[k] * flow->part_s[transfer->way.links[k]]);
	}
}

tr_status flow_start(struct flow *flow, const struct flow_way *way, double bytes, uint64_t tag,
    struct tr_error *error)
{
	assert(way->count > 0 && way->count <= FLOW_WAY_LINKS);
	if (flow->count == flow->room) {
		uint32_t room = flow->room == 0 ? 16 : 2 * flow->room;
		struct flow_transfer *more = realloc(flow->transfers, room * sizeof(*more));
		if (more == NULL)
			return tr_error_set(error, TR_ENOMEM, "no memory for %u transfers", room);
		flow->transfers = more;
		flow->room = room;
	}
	for (uint32_t i = 0; i < way->count; i++) {
		assert(way->links[i] < flow->link_count);
		flow->carried_bytes[way->links[i]] += way->parts[i] * bytes;
	}
	struct flow_transfer *transfer = &flow->transfers[flow->count++];
	*transfer = (struct flow_transfer){ .tag = tag, .way = *way, .left_bytes = bytes };
	share(flow, way, true);
	if (transfer->byte_s <= 0) /* all its links are free */
		transfer->left_bytes = 0;
	return TR_OK;
}

static double left_s(const struct flow_transfer *transfer)
{
	return transfer->left_bytes <= NOTHING_BYTES ? 0 : transfer->left_bytes * transfer->byte_s;
}

/* Its bytes have left, or what rounding has left of them takes no time. */
static bool is_done(const struct flow *flow, const struct flow_transfer *transfer)
{
	return flow->now_s + left_s(transfer) <= flow->now_s;
}

double flow_next_s(const struct flow *flow)
{
	double least = INFINITY;

	for (uint32_t i = 0; i < flow->count; i++)
		least = fmin(least, left_s(&flow->transfers[i]));
	return flow->now_s + least;
}

void flow_advance(struct flow *flow, double to_s)
{
	double passed = to_s - flow->now_s;

	for (uint32_t i = 0; i < flow->count; i++) {
		struct flow_transfer *transfer = &flow->transfers[i];
		if (transfer->left_bytes > 0)
			transfer->left_bytes -= passed / transfer->byte_s;
	}
	for (uint32_t link = 0; link < flow->link_count; link++)
		flow->busy_s[link] += flow->sharing[link] > 0 ? passed : 0;
	flow->now_s = to_s;
}

bool flow_take(struct flow *flow, uint64_t *tag)
{
	for (uint32_t i = 0; i < flow->count; i++) {
		if (!is_done(flow, &flow->transfers[i]))
			continue;
		struct flow_way way = flow->transfers[i].way;
		*tag = flow->transfers[i].tag;
		flow->transfers[i] = flow->transfers[--flow->count];
		share(flow, &way, false);
		return true;
	}
	return false;
}
