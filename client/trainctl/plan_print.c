#include "client/trainctl/plan_print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainctl/plan_view.h"
#include "client/trainctl/print.h"
#include "daemon/plan/plan_loss.h"
#include "daemon/plan/plan_memory.h"
#include "daemon/plan/plan_predict.h"

#define BAR_CELLS 10 /* a row has place in 80 columns */

static const char *seconds(double s, char text[PRINT_FIGURE_MAX])
{
	if (s < 1e-3)
		(void)snprintf(text, PRINT_FIGURE_MAX, "%.0f us", 1e6 * s);
	else if (s < 1)
		(void)snprintf(text, PRINT_FIGURE_MAX, "%.3g ms", 1e3 * s);
	else
		(void)snprintf(text, PRINT_FIGURE_MAX, "%.4g s", s);
	return text;
}

/* "0-3", or "0-1 6-7" of two chunks. */
static const char *layers_text(const struct plan_view *v, uint32_t stage_rank,
    char text[PRINT_FIGURE_MAX * 2])
{
	uint32_t first = 0;
	size_t used = 0;
	text[0] = '\0';
	uint32_t ranks = v->pp > 1 ? v->pp : 1; /* for the analyzer, which thinks of 0 */
	for (uint32_t stage = 0; stage < ranks * v->best->choice.chunks; stage++) {
		uint32_t count = v->best->layers_of[stage];
		if (stage % ranks == stage_rank && used < PRINT_FIGURE_MAX)
			used += (size_t)snprintf(text + used, PRINT_FIGURE_MAX * 2 - used,
			    "%s%u-%u", used > 0 ? " " : "", first, first + count - 1);
		first += count;
	}
	return text;
}

static const char *bar(double part, char text[BAR_CELLS + 1])
{
	int full = (int)lround(fmin(part, 1) * BAR_CELLS);
	for (int i = 0; i < BAR_CELLS; i++)
		text[i] = i < full ? '#' : '.';
	text[BAR_CELLS] = '\0';
	return text;
}

/* `heads` ends with NULL. */
static void print_heads(struct print_table *table, const char *const *heads)
{
	for (size_t i = 0; heads[i] != NULL; i++)
		print_cell(table, "%s", heads[i]);
}

/* Replicas that train apart. */
static void print_sync(const struct plan_view *v)
{
	const struct plan_apart *apart = &v->p->in->apart;
	char every[64];
	if (v->p->rare == NULL)
		return;
	if (!apart->on) {
		(void)printf("sync      %s: times, bytes and memory are those of ddp; its replicas "
		             "merge now and then instead, and hold outer parameters besides "
		             "(docs/limits.md)\n",
		    v->p->rare);
		return;
	}
	if (apart->steps > 0)
		(void)snprintf(every, sizeof(every), "%.0f steps", apart->steps);
	else
		(void)snprintf(every, sizeof(every), "%g s", apart->seconds);
	(void)printf("sync      %s: replicas train apart and merge every %s, %.2g bytes of each "
	             "parameter%s; fewer replicas learn more of each token "
	             "(docs/low-communication.md)\n",
	    v->p->rare, every, apart->wire_bytes, apart->behind ? ", and train on meanwhile" : "");
}

static void print_given(const struct plan_view *v)
{
	const struct plan_input *in = v->p->in;
	const struct model_config *m = in->model;
	(void)printf("model     %s, %u layers x %u, %.4g million parameters; %u sequences of %u "
	             "tokens a "
	             "step\n",
	    model_architecture(m->preset)->name, m->layers, m->width,
	    1e-6 * (double)model_config_parameters(m), in->batch, in->sequence_length);
	(void)printf("cluster   %u node%s, %u worker%s of %u thread%s", in->cluster->node_count,
	    in->cluster->node_count == 1 ? "" : "s", in->cluster->worker_count,
	    in->cluster->worker_count == 1 ? "" : "s", v->p->threads,
	    v->p->threads == 1 ? "" : "s");
	if (v->p->slots_left > 0)
		(void)printf("; slots left out, as their hosts lack cores for them: %u",
		    v->p->slots_left);
	if (v->p->slots_over > 0)
		(void)printf("; slots left out, as a job has at most %d workers: %u",
		    TR_GROUP_PEERS_MAX, v->p->slots_over);
	(void)printf("\nlayers    %s\nlinks     %s\n", v->p->layers_by, v->p->links_by);
	print_sync(v);
	if (!in->runnable)
		(void)printf("plans     of any kind: jobs deal a worker's layers evenly over its "
		             "chunks, and cut shares into microbatches\n");
	(void)printf("\n");
}

static void print_step(const struct plan_view *v)
{
	const struct plan_times *t = &v->best->times;
	const struct {
		const char *name;
		double s;
	} parts[] = { { "layers", t->compute_s }, { "sums over tp", t->exchange_s },
		{ "bubble and waiting", t->idle_s },
		{ v->p->in->apart.on ? "merges" : "gradients over dp, not hidden", t->reduce_s },
		{ "update and commit", t->update_s } };
	char text[PLAN_CHOICE_TEXT_MAX], figure[PRINT_FIGURE_MAX], rate[PRINT_FIGURE_MAX];
	(void)printf("plan      %s\n", plan_choice_text(&v->best->choice, text));
	(void)printf("step      %s, %s tokens/s:", seconds(t->step_s, figure),
	    print_rate(plan_view_tokens_per_s(v, v->best), rate));
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (parts[i].s > 0.0005 * t->step_s)
			(void)printf("%s %s %.1f %%", i > 0 ? "," : "", parts[i].name,
			    100 * parts[i].s / t->step_s);
	(void)printf("\n\n");
}

static void print_key(struct json *json, const char *key, bool first)
{
	size_t name = strcspn(key, "=");
	(void)json;
	(void)printf("%s%.*s: %s", first ? "" : ", ", (int)name, key, key + name + 1);
}

static void print_keys(const struct plan_view *v)
{
	(void)printf("keys      ");
	uint32_t uneven = plan_view_keys(v, print_key, NULL);
	if (uneven > 0)
		(void)
		    printf("\n          no keys place %u workers on %u nodes as unevenly as this; "
		           "`mesh: auto` does",
		        v->dp * v->pp * v->tp, uneven);
	(void)printf("\n\n");
}

static void print_writer(const struct plan_view *v)
{
	char more[PRINT_FIGURE_MAX], all[PRINT_FIGURE_MAX], has[PRINT_FIGURE_MAX];
	uint64_t bytes = plan_writer_bytes(v->layout, v->best, v->p->saves),
	         there = plan_view_worker(v, 0)->memory_bytes;
	if (bytes == 0)
		return;
	(void)printf("who writes a checkpoint takes %s more: rank 0 then %s of %s%s\n",
	    print_bytes(bytes, more), print_bytes(plan_view_writer(v), all),
	    print_bytes(there, has),
	    plan_view_writer(v) > there
	        ? ": TOO MUCH, the job would end without its last one (docs/limits.md)"
	        : "");
}

/* Where a step is shortest a stage's workers may be neighbours; who can lose a node wants to know. Of one node there is nothing to say. */
static void print_losses(const struct plan_view *v)
{
	const struct plan_cluster *c = v->p->in->cluster;
	const char *before = "without ";
	bool several = false;
	for (uint32_t rank = 1; rank < v->dp * v->pp * v->tp; rank++)
		several = several ||
		    plan_view_worker(v, rank)->node != plan_view_worker(v, 0)->node;
	for (uint32_t node = 0; several && node < c->node_count; node++) {
		if (!plan_loss_goes_back(c, v->best, node))
			continue;
		(void)printf("%s%s", before, plan_view_node(v, node));
		before = " or ";
	}
	if (*before == ' ')
		(void)printf(
		    " training goes back to the newest checkpoint: no other node holds all that it "
		    "does\n");
}

static void print_ranks(const struct plan_view *v)
{
	static const char *const heads[] = { "RANK", "NODE", "REPLICA", "STAGE", "SHARD", "LAYERS",
		"MICROBATCHES", "MEMORY", "OF", "", NULL };
	struct print_table table = { .columns = 10 };
	char layers[PRINT_FIGURE_MAX * 2] = "", needs[PRINT_FIGURE_MAX], has[PRINT_FIGURE_MAX],
	                               cells[BAR_CELLS + 1];
	print_heads(&table, heads);
	for (uint32_t rank = 0; rank < v->dp * v->pp * v->tp; rank++) {
		struct mesh_at at = mesh_at(&v->best->choice.mesh, rank);
		const struct plan_worker *worker = plan_view_worker(v, rank);
		uint64_t bytes = plan_rank_bytes(v->layout, v->best, at.at[MESH_PP], &v->schedule);
		print_cell(&table, "%u", rank);
		print_cell(&table, "%s", plan_view_node(v, worker->node));
		print_cell(&table, "%u", at.at[MESH_DP]);
		print_cell(&table, "%u", at.at[MESH_PP]);
		print_cell(&table, "%u/%u", at.at[MESH_TP] + 1, v->tp);
		print_cell(&table, "%s", layers_text(v, at.at[MESH_PP], layers));
		print_cell(&table, "%u", v->best->microbatches_of[at.at[MESH_DP]]);
		print_cell(&table, "%s", print_bytes(bytes, needs));
		print_cell(&table, "%s", print_bytes(worker->memory_bytes, has));
		print_cell(&table, "%s", bar((double)bytes / (double)worker->memory_bytes, cells));
	}
	print_table_out(&table, v->p->color);
	print_writer(v);
	print_losses(v);
	uint32_t idle = v->p->in->cluster->worker_count - v->dp * v->pp * v->tp;
	if (idle > 0) {
		(void)printf("without a rank:");
		for (uint32_t i = 0; i < idle; i++)
			(void)printf("%s a worker of %s", i > 0 ? "," : "",
			    plan_view_node(v, plan_view_worker(v, v->dp * v->pp * v->tp + i)->node));
		(void)printf("\n");
	}
	(void)printf("\n");
}

/* A card of `node` as a host, or its cable as a site; UINT32_MAX: nothing is to be said of it. */
static void print_shared(const struct plan_view *v, uint32_t link, uint32_t node, bool in,
    const char *others, struct print_table *table)
{
	char bytes[PRINT_FIGURE_MAX], takes[PRINT_FIGURE_MAX];
	if (link == UINT32_MAX)
		return;
	print_cell(table, "%s", in ? others : plan_view_node(v, node));
	print_cell(table, "%s", in ? plan_view_node(v, node) : others);
	print_cell(table, "%s", print_bytes((uint64_t)v->layout->bytes[link], bytes));
	print_cell(table, "%s",
	    seconds(v->layout->bytes[link] / plan_layout_bandwidth(v->layout, link), takes));
}

static void print_links(const struct plan_view *v)
{
	static const char *const heads[] = { "FROM", "TO", "A STEP", "TAKES", NULL };
	const struct plan_cluster *c = v->p->in->cluster;
	struct print_table table = { .columns = 4 };
	char bytes[PRINT_FIGURE_MAX], takes[PRINT_FIGURE_MAX];
	print_heads(&table, heads);
	for (uint32_t i = 0; i < c->node_count * c->node_count; i++) {
		if (v->layout->bytes[i] <= 0)
			continue;
		uint32_t from = i / c->node_count, to = i % c->node_count;
		print_cell(&table, "%s", plan_view_node(v, from));
		print_cell(&table, "%s", from == to ? "(inside)" : plan_view_node(v, to));
		print_cell(&table, "%s", print_bytes((uint64_t)v->layout->bytes[i], bytes));
		print_cell(&table, "%s",
		    seconds(v->layout->bytes[i] / c->links[i].bandwidth_bytes_per_s, takes));
	}
	for (uint32_t i = 0; i < 2 * c->node_count; i++)
		print_shared(v, plan_view_card(v, i / 2, i % 2 == 1), i / 2, i % 2 == 1, "(others)",
		    &table);
	for (uint32_t i = 0; i < 2 * c->node_count; i++)
		print_shared(v, plan_view_cable(v, i / 2, i % 2 == 1), i / 2, i % 2 == 1,
		    "(other sites)", &table);
	if (table.cells > table.columns) {
		print_table_out(&table, v->p->color);
		(void)printf("\n");
	} else {
		table.cells = 0;
		(void)printf("nothing goes over any link\n\n");
	}
}

static void print_others(const struct plan_view *v)
{
	static const char *const heads[] = { "OTHERS", "STEP", "LONGER", "WHY NOT", NULL };
	struct print_table table = { .columns = 4 };
	char text[PLAN_CHOICE_TEXT_MAX], figure[PRINT_FIGURE_MAX];
	print_heads(&table, heads);
	for (uint32_t i = 0; i < v->p->result->loser_count; i++) {
		const struct plan_loser *loser = &v->p->result->losers[i];
		print_cell(&table, "%s", plan_choice_text(&loser->plan.choice, text));
		print_cell(&table, "%s", seconds(loser->plan.times.step_s, figure));
		print_cell(&table, "%+.1f %%",
		    100 * (loser->plan.times.step_s / v->best->times.step_s - 1));
		print_cell(&table, "%s", loser->why);
	}
	if (v->p->result->loser_count > 0)
		print_table_out(&table, v->p->color);
	const struct plan_result *r = v->p->result;
	uint32_t estimated = r->choices - r->bounded - r->needless;
	(void)
	    printf("%s%u choices: %u left by a bound on their time, %u that save memory which "
	           "is not lacking, %u placed once to estimate them; of these %u did not fit into "
	           "memory so, and %u were placed by annealing and timed\n",
	        r->loser_count > 0 ? "\n" : "", r->choices, r->bounded, r->needless, estimated,
	        r->unfit, r->annealed);
}

static void print_pareto(const struct plan_view *v)
{
	static const char *const heads[] = { "LESS MEMORY", "STEP", "MEMORY OF A WORKER",
		"OF WHO WRITES A CHECKPOINT", NULL };
	struct print_table table = { .columns = 4 };
	char text[PLAN_CHOICE_TEXT_MAX], figure[PRINT_FIGURE_MAX], bytes[PRINT_FIGURE_MAX];
	print_heads(&table, heads);
	for (uint32_t i = 0; i < v->p->result->pareto_count; i++) {
		const struct plan *plan = &v->p->result->pareto[i];
		print_cell(&table, "%s", plan_choice_text(&plan->choice, text));
		print_cell(&table, "%s", seconds(plan->times.step_s, figure));
		print_cell(&table, "%s", print_bytes(plan->memory_bytes, bytes));
		print_cell(&table, "%s",
		    plan->writer_bytes > 0 ? print_bytes(plan->writer_bytes, bytes) : "-");
	}
	(void)printf("\n");
	print_table_out(&table, v->p->color);
}

tr_status plan_print_people(const struct plan_print *print, struct tr_error *error)
{
	struct plan_view v;
	tr_status st = plan_view_init(&v, print, error);
	if (st != TR_OK)
		return st;
	print_given(&v);
	print_step(&v);
	print_keys(&v);
	print_ranks(&v);
	print_links(&v);
	print_others(&v);
	if (print->pareto)
		print_pareto(&v);
	plan_view_finish(&v);
	return TR_OK;
}
