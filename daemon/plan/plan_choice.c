/* The choices of a search, one after another. */
#include <stdio.h>
#include <string.h>

#include "daemon/plan/plan_search.h"

/* With more workers than these not every dp is tried, but all, one less, halves, and what those make of it that are neither slow nor far. */
#define EVERY_DP_WORKERS 64
#define LEAST_OWNERS     2 /* of a piece of moments: a loss takes nothing with it */

static bool is_dp_tried(const struct plan_layout *l, const struct plan_choice *only,
    const struct plan_choice *choice, uint32_t groups)
{
	uint32_t dp = choice->mesh.size[MESH_DP], pp = choice->mesh.size[MESH_PP],
	         most = groups / pp, good = l->good_workers / choice->mesh.size[MESH_TP];

	if (l->in->cluster->worker_count <= EVERY_DP_WORKERS || dp + 1 >= most ||
	    dp == only->mesh.size[MESH_DP] || dp == good / pp)
		return true;
	for (; most > 0; most /= 2)
		if (dp == most)
			return true;
	return (dp & (dp - 1)) == 0;
}

/* Parts of a strict job's width and batch are dealt evenly, as whole ones. */
static bool is_strict(const struct plan_layout *l, const struct plan_choice *choice)
{
	const struct plan_input *in = l->in;
	uint32_t dp = choice->mesh.size[MESH_DP];

	if (in->batch_parts == 0)
		return true;
	uint32_t part = in->batch / in->batch_parts;
	if (in->batch_parts % dp != 0 || in->width_parts % choice->mesh.size[MESH_TP] != 0)
		return false;
	return choice->sequences <= part &&
	    (choice->chunks == 1 ||
	        (part + choice->sequences - 1) / choice->sequences >= choice->mesh.size[MESH_PP]);
}

/* A job's replicas cut their shares into microbatches of at most so many sequences: the last has what is left. Interleaved stages want one for each stage. */
static bool is_share_cut(const struct plan_layout *l, const struct plan_choice *choice)
{
	uint32_t dp = choice->mesh.size[MESH_DP], least = l->in->batch / dp;

	if (dp > l->in->batch || choice->sequences > (l->in->batch + dp - 1) / dp)
		return false;
	return choice->chunks == 1 ||
	    (least + choice->sequences - 1) / choice->sequences >= choice->mesh.size[MESH_PP];
}

/* Where the job says how many layers each pipeline rank has, there is one for each chunk. */
static bool is_dealt(const struct plan_layout *l, const struct plan_choice *choice)
{
	struct dealing dealt;

	if (l->in->dealt == NULL)
		return true;
	dealing_on(l->in->dealt, &choice->mesh, &dealt);
	const uint32_t *layers = dealing_layers(&dealt);
	for (uint32_t rank = 0; layers != NULL && rank < choice->mesh.size[MESH_PP]; rank++)
		if (layers[rank] < choice->chunks)
			return false;
	return true;
}

/* Where the job's workers cannot have ranks there is nothing that needs them. */
static bool is_ranked_or_whole(const struct plan_layout *l, const struct plan_choice *choice)
{
	const uint32_t *size = choice->mesh.size;

	return !plan_input_is_unranked(l->in, &choice->mesh) ||
	    (size[MESH_PP] == 1 && size[MESH_TP] == 1 && choice->owners == 0 && !l->in->ranked);
}

static bool is_possible(const struct plan_layout *l, const struct plan_choice *only,
    const struct plan_choice *choice)
{
	uint32_t tp = choice->mesh.size[MESH_TP], pp = choice->mesh.size[MESH_PP],
	         dp = choice->mesh.size[MESH_DP];
	uint32_t groups = l->in->cluster->worker_count / tp,
	         microbatches = l->in->batch / choice->sequences;
	bool interleaved = choice->kind == SCHEDULE_INTERLEAVED;

	if (microbatches > TR_SCHEDULE_MICROBATCHES_MAX ||
	    pp * choice->chunks > l->in->model->layers || dp * pp > groups ||
	    dp * pp * tp < l->in->min_nodes)
		return false;
	if (!is_strict(l, choice) || !is_dealt(l, choice) || !is_ranked_or_whole(l, choice) ||
	    plan_layout_cost(l, choice, NULL) == NULL)
		return false;
	if (l->in->runnable ? !is_share_cut(l, choice) : l->in->batch % choice->sequences != 0)
		return false;
	/* One rank has one order. */
	if ((pp == 1 && choice->kind != SCHEDULE_1F1B) || interleaved != (choice->chunks > 1))
		return false;
	return (l->in->runnable || microbatches >= dp * (interleaved ? pp : 1)) &&
	    is_dp_tried(l, only, choice, groups);
}

/* R of ZeRO-1: what the job asks for, else none, or two where that is fewer than all. */
static uint32_t first_owners(const struct plan_layout *l, uint32_t dp)
{
	uint32_t asked = dp > 1 ? l->in->owners : 0;

	return asked < dp ? asked : dp;
}

static bool turn_owners(const struct plan_layout *l, struct plan_choice *choice)
{
	uint32_t dp = choice->mesh.size[MESH_DP], first = first_owners(l, dp);

	/* Replicas that train apart have moments of their own. */
	if (first == 0 && choice->owners == 0 && dp > LEAST_OWNERS && !l->in->apart.on) {
		choice->owners = LEAST_OWNERS;
		return true;
	}
	choice->owners = first;
	return false;
}

/* Where costs were measured with sequence parallelism there is no other. */
static bool turn_rows(const struct plan_layout *l, struct plan_choice *choice)
{
	bool splits = choice->mesh.size[MESH_TP] > 1, always = l->in->costs->sequence_parallel;

	choice->own_rows = splits && (always || !choice->own_rows);
	return choice->own_rows && !always;
}

/* Behind those that are always tried comes what is asked for; then it begins anew. */
static uint32_t next_chunks(const struct plan_choice *only, uint32_t chunks)
{
	if (chunks < PLAN_CHUNKS_TRIED)
		return chunks + 1;
	return chunks == PLAN_CHUNKS_TRIED && only->chunks > PLAN_CHUNKS_TRIED ? only->chunks : 1;
}

/* Like an odometer, from the least wheel on. */
static bool turn(const struct plan_layout *l, const struct plan_choice *only, uint32_t *cost,
    struct plan_choice *choice)
{
	uint32_t *size = choice->mesh.size;
	uint32_t groups = l->in->cluster->worker_count / l->in->costs->at[*cost].tp;

	if (turn_owners(l, choice) || turn_rows(l, choice))
		return true;
	choice->recompute = !choice->recompute;
	if (choice->recompute)
		return true;
	choice->kind = (enum schedule_kind)((choice->kind + 1) % SCHEDULE_KINDS);
	if (choice->kind != 0)
		return true;
	choice->chunks = next_chunks(only, choice->chunks);
	if (choice->chunks != 1)
		return true;
	if (size[MESH_PP] > 0 && ++size[MESH_DP] * size[MESH_PP] <= groups)
		return true;
	size[MESH_DP] = 1;
	if (++size[MESH_PP] <= groups && size[MESH_PP] <= l->in->model->layers)
		return true;
	size[MESH_PP] = 1;
	while (++*cost < l->in->costs->count)
		if (l->derived[*cost].possible &&
		    l->in->costs->at[*cost].tp <= l->in->cluster->worker_count)
			break;
	return *cost < l->in->costs->count;
}

/* Of a mesh that was turned to its owners and rows are those that come first. */
static void begin_mesh(const struct plan_layout *l, struct plan_choice *choice)
{
	if (l->in->owners > 0)
		choice->owners = first_owners(l, choice->mesh.size[MESH_DP]);
	if (l->in->costs->sequence_parallel)
		choice->own_rows = choice->mesh.size[MESH_TP] > 1;
}

bool plan_choice_next(const struct plan_layout *l, const struct plan_choice *only,
    struct plan_choice *choice)
{
	const struct plan_costs *costs = l->in->costs;
	uint32_t cost = 0;

	if (choice->chunks == 0) {
		while (cost < costs->count &&
		    (!l->derived[cost].possible ||
		        costs->at[cost].tp > l->in->cluster->worker_count))
			cost++;
		if (cost == costs->count)
			return false;
		*choice = (struct plan_choice){ .mesh = { { 1, 1, 1 } }, .chunks = 1 };
	} else {
		while (costs->at[cost].tp != choice->mesh.size[MESH_TP] ||
		    costs->at[cost].sequences != choice->sequences)
			cost++;
		if (!turn(l, only, &cost, choice))
			return false;
	}
	for (;;) {
		choice->mesh.size[MESH_TP] = costs->at[cost].tp;
		choice->sequences = costs->at[cost].sequences;
		begin_mesh(l, choice);
		if (is_possible(l, only, choice))
			return true;
		if (!turn(l, only, &cost, choice))
			return false;
	}
}

bool plan_choice_is_wanted(const struct plan_search_settings *settings,
    const struct plan_choice *choice)
{
	const struct plan_choice *only = &settings->only;

	if (settings->is_wanted != NULL && !settings->is_wanted(settings->arg, choice))
		return false;
	if (settings->exact &&
	    (only->own_rows != choice->own_rows || only->owners != choice->owners))
		return false;
	if (settings->whole &&
	    (choice->mesh.size[MESH_PP] > 1 || choice->mesh.size[MESH_TP] > 1 || choice->owners > 0))
		return false;
	for (unsigned axis = 0; axis < MESH_AXES; axis++)
		if (only->mesh.size[axis] != 0 && only->mesh.size[axis] != choice->mesh.size[axis])
			return false;
	if (settings->exact && (only->kind != choice->kind || only->chunks != choice->chunks))
		return false;
	return (only->sequences == 0 || only->sequences == choice->sequences) &&
	    (only->recompute ? choice->recompute : !settings->exact || !choice->recompute);
}

const char *plan_choice_text(const struct plan_choice *choice, char text[PLAN_CHOICE_TEXT_MAX])
{
	const uint32_t *size = choice->mesh.size;
	char schedule[48] = "", chunks[24] = "", owners[24] = "";

	if (choice->chunks > 1)
		(void)snprintf(chunks, sizeof(chunks), " in %u chunks", choice->chunks);
	if (size[MESH_PP] > 1)
		(void)snprintf(schedule, sizeof(schedule), ", %s%s",
		    schedule_kind_name(choice->kind), chunks);
	if (choice->owners > 0)
		(void)snprintf(owners, sizeof(owners), ", %u owners", choice->owners);
	(void)snprintf(text, PLAN_CHOICE_TEXT_MAX, "dp %u x pp %u x tp %u%s, microbatch %u%s%s%s",
	    size[MESH_DP], size[MESH_PP], size[MESH_TP], schedule, choice->sequences,
	    choice->own_rows ? ", sequence parallel" : "", choice->recompute ? ", recomputed" : "",
	    owners);
	return text;
}
