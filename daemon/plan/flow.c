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
	flow->carried_bytes = calloc(count + 1u, sizeof(*flow->carried_bytes));
	flow->busy_s = calloc(count + 1u, sizeof(*flow->busy_s));
	if (flow->sharing != NULL && flow->carried_bytes != NULL && flow->busy_s != NULL)
		return TR_OK;
	flow_finish(flow);
	return tr_error_set(error, TR_ENOMEM, "no memory for %u links", count);
}

void flow_finish(struct flow *flow)
{
	free(flow->sharing);
	free(flow->carried_bytes);
	free(flow->busy_s);
	free(flow->transfers);
	*flow = (struct flow){ 0 };
}

tr_status flow_start(struct flow *flow, uint32_t link, double bytes, uint64_t tag,
    struct tr_error *error)
{
	assert(link < flow->link_count);
	if (flow->count == flow->room) {
		uint32_t room = flow->room == 0 ? 16 : 2 * flow->room;
		struct flow_transfer *more = realloc(flow->transfers, room * sizeof(*more));
		if (more == NULL)
			return tr_error_set(error, TR_ENOMEM, "no memory for %u transfers", room);
		flow->transfers = more;
		flow->room = room;
	}
	flow->transfers[flow->count++] = (struct flow_transfer){ tag, link,
		isinf(flow->links[link].bandwidth_bytes_per_s) ? 0 : bytes };
	flow->sharing[link]++;
	flow->carried_bytes[link] += bytes;
	return TR_OK;
}

static double left_s(const struct flow *flow, const struct flow_transfer *transfer)
{
	return transfer->left_bytes <= NOTHING_BYTES ? 0
	                                             : transfer->left_bytes *
	        flow->sharing[transfer->link] / flow->links[transfer->link].bandwidth_bytes_per_s;
}

/* Its bytes have left, or what rounding has left of them takes no time. */
static bool is_done(const struct flow *flow, const struct flow_transfer *transfer)
{
	return flow->now_s + left_s(flow, transfer) <= flow->now_s;
}

double flow_next_s(const struct flow *flow)
{
	double least = INFINITY;

	for (uint32_t i = 0; i < flow->count; i++)
		least = fmin(least, left_s(flow, &flow->transfers[i]));
	return flow->now_s + least;
}

void flow_advance(struct flow *flow, double to_s)
{
	double passed = to_s - flow->now_s;

	for (uint32_t i = 0; i < flow->count; i++) {
		struct flow_transfer *transfer = &flow->transfers[i];
		if (transfer->left_bytes > 0)
			transfer->left_bytes -= passed *
			    flow->links[transfer->link].bandwidth_bytes_per_s /
			    flow->sharing[transfer->link];
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
		*tag = flow->transfers[i].tag;
		flow->sharing[flow->transfers[i].link]--;
		flow->transfers[i] = flow->transfers[--flow->count];
		return true;
	}
	return false;
}
