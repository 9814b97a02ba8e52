#include "daemon/plan/job_strict.h"

#include <stdio.h>

#include "daemon/plan/job_options.h"
#include "daemon/plan/strict.h"

bool job_is_strict(const Traind__V1__TrainSpec *train)
{
	return train != NULL && train->optimizer != NULL && train->optimizer->strict;
}

struct job_batch job_strict_batch(const Traind__V1__TrainSpec *train, const struct mesh *mesh,
    const struct job_batch *batch)
{
	struct job_batch one = *batch;

	if (job_is_strict(train))
		one.sequences = batch->sequences / strict_batch_parts(batch->sequences) *
		    mesh->size[MESH_DP];
	return one;
}

/* "1, 2 or 4". */
static const char *powers_up_to(uint32_t most, char *text, size_t bytes)
{
	size_t used = (size_t)snprintf(text, bytes, "1");

	for (uint32_t power = 2; power <= most && used < bytes; power *= 2)
		used += (size_t)snprintf(text + used, bytes - used, "%s %u",
		    power == most ? " or" : ",", power);
	return text;
}

static tr_status check_tp(const struct model_config *config, uint32_t tp, struct tr_error *error)
{
	uint32_t parts = strict_width_parts(config);
	char allowed[32];

	if (parts % tp == 0)
		return TR_OK;
	return tr_error_set(error, TR_EINVAL,
	    "mesh.tp: found %u, allowed: %s, since train.strict is true: the power of two that "
	    "divides "
	    "model.heads, kv_heads, hidden, vocab and context, at most %u",
	    tp, powers_up_to(parts, allowed, sizeof(allowed)), STRICT_PARTS_MAX);
}

static tr_status check_dp(uint64_t sequences, uint32_t dp, struct tr_error *error)
{
	uint32_t parts = strict_batch_parts(sequences);
	char allowed[32];

	if (parts % dp == 0)
		return TR_OK;
	return tr_error_set(error, TR_EINVAL,
	    "train.strict: found true, allowed: false, since the mesh has %u replicas: of a batch "
	    "of %llu "
	    "sequences there may be %s",
	    dp, (unsigned long long)sequences, powers_up_to(parts, allowed, sizeof(allowed)));
}

tr_status job_strict_check(const Traind__V1__JobSpec *spec, struct tr_error *error)
{
	const Traind__V1__TrainSpec *train = spec->train;
	struct mesh mesh = job_mesh(spec->mesh);
	struct model_config config;

	if (!job_is_strict(train))
		return TR_OK;
	if (job_mesh_balances(spec))
		return tr_error_set(error, TR_EINVAL,
		    "mesh.balance: found on, allowed: off, since train.strict is true: its "
		    "replicas "
		    "compute equal parts of the batch");
	if (spec->mesh->n_shares > 0)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.shares: found %zu, allowed: none, since train.strict is true: its "
		    "replicas compute equal "
		    "parts of the batch",
		    spec->mesh->n_shares);
	tr_status status = job_model_config(train->model, &config, error);
	if (status == TR_OK)
		status = check_tp(&config, mesh.size[MESH_TP], error);
	if (status != TR_OK)
		return status;
	return check_dp(train->optimizer->batch_tokens / config.context, mesh.size[MESH_DP], error);
}
