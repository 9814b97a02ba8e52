/* What a plan puts on each link and each worker: the way from a choice and a placement to times of stages. Inside the planner. Pure.
 *
 * Sums over tp and over dp go round rings, of whose edges the slowest rules; those over tp that workers of one node make by themselves cost what these copy and read. A link that several rings or several neighbours in the
 * pipeline use at the same time is shared by them in equal parts. Rings over dp visit nodes one after another, the nearest first.
 *
 * Cards are links here too: behind those between nodes come what leaves each host, then what comes in (plan_cluster.h), and so do cables of sites. What goes from one host to another takes three of them, from one site to another five.
 */
#ifndef TR_DAEMON_PLAN_PLAN_LAYOUT_H
#define TR_DAEMON_PLAN_PLAN_LAYOUT_H

#include "daemon/plan/dealing.h"
#include "daemon/plan/plan.h"
#include "daemon/plan/plan_apart.h"
#include "daemon/plan/plan_cluster.h"
#include "daemon/plan/plan_costs.h"
#include "daemon/plan/plan_front.h"
#include "daemon/plan/plan_writes.h"

struct plan_input {
	const struct plan_cluster *cluster;
	const struct model_config *model;
	const struct plan_costs *costs;
	uint32_t batch;           /* sequences of a step, all replicas together */
	uint32_t sequence_length; /* tokens */
	/* As jobs run it: shares are cut into microbatches, of which the last may be smaller; a rank's layers are dealt evenly over its chunks. Else any number of whole
	 * microbatches, any layers. */
	bool runnable;
	/* ZeRO-1 (mesh.zero_owners): of every plan with replicas, all of them if there are fewer; 0: plans without it, and with two owners of each piece. */
	uint32_t owners;
	enum plan_writes writes;
	/* Of a strict job (strict.h), else 0: parts of the width, of which each of tp has equally many, and of the batch, of which each replica has. Costs are measured so. */
	uint32_t width_parts, batch_parts;
	/* Shares and layers are so, where the mesh has as many replicas and stages, else as for equal workers; NULL: whatever is best. */
	const struct dealing *dealt;
	uint32_t min_nodes;      /* a plan has workers on at least so many nodes (mesh.min_nodes) */
	bool ranked;             /* workers have ranks in whatever mesh (mesh.balance: on) */
	struct plan_apart apart; /* zeroed: gradients are summed over dp at each step */
};

/* A job's workers have no ranks where there are as many as a group has peers (job_mesh.h): then they are replicas of whole models, with equal shares. */
static inline bool plan_input_is_unranked(const struct plan_input *in, const struct mesh *mesh)
{
	return in->runnable && mesh_workers(mesh) >= TR_GROUP_PEERS_MAX;
}

/* How often a replica's pipeline runs in a step: of a strict job once for each part of the batch. */
static inline uint32_t plan_input_runs(const struct plan_input *in, uint32_t dp)
{
	return dp > 0 && in->batch_parts >= dp ? in->batch_parts / dp : 1;
}

/* A tensor-parallel group: one stage of one replica. */
struct plan_group {
	double speed;          /* of its slowest worker */
	double latency_s;      /* of its ring's slowest edge */
	double seconds_a_byte; /* that one worker sends */
	bool one_node;         /* its workers make small sums by themselves (TR_IN_TURN) */
};

/* What a pipeline rank's tp workers have on one link, when they send to the next, or back. */
struct plan_part {
	uint32_t link;
	double streams; /* that go over it; 0: none, and there is no such link */
	double share;   /* of its bandwidth, for the replica */
};

/* The link between nodes that is slowest for them, the card by which they leave, the one by which they come in; so the cables. */
enum { PLAN_PARTS = 5 };
struct plan_edge {
	struct plan_part parts[PLAN_PARTS];
};

/* The rings of all tp workers of a pipeline rank on one link. */
struct plan_crossing {
	uint32_t link;
	double times;
};

/* Gradients of a pipeline rank's stages, over dp. */
struct plan_ring {
	struct plan_crossing alone;  /* where they take longest */
	struct plan_crossing shared; /* where with those of all other ranks they do */
	double latency_s;
};

struct plan_layout {
	const struct plan_input *in;
	struct plan_derived derived[PLAN_COSTS_MAX];
	/* The same with sequence parallelism, where it was not measured so. */
	struct plan_derived own[PLAN_COSTS_MAX];
	struct plan_cost split[PLAN_COSTS_MAX];
	uint32_t link_count;
	struct flow_link *
	    links; /* the cluster's, then cards: what leaves each host, what comes in; then cables */
	bool cables;           /* of one at least something is known */
	uint32_t good_workers; /* neither slow nor far (plan_cluster_good) */
	/* Of the plan that was laid out last. */
	const struct plan_cost *cost;
	const struct plan_derived *of_tp;
	uint32_t dp, pp, tp, stages;
	struct plan_group *groups;            /* [dp * pp] */
	struct plan_edge *forward, *backward; /* [dp * pp]: to the next rank; to the one before */
	struct plan_ring *rings;              /* [pp] */
	struct plan_section_time *stage_s;    /* [dp * stages] */
	double *stage_exchange_s;             /* of that, both ways: sums over tp */
	double *bytes;                        /* [links]: in a step, by plan_layout_traffic */
	double *uses, *own_uses;              /* [links], scratch */
	bool ordered; /* rows[] are: workers by how near their nodes are, and by how fast (plan_place.c) */
	uint16_t rows[2][PLAN_WORKERS_MAX];
	double farthest_s; /* latency between any two of its workers' nodes */
	struct plan_front
	    *front; /* borrowed: what plan_predict times is offered to it; NULL: to none */
};

/* Ranks count along tp, then dp, then pp (mesh.h). */
static inline uint32_t plan_layout_worker(const struct plan_layout *l, const struct plan *plan,
    uint32_t replica, uint32_t rank, uint32_t tp)
{
	return plan->worker_of[(rank * l->dp + replica) * l->tp + tp];
}

static inline double plan_layout_bandwidth(const struct plan_layout *l, uint32_t link)
{
	return l->links[link].bandwidth_bytes_per_s;
}

/* NULL: the costs, the cluster or the batch cannot be, or no memory. `in` stays borrowed. */
struct plan_layout *plan_layout_create(const struct plan_input *in, struct tr_error *error);
void plan_layout_destroy(struct plan_layout *layout); /* accepts NULL */

/* The cost of a choice, and what is derived besides (may be NULL); NULL: there is none, or the model cannot be split so. */
const struct plan_cost *plan_layout_cost(const struct plan_layout *layout,
    const struct plan_choice *choice, const struct plan_derived **derived);

/* Groups, edges and rings of choice and placement. */
void plan_layout_place(struct plan_layout *layout, const struct plan *plan);
/* The ring over dp of a pipeline rank's workers at one place of tp, as place orders it: order[dp], of workers. */
void plan_layout_ring(const struct plan_layout *layout, const struct plan *plan, uint32_t rank,
    uint32_t tp, uint32_t *order);
/* Then the layers of each stage, where `most` (NULL: any) says how many each pipeline rank holds; false: there is no such split. */
bool plan_layout_split(struct plan_layout *layout, struct plan *plan, const uint32_t *most);
/* A rank's layers over its chunks, as jobs deal them (job_mesh.h). */
void plan_layout_deal(uint32_t rank, uint32_t layers, struct plan *plan);
/* Then times of stages. */
void plan_layout_times(struct plan_layout *layout, const struct plan *plan);
/* Then bytes of a step on each link. */
void plan_layout_traffic(struct plan_layout *layout, const struct plan *plan);

/* Number of a host's card, or of a site's cable, among the layout's links. */
static inline uint32_t plan_layout_card(const struct plan_layout *l, uint32_t host, bool in)
{
	uint32_t n = l->in->cluster->node_count;

	return n * n + (in ? n : 0) + host;
}

static inline uint32_t plan_layout_cable(const struct plan_layout *l, uint32_t site, bool in)
{
	uint32_t n = l->in->cluster->node_count;

	return n * n + (in ? 3 * n : 2 * n) + site;
}

/* Adds to uses[links], of the link, of both cards, where it leaves the host, and of both cables, where it leaves the site: `way` is a number of the cluster's links. */
void plan_layout_use(const struct plan_layout *layout, uint32_t way, double what, double *uses);
/* Where bytes[links] take longest: all of them go at the same time. */
double plan_layout_busiest_s(const struct plan_layout *layout, const double *bytes);
/* Seconds that `bytes` of each of an edge's streams keep its slowest link busy, and one of its links. */
double plan_layout_edge_s(const struct plan_layout *layout, const struct plan_edge *edge,
    double bytes);
double plan_layout_part_s(const struct plan_layout *layout, const struct plan_part *part,
    double bytes);
/* Parameters at one worker of a pipeline rank. */
uint64_t plan_layout_parameters(const struct plan_layout *layout, const struct plan *plan,
    uint32_t rank);
/* Of these as many as it updates in a step: with ZeRO-1 its pieces, the first of them twice (daemon/worker/sharded_update.c). */
double plan_layout_updated(const struct plan_layout *layout, const struct plan *plan, uint32_t rank);
/* ZeRO-1: adds to bytes[links] what new parameters take that go to workers which do not own their moments. */
void plan_layout_add_pieces(const struct plan_layout *layout, const struct plan *plan,
    double *bytes);
/* Seconds that this takes, if no other rank does it. */
double plan_layout_reduce_s(const struct plan_layout *layout, const struct plan *plan,
    uint32_t rank);
/* Sums that a gradient over dp goes through, one behind the other: of a strict job one for each doubling of the replicas. */
uint32_t plan_layout_levels(const struct plan_layout *layout);
/* Bytes that one worker of a pipeline rank sends to have its gradients summed over dp, or where replicas train apart to merge: of a strict job whole ones to another replica, and to another of these, up to all. */
double plan_layout_reduce_bytes(const struct plan_layout *layout, const struct plan *plan,
    uint32_t rank);

#endif
