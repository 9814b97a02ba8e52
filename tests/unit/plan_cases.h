/* Synthetic clusters for the planner: uneven links, one throttled, slow cards, a cable that a site shares, mixed speeds, little memory. */
#ifndef TR_TESTS_PLAN_CASES_H
#define TR_TESTS_PLAN_CASES_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/rng.h"
#include "daemon/plan/plan_predict.h"
#include "daemon/plan/plan_search.h"

#define MBIT       125e3
#define GBIT       125e6
#define GIB        (1ull << 30)
#define PLAN_CASES 22

struct plan_case {
	const char *name;
	struct plan_cluster cluster;
	struct model_config model;
	struct plan_cost costs[9];
	struct plan_costs all;
	struct plan_input in;
};

static void case_links(struct plan_case *c, double latency_s, double bandwidth)
{
	for (uint32_t from = 0; from < c->cluster.node_count; from++)
		for (uint32_t to = 0; to < c->cluster.node_count; to++)
			*plan_cluster_link(&c->cluster, from, to) = from == to
			    ? (struct flow_link){ 5e-6, 80 * GBIT }
			    : (struct flow_link){ latency_s, bandwidth };
}

static void case_pair(struct plan_case *c, uint32_t a, uint32_t b, double latency_s,
    double bandwidth)
{
	*plan_cluster_link(&c->cluster, a, b) = (struct flow_link){ latency_s, bandwidth };
	*plan_cluster_link(&c->cluster, b, a) = (struct flow_link){ latency_s, bandwidth };
}

static void case_card(struct plan_case *c, uint32_t node, double bandwidth)
{
	c->cluster.nodes[node].card_out_bytes_per_s = bandwidth;
	c->cluster.nodes[node].card_in_bytes_per_s = bandwidth;
}

/* Of a node that site's cable, where it is the first one there. */
static void case_site(struct plan_case *c, uint32_t node, uint32_t site, double out, double in)
{
	c->cluster.nodes[node].site = site;
	c->cluster.nodes[node].cable_out_bytes_per_s = out;
	c->cluster.nodes[node].cable_in_bytes_per_s = in;
}

/* Layers of 12.6 million parameters, 512 tokens a sequence: 65 ms forward on a worker of 200 GFLOP/s. Small microbatches and narrow shards are
 * less efficient. */
static void case_costs(struct plan_case *c)
{
	uint32_t count = 0;

	c->model = (struct model_config){ .preset = MODEL_GPT2,
		.layers = 6,
		.width = 1024,
		.heads = 16,
		.context = 512,
		.vocab = 8192 };
	model_config_fill(&c->model);
	for (uint32_t tp = 1; tp <= 4; tp *= 2) {
		for (uint32_t sequences = 1; sequences <= 4; sequences *= 2) {
			double each = sequences * (1 + 0.1 / sequences) * (1 + 0.03 * (tp - 1)) /
			    tp;
			double rows = 4.0 * 512 * sequences;
			c->costs[count++] = (struct plan_cost){ tp, sequences,
				{ { 1e-3 * each, 2e-3 * each }, { 65e-3 * each, 130e-3 * each },
				    { 43e-3 * each, 86e-3 * each } },
				{ (uint64_t)(rows * 1024), (uint64_t)(rows * 1024 * (6 + 8.0 / tp)),
				    (uint64_t)(rows * (1024 + 8192.0 / tp)) },
				(uint64_t)(rows * 1024 * 8) };
		}
	}
	c->all = (struct plan_costs){ .at = c->costs,
		.count = count,
		.update_s = 0.6e-9,
		.round_s = 1e-3,
		.process_bytes = 64 << 20 };
}

static void case_init(struct plan_case *c, const char *name, uint32_t nodes, uint32_t each)
{
	*c = (struct plan_case){ .name = name };
	if (plan_cluster_create(nodes, nodes * each, &c->cluster, NULL) != TR_OK)
		abort();
	for (uint32_t i = 0; i < nodes; i++)
		(void)snprintf(c->cluster.nodes[i].name, sizeof(c->cluster.nodes[i].name), "n%u", i);
	for (uint32_t i = 0; i < nodes * each; i++)
		c->cluster.workers[i] = (struct plan_worker){ i / each, 1, 16 * GIB };
	case_links(c, 50e-6, 10 * GBIT);
	case_costs(c);
	c->in = (struct plan_input){ &c->cluster, &c->model, &c->all, 8, 512, false, 0,
		PLAN_WRITES_NOTHING, 0, 0, NULL, 0, false, { .on = false } };
}

static void case_speeds(struct plan_case *c, const double *speeds)
{
	for (uint32_t i = 0; i < c->cluster.worker_count; i++)
		c->cluster.workers[i].speed = speeds[i];
}

/* Random speeds, memories and links. */
static void case_random(struct plan_case *c, const char *name, uint64_t seed, uint32_t nodes,
    uint32_t each)
{
	struct rng_key key = rng_key(seed, 77, 0);

	case_init(c, name, nodes, each);
	for (uint32_t i = 0; i < nodes * each; i++) {
		c->cluster.workers[i].speed = 0.25 + rng_unit(key, 0, i);
		c->cluster.workers[i].memory_bytes = GIB / 2 + rng_below(key, 1, i, 2 * GIB);
	}
	for (uint32_t a = 0; a < nodes; a++)
		for (uint32_t b = a + 1; b < nodes; b++)
			case_pair(c, a, b, 1e-4 * pow(100, rng_unit(key, 2, a * nodes + b)),
			    100 * MBIT * pow(100, rng_unit(key, 3, a * nodes + b)));
}

/* 1F1B with microbatches of one sequence; workers by rank. */
static inline struct plan case_plan(uint32_t dp, uint32_t pp, uint32_t tp)
{
	return (struct plan){ .choice = { .mesh = { { dp, pp, tp } },
		                  .kind = SCHEDULE_1F1B,
		                  .chunks = 1,
		                  .sequences = 1 },
		.worker_of = { 0, 1, 2, 3 } };
}

/* Laid out and timed, with its bytes on links. */
static inline void case_predict(struct plan_layout *layout, struct plan *plan)
{
	plan_fill(layout, plan);
	if (plan_predict(layout, plan, NULL) != TR_OK)
		abort();
	plan_layout_traffic(layout, plan);
}

/* Which of PLAN_CASES. */
static inline void case_make(struct plan_case *c, unsigned which)
{
	switch (which) {
	case 0:
		case_init(c, "4 equal nodes, 10 Gbit/s", 4, 1);
		break;
	case 1:
		case_init(c, "4 equal nodes, 1 Gbit/s", 4, 1);
		case_links(c, 1e-4, GBIT);
		break;
	case 2:
		case_init(c, "two sites of 2, 100 Mbit/s and 20 ms between", 4, 1);
		for (uint32_t i = 0; i < 4; i++)
			case_pair(c, i % 2, 2 + i / 2, 20e-3, 100 * MBIT);
		break;
	case 3:
		case_init(c, "one link of 6 throttled to 50 Mbit/s", 4, 1);
		case_pair(c, 0, 2, 50e-6, 50 * MBIT);
		break;
	case 4:
		case_init(c, "a line: neighbours 10 Gbit/s, others 200 Mbit/s", 4, 1);
		case_links(c, 1e-3, 200 * MBIT);
		for (uint32_t i = 0; i < 3; i++)
			case_pair(c, (i * 3 + 1) % 4, ((i + 1) * 3 + 1) % 4, 50e-6, 10 * GBIT);
		break;
	case 5:
		case_init(c, "speeds 1, 1, 0.5, 0.25", 4, 1);
		case_speeds(c, (const double[]){ 0.25, 1, 0.5, 1 });
		c->in.batch = 24;
		break;
	case 6:
		case_init(c, "one node at a twentieth of the speed", 4, 1);
		case_speeds(c, (const double[]){ 1, 0.05, 1, 1 });
		break;
	case 7:
		case_init(c, "1.2 GiB a worker: the model has to be split", 4, 1);
		for (uint32_t i = 0; i < 4; i++)
			c->cluster.workers[i].memory_bytes = 12 * GIB / 10;
		break;
	case 8:
		case_init(c, "one worker of 0.6 GiB", 4, 1);
		c->cluster.workers[2].memory_bytes = 6 * GIB / 10;
		break;
	case 9:
		case_init(c, "2 nodes of 2, 300 Mbit/s between", 2, 2);
		case_links(c, 2e-4, 300 * MBIT);
		break;
	case 10:
		case_init(c, "3 nodes of 2, uneven links, one slow node", 3, 2);
		case_pair(c, 0, 1, 1e-3, 100 * MBIT);
		case_pair(c, 1, 2, 1e-3, 400 * MBIT);
		case_speeds(c, (const double[]){ 1, 1, 0.6, 0.6, 1, 1 });
		break;
	case 11:
		case_init(c, "one node that sends at 20 Mbit/s and gets 500", 4, 1);
		for (uint32_t i = 1; i < 4; i++) {
			plan_cluster_link(&c->cluster, 0, i)->bandwidth_bytes_per_s = 20 * MBIT;
			plan_cluster_link(&c->cluster, i, 0)->bandwidth_bytes_per_s = 500 * MBIT;
		}
		break;
	case 12:
		case_init(c, "everything 60 ms away, 1 Gbit/s", 4, 1);
		case_links(c, 60e-3, GBIT);
		break;
	case 13:
		case_init(c, "mixed speeds, two sites, little memory", 4, 1);
		case_speeds(c, (const double[]){ 1, 0.7, 0.5, 1 });
		for (uint32_t i = 0; i < 4; i++) {
			case_pair(c, i % 2, 2 + i / 2, 10e-3, 200 * MBIT);
			c->cluster.workers[i].memory_bytes = 14 * GIB / 10;
		}
		break;
	case 14:
		case_init(c, "2 nodes of 2, 0.7 GiB a worker, 1 Gbit/s", 2, 2);
		case_links(c, 1e-4, GBIT);
		for (uint32_t i = 0; i < 4; i++)
			c->cluster.workers[i].memory_bytes = 7 * GIB / 10;
		break;
	case 15:
		case_random(c, "5 random nodes", 3, 5, 1);
		break;
	case 16:
		case_random(c, "6 random workers on 3 nodes", 5, 3, 2);
		break;
	case 17:
		case_random(c, "6 random nodes", 11, 6, 1);
		break;
	case 18:
		case_init(c, "4 nodes in a star, cards of 100 Mbit/s", 4, 1);
		case_links(c, 1e-3, 100 * MBIT);
		break;
	case 19:
		case_init(c, "one card of 50 Mbit/s, 1.2 GiB a worker", 4, 1);
		case_links(c, 1e-4, GBIT);
		case_card(c, 1, 50 * MBIT);
		for (uint32_t i = 0; i < 4; i++)
			c->cluster.workers[i].memory_bytes = 12 * GIB / 10;
		break;
	case 20:
		case_init(c, "3 nodes of 2, cards of 300 Mbit/s, 0.7 GiB a worker", 3, 2);
		case_links(c, 2e-4, GBIT);
		for (uint32_t i = 0; i < 6; i++) {
			case_card(c, i / 2, 300 * MBIT);
			c->cluster.workers[i].memory_bytes = 7 * GIB / 10;
		}
		break;
	default:
		case_init(c, "two sites of 2 behind cables of 50 Mbit/s, 1.2 GiB a worker", 4, 1);
		case_links(c, 1e-4, GBIT);
		c->in.batch = 48;
		for (uint32_t i = 0; i < 4; i++) {
			case_pair(c, i % 2, 2 + i / 2, 2e-4, 50 * MBIT);
			case_site(c, i, i / 2 * 2, i % 2 == 0 ? 50 * MBIT : 0,
			    i % 2 == 0 ? 50 * MBIT : 0);
			c->cluster.workers[i].memory_bytes = 12 * GIB / 10;
		}
		break;
	}
}

#endif
