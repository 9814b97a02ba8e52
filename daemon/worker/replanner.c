#include "daemon/worker/replanner.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"

#define PPM 1e6
/* Of a worker that is measured: it may be very quick beside costs of another machine, but not endlessly. */
#define SPEED_MOST 1000.0

/* Every round asks for the same few. */
#define KNOWN_MOST 64

struct known_memory {
	struct mesh mesh;
	bool is_known;
	uint64_t bytes, room;
};

struct replanner {
	struct replan_job job;
	int64_t speed_ppm; /* the newest; 0: not known */

	/* The search under way: the thread's, until `ended` is set. */
	bool runs,
	    waits; /* waits: another one is to begin when it has ended, and what comes of it is of no use */
	pthread_t thread;
	atomic_bool ended;
	struct replan_task task, next;
	struct known_memory known[KNOWN_MOST];
	size_t known_count;
	struct wish wish;
};

tr_status replanner_create(const Traind__V1__JobSpec *job, const struct model_config *whole,
    uint64_t batch, uint64_t micro, struct replanner **planner, struct tr_error *error)
{
	*planner = NULL;
	if (job == NULL || job->plan == NULL || job->plan->basis == NULL)
		return TR_OK;
	struct replanner *p = calloc(1, sizeof(*p));
	if (p == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a planner");
	p->job = (struct replan_job){ .basis = job->plan->basis,
		.mesh = job->mesh,
		.model = whole,
		.batch = (uint32_t)batch,
		.micro = (uint32_t)micro,
		.writes = plan_writes_of(job->train->checkpoint) };
	*planner = p;
	return TR_OK;
}

void replanner_destroy(struct replanner *p)
{
	if (p != NULL && p->runs)
		(void)pthread_join(p->thread, NULL);
	free(p);
}

/* ---- what is measured ---- */

static void say_speed(struct replanner *p, const struct dealing *dealing, const struct ranks *ranks,
    uint32_t self, double computed_s)
{
	struct replan_task task = { .dealing = *dealing, .count = ranks->count };
	for (uint32_t i = 0; i < ranks->count; i++)
		task.ranks[i] = ranks->peers[i].rank;
	double costs_s = replan_computing_s(&p->job, &task, self);
	if (!(costs_s > 0) || !(computed_s > 0))
		return;
	double speed = costs_s / computed_s;
	p->speed_ppm = (int64_t)(PPM * (speed < SPEED_MOST ? speed : SPEED_MOST)) + 1;
}

/* By index of the contributors; what was not measured stays 0. */
static void say_links(tr_group *group, const struct ranks *ranks, int64_t *bandwidth)
{
	struct tr_link *links = calloc(TR_GROUP_PEERS_MAX, sizeof(*links));
	struct tr_error error;
	size_t count = 0;
	if (links == NULL)
		return;
	links[0] = (struct tr_link)TR_LINK_INIT;
	if (tr_links(group, links, TR_GROUP_PEERS_MAX, &count, &error) != TR_OK)
		count = 0; /* nothing is known of them, then */
	for (size_t i = 0; i < count && i < TR_GROUP_PEERS_MAX; i++) {
		uint32_t at = ranks_find(ranks, links[i].peer);
		if (at != RANKS_NONE)
			bandwidth[at] = (int64_t)links[i].bandwidth_bytes_per_s;
	}
	free(links);
}

void replanner_say(struct replanner *p, tr_group *group, const struct dealing *dealing,
    const struct ranks *ranks, uint32_t self, double computed_s, struct replan_figures *figures)
{
	if (ranks->peers[self].rank != RANKS_NONE)
		say_speed(p, dealing, ranks, self, computed_s);
	figures->speed_ppm = p->speed_ppm;
	say_links(group, ranks, figures->bandwidth);
}

static const struct known_memory *memory_of(struct replanner *p, const struct mesh *mesh)
{
	for (size_t i = 0; i < p->known_count; i++)
		if (mesh_equal(&p->known[i].mesh, mesh))
			return &p->known[i];
	if (p->known_count == KNOWN_MOST)
		p->known_count = 0;
	struct known_memory *known = &p->known[p->known_count++];
	*known = (struct known_memory){ .mesh = *mesh };
	known->is_known = replan_memory(&p->job, mesh, &known->bytes, &known->room);
	return known;
}

bool replanner_memory(struct replanner *p, const struct mesh *mesh, uint64_t *bytes, uint64_t *room)
{
	const struct known_memory *known = memory_of(p, mesh);
	*bytes = known->bytes;
	*room = known->room;
	return known->is_known;
}

/* ---- the search ---- */

static void *search(void *arg)
{
	struct replanner *p = arg;
	struct tr_error error = { .text = "" };
	if (replan_search(&p->job, &p->task, &p->wish, &error) != TR_OK)
		log_warn("trainer", "no other plan is found: %s", error.text);
	atomic_store(&p->ended, true);
	return NULL;
}

/* What the search goes by, for who wonders at what it found. */
static void log_figures(const struct replan_task *task)
{
	char speeds[REPLAN_PEERS_MAX * sizeof(" 100000%")] = "";
	size_t used = 0;
	uint32_t from = 0, to = 0;
	int64_t least = 0;
	for (uint32_t i = 0; i < task->count; i++) {
		const struct replan_figures *of = &task->figures[i];
		if (used < sizeof(speeds))
			used += (size_t)(of->speed_ppm == 0
			        ? snprintf(speeds + used, sizeof(speeds) - used, " ?")
			        : snprintf(speeds + used, sizeof(speeds) - used, " %lld%%",
			              (long long)(of->speed_ppm / 10000)));
		for (uint32_t k = 0; k < task->count; k++) {
			if (of->bandwidth[k] == 0 || (least > 0 && of->bandwidth[k] >= least))
				continue;
			least = of->bandwidth[k];
			from = i;
			to = k;
		}
	}
	log_info("trainer",
	    "another plan is looked for: contributors compute at%s of the speed where layers were "
	    "measured (?: not known); the slowest measured link is from contributor %u to "
	    "contributor %u, %.3g MB/s (0: none is)",
	    speeds, from, to, 1e-6 * (double)least);
}

static void begin(struct replanner *p)
{
	log_figures(&p->next);
	p->task = p->next;
	p->waits = false;
	p->wish = (struct wish){ .kind = WISH_FAILED };
	atomic_store(&p->ended, false);
	p->runs = pthread_create(&p->thread, NULL, search, p) == 0;
	if (p->runs)
		return;
	log_warn("trainer", "no other plan is found: no thread to search in");
	p->runs = false;
	atomic_store(&p->ended, true);
}

void replanner_start(struct replanner *p, const struct replan_task *task)
{
	p->next = *task;
	if (p->runs)
		p->waits = true;
	else
		begin(p);
}

bool replanner_poll(struct replanner *p, struct wish *wish)
{
	if (!atomic_load(&p->ended))
		return false;
	if (p->runs)
		(void)pthread_join(p->thread, NULL);
	p->runs = false;
	if (p->waits) {
		begin(p);
		return false;
	}
	atomic_store(&p->ended, false);
	*wish = p->wish;
	return true;
}
