#include "daemon/plan/plan_place.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/rng.h"
#include "daemon/plan/plan_memory.h"
#include "daemon/plan/plan_predict.h"

/* How a row of groups is made and laid into the mesh. */
enum start {
	START_FASTEST_NODES = 1,  /* else the nearest */
	START_FASTEST_GROUPS = 2, /* where there are more than are wanted; else the first */
	START_ALONG_PIPELINE = 4, /* else along dp */
	STARTS = 8
};

/* Temperature at the first and the last move, of the score. */
#define HOT  0.05
#define COLD 0.0005

double plan_place_score(const struct plan *plan, double seconds)
{
	return plan->memory_part <= 1 ? seconds : seconds * (1 + 100 * plan->memory_part);
}

static double score(struct plan_layout *l, struct plan *plan)
{
	plan_fill(l, plan);
	plan_measure_memory(l, plan, NULL);
	return plan_place_score(plan, plan_estimate_s(l, plan));
}

static double node_speed(const struct plan_cluster *c, uint32_t node)
{
	double most = 0;

	for (uint32_t i = 0; i < c->worker_count; i++)
		if (c->workers[i].node == node)
			most = fmax(most, c->workers[i].speed);
	return most;
}

/* The nearer, the larger; both ways count. */
static double nearness(const struct plan_cluster *c, uint32_t a, uint32_t b)
{
	const struct flow_link *to = plan_cluster_link(c, a, b), *back = plan_cluster_link(c, b, a);
	double bandwidth = fmin(fmin(to->bandwidth_bytes_per_s, back->bandwidth_bytes_per_s), 1e15);

	return log(bandwidth) - log(1e-6 + to->latency_s + back->latency_s);
}

static double centrality(const struct plan_cluster *c, uint32_t node)
{
	double sum = 0;

	for (uint32_t other = 0; other < c->node_count; other++)
		sum += other == node ? 0 : nearness(c, node, other);
	return sum;
}

static void order_nodes(const struct plan_cluster *c, bool fastest, uint32_t *order)
{
	for (uint32_t i = 0; i < c->node_count; i++)
		order[i] = i;
	for (uint32_t i = 0; i < c->node_count; i++) {
		uint32_t best = i;
		double most = -INFINITY;
		for (uint32_t j = i; j < c->node_count; j++) {
			double value = fastest ? node_speed(c, order[j])
			    : i == 0           ? centrality(c, order[j])
			                       : nearness(c, order[i - 1], order[j]);
			if (value > most) {
				most = value;
				best = j;
			}
		}
		uint32_t taken = order[best];
		memmove(&order[i + 1], &order[i], (best - i) * sizeof(*order));
		order[i] = taken;
	}
}

/* Workers node by node, the fastest of each first. */
static void order_workers(const struct plan_cluster *c, bool fastest, uint16_t *row)
{
	uint32_t nodes[PLAN_WORKERS_MAX], count = 0;

	order_nodes(c, fastest, nodes);
	for (uint32_t i = 0; i < c->node_count; i++) {
		uint32_t first = count;
		for (uint32_t w = 0; w < c->worker_count; w++) {
			if (c->workers[w].node != nodes[i])
				continue;
			uint32_t at = count++;
			for (; at > first && c->workers[row[at - 1]].speed < c->workers[w].speed;
			     at--)
				row[at] = row[at - 1];
			row[at] = (uint16_t)w;
		}
	}
}

/* Groups of tp, of one node as far as they go; what is left over makes groups of several nodes. */
static uint32_t cut_groups(const struct plan_cluster *c, uint32_t tp, uint16_t *row)
{
	uint16_t groups[PLAN_WORKERS_MAX], rest[PLAN_WORKERS_MAX];
	uint32_t whole = 0, left = 0;

	assert(tp > 0);
	for (uint32_t i = 0; i < c->worker_count;) {
		uint32_t end = i;
		while (end < c->worker_count && c->workers[row[end]].node == c->workers[row[i]].node)
			end++;
		for (; i + tp <= end; i += tp) {
			memcpy(&groups[whole], &row[i], tp * sizeof(*row));
			whole += tp;
		}
		for (; i < end; i++)
			rest[left++] = row[i];
	}
	memcpy(row, groups, whole * sizeof(*row));
	memcpy(&row[whole], rest, left * sizeof(*row));
	return (whole + left) / tp;
}

static double group_speed(const struct plan_cluster *c, const uint16_t *group, uint32_t tp)
{
	double least = INFINITY;

	for (uint32_t t = 0; t < tp; t++)
		least = fmin(least, c->workers[group[t]].speed);
	return least;
}

static void swap_groups(uint16_t *row, uint32_t tp, uint32_t a, uint32_t b)
{
	for (uint32_t t = 0; t < tp; t++) {
		uint16_t taken = row[a * tp + t];
		row[a * tp + t] = row[b * tp + t];
		row[b * tp + t] = taken;
	}
}

/* Group `from` to place `to`, those in between move up. */
static void move_group(uint16_t *row, uint32_t tp, uint32_t from, uint32_t to)
{
	for (; from < to; from++)
		swap_groups(row, tp, from, from + 1);
	for (; from > to; from--)
		swap_groups(row, tp, from, from - 1);
}

/* Puts the slowest of `groups` behind the first `wanted`, which stay in order. */
static void drop_slowest(const struct plan_cluster *c, uint16_t *row, uint32_t tp, uint32_t groups,
    uint32_t wanted)
{
	for (; groups > wanted; groups--) {
		uint32_t slowest = 0;
		for (uint32_t i = 1; i < groups; i++)
			if (group_speed(c, &row[i * tp], tp) <
			    group_speed(c, &row[slowest * tp], tp))
				slowest = i;
		move_group(row, tp, slowest, groups - 1);
	}
}

static uint32_t node_of(const struct plan_input *in, const struct plan *plan, uint32_t at)
{
	return in->cluster->workers[plan->worker_of[at]].node;
}

/* Ranks on each node; returns how many nodes have some. */
static uint32_t count_ranks(const struct plan_input *in, const struct plan *plan, uint16_t *ranks_on)
{
	uint32_t nodes = 0;

	memset(ranks_on, 0, in->cluster->node_count * sizeof(*ranks_on));
	for (uint32_t i = 0; i < mesh_workers(&plan->choice.mesh); i++)
		nodes += ranks_on[node_of(in, plan, i)]++ == 0;
	return nodes;
}

bool plan_place_spreads(const struct plan_input *in, const struct plan *plan)
{
	uint16_t ranks_on[PLAN_WORKERS_MAX];

	return in->min_nodes <= 1 || count_ranks(in, plan, ranks_on) >= in->min_nodes;
}

/* By how many nodes there are more if `size` workers from `b` on, without ranks, take the place of those from `a` on. They have it then, if that is more than none. */
static int32_t gain_nodes(const struct plan_input *in, struct plan *plan, uint32_t size, uint32_t a,
    uint32_t b, uint16_t *ranks_on)
{
	int32_t gained = 0;

	for (uint32_t i = 0; i < size; i++)
		gained -= --ranks_on[node_of(in, plan, a + i)] == 0;
	for (uint32_t i = 0; i < size; i++)
		gained += ranks_on[node_of(in, plan, b + i)]++ == 0;
	if (gained > 0) {
		for (uint32_t i = 0; i < size; i++) {
			uint16_t taken = plan->worker_of[a + i];
			plan->worker_of[a + i] = plan->worker_of[b + i];
			plan->worker_of[b + i] = taken;
		}
		return gained;
	}
	for (uint32_t i = 0; i < size; i++) {
		ranks_on[node_of(in, plan, b + i)]--;
		ranks_on[node_of(in, plan, a + i)]++;
	}
	return 0;
}

/* Groups from nodes that have no rank take the place of the last ones, as long as nodes are wanted; where none helps any more, single workers. */
static void spread(const struct plan_input *in, struct plan *plan)
{
	uint16_t ranks_on[PLAN_WORKERS_MAX];
	uint32_t used = mesh_workers(&plan->choice.mesh), tp = plan->choice.mesh.size[MESH_TP],
	         all = in->cluster->worker_count;

	if (in->min_nodes <= 1)
		return;
	uint32_t nodes = count_ranks(in, plan, ranks_on);
	for (uint32_t size = tp;; size = 1) {
		for (uint32_t a = used; a >= size && nodes < in->min_nodes; a -= size)
			for (uint32_t b = used; b + size <= all; b += size) {
				int32_t gained = gain_nodes(in, plan, size, a - size, b, ranks_on);
				nodes += (uint32_t)gained;
				if (gained > 0)
					break;
			}
		if (size == 1)
			return;
	}
}

static void make_start(struct plan_layout *l, unsigned start, struct plan *plan)
{
	const struct plan_cluster *c = l->in->cluster;
	uint32_t tp = plan->choice.mesh.size[MESH_TP], dp = plan->choice.mesh.size[MESH_DP],
	         pp = plan->choice.mesh.size[MESH_PP];
	uint16_t row[PLAN_WORKERS_MAX];

	if (!l->ordered) {
		order_workers(c, false, l->rows[0]);
		order_workers(c, true, l->rows[1]);
		l->ordered = true;
	}
	memcpy(row, l->rows[(start & START_FASTEST_NODES) != 0], sizeof(row));
	uint32_t groups = cut_groups(c, tp, row);
	if ((start & START_FASTEST_GROUPS) != 0)
		drop_slowest(c, row, tp, groups, dp * pp);
	memcpy(plan->worker_of, row, c->worker_count * sizeof(*row));
	for (uint32_t i = 0; (start & START_ALONG_PIPELINE) != 0 && i < dp * pp; i++) {
		uint32_t rank = i % pp, replica = i / pp;
		memcpy(&plan->worker_of[(rank * dp + replica) * tp], &row[i * tp],
		    tp * sizeof(*row));
	}
	spread(l->in, plan);
}

double plan_place_start(struct plan_layout *l, struct plan *plan)
{
	struct plan best = *plan;
	double least = INFINITY;

	for (unsigned start = 0; start < STARTS; start++) {
		make_start(l, start, plan);
		double now = score(l, plan);
		if (now < least) {
			least = now;
			best = *plan;
		}
	}
	*plan = best;
	return least;
}

/* One change of a row of workers, by chance. */
static void change(const struct plan_layout *l, const struct plan *plan, struct rng_key key,
    uint64_t move, uint16_t *row)
{
	uint32_t tp = plan->choice.mesh.size[MESH_TP], all = l->in->cluster->worker_count;
	uint32_t used = tp * plan->choice.mesh.size[MESH_DP] * plan->choice.mesh.size[MESH_PP],
	         groups = all / tp;
	uint64_t kind = rng_below(key, 0, move, 4);
	uint32_t a = (uint32_t)rng_below(key, 1, move, kind == 0 ? used : used / tp),
	         b = (uint32_t)rng_below(key, 2, move, kind == 0 ? all : groups);

	if (kind == 0) {
		uint16_t taken = row[a];
		row[a] = row[b];
		row[b] = taken;
	} else if (kind == 1) {
		swap_groups(row, tp, a, b);
	} else if (kind == 2) {
		move_group(row, tp, a, b);
	} else {
		for (uint32_t low = a < b ? a : b, high = a < b ? b : a; low < high; low++, high--)
			swap_groups(row, tp, low, high);
	}
}

double plan_place_anneal(struct plan_layout *l, uint64_t seed, uint32_t moves, struct plan *plan)
{
	uint32_t all = l->in->cluster->worker_count;
	struct rng_key key = rng_key(seed, all, moves);
	double now = score(l, plan), least = now;
	struct plan best = *plan, next = *plan;

	for (uint32_t move = 0; move < moves && all > 1; move++) {
		double temperature = now * HOT * pow(COLD / HOT, (double)move / moves);
		memcpy(next.worker_of, plan->worker_of, all * sizeof(*next.worker_of));
		change(l, plan, key, move, next.worker_of);
		if (!plan_place_spreads(l->in, &next))
			continue;
		double then = score(l, &next);
		if (then > now && rng_unit(key, 3, move) >= exp((now - then) / temperature))
			continue;
		memcpy(plan->worker_of, next.worker_of, all * sizeof(*next.worker_of));
		now = then;
		if (now < least) {
			least = now;
			best = next;
		}
	}
	*plan = best;
	return least;
}
