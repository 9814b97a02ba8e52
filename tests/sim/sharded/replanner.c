/* Another plan in the middle of a job (daemon/worker/replanner.h): instead of the best one any that can be, drawn from the seed, after a while; or none. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/plan/job_mesh.h"
#include "tests/sim/sharded/play.h"

#define NOW_NS 1000000000u

struct replanner {
	struct tr_group *group;
	const struct model_config *config;
	struct replan_task task;
	bool started;
	uint64_t polls; /* until it is found */
};

tr_status replanner_create(const Traind__V1__JobSpec *job, const struct model_config *whole,
    uint64_t batch, uint64_t micro, struct replanner **planner, struct tr_error *error)
{
	struct tr_group *g = group_inside();
	(void)job;
	(void)batch;
	(void)micro;
	*planner = NULL;
	if (!g->play->what.replans)
		return TR_OK;
	*planner = calloc(1, sizeof(**planner));
	if (*planner == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a planner");
	**planner = (struct replanner){ .group = g, .config = whole };
	return TR_OK;
}

void replanner_destroy(struct replanner *planner)
{
	free(planner);
}

/* Of some meshes too much, of whatever else is asked of the same one too. */
bool replanner_memory(struct replanner *planner, const struct mesh *mesh, uint64_t *bytes,
    uint64_t *room)
{
	const uint32_t *size = mesh->size;
	*bytes = (planner->group->sim->seed + size[MESH_PP] + 3 * size[MESH_TP]) % 3;
	*room = 1;
	return true;
}

/* What each says has to come to who searches as it was said. */
static int64_t figure_of(uint64_t peer, unsigned which)
{
	return (int64_t)(1000 * peer + which + 1);
}

void replanner_say(struct replanner *planner, tr_group *group, const struct dealing *dealing,
    const struct ranks *ranks, uint32_t self, double computed_s, struct replan_figures *figures)
{
	uint64_t peer = ranks->peers[self].peer;
	bool same = ranks_same(&group->trainer->sharded->state->ranks, ranks);
	(void)planner;
	if (!mesh_equal(&dealing->mesh, &ranks->mesh) ||
	    (same && computed_s > 0 && ranks->peers[self].rank == RANKS_NONE))
		sim_violation(group->sim, "S1: n%u computed %g s of rank %u", group->number,
		    computed_s, ranks->peers[self].rank);
	figures->speed_ppm = figure_of(peer, 0);
	figures->node = figure_of(peer, 1);
	for (uint32_t i = 0; i < ranks->count; i++)
		figures->bandwidth[i] = figure_of(peer, 2 + i);
}

void replanner_start(struct replanner *planner, const struct replan_task *task)
{
	struct tr_group *g = planner->group;
	const struct ranks *ranks = &g->trainer->sharded->next;
	for (uint32_t i = 0; i < task->count; i++) {
		uint64_t peer = ranks->peers[i].peer;
		if (task->figures[i].speed_ppm != figure_of(peer, 0) ||
		    task->figures[i].bandwidth[task->count - 1] != figure_of(peer, 1 + task->count))
			sim_violation(g->sim, "S1: n%u knows other figures of peer %lu", g->number,
			    (unsigned long)peer);
	}
	planner->task = *task;
	planner->started = true;
	for (uint64_t i = 0; i < g->play->what.draws_before; i++)
		(void)sim_draw(g->sim, 2);
	planner->polls = sim_draw(g->sim, 3);
}

static struct mesh draw_mesh(const struct replanner *planner)
{
	struct sim *sim = planner->group->sim;
	for (;;) {
		struct mesh mesh;
		for (unsigned axis = 0; axis < MESH_AXES; axis++)
			mesh.size[axis] = 1 + (uint32_t)sim_draw(sim, planner->task.count);
		if (mesh_workers(&mesh) <= planner->task.count &&
		    mesh.size[MESH_DP] <= PLAY_BATCH &&
		    mesh.size[MESH_PP] <= planner->config->layers &&
		    job_mesh_allows(planner->config, &mesh, NULL) == TR_OK)
			return mesh;
	}
}

/* So many to each of `parts`, at least one. */
static void draw_list(struct sim *sim, uint32_t *list, uint32_t parts, uint32_t all)
{
	for (uint32_t i = 0; i < parts; i++)
		list[i] = 1;
	for (uint32_t left = all - parts; left > 0; left--)
		list[sim_draw(sim, parts)]++;
}

/* Ranks over contributors in any order; the rest are spares. */
static void draw_ranks(struct sim *sim, uint32_t workers, uint32_t count, uint32_t *ranks)
{
	assert(count > 0 && workers <= count);
	for (uint32_t i = 0; i < count; i++)
		ranks[i] = RANKS_NONE;
	for (uint32_t rank = 0; rank < workers; rank++) {
		uint32_t at = (uint32_t)sim_draw(sim, count);
		while (ranks[at] != RANKS_NONE)
			at = (at + 1) % count;
		ranks[at] = rank;
	}
}

bool replanner_poll(struct replanner *planner, struct wish *wish)
{
	struct tr_group *g = planner->group;
	struct sim *sim = g->sim;
	if (!planner->started || planner->polls-- > 0)
		return false;
	planner->started = false;
	uint32_t *size = wish->dealing.mesh.size;
	uint64_t what = sim_draw(sim, 8);
	*wish = (struct wish){ .kind = what == 0 ? WISH_STAY
		    : what == 1                  ? WISH_FAILED
		                                 : WISH_CHANGE,
		.dealing = { .mesh = draw_mesh(planner) },
		.now_ns = NOW_NS,
		/* now and then it is not worth it */
		.next_ns = what == 2 ? NOW_NS - NOW_NS / 20 : NOW_NS / 2 };
	draw_ranks(sim, mesh_workers(&wish->dealing.mesh), planner->task.count, wish->ranks);
	if (sim_draw(sim, 2) == 0 && size[MESH_DP] > 1)
		draw_list(sim, wish->dealing.shares, size[MESH_DP], PLAY_BATCH);
	if (sim_draw(sim, 2) == 0 && size[MESH_PP] > 1)
		draw_list(sim, wish->dealing.layers, size[MESH_PP], planner->config->layers);
	g->play->wishes += wish->kind == WISH_CHANGE;
	return true;
}
