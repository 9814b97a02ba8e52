#include "client/trainctl/planning.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainctl/interrupt.h"
#include "client/trainctl/plan_file.h"
#include "client/trainctl/print.h"
#include "common/cores.h"
#include "daemon/plan/plan_basis.h"
#include "daemon/plan/plan_dealing.h"
#include "daemon/plan/job_mesh.h"
#include "daemon/plan/job_mesh_sync.h"
#include "daemon/plan/job_options.h"
#include "daemon/plan/job_strict.h"
#include "daemon/plan/job_sync.h"
#include "daemon/plan/strict.h"

#define ROUND_S        1e-3 /* beginning and commit of a step's round, besides the way */
#define SEQUENCES_MOST 16
#define SPEED_APART    0.15

static tr_status take_cluster(struct planning *p, const struct planning_options *options,
    struct tr_error *error)
{
	const struct planning_taking taking = { p->spec, options->links,
		options->free        ? PLANNING_SLOTS_FREE
		    : options->as_is ? PLANNING_SLOTS_ALL
		                     : PLANNING_SLOTS_CORED };
	p->threads = p->spec->mesh->threads;
	if (options->cluster_file == NULL)
		return planning_cluster_take(options->rpc, &taking, &p->threads, &p->around, error);
	(void)snprintf(p->around.links_by, sizeof(p->around.links_by), "as %s says",
	    options->cluster_file);
	p->threads = p->threads > 0 ? p->threads : 1;
	tr_status st = plan_file_read(options->cluster_file, &p->around.cluster, error);
	for (uint32_t node = 0; st == TR_OK && node < p->around.cluster.node_count; node++)
		p->around.host_of[node] = node;
	p->wrong_file = st != TR_OK;
	return st;
}

/* Costs of another model, or in other numbers, are not this job's. A file that does not say is believed. */
static tr_status check_same(const struct planning *p, const char *file, struct tr_error *error)
{
	char wanted[PLAN_COSTS_OF_MAX];
	(void)plan_costs_of(&p->model, p->spec->train->optimizer->dtype, p->threads,
	    job_is_strict(p->spec->train), p->spec->train->optimizer->dropout > 0, wanted);
	if (p->measured.of[0] == '\0' || strcmp(p->measured.of, wanted) == 0)
		return TR_OK;
	return tr_error_set(error, TR_EINVAL,
	    "%s: found costs of %s, allowed: of %s; leave out --costs to measure them", file,
	    p->measured.of, wanted);
}

/* A layer with one sequence, as one worker, where the costs were measured; 0: that was not. */
static double layer_s(const struct plan_measured *measured)
{
	for (uint32_t i = 0; i < measured->costs.count; i++) {
		const struct plan_cost *row = &measured->rows[i];
		if (row->tp == 1 && row->sequences == 1)
			return row->time[SECTION_LAYER].forward_s +
			    row->time[SECTION_LAYER].backward_s;
	}
	return 0;
}

static double least_cores_part(const struct planning *p)
{
	double least = 1;
	for (uint32_t node = 0; node < p->around.cluster.node_count; node++)
		least = fmin(least, p->around.cores_part[node]);
	return least;
}

/* How fast each node is, as it measured itself. What differs by less than SPEED_APART is the same: so much two measurements of one machine differ. */
static void take_speeds(struct planning *p)
{
	const struct plan_cluster *c = &p->around.cluster;
	double own_s = p->alone_s;
	assert(c->node_count > 0); /* plan_cluster_create */
	uint32_t slowest = 0;
	double speeds[TR_GROUP_PEERS_MAX];
	for (uint32_t node = 0; node < c->node_count; node++) {
		double there_s = p->around.layer_s[node];
		double speed = own_s > 0 && there_s > 0 ? own_s / there_s : 1;
		speeds[node] = fabs(speed - 1) < SPEED_APART ? 1 : speed;
		slowest = speeds[node] < speeds[slowest] ? node : slowest;
	}
	for (uint32_t i = 0; i < c->worker_count; i++)
		c->workers[i].speed = speeds[c->workers[i].node] *
		    p->around.cores_part[c->workers[i].node];
	size_t used = strlen(p->layers_by);
	if (speeds[slowest] < 1 && used < sizeof(p->layers_by))
		used += (size_t)snprintf(p->layers_by + used, sizeof(p->layers_by) - used,
		    "; %s has measured %.2f of that speed, the least of all",
		    c->nodes[slowest].name, speeds[slowest]);
	if (least_cores_part(p) < 1 && used < sizeof(p->layers_by))
		(void)snprintf(p->layers_by + used, sizeof(p->layers_by) - used,
		    "; workers share cores, of which the least are %.2f of one for a thread",
		    least_cores_part(p));
}

/* Before anything is asked of a cluster. */
static tr_status read_costs(struct planning *p, const char *file, struct tr_error *error)
{
	tr_status st = file != NULL ? plan_measured_read(file, &p->measured, error) : TR_OK;
	p->wrong_file = st != TR_OK;
	return st;
}

/* Workers of one host compute at once, and share its memory: so many are measured together, as far as there are cores here for them. With --as-is no more than the job has (keep_own_workers). */
static unsigned beside_of(const struct planning *p, const struct planning_options *options)
{
	const struct plan_cluster *c = &p->around.cluster;
	const Traind__V1__Mesh *mesh = p->spec->mesh;
	uint32_t of_host[TR_GROUP_PEERS_MAX] = { 0 }, most = 1;
	for (uint32_t i = 0; i < c->worker_count; i++) {
		uint32_t *at_once = &of_host[p->around.host_of[c->workers[i].node]];
		if (++*at_once > most)
			most = *at_once;
	}
	if (options->as_is && mesh->workers < most)
		most = mesh->workers > 0 ? mesh->workers : 1;
	uint32_t room = cores_allowed() / p->threads;
	most = most < room ? most : room;
	return most > 0 ? most - 1 : 0;
}

static void say_busy(struct planning *p)
{
	size_t used = strlen(p->layers_by);
	if (p->measured.on_core < PLAN_COSTS_ON_CORE)
		(void)snprintf(p->layers_by + used, sizeof(p->layers_by) - used,
		    "; this machine was busy: a thread that measured had %.2f of a core, so the "
		    "times are too long",
		    p->measured.on_core);
}

/* A node measures its layer alone, so what it is compared with has to be alone too. */
static tr_status measure_alone(struct planning *p, unsigned beside, struct tr_error *error)
{
	const struct plan_measured_limits one = { p->threads, 0, 1, 1 };
	struct plan_measured alone;
	bool compared = false;
	for (uint32_t node = 0; node < p->around.cluster.node_count; node++)
		compared = compared || p->around.layer_s[node] > 0;
	p->alone_s = layer_s(&p->measured);
	if (!compared || beside == 0 || p->alone_s == 0) /* one worker had no memory for it */
		return TR_OK;
	tr_status st = plan_measured_here(p->spec, &one, config_search_path(), &alone, error);
	p->alone_s = st == TR_OK ? layer_s(&alone) : 0;
	return st;
}

static tr_status take_costs(struct planning *p, const struct planning_options *options,
    struct tr_error *error)
{
	uint32_t tp = p->around.cluster.worker_count;
	tr_status st;
	if (tp > p->model.heads)
		tp = p->model.heads;
	if (options->costs_file != NULL) {
		(void)snprintf(p->layers_by, sizeof(p->layers_by), "as %.150s says",
		    options->costs_file);
		st = check_same(p, options->costs_file, error);
		p->wrong_file = st != TR_OK;
		p->alone_s = layer_s(&p->measured);
	} else {
		bool bf16 = strcmp(p->spec->train->optimizer->dtype, "bf16") == 0;
		struct plan_measured_limits limits = { p->threads, beside_of(p, options), tp,
			SEQUENCES_MOST };
		char at_once[32] = "";
		if (limits.beside > 0)
			(void)snprintf(at_once, sizeof(at_once), ", %u workers at once",
			    limits.beside + 1);
		(void)snprintf(p->layers_by, sizeof(p->layers_by),
		    "measured on this machine with %u thread%s in %s%s; other workers by their "
		    "speed (%s)",
		    p->threads, p->threads == 1 ? "" : "s", bf16 ? "bf16" : "f32", at_once,
		    options->cluster_file != NULL ? "as the file says"
		                                  : "as they measured, else taken to be the same");
		(void)fprintf(stderr,
		    "trainctl: measures layers of the model on this machine: seconds for a small "
		    "one, minutes for a large one\n");
		st = plan_measured_here(p->spec, &limits, config_search_path(), &p->measured, error);
		if (st == TR_OK) {
			say_busy(p);
			st = measure_alone(p, limits.beside, error);
		}
	}
	/* Between the products of a strict job's members each has its own rows. */
	p->measured.costs.sequence_parallel = p->spec->mesh->sequence_parallel ||
	    job_is_strict(p->spec->train);
	p->measured.costs.dropout = p->spec->train->optimizer->dropout > 0;
	if (st == TR_OK && options->cluster_file == NULL)
		take_speeds(p);
	if (p->measured.costs.round_s == 0)
		p->measured.costs.round_s = ROUND_S;
	return st;
}

/* Of a microbatch of the job as it is: train.micro_sequences are the most, a replica's share may be less. */
static uint32_t own_sequences(const Traind__V1__JobSpec *spec, uint32_t batch, uint32_t dp)
{
	uint32_t most = spec->train->optimizer->micro_sequences;
	uint32_t share = dp > 0 ? (batch + dp - 1) / dp : batch;
	if (job_is_strict(spec->train))
		share = batch / strict_batch_parts(batch);

	return most < share ? most : share;
}

/* A strict job's bits follow from its microbatches, so that these are as it asks. */
static void take_parts(const Traind__V1__JobSpec *spec, struct planning *p,
    struct plan_search_settings *settings)
{
	p->in.width_parts = strict_width_parts(&p->model);
	p->in.batch_parts = strict_batch_parts(p->in.batch);
	settings->only.sequences = own_sequences(spec, p->in.batch, 1);
}

/* Asked for in case that there are replicas to share moments with. */
static uint32_t owners_among(uint32_t owners, uint32_t replicas)
{
	uint32_t most = replicas > 1 ? replicas : 0;
	return owners < most ? owners : most;
}

/* Mesh, schedule and all else that the job file asks for. */
static void take_own(const Traind__V1__JobSpec *spec, struct planning *p,
    struct plan_search_settings *settings)
{
	const Traind__V1__Mesh *mesh = spec->mesh;
	uint32_t tp = mesh->tp > 0 ? mesh->tp : 1, pp = mesh->pp > 0 ? mesh->pp : 1;
	uint32_t dp = mesh->workers / (tp * pp);
	settings->only = (struct plan_choice){
		.mesh = { { [MESH_DP] = dp, [MESH_PP] = pp, [MESH_TP] = tp } },
		.kind = job_mesh_schedule(mesh, mesh->chunks),
		.chunks = mesh->chunks > 0 ? mesh->chunks : 1,
		.sequences = own_sequences(spec, p->in.batch, dp),
		.recompute = mesh->recompute,
		.own_rows = p->measured.costs.sequence_parallel && tp > 1,
		.owners = owners_among(mesh->zero_owners, dp)
	};
	settings->exact = true;
	dealing_of_job(mesh, &p->dealt);
	p->in.dealt = &p->dealt;
}

/* Replicas that train apart; of several copies each they are planned as ddp's. */
static tr_status take_apart(struct planning *p, struct tr_error *error)
{
	const Traind__V1__TrainSpec *train = p->spec->train;
	struct tr_sync_options options;
	if (!job_sync_is_rare(train->sync) || job_mesh_copies(p->spec->mesh) > 1)
		return TR_OK;
	tr_status st = job_sync_options(train, train->optimizer->steps, &options, error);
	if (st != TR_OK)
		return st;
	plan_apart_of(&options, &p->in.apart);
	p->rounds = job_mesh_rounds_of(train, p->spec->mesh, &options);
	return TR_OK;
}

/* Of a mesh that is split: what a round numbers. */
static bool rounds_fit(const void *planning, const struct plan_choice *choice)
{
	const struct planning *p = planning;
	struct job_mesh_rounds rounds = p->rounds;
	rounds.chunks = choice->chunks;
	return job_mesh_rounds_fit(&rounds, &choice->mesh, 1, p->in.batch);
}

/* What jobs whose workers have ranks cannot have (job_mesh_check), and shares and layers for unequal workers, which those that train apart have not. */
static void keep_whole(const Traind__V1__JobSpec *spec, struct planning *p,
    struct plan_search_settings *settings)
{
	const Traind__V1__Sync *sync = spec->train->sync;
	bool drops = sync != NULL && sync->on_loss != NULL && strcmp(sync->on_loss, "drop") == 0;
	bool rare = job_sync_is_rare(sync);
	if (!drops && !rare)
		return;
	settings->whole = drops || job_mesh_sync_check(spec, "its model is split", NULL) != TR_OK;
	settings->is_wanted = rare ? rounds_fit : NULL;
	settings->arg = p;
	p->keeps_dealing = true;
	p->in.dealt = &p->dealt;
}

/* A plan whose writer of checkpoints has no room is none: the job would train, and end without its last one. */
static tr_status search(struct planning *p, const struct plan_search_settings *settings, bool as_is,
    struct tr_error *error)
{
	const Traind__V1__Checkpoint *checkpoint = p->spec->train->checkpoint;
	enum plan_writes writes = plan_writes_of(checkpoint);
	if (!as_is || writes == PLAN_WRITES_SHARDS)
		p->in.writes = writes;
	return plan_search(&p->in, settings, &p->result, error);
}

/* What is only planned is on as many as there are: its keys say mesh.min_nodes then. */
static uint32_t least_nodes(const struct planning *p)
{
	uint32_t asked = p->spec->mesh->min_nodes, nodes = p->around.cluster.node_count;
	return asked < nodes ? asked : nodes;
}

/* Another plan's keys might make no job of it, and --as-is says what is not its own (docs/limits.md); where there is no own mesh there is nothing to say. */
static tr_status check_own_mesh(const Traind__V1__JobSpec *spec,
    const struct planning_options *options, struct tr_error *error)
{
	if (options->as_is && spec->mesh->auto_)
		return tr_error_set(error, TR_EINVAL,
		    "mesh: auto is no mesh of its own, and --as-is says what a step of one takes: "
		    "leave it out");
	if (options->as_is || job_mesh_copies(spec->mesh) == 1)
		return TR_OK;
	return tr_error_set(error, TR_EINVAL,
	    "mesh.copies: found %u, allowed: 1, since a search for plans knows no copies; "
	    "--as-is says what a step of this mesh takes",
	    spec->mesh->copies);
}

/* Of a job as it is no node has more workers than its mesh.workers_per_node, and none is planned where there are too few slots. Before anything is measured. */
static tr_status keep_own_workers(struct planning *p, struct tr_error *error)
{
	struct plan_cluster *c = &p->around.cluster;
	const Traind__V1__Mesh *mesh = p->spec->mesh;
	uint32_t each = mesh->workers_per_node, kept = 0, whole = 0, of[TR_GROUP_PEERS_MAX] = { 0 };
	for (uint32_t i = 0; i < c->worker_count; i++) {
		uint32_t here = ++of[c->workers[i].node];
		whole += here == each;
		if (here <= each)
			c->workers[kept++] = c->workers[i];
	}
	c->worker_count = kept;
	if (each > 0 && whole >= mesh->workers / each)
		return TR_OK;
	return tr_error_set(error, TR_EINVAL,
	    "mesh.nodes, mesh.workers_per_node: found %u nodes of %u worker%s, allowed: at most %u "
	    "nodes, as so many have that many slots",
	    each > 0 ? mesh->workers / each : 0, each, each == 1 ? "" : "s", whole);
}

/* A job that is to run now would wait for a node that its plan has not. Before anything is measured. */
static tr_status check_nodes(const struct planning *p, struct tr_error *error)
{
	uint32_t asked = p->spec->mesh->min_nodes, nodes = p->around.cluster.node_count;
	if (asked <= nodes)
		return TR_OK;
	return tr_error_set(error, TR_EUNAVAILABLE,
	    "mesh.min_nodes: found %u, allowed: at most %u, as many nodes as have slots and cores "
	    "free now (`trainctl nodes`)",
	    asked, nodes);
}

/* Of many workers a search takes as long as somebody waits who wants to leave. */
static bool is_interrupted(void)
{
	return interrupt_pending() != 0;
}

tr_status planning_make(const Traind__V1__JobSpec *spec, const struct planning_options *options,
    struct planning *p, struct tr_error *error)
{
	struct plan_search_settings settings = { .seed = 1,
		.pareto = options->pareto,
		.gives_up = is_interrupted };
	const Traind__V1__Optimizer *train = spec->train->optimizer;
	p->spec = spec;
	tr_status st = job_model_config(spec->train->model, &p->model, error);
	if (st == TR_OK)
		st = check_own_mesh(spec, options, error);
	if (st == TR_OK)
		st = read_costs(p, options->costs_file, error);
	if (st == TR_OK)
		st = take_cluster(p, options, error);
	if (st == TR_OK && options->free)
		st = check_nodes(p, error);
	if (st == TR_OK && options->as_is)
		st = keep_own_workers(p, error);
	if (st == TR_OK)
		st = take_costs(p, options, error);
	p->in = (struct plan_input){ &p->around.cluster, &p->model, &p->measured.costs,
		(uint32_t)(train->batch_tokens / p->model.context), p->model.context, !options->any,
		spec->mesh->zero_owners, PLAN_WRITES_NOTHING, 0, 0, NULL, least_nodes(p),
		job_mesh_balances(spec), { .on = false } };
	if (st == TR_OK)
		st = take_apart(p, error);
	if (st == TR_OK && job_is_strict(spec->train))
		take_parts(spec, p, &settings);
	settings.only.recompute = spec->mesh->recompute; /* asked for: of every plan */
	if (options->as_is)
		take_own(spec, p, &settings);
	else if (!options->any)
		keep_whole(spec, p, &settings);
	return st == TR_OK ? search(p, &settings, options->as_is, error) : st;
}

void planning_finish(struct planning *p)
{
	plan_search_destroy(p->result);
	p->result = NULL;
	plan_cluster_finish(&p->around.cluster);
}

/* ---- for a job ---- */

static uint32_t ranks_of(const struct planning *p)
{
	return mesh_workers(&p->result->best.choice.mesh);
}

static uint32_t node_of(const struct planning *p, uint32_t rank)
{
	return p->around.cluster.workers[p->result->best.worker_of[rank]].node;
}

static Traind__V1__JobPlan *make_plan(const struct planning *p)
{
	const struct plan_times *times = &p->result->best.times;
	char text[PLAN_CHOICE_TEXT_MAX];
	Traind__V1__JobPlan *plan = calloc(1, sizeof(*plan));
	if (plan == NULL)
		return NULL;
	traind__v1__job_plan__init(plan);
	plan->nodes = calloc(ranks_of(p), sizeof(*plan->nodes));
	plan->text = strdup(plan_choice_text(&p->result->best.choice, text));
	plan->step_s = times->step_s;
	plan->compute_s = times->compute_s;
	plan->exchange_s = times->exchange_s;
	plan->idle_s = times->idle_s;
	plan->reduce_s = times->reduce_s;
	plan->update_s = times->update_s;
	if (!p->keeps_dealing && !job_is_strict(p->spec->train))
		plan->basis = plan_basis_make(&p->in, p->around.node_ids, &p->result->best);
	for (; plan->nodes != NULL && plan->n_nodes < ranks_of(p); plan->n_nodes++)
		plan->nodes[plan->n_nodes] = p->around.node_ids[node_of(p, (uint32_t)plan->n_nodes)];
	if (plan->nodes != NULL && plan->text != NULL)
		return plan;
	plan_basis_destroy(plan->basis);
	free(plan->nodes);
	free(plan->text);
	free(plan);
	return NULL;
}

static tr_status keep_list(const uint32_t *from, uint32_t count, uint32_t **list, size_t *length,
    struct tr_error *error)
{
	free(*list);
	*length = 0;
	*list = from[0] > 0 ? calloc(count, sizeof(**list)) : NULL;
	if (*list == NULL)
		return from[0] > 0 ? tr_error_set(error, TR_ENOMEM, "no memory for the plan")
		                   : TR_OK;
	for (; *length < count; (*length)++)
		(*list)[*length] = from[*length];
	return TR_OK;
}

static tr_status keep_dealing(const struct planning *p, Traind__V1__Mesh *mesh,
    struct tr_error *error)
{
	const uint32_t *size = p->result->best.choice.mesh.size;
	struct dealing dealing;
	plan_dealing(&p->in, &p->result->best, &dealing);
	tr_status st = keep_list(dealing.shares, size[MESH_DP], &mesh->shares, &mesh->n_shares,
	    error);
	return st == TR_OK
	    ? keep_list(dealing.layers, size[MESH_PP], &mesh->layers, &mesh->n_layers, error)
	    : st;
}

tr_status planning_keep(const struct planning *p, Traind__V1__JobSpec *spec, struct tr_error *error)
{
	const struct plan_choice *choice = &p->result->best.choice;
	if (spec->plan != NULL)
		traind__v1__job_plan__free_unpacked(spec->plan, NULL);
	spec->plan = make_plan(p);
	if (spec->plan == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for the plan");
	spec->mesh->tp = choice->mesh.size[MESH_TP];
	spec->mesh->pp = choice->mesh.size[MESH_PP];
	spec->mesh->threads = p->threads;
	spec->mesh->chunks = choice->chunks;
	spec->mesh->recompute = choice->recompute;
	tr_status st = keep_dealing(p, spec->mesh, error);
	if (st == TR_OK)
		st = job_option_set(spec, "mesh.schedule",
		    choice->mesh.size[MESH_PP] > 1 ? schedule_kind_name(choice->kind) : "auto",
		    error);
	if (st == TR_OK &&
	    job_is_strict(spec->train)) /* else auto would have shares follow speeds */
		st = job_option_set(spec, "mesh.balance", "off", error);
	if (st != TR_OK)
		return st;
	spec->mesh->zero_owners = choice->owners;
	spec->mesh->sequence_parallel = choice->own_rows;
	spec->train->optimizer->micro_sequences = choice->sequences;
	return job_validate(spec, error);
}

/* "a: 0-1, b: 2 5" */
static void print_ranks(const struct planning *p)
{
	const struct plan_cluster *c = &p->around.cluster;
	const char *between = "ranks     ";
	for (uint32_t node = 0; node < c->node_count; node++) {
		uint32_t from = UINT32_MAX, shown = 0;
		for (uint32_t rank = 0; rank <= ranks_of(p); rank++) {
			bool here = rank < ranks_of(p) && node_of(p, rank) == node;
			if (here && from == UINT32_MAX)
				from = rank;
			if (here || from == UINT32_MAX)
				continue;
			if (shown++ == 0)
				(void)printf("%s%s:", between, c->nodes[node].name);
			(void)printf(from + 1 < rank ? " %u-%u" : " %u", from, rank - 1);
			from = UINT32_MAX;
		}
		between = shown > 0 ? ", " : between;
	}
	(void)printf("\n");
}

void planning_print(const struct planning *p)
{
	const struct plan *best = &p->result->best;
	char text[PLAN_CHOICE_TEXT_MAX], rate[PRINT_FIGURE_MAX], bytes[PRINT_FIGURE_MAX];
	double tokens = (double)p->in.batch * p->in.sequence_length;
	(void)printf("plan      %s: a step of %.4g ms, %s tokens/s, %s at the fullest worker\n",
	    plan_choice_text(&best->choice, text), 1e3 * best->times.step_s,
	    print_rate(tokens / best->times.step_s, rate), print_bytes(best->memory_bytes, bytes));
	print_ranks(p);
	if (p->around.slots_left > 0)
		(void)printf("slots     %u are left out, as their hosts lack cores for them\n",
		    p->around.slots_left);
	if (p->around.slots_over > 0)
		(void)printf("slots     %u are left out, as a job has at most %d workers\n",
		    p->around.slots_over, TR_GROUP_PEERS_MAX);
	(void)printf("links     %s\n", p->around.links_by);
	for (uint32_t i = 0; i < p->result->loser_count && i < 2; i++)
		(void)printf("not       %s: %+.1f %%, %s\n",
		    plan_choice_text(&p->result->losers[i].plan.choice, text),
		    100 * (p->result->losers[i].plan.times.step_s / best->times.step_s - 1),
		    p->result->losers[i].why);
}
