#include "daemon/plan/job_mesh_sync.h"

#include <stdio.h>
#include <string.h>

#include "daemon/plan/job_mesh.h"
#include "daemon/plan/job_strict.h"
#include "daemon/plan/job_sync.h"

#define SUMS_OF_LAYER 4 /* two forward, two backward */

/* What cannot be beside replicas that train apart; NULL: nothing. */
static const char *in_the_way(const Traind__V1__JobSpec *spec, char *text, size_t bytes)
{
	const Traind__V1__Mesh *m = spec->mesh;

	(void)snprintf(text, bytes, "mesh.zero_owners is %u", m->zero_owners);
	return job_is_strict(spec->train)                   ? "train.strict is true"
	    : m->zero_owners > 0 && job_mesh_copies(m) == 1 ? text
	    : m->n_shares > 0                               ? "mesh.shares is given"
	    : job_mesh_balances(spec)                       ? "mesh.balance is on"
	                                                    : NULL;
}

static tr_status no_copies(const Traind__V1__Mesh *m, const char *why, struct tr_error *error)
{
	return tr_error_set(error, TR_EINVAL, "mesh.copies: found %u, allowed: 1, since %s",
	    m->copies, why);
}

tr_status job_mesh_sync_check_none(const Traind__V1__JobSpec *spec, struct tr_error *error)
{
	return job_mesh_copies(spec->mesh) == 1
	    ? TR_OK
	    : no_copies(spec->mesh,
	          "sync.mode is ddp: gradients are summed over all copies of the model anyway",
	          error);
}

static tr_status check_mode(const Traind__V1__JobSpec *spec, struct tr_error *error)
{
	char text[48];
	const char *other = in_the_way(spec, text, sizeof(text));

	return other == NULL
	    ? TR_OK
	    : tr_error_set(error, TR_EINVAL, "sync.mode: found %s, allowed: ddp, since %s",
	          spec->train->sync->mode, other);
}

bool job_mesh_sync_streams(const struct tr_sync_options *o)
{
	return o->mode == TR_SYNC_STREAMING || o->mode == TR_SYNC_EAGER || o->overlap > 0 ||
	    o->alpha > 0;
}

/* Steps of the longest round: between merges; of the first one up to its fragment's, and the overlap. */
static uint64_t longest(const struct tr_sync_options *o)
{
	uint64_t steps = o->inner_steps / o->fragments + (o->inner_steps % o->fragments > 0);

	return job_mesh_sync_streams(o) ? steps + (uint64_t)o->overlap : o->inner_steps;
}

static tr_status check_longest(const struct tr_sync_options *o, uint64_t most, const char *why,
    const char *more, struct tr_error *error)
{
	uint64_t steps = longest(o);
	char round[64] = "";

	if (steps <= most)
		return TR_OK;
	if (steps != o->inner_steps)
		(void)snprintf(round, sizeof(round), " in a round, of which the longest has %llu",
		    (unsigned long long)steps);
	return tr_error_set(error, TR_EINVAL,
	    "sync.inner_steps: found %llu, allowed: at most %llu%s, since %s%s",
	    (unsigned long long)o->inner_steps, (unsigned long long)most, round, why, more);
}

/* Of replicas of several workers all merge together. */
static tr_status check_keys(const struct tr_sync_options *o, const char *why, struct tr_error *error)
{
	bool streams = job_mesh_sync_streams(o);
	const struct {
		const char *key;
		double found;
	} unknown[] = { { "grace_seconds", o->grace_seconds }, { "lr_search", o->lr_search },
		{ "alone_steps", (double)o->alone_steps }, { "share_by_speed", o->share_by_speed },
		{ "by_speed", streams ? o->by_speed : 0 },
		{ "inner_seconds", streams ? o->inner_seconds : 0 } };

	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
		if (unknown[i].found != 0)
			return tr_error_set(error, TR_EINVAL,
			    "sync.%s: found %g, allowed: nothing, since %s: replicas of several "
			    "workers merge after %s",
			    unknown[i].key, unknown[i].found, why,
			    streams
			        ? "inner_steps where they train on meanwhile (streaming, eager, "
			          "overlap)"
			        : "inner_steps or inner_seconds");
	return check_longest(o, JOB_MESH_INNER_STEPS_MAX, why, "", error);
}

/* A replica of several copies. */
static tr_status check_copies(const Traind__V1__JobSpec *spec, const struct tr_sync_options *o,
    struct tr_error *error)
{
	const Traind__V1__Mesh *m = spec->mesh;
	uint32_t copies = job_mesh_copies(m), dp = job_mesh(m).size[MESH_DP];

	if (copies == 1)
		return TR_OK;
	if (m->auto_)
		return no_copies(m, "mesh.auto plans no copies", error);
	if (dp % copies != 0)
		return tr_error_set(error, TR_EINVAL,
		    "mesh.copies: found %u, allowed: a divisor of %u, the copies of the model that "
		    "the mesh's workers are enough for",
		    copies, dp);
	return check_longest(o, JOB_MESH_INNER_TAGS / job_mesh_inner_tags(copies, m->zero_owners),
	    "mesh.copies is more than 1", "", error);
}

static uint64_t up(uint64_t number, uint64_t by)
{
	return (number + by - 1) / by;
}

static tr_status check_round(const struct tr_sync_options *o, uint64_t most, const char *why,
    uint64_t each, const char *what, struct tr_error *error)
{
	char more[160];

	(void)snprintf(more, sizeof(more),
	    ": a step has %llu %s; a larger train.micro_sequences allows more",
	    (unsigned long long)each, what);
	return check_longest(o, most / each, why, more, error);
}

/* What a step has that is numbered among all of its round. */
struct numbered {
	uint64_t messages, sums; /* 0: none */
};

/* A replica that is alone computes the whole batch, so its messages between stages have to fit; of sums these are the least that there are, and with more of them the round fails with such words
 * (daemon/worker/sharded_exchange.c). */
static struct numbered of_step(const Traind__V1__TrainSpec *spec, const struct mesh *mesh,
    uint64_t chunks, uint64_t batch)
{
	uint32_t pp = mesh->size[MESH_PP], micro = spec->optimizer->micro_sequences;
	uint64_t sequences = micro > 0 ? micro : 1;
	struct numbered each = { 0 };

	if (pp > 1)
		each.messages = (up(batch, sequences) * (pp > 3 ? 2 * (uint64_t)pp : 6) + 1) *
		    chunks;
	if (mesh->size[MESH_TP] > 1)
		each.sums = up(up(batch, mesh->size[MESH_DP]), sequences) * SUMS_OF_LAYER *
		    up(spec->model->layers, pp);
	return each;
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

struct job_mesh_rounds job_mesh_rounds_of(const Traind__V1__TrainSpec *spec,
    const Traind__V1__Mesh *mesh, const struct tr_sync_options *options)
{
	return (struct job_mesh_rounds){ .spec = spec,
		.chunks = mesh != NULL && mesh->chunks > 0 ? mesh->chunks : 1,
		.steps = longest(options) };
}

uint64_t job_mesh_rounds_most(const struct job_mesh_rounds *rounds, const struct mesh *mesh,
    uint32_t copies, uint64_t batch)
{
	struct mesh alone = *mesh; /* one copy of it, with its part */

	alone.size[MESH_DP] = 1;
	struct numbered each = of_step(rounds->spec, &alone, rounds->chunks, up(batch, copies));
	uint64_t most = JOB_MESH_INNER_STEPS_MAX;

	if (each.messages > 0)
		most = less(most, JOB_MESH_MESSAGES_MAX / each.messages);
	if (each.sums > 0)
		most = less(most, JOB_MESH_SUMS_MAX / each.sums);
	return most > 0 ? most : 1;
}

bool job_mesh_rounds_fit(const struct job_mesh_rounds *rounds, const struct mesh *mesh,
    uint32_t copies, uint64_t batch)
{
	return rounds->spec == NULL ||
	    rounds->steps <= job_mesh_rounds_most(rounds, mesh, copies, batch);
}

static tr_status check_numbers(const Traind__V1__JobSpec *spec, const struct tr_sync_options *o,
    const char *why, struct tr_error *error)
{
	const Traind__V1__Mesh *m = spec->mesh;
	struct mesh mesh = job_mesh(m);
	struct numbered each = of_step(spec->train, &mesh, m->chunks > 0 ? m->chunks : 1, o->batch);
	tr_status status = TR_OK;

	if (each.messages > 0)
		status = check_round(o, JOB_MESH_MESSAGES_MAX, why, each.messages,
		    "instructions of its pipeline", error);
	return status == TR_OK && each.sums > 0 ? check_round(o, JOB_MESH_SUMS_MAX, why, each.sums,
	                                              "sums inside the model, or more", error)
	                                        : status;
}

tr_status job_mesh_sync_check(const Traind__V1__JobSpec *spec, const char *why,
    struct tr_error *error)
{
	struct tr_sync_options options;
	tr_status status = check_mode(spec, error);

	if (status == TR_OK)
		status = job_sync_options(spec->train, spec->train->optimizer->steps, &options,
		    error);
	if (status == TR_OK)
		status = check_keys(&options, why, error);
	if (status == TR_OK)
		status = check_copies(spec, &options, error);
	if (status != TR_OK)
		return status;
	uint32_t replicas = job_mesh(spec->mesh).size[MESH_DP];
	if (replicas > options.batch)
		return tr_error_set(error, TR_EINVAL,
		    "train.batch_tokens: found %llu sequences, allowed: at least one for each of "
		    "the mesh's %u %s, since they train apart (sync.mode)",
		    (unsigned long long)options.batch, replicas,
		    job_mesh_copies(spec->mesh) > 1 ? "copies of the model" : "replicas");
	return check_numbers(spec, &options, why, error);
}
