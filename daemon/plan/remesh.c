#include "daemon/plan/remesh.h"

#include <assert.h>

#include "daemon/plan/job_mesh.h"
#include "daemon/plan/strict.h"

enum { DOUBLED_MOST = 3 };

static bool fits(const struct remesh_shape *shape, uint32_t contributors)
{
	return ranks_shards(&shape->mesh) * shape->copies <= contributors;
}

/* With as many replicas as the job's workers make, of as many copies as there are contributors for. */
static struct remesh_shape with_shards(const struct remesh *rules, uint32_t contributors,
    uint32_t pp, uint32_t tp)
{
	uint32_t copies = contributors / (pp * tp);

	if (copies > rules->job.copies)
		copies = rules->job.copies;
	if (copies == 0)
		copies = 1;
	uint64_t replicas = mesh_workers(&rules->job.mesh) / (pp * tp * copies);

	if (rules->sequences > 0 && replicas * copies > rules->sequences)
		replicas = rules->sequences > copies ? rules->sequences / copies : 1;
	if (rules->strict && replicas > strict_batch_parts(rules->sequences))
		replicas = strict_batch_parts(rules->sequences);
	if (rules->strict)
		replicas = strict_power_of_two((uint32_t)replicas);
	return (struct remesh_shape){
		.mesh.size = { [MESH_DP] = (uint32_t)replicas * copies, [MESH_PP] = pp, [MESH_TP] = tp },
		.copies = copies
	};
}

static bool has_room(const struct remesh *rules, const struct remesh_shape *shape,
    uint32_t contributors)
{
	struct mesh there = shape->mesh;
	uint32_t replicas = contributors / ranks_shards(&there);

	if (replicas < there.size[MESH_DP])
		there.size[MESH_DP] = replicas;
	return rules->has_room == NULL || rules->has_room(rules->arg, &there);
}

struct remesh_shape remesh_best(const struct remesh *rules, uint32_t contributors)
{
	struct remesh_shape best = with_shards(rules, contributors, 1, 1), roomy = best;
	const struct mesh *job = &rules->job.mesh;
	bool found = has_room(rules, &best, contributors);

	assert(contributors > 0);
	if (fits(&rules->job, contributors))
		return rules->job;
	for (uint32_t tp = job->size[MESH_TP]; tp >= 1; tp--)
		for (uint32_t pp = job->size[MESH_PP]; pp >= 1; pp--) {
			struct remesh_shape shape = with_shards(rules, contributors, pp, tp);
			if (rules->strict && strict_width_parts(rules->config) % tp != 0)
				continue;
			if (!job_mesh_rounds_fit(&rules->apart, &shape.mesh, shape.copies,
			        rules->sequences))
				continue;
			bool more = ranks_shards(&shape.mesh) > ranks_shards(&best.mesh);
			bool may = more || !found ||
			    ranks_shards(&shape.mesh) > ranks_shards(&roomy.mesh);
			if (!may || !fits(&shape, contributors) ||
			    job_mesh_allows(rules->config, &shape.mesh, NULL) != TR_OK)
				continue;
			if (more)
				best = shape;
			if ((!found || ranks_shards(&shape.mesh) > ranks_shards(&roomy.mesh)) &&
			    has_room(rules, &shape, contributors)) {
				roomy = shape;
				found = true;
			}
		}
	return found ? roomy : best;
}

bool remesh_is_larger(const struct remesh_shape *shape, const struct remesh_shape *than)
{
	uint32_t shards = ranks_shards(&shape->mesh), others = ranks_shards(&than->mesh);

	return shards != others ? shards > others : shape->copies > than->copies;
}

static bool is_better(const struct remesh *rules, const struct remesh_shape *now,
    uint32_t contributors, struct remesh_shape *best)
{
	*best = remesh_best(rules, contributors);
	return remesh_is_larger(best, now);
}

static uint64_t settled_rounds(const struct remesh *rules, const struct remesh_counts *counts)
{
	uint64_t rounds = rules->apart.spec != NULL ? REMESH_SETTLED_MERGES : REMESH_SETTLED_ROUNDS;
	uint64_t doubled = counts->smaller > 0 ? counts->smaller - 1 : 0;

	return rounds << (doubled < DOUBLED_MOST ? doubled : DOUBLED_MOST);
}

bool remesh_next(const struct remesh *rules, const struct remesh_shape *now, uint32_t contributors,
    const struct remesh_counts *counts, struct remesh_shape *next)
{
	struct remesh_shape best;

	if (contributors == 0 || rules->wait_rounds == 0)
		return false;
	bool better = is_better(rules, now, contributors, &best);
	if (!fits(now, contributors)
	        ? counts->waited < rules->wait_rounds
	        : !better || counts->declined > 0 || counts->better < settled_rounds(rules, counts))
		return false;
	*next = best;
	return true;
}

void remesh_count(const struct remesh *rules, const struct remesh_shape *now, uint32_t contributors,
    struct remesh_counts *counts)
{
	struct remesh_shape best;
	bool enough = fits(now, contributors);

	counts->waited = enough ? 0 : counts->waited + 1;
	counts->better = enough && is_better(rules, now, contributors, &best) ? counts->better + 1
	                                                                      : 0;
	counts->declined = counts->better > 0 ? counts->declined : 0;
}

void remesh_nobody_follows(const struct remesh *rules, struct remesh_counts *counts)
{
	if (counts->waited > 0 && counts->waited < rules->wait_rounds)
		counts->waited = rules->wait_rounds;
}

void remesh_decline(struct remesh_counts *counts)
{
	counts->declined = 1;
}

void remesh_changed(const struct remesh_shape *now, const struct remesh_shape *next,
    struct remesh_counts *counts)
{
	counts->smaller += remesh_is_larger(now, next);
	counts->waited = counts->better = counts->declined = 0;
}
