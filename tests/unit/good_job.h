/* A job file's keys as a JobSpec that is accepted, to be changed and refused. */
#ifndef TR_TESTS_UNIT_GOOD_JOB_H
#define TR_TESTS_UNIT_GOOD_JOB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/plan/job_options.h"

static inline Traind__V1__JobSpec *good(void)
{
	static const char *const keys[][2] = {
		{ "name", "quickstart" },
		{ "model.layers", "4" },
		{ "model.width", "128" },
		{ "model.heads", "4" },
		{ "model.context", "128" },
		{ "data.text", "/usr/share/text" },
		{ "data.validation", "5%" },
		{ "train.steps", "600" },
		{ "train.batch_tokens", "8192" },
		{ "train.lr", "1e-3" },
		{ "train.warmup", "50" },
		{ "train.clip", "1.0" },
		{ "mesh.nodes", "3" },
		{ "checkpoint.dir", "/tmp/runs" },
		{ "sync.on_loss", "drop" },
		{ "sync.deterministic", "true" },
	};
	Traind__V1__JobSpec *spec = job_spec_new(true);
	assert_non_null(spec);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		struct tr_error error = { 0 };
		if (job_option_set(spec, keys[i][0], keys[i][1], &error) != TR_OK)
			fail_msg("%s", error.text);
	}
	return spec;
}

static inline void drop(Traind__V1__JobSpec *spec)
{
	traind__v1__job_spec__free_unpacked(spec, NULL);
}

static inline void set_good(Traind__V1__JobSpec *spec, const char *key, const char *text)
{
	struct tr_error error = { 0 };
	if (job_option_set(spec, key, text, &error) != TR_OK)
		fail_msg("%s", error.text);
}

static inline void refused(Traind__V1__JobSpec *spec, const char *says)
{
	struct tr_error error = { 0 };
	assert_int_equal(job_validate(spec, &error), TR_EINVAL);
	if (strcmp(error.text, says) != 0)
		fail_msg("says:    %s\nshould:  %s", error.text, says);
	drop(spec);
}

/* `good`, on four workers of which `tp` share each layer. */
static inline Traind__V1__JobSpec *good_sharded(const char *tp)
{
	Traind__V1__JobSpec *spec = good();
	set_good(spec, "mesh.nodes", "2");
	set_good(spec, "mesh.workers_per_node", "2");
	set_good(spec, "mesh.threads", "1");
	set_good(spec, "mesh.tp", tp);
	set_good(spec, "sync.on_loss", "replay");
	return spec;
}

#endif
