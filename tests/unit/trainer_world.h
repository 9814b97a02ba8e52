/* A job of trainer_job.h trained by all peers of a stand-in group (fake_coll.h), and what they end with. */
#ifndef TR_TESTS_TRAINER_WORLD_H
#define TR_TESTS_TRAINER_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <unistd.h>

#include "tests/unit/fake_coll.h"

#include <cmocka.h>

#include "daemon/checkpoint/safetensors.h"
#include "daemon/worker/trainer.h"
#include "daemon/worker/trainer_inside.h"
#include "tests/unit/trainer_job.h"

struct peer_run {
	struct job *job;
	struct tr_group *group;
	tr_status status;
	struct tr_error error;
	float *params; /* a copy of the end */
	size_t count;
	uint64_t age;   /* gradients in its moments, if it talked rarely */
	uint64_t begun; /* samples that were counted before, by its account */
};

static inline void *run_peer(void *arg)
{
	struct peer_run *run = arg;
	struct trainer *t;
	run->status = trainer_create(run->group, &run->job->spec, 1, 0, &t, &run->error);
	if (run->status != TR_OK)
		return NULL;
	run->status = trainer_run(t, &run->error);
	run->count = t->layout.count;
	run->age = t->outer.age;
	run->begun = t->account->begun;
	run->params = calloc(run->count, sizeof(float));
	memcpy(run->params, t->arrays.params, run->count * sizeof(float));
	trainer_destroy(t);
	return NULL;
}

/* Trains with all peers of the world, each with its own job; runs[p].params are to be freed by runs_finish. */
static inline void run_jobs(struct job *const *jobs, struct fake_world *w, struct peer_run *runs)
{
	pthread_t threads[FAKE_PEERS_MAX];
	for (unsigned p = 0; p < w->peers; p++) {
		runs[p] = (struct peer_run){ .job = jobs[p], .group = &w->groups[p] };
		assert_int_equal(pthread_create(&threads[p], NULL, run_peer, &runs[p]), 0);
	}
	for (unsigned p = 0; p < w->peers; p++)
		assert_int_equal(pthread_join(threads[p], NULL), 0);
}

static inline void run_world(struct job *j, struct fake_world *w, struct peer_run *runs)
{
	struct job *const jobs[FAKE_PEERS_MAX] = { j, j, j, j };
	run_jobs(jobs, w, runs);
}

static inline void runs_finish(struct fake_world *w, struct peer_run *runs)
{
	for (unsigned p = 0; p < w->peers; p++)
		free(runs[p].params);
	fake_world_finish(w);
}

static inline void assert_ok(const struct peer_run *run)
{
	if (run->status != TR_OK)
		fail_msg("%s", run->error.text);
}

static inline double distance(const struct peer_run *a, const struct peer_run *b)
{
	double worst = 0;
	assert_int_equal(a->count, b->count);
	for (size_t i = 0; i < a->count; i++)
		worst = fmax(worst, fabs((double)(a->params[i] - b->params[i])));
	return worst;
}

static inline void assert_same_bits(const struct peer_run *a, const struct peer_run *b)
{
	assert_int_equal(a->count, b->count);
	assert_memory_equal(a->params, b->params, a->count * sizeof(float));
}

static inline void assert_same_file(const char *dir_a, const char *dir_b, const char *name)
{
	char path[512];
	struct safetensors a, b;
	(void)snprintf(path, sizeof(path), "%s/%s", dir_a, name);
	assert_int_equal(safetensors_open(path, &a, NULL), TR_OK);
	(void)snprintf(path, sizeof(path), "%s/%s", dir_b, name);
	assert_int_equal(safetensors_open(path, &b, NULL), TR_OK);
	struct tr_digest digest_a, digest_b;
	assert_int_equal(safetensors_digest(&a, NULL, &digest_a, NULL), TR_OK);
	assert_int_equal(safetensors_digest(&b, NULL, &digest_b, NULL), TR_OK);
	assert_int_equal(a.size, b.size);
	assert_true(tr_digest_equal(digest_a, digest_b));
	safetensors_close(&a);
	safetensors_close(&b);
}

static inline void train_to(struct job *j, uint64_t steps, const char *dir, const char *resume)
{
	struct fake_world w;
	struct peer_run run;
	(void)snprintf(j->dir, sizeof(j->dir), "%s/%s", j->folder, dir);
	(void)snprintf(j->resume, sizeof(j->resume), "%s%s%s", resume[0] != '\0' ? j->folder : "",
	    resume[0] != '\0' ? "/" : "", resume);
	j->optimizer.steps = steps;
	fake_world_init(&w, 1);
	run_world(j, &w, &run);
	assert_ok(&run);
	runs_finish(&w, &run);
}

/* One run with nobody dying or joining, by one worker: what all others are compared with. */
static inline void undisturbed(struct job *j, struct fake_world *w, struct peer_run *run)
{
	fake_world_init(w, 1);
	run_world(j, w, run);
	assert_ok(run);
}

#endif
