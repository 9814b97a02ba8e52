#include "daemon/plan/remesh.h"

#include <assert.h>

#include "daemon/plan/job_mesh.h"
#include "daemon/plan/ranks.h"
#include "daemon/plan/strict.h"

enum { DOUBLED_MOST = 3 };

static bool replica_fits(const struct mesh *mesh, uint32_t contributors)
{
	return ranks_shards(mesh) <= contributors;
}

/* With as many replicas as the job's workers make. */
static struct mesh with_shards(const struct remesh *rules, uint32_t pp, uint32_t tp)
{
	uint64_t replicas = mesh_workers(&rules->job) / (pp * tp);

	if (rules->sequences > 0 && replicas > rules->sequences)
		replicas = rules->sequences;
	if (rules->strict && replicas > strict_batch_parts(rules->sequences))
		replicas = strict_batch_parts(rules->sequences);
	if (rules->strict)
		replicas = strict_power_of_two((uint32_t)replicas);
	return (struct mesh){
		.size = { [MESH_DP] = (uint32_t)replicas, [MESH_PP] = pp, [MESH_TP] = tp }
	};
}

struct mesh remesh_best(const struct remesh *rules, uint32_t contributors)
{
	struct mesh best = with_shards(rules, 1, 1);

	assert(contributors > 0);
	if (replica_fits(&rules->job, contributors))
		return rules->job;
	for (uint32_t tp = rules->job.size[MESH_TP]; tp >= 1; tp--)
		for (uint32_t pp = rules->job.size[MESH_PP]; pp >= 1; pp--) {
			struct mesh mesh = with_shards(rules, pp, tp);
			if (rules->strict && strict_width_parts(rules->config) % tp != 0)
				continue;
			if (!job_mesh_rounds_fit(&rules->apart, &mesh, rules->sequences))
				continue;
			if (ranks_shards(&mesh) > ranks_shards(&best) &&
			    replica_fits(&mesh, contributors) &&
			    job_mesh_allows(rules->config, &mesh, NULL) == TR_OK)
				best = mesh;
		}
	return best;
}

static bool is_better(const struct remesh *rules, const struct mesh *mesh, uint32_t contributors,
    struct mesh *best)
{
	*best = remesh_best(rules, contributors);
	return ranks_shards(best) > ranks_shards(mesh);
}

static uint64_t settled_rounds(const struct remesh *rules, const struct remesh_counts *counts)
{
	uint64_t rounds = rules->apart.spec != NULL ? REMESH_SETTLED_MERGES : REMESH_SETTLED_ROUNDS;
	uint64_t doubled = counts->smaller > 0 ? counts->smaller - 1 : 0;

	return rounds << (doubled < DOUBLED_MOST ? doubled : DOUBLED_MOST);
}

bool remesh_next(const struct remesh *rules, const struct mesh *mesh, uint32_t contributors,
    const struct remesh_counts *counts, struct mesh *next)
{
	struct mesh best;

	if (contributors == 0 || rules->wait_rounds == 0)
		return false;
	bool better = is_better(rules, mesh, contributors, &best);
	if (!replica_fits(mesh, contributors)
	        ? counts->waited < rules->wait_rounds
	        : !better || counts->declined > 0 || counts->better < settled_rounds(rules, counts))
		return false;
	*next = best;
	return true;
}

void remesh_count(const struct remesh *rules, const struct mesh *mesh, uint32_t contributors,
    struct remesh_counts *counts)
{
	struct mesh best;
	bool fits = replica_fits(mesh, contributors);

	counts->waited = fits ? 0 : counts->waited + 1;
	counts->better = fits && is_better(rules, mesh, contributors, &best) ? counts->better + 1
	                                                                     : 0;
	counts->declined = counts->better > 0 ? counts->declined : 0;
}

void remesh_decline(struct remesh_counts *counts)
{
	counts->declined = 1;
}

void remesh_changed(const struct mesh *mesh, const struct mesh *next, struct remesh_counts *counts)
{
	counts->smaller += ranks_shards(next) < ranks_shards(mesh);
	counts->waited = counts->better = counts->declined = 0;
}
