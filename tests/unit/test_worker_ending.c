/* A worker that is told to end while it may have something to keep (daemon/worker/ending.h): it does not finish a step first, which may take longer than
 * the patience of those who wait, and nothing ends it while it writes.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/worker/ending.h"
#include "daemon/worker/trainer_inside.h"
#include "tests/unit/fake_coll.h"

#define TEXT_BYTES 4000

struct job {
	char folder[64], text[128];
	char *texts[1];
	Traind__V1__JobSpec spec;
	Traind__V1__TrainSpec train;
	Traind__V1__Model model;
	Traind__V1__Data data;
	Traind__V1__Optimizer optimizer;
	Traind__V1__Sync sync;
};

static void job_init(struct job *j)
{
	memset(j, 0, sizeof(*j));
	(void)snprintf(j->folder, sizeof(j->folder), "/tmp/test_ending_XXXXXX");
	assert_non_null(mkdtemp(j->folder));
	(void)snprintf(j->text, sizeof(j->text), "%s/text", j->folder);
	FILE *file = fopen(j->text, "w");
	assert_non_null(file);
	for (unsigned i = 0; i < TEXT_BYTES; i++)
		(void)fputc('a' + (int)(i * i % 23), file);
	assert_int_equal(fclose(file), 0);
	traind__v1__job_spec__init(&j->spec);
	traind__v1__train_spec__init(&j->train);
	traind__v1__model__init(&j->model);
	traind__v1__data__init(&j->data);
	traind__v1__optimizer__init(&j->optimizer);
	traind__v1__sync__init(&j->sync);
	j->spec.train = &j->train;
	j->train.model = &j->model;
	j->train.data = &j->data;
	j->train.optimizer = &j->optimizer;
	j->train.sync = &j->sync;
	j->model.layers = j->model.heads = 2;
	j->model.width = 16;
	j->model.context = 8;
	j->texts[0] = j->text;
	j->data.text = j->texts;
	j->data.n_text = 1;
	j->optimizer.steps = 100;
	j->optimizer.batch_tokens = 4 * j->model.context;
	j->optimizer.micro_sequences = 2;
	j->optimizer.lr = 1e-3;
	j->optimizer.beta1 = 0.9;
	j->optimizer.beta2 = 0.95;
	j->optimizer.eps = 1e-8;
	j->sync.mode = (char *)(uintptr_t) "diloco";
	j->sync.inner_steps = 10;
	j->sync.alone_steps = 10;
}

/* `evicted`: which of its calls says so; 0: none does. */
static void told_to_end(unsigned evicted)
{
	struct job j;
	struct fake_world world;
	struct trainer *t;
	struct tr_error error;
	char kept[128];
	job_init(&j);
	fake_world_init(&world, 1);
	world.waits_to_eviction = evicted;
	assert_int_equal(trainer_create(&world.groups[0], &j.spec, 1, &t, &error), TR_OK);
	(void)snprintf(kept, sizeof(kept), "%s/kept", j.folder);
	trainer_keep(t, kept);
	assert_int_equal(trainer_log_samples(t, j.folder, &error), TR_OK);
	assert_int_equal(raise(SIGTERM), 0);
	assert_true(ending_wanted());
	assert_int_equal(trainer_run(t, &error), evicted > 0 ? TR_EEVICTED : TR_ECANCELLED);
	assert_int_equal(t->outer.age, 0);
	/* What it had begun with is not consumed. */
	assert_int_equal(lseek(t->samples_log, 0, SEEK_END), 0);
	trainer_destroy(t);
	fake_world_finish(&world);
	char command[128];
	(void)snprintf(kept, sizeof(kept), "%s/kept/peer-10", j.folder);
	assert_int_equal(access(kept, F_OK) == 0, evicted > 0);
	(void)snprintf(command, sizeof(command), "rm -r '%s'", j.folder);
	assert_int_equal(system(command), 0);
}

static void it_does_not_finish_its_step(void **state)
{
	(void)state;
	told_to_end(0);
}

/* The engine may hear of its eviction a moment after the signal came. */
static void it_waits_a_moment_for_the_news(void **state)
{
	(void)state;
	told_to_end(1);
	told_to_end(3);
}

static void nothing_ends_it_while_it_writes(void **state)
{
	(void)state;
	ending_wait();
	assert_int_equal(raise(SIGTERM), 0);
	assert_true(alarm(1000) > 0);
	ending_hold();
	assert_int_equal(raise(SIGTERM), 0); /* that of its eviction may come after the news of it */
	assert_int_equal(alarm(0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_does_not_finish_its_step),
		cmocka_unit_test(it_waits_a_moment_for_the_news),
		cmocka_unit_test(nothing_ends_it_while_it_writes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
