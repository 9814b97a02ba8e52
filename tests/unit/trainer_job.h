/* A small job of the trainer for unit tests, with a folder and a text of its own. */
#ifndef TR_TESTS_TRAINER_JOB_H
#define TR_TESTS_TRAINER_JOB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/rng.h"
#include "traind/v1/trainer.pb-c.h"

enum { WIDTH = 64, CONTEXT = 16, BATCH = 10 };

struct job {
	char folder[64], text_path[128], dir[128], resume[256];
	char *texts[1];
	Traind__V1__JobSpec spec;
	Traind__V1__TrainSpec train;
	Traind__V1__Model model;
	Traind__V1__Data data;
	Traind__V1__Optimizer optimizer;
	Traind__V1__Sync sync;
	Traind__V1__Checkpoint checkpoint;
	Traind__V1__Sample sample;
};

static inline void write_text(const char *path)
{
	static const char *const words[] = { "hacker ", "the ", "kluge ", "of ", "a ", "foo ",
		"bar.\n", "quux " };
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	for (uint64_t i = 0; i < 3000; i++)
		(void)fputs(words[rng_below(rng_key(9, 0, 0), 0, i, 8)], file);
	assert_int_equal(fclose(file), 0);
}

static inline void job_init(struct job *j, uint64_t steps)
{
	memset(j, 0, sizeof(*j));
	(void)snprintf(j->folder, sizeof(j->folder), "/tmp/trainer_job_XXXXXX");
	assert_non_null(mkdtemp(j->folder));
	(void)snprintf(j->text_path, sizeof(j->text_path), "%s/text", j->folder);
	(void)snprintf(j->dir, sizeof(j->dir), "%s/run", j->folder);
	write_text(j->text_path);
	traind__v1__job_spec__init(&j->spec);
	traind__v1__train_spec__init(&j->train);
	traind__v1__model__init(&j->model);
	traind__v1__data__init(&j->data);
	traind__v1__optimizer__init(&j->optimizer);
	traind__v1__sync__init(&j->sync);
	traind__v1__checkpoint__init(&j->checkpoint);
	traind__v1__sample__init(&j->sample);
	j->spec.train = &j->train;
	j->train.model = &j->model;
	j->train.data = &j->data;
	j->train.optimizer = &j->optimizer;
	j->train.sync = &j->sync;
	j->train.checkpoint = &j->checkpoint;
	j->train.sample = &j->sample;
	j->model.layers = 2;
	j->model.width = WIDTH;
	j->model.heads = 4;
	j->model.context = CONTEXT;
	j->texts[0] = j->text_path;
	j->data.text = j->texts;
	j->data.n_text = 1;
	j->data.validation = 0.1;
	j->optimizer.steps = steps;
	j->optimizer.batch_tokens = BATCH * CONTEXT;
	j->optimizer.micro_sequences = 2;
	j->optimizer.lr = 3e-3;
	j->optimizer.min_lr = 3e-3;
	j->optimizer.clip = 1;
	j->optimizer.weight_decay = 0.1;
	j->optimizer.beta1 = 0.9;
	j->optimizer.beta2 = 0.95;
	j->optimizer.eps = 1e-8;
	j->optimizer.seed = 3;
	j->optimizer.eval_every = 5;
	j->optimizer.eval_sequences = 7;
	j->sync.on_loss = (char *)(uintptr_t) "replay";
	j->checkpoint.dir = j->dir;
	j->checkpoint.resume = j->resume;
	j->checkpoint.keep = 2;
}

static inline void job_finish(struct job *j)
{
	char command[128];
	(void)snprintf(command, sizeof(command), "rm -r '%s'", j->folder);
	assert_int_equal(system(command), 0);
}

#endif
