#include "daemon/plan/job_mesh.h"

#include <string.h>

#include "daemon/plan/job_options.h"
#include "daemon/plan/job_sync.h"
#include "daemon/plan/strategy.h"

static uint32_t at_least_one(uint32_t number)
{
	return number > 0 ? number : 1;
}

struct mesh job_mesh(const Traind__V1__Mesh *m)
{
	struct mesh mesh = { .size = { [MESH_DP] = 1, [MESH_PP] = 1, [MESH_TP] = 1 } };

	if (m == NULL)
		return mesh;
	mesh.size[MESH_TP] = at_least_one(m->tp);
	mesh.size[MESH_PP] = at_least_one(m->pp);
	mesh.size[MESH_DP] = at_least_one(m->workers / (mesh.size[MESH_TP] * mesh.size[MESH_PP]));
	return mesh;
}

bool job_mesh_is_sharded(const Traind__V1__Mesh *m)
{
	return m != NULL && (m->tp > 1 || m->pp > 1);
}

static tr_status check_split(const Traind__V1__JobSpec *spec, struct tr_error *error)
{
	struct mesh mesh = job_mesh(spec->mesh);
	struct model_config config;
	struct strategy strategy;
	tr_status status = job_model_config(spec->train->model, &config, error);

	if (status != TR_OK)
		return status;
	config.vocab = strategy_padded_vocab(config.vocab, mesh.size[MESH_TP]);
	strategy_megatron(&config, &mesh, &strategy);
	strategy.sequences = mesh.size[MESH_DP];
	strategy.sequence_length = config.context;
	status = strategy_check(&config, &strategy, error);
	return status == TR_OK ? TR_OK : tr_error_wrap(error, "mesh.tp");
}

tr_status job_mesh_check(const Traind__V1__JobSpec *spec, struct tr_error *error)
{
	const Traind__V1__Mesh *m = spec->mesh;
	const Traind__V1__Sync *sync = spec->train->sync;

	if (m->pp > 1)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.pp: found %u, allowed: 1, since this version has no pipeline stages",
		    m->pp);
	if (!job_mesh_is_sharded(m))
		return TR_OK;
	if (m->workers % m->tp != 0)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.tp: found %u, allowed: a divisor of the mesh's %u workers", m->tp,
		    m->workers);
	if (job_sync_is_rare(sync))
		return tr_error_set(error, TR_EINVAL,
		    "sync.mode: found %s, allowed: ddp, since mesh.tp is %u", sync->mode, m->tp);
	if (sync != NULL && sync->on_loss != NULL && strcmp(sync->on_loss, "drop") == 0)
		return tr_error_set(error, TR_EINVAL,
		    "sync.on_loss: found drop, allowed: replay, since mesh.tp is %u: without a "
		    "member its whole replica's gradient is missing",
		    m->tp);
	if (m->threads == 0)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.threads: found 0, allowed: at least 1, since mesh.tp is %u: workers that "
		    "share a layer compute with equally many threads",
		    m->tp);
	return check_split(spec, error);
}
