/* The training loop over a stand-in group (fake_coll.h): resume is bit for bit, the number of workers does not change what is learned, replay
 * and join leave no trace, a round without all data is normalised by what arrived, a full disk does not end training.
 */
#include <glob.h>
#include <sys/resource.h>
#include <signal.h>

#include "common/log.h"
#include "common/rng.h"
#include "daemon/checkpoint/checkpoint.h"
#include "daemon/worker/gemm.h"
#include "tests/unit/slow_disk.h"
#include "tests/unit/trainer_world.h"

static void test_learns(void **state)
{
	(void)state;
	struct job j;
	struct fake_world w;
	struct peer_run run;
	job_init(&j, 40);
	j.checkpoint.every = 10;
	j.sample.tokens = 50;
	j.sample.prompt = (char *)(uintptr_t) "the \x01";
	j.sample.temperature = 0.8;
	fake_world_init(&w, 1);
	run_world(&j, &w, &run);
	assert_ok(&run);
	const struct tr_group *g = &w.groups[0];
	assert_true(g->first_loss > 5 && g->loss < 3 && g->val_loss < 3);
	assert_int_equal(g->steps_reported, 40);
	assert_int_equal(g->samples, 40 * BATCH);
	assert_int_equal(strlen(g->sample), 55);
	assert_memory_equal(g->sample, "the ?", 5);
	/* keep = 2: the last one and one before it, whichever the saver had time for; `latest` is the last. */
	char path[256], real_path[4096];
	(void)snprintf(path, sizeof(path), "%s/latest", j.dir);
	assert_non_null(realpath(path, real_path));
	assert_string_equal(strrchr(real_path, '/'), "/step-00000040");
	(void)snprintf(path, sizeof(path), "%s/latest/sample.txt", j.dir);
	assert_int_equal(access(path, R_OK), 0);
	glob_t kept;
	(void)snprintf(path, sizeof(path), "%s/step-*", j.dir);
	assert_int_equal(glob(path, 0, NULL, &kept), 0);
	assert_int_equal(kept.gl_pathc, 2);
	globfree(&kept);
	runs_finish(&w, &run);
	job_finish(&j);
}

static double loss_in(const char *dtype)
{
	struct job j;
	struct fake_world w;
	struct peer_run run;
	job_init(&j, 30);
	j.optimizer.dtype = (char *)(uintptr_t)dtype;
	fake_world_init(&w, 1);
	run_world(&j, &w, &run);
	assert_ok(&run);
	double loss = w.groups[0].val_loss;
	runs_finish(&w, &run);
	job_finish(&j);
	return loss;
}

static void test_bf16_learns_as_well(void **state)
{
	(void)state;
	double f32 = loss_in("f32"), bf16 = loss_in("bf16");
	assert_true(loss_in("") == f32);
	assert_true(bf16 != f32 && fabs(bf16 - f32) < 0.02 * f32);
}

static void test_resume_is_bit_for_bit(void **state)
{
	(void)state;
	struct job j;
	char whole[256], resumed[256];
	job_init(&j, 12);
	train_to(&j, 12, "whole", "");
	train_to(&j, 6, "half", "");
	train_to(&j, 12, "resumed", "half");
	(void)snprintf(whole, sizeof(whole), "%s/whole/latest", j.folder);
	(void)snprintf(resumed, sizeof(resumed), "%s/resumed/latest", j.folder);
	assert_same_file(whole, resumed, MANIFEST_MODEL);
	assert_same_file(whole, resumed, MANIFEST_OPTIMIZER);
	/* A step's folder is as good as the folder that has `latest`. */
	train_to(&j, 12, "again", "half/step-00000006");
	(void)snprintf(resumed, sizeof(resumed), "%s/again/latest", j.folder);
	assert_same_file(whole, resumed, MANIFEST_MODEL);
	job_finish(&j);
}

/* checkpoint.keep is 1: that of step 6, which memberd names, is gone. */
static void test_resume_finds_the_next_one(void **state)
{
	(void)state;
	struct job j;
	char whole[256], resumed[256], gone[256];
	job_init(&j, 12);
	j.checkpoint.keep = 1;
	train_to(&j, 12, "whole", "");
	train_to(&j, 9, "part", "");
	(void)snprintf(gone, sizeof(gone), "%s/part/step-00000006", j.folder);
	assert_int_not_equal(access(gone, F_OK), 0);
	train_to(&j, 12, "resumed", "part/step-00000006");
	(void)snprintf(whole, sizeof(whole), "%s/whole/latest", j.folder);
	(void)snprintf(resumed, sizeof(resumed), "%s/resumed/latest", j.folder);
	assert_same_file(whole, resumed, MANIFEST_MODEL);
	assert_same_file(whole, resumed, MANIFEST_OPTIMIZER);
	job_finish(&j);
}

static tr_status no_memory(struct trainer *t, const char *path, struct manifest *manifest,
    struct tr_error *error)
{
	(void)t;
	(void)path;
	(void)manifest;
	return tr_error_set(error, TR_ENOMEM, "no memory for it");
}

/* Nobody looks for an older one then, and nobody says that there is none. */
static void test_resume_without_memory(void **state)
{
	(void)state;
	struct job j;
	struct fake_world w;
	struct manifest manifest;
	struct tr_error error;
	struct trainer_counters counters = { 0 };
	job_init(&j, 12);
	train_to(&j, 12, "whole", "");
	fake_world_init(&w, 1);
	struct trainer t = { .group = &w.groups[0], .counters = &counters };
	char path[256];
	(void)snprintf(path, sizeof(path), "%s/whole", j.folder);
	assert_int_equal(trainer_resume(&t, path, no_memory, &manifest, &error), TR_ENOMEM);
	assert_string_equal(w.groups[0].event, "checkpoint.resume: no memory for it");
	job_finish(&j);
}

static void test_workers_do_not_matter(void **state)
{
	(void)state;
	struct job j;
	struct fake_world one, many;
	struct peer_run alone, runs[FAKE_PEERS_MAX];
	job_init(&j, 8);
	undisturbed(&j, &one, &alone);
	for (unsigned peers = 2; peers <= FAKE_PEERS_MAX; peers++) {
		fake_world_init(&many, peers);
		run_world(&j, &many, runs);
		for (unsigned p = 0; p < peers; p++) {
			assert_ok(&runs[p]);
			assert_same_bits(&runs[0], &runs[p]);
			assert_int_equal(many.groups[p].samples, 8 * BATCH);
		}
		assert_true(distance(&alone, &runs[0]) < 1e-4);
		assert_true(fabs(one.groups[0].loss - many.groups[0].loss) < 1e-4);
		assert_true(fabs(one.groups[0].val_loss - many.groups[0].val_loss) < 1e-4);
		runs_finish(&many, runs);
	}
	runs_finish(&one, &alone);
	job_finish(&j);
}

static void test_replay_leaves_no_trace(void **state)
{
	(void)state;
	struct job j;
	struct fake_world calm, w;
	struct peer_run alone, run;
	job_init(&j, 6);
	undisturbed(&j, &calm, &alone);
	for (unsigned early = 0; early < 2; early++) {
		/* Abandoned at the commit, or noticed while computing. Round 7 is the last, which writes the checkpoint. */
		for (uint64_t round = 1; round <= 7; round += 2) {
			fake_world_init(&w, 1);
			w.restart_at = round;
			w.restart_in_progress = early;
			run_world(&j, &w, &run);
			assert_ok(&run);
			assert_same_bits(&alone, &run);
			assert_int_equal(w.restart_at, 0);
			assert_int_equal(w.groups[0].samples, 6 * BATCH);
			runs_finish(&w, &run);
		}
	}
	runs_finish(&calm, &alone);
	job_finish(&j);
}

static void test_death_and_join(void **state)
{
	(void)state;
	struct job j;
	struct fake_world calm, w;
	struct peer_run alone, runs[FAKE_PEERS_MAX];
	job_init(&j, 9);
	undisturbed(&j, &calm, &alone);
	fake_world_init(&w, 4);
	w.groups[1].dies_at = 3;
	w.groups[3].joins_at = 5;
	run_world(&j, &w, runs);
	assert_int_equal(runs[1].status, TR_EEVICTED);
	for (unsigned p = 0; p < 4; p++) {
		if (p == 1)
			continue;
		assert_ok(&runs[p]);
		assert_same_bits(&runs[0], &runs[p]);
	}
	assert_true(distance(&alone, &runs[0]) < 1e-4);
	assert_int_equal(w.groups[0].samples, 9 * BATCH);
	runs_finish(&w, runs);
	runs_finish(&calm, &alone);
	job_finish(&j);
}

/* The joiner comes into the very last rounds. */
static void test_join_at_the_end(void **state)
{
	(void)state;
	struct job j;
	struct fake_world w;
	struct peer_run runs[2];
	job_init(&j, 4);
	for (uint64_t at = 4; at <= 5; at++) {
		fake_world_init(&w, 2);
		w.groups[1].joins_at = at;
		run_world(&j, &w, runs);
		assert_ok(&runs[0]);
		assert_ok(&runs[1]);
		assert_same_bits(&runs[0], &runs[1]);
		runs_finish(&w, runs);
	}
	job_finish(&j);
}

/* Policy drop: a dead peer's data is in every other segment. What is applied must be the mean over what arrived, segment by segment. */
static void test_drop_normalises_by_what_arrived(void **state)
{
	(void)state;
	struct job j;
	struct fake_world w;
	struct peer_run runs[3];
	job_init(&j, 5);
	j.sync.on_loss = (char *)(uintptr_t) "drop";
	fake_world_init(&w, 3);
	w.keep = true;
	w.groups[2].dies_at = 2;
	run_world(&j, &w, runs);
	assert_ok(&runs[0]);
	assert_ok(&runs[1]);
	assert_same_bits(&runs[0], &runs[1]);
	assert_int_equal(w.groups[0].events, 1);
	/* 10 sequences of 16 by three: the third brings 4 x 16 of 160. */
	assert_non_null(strstr(w.groups[0].event, "the least holds 96 of 160 tokens"));
	assert_non_null(strstr(w.groups[0].event, "step 2 "));
	runs_finish(&w, runs);
	job_finish(&j);
}

/* The scaling itself: a gradient of ones per token becomes the same everywhere. */
static void test_scale_arrived(void **state)
{
	(void)state;
	struct job j;
	struct fake_world w;
	struct trainer *t;
	struct tr_error error;
	char text[256];
	job_init(&j, 5);
	j.sync.on_loss = (char *)(uintptr_t) "drop";
	fake_world_init(&w, 2);
	struct tr_group *g = &w.groups[0];
	assert_int_equal(trainer_create(g, &j.spec, 1, 0, &t, &error), TR_OK);
	struct tr_round round = { .round = 1, .contributors = 2, .partial = true };
	w.whole_mask = 3;
	w.contributor_mask = 1;
	t->sums->roster[0] = 10;
	t->sums->roster[1] = 96;
	t->sums->roster[2] = 11;
	t->sums->roster[3] = 64;
	assert_true(t->layout.count > 2 * FAKE_SEGMENT_BYTES / sizeof(float));
	for (size_t b = 0; b < t->buckets.count; b++) {
		size_t first = t->buckets.first[b], count = buckets_end(&t->buckets, b) - first;
		for (size_t i = 0; i < count; i++)
			t->arrays.grads[first + i] = i * sizeof(float) / FAKE_SEGMENT_BYTES % 2 == 0
			    ? 160
			    : 96;
		assert_int_equal(tr_allreduce(g, (uint32_t)b, t->arrays.grads + first, count,
		                     TR_F32, TR_SUM, TR_CONTRIBUTE, &error),
		    TR_OK);
	}
	assert_int_equal(trainer_scale_arrived(t, &round, text, sizeof(text), &error), TR_OK);
	for (size_t i = 0; i < t->layout.count; i++)
		assert_true(fabsf(t->arrays.grads[i] - 160) < 1e-3f);
	trainer_destroy(t);
	fake_world_finish(&w);
	job_finish(&j);
}

/* A full disk, played by a limit on the size of files: earlier checkpoints stay, training goes on, the event is told. */
static void test_full_disk(void **state)
{
	(void)state;
	struct job j;
	struct fake_world w;
	struct peer_run run;
	struct rlimit before, small;
	char path[256];
	job_init(&j, 6);
	train_to(&j, 4, "run", "");
	j.optimizer.steps = 6;
	j.checkpoint.every = 5;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = before;
	small.rlim_cur = 100000;
	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	fake_world_init(&w, 1);
	run_world(&j, &w, &run);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_ok(&run);
	/* That the folder is another job's; the first checkpoint that failed, and the last, unless they are one. */
	assert_true(w.groups[0].events >= 2 && w.groups[0].events <= 3);
	assert_int_equal(w.groups[0].checkpoints, 0);
	assert_non_null(strstr(w.groups[0].event, "checkpoint of step 6"));
	assert_int_equal(w.groups[0].steps_reported, 6);
	(void)snprintf(path, sizeof(path), "%s/latest/manifest.json", j.dir);
	assert_int_equal(access(path, R_OK), 0);
	(void)snprintf(path, sizeof(path), "%s/.step-*", j.dir);
	glob_t left;
	assert_int_equal(glob(path, 0, NULL, &left), GLOB_NOMATCH);
	runs_finish(&w, &run);
	job_finish(&j);
}

/* The others wait for the last checkpoint: its writer works, also while the disk takes its time. */
static void test_a_slow_disk_at_the_end(void **state)
{
	(void)state;
	struct job j;
	struct fake_world w;
	struct peer_run run;
	job_init(&j, 2);
	fake_world_init(&w, 1);
	w.progressed = slow_disk_tell;
	slow_disk_begin(SLOW_DISK_TRIES);
	run_world(&j, &w, &run);
	assert_ok(&run);
	assert_false(slow_disk.waits || slow_disk.in_vain);
	assert_int_equal(w.groups[0].checkpoints, 1);
	runs_finish(&w, &run);
	job_finish(&j);
}

static const struct fake_world *ends_of;

static void tell_in_its_last_round(void *arg)
{
	if (ends_of->groups[0].begun == 3)
		slow_disk_tell(arg);
}

/* The one before the last is on its way to the disk when the last round begins: it is told of, once it is there, since all may be lost before the last one is. */
static void test_a_checkpoint_that_ends_in_the_last_round(void **state)
{
	(void)state;
	struct job j;
	struct fake_world w;
	struct peer_run run;
	job_init(&j, 2);
	j.checkpoint.every = 1;
	fake_world_init(&w, 1);
	ends_of = &w;
	w.progressed = tell_in_its_last_round;
	slow_disk_begin(SLOW_DISK_TRIES);
	run_world(&j, &w, &run);
	assert_ok(&run);
	assert_false(slow_disk.waits || slow_disk.in_vain);
	assert_int_equal(w.groups[0].events, 0);
	assert_int_equal(w.groups[0].checkpoints, 2);
	runs_finish(&w, &run);
	job_finish(&j);
}

static void assert_refused(struct job *j, const char *expected)
{
	struct fake_world w;
	struct trainer *t;
	struct tr_error error;
	fake_world_init(&w, 1);
	tr_status status = trainer_create(&w.groups[0], &j->spec, 1, 0, &t, &error);
	if (status == TR_OK) { /* another worker might have had the checkpoint */
		status = trainer_run(t, &error);
		trainer_destroy(t);
	}
	assert_int_not_equal(status, TR_OK);
	if (strstr(error.text, expected) == NULL)
		fail_msg("'%s' does not say '%s'", error.text, expected);
	fake_world_finish(&w);
}

static void test_bad_jobs(void **state)
{
	(void)state;
	struct job j;
	job_init(&j, 4);
	j.texts[0] = (char *)(uintptr_t) "/nowhere/text.gz";
	assert_refused(&j, "data.text: /nowhere/text.gz: cannot open: No such file");
	j.texts[0] = j.text_path;
	j.model.context = 20000;
	j.optimizer.batch_tokens = 20000;
	assert_refused(&j, "at least 40000, twice model.context");
	j.model.context = CONTEXT;
	(void)snprintf(j.resume, sizeof(j.resume), "%s", j.folder);
	assert_refused(&j, "checkpoint.resume: ");
	j.resume[0] = '\0';
	train_to(&j, 4, "run", "");
	j.model.layers = 3;
	(void)snprintf(j.resume, sizeof(j.resume), "%s/run", j.folder);
	assert_refused(&j, "model.layers: found 3, allowed: 2, as the weights are");
	j.model.layers = 2;
	j.model.width = 32;
	assert_refused(&j, "model.width: found 32, allowed: ");
	j.model.width = WIDTH;
	j.model.heads = 2; /* no shape tells */
	assert_refused(&j, "model.heads: found 2, allowed: 4, as the weights are");
	j.model.heads = 4;
	j.model.context *= 2;
	j.optimizer.batch_tokens *= 2;
	assert_refused(&j, "this model needs F32");
	job_finish(&j);
}

/* Far too high a rate: from the second step on the loss is no number. Each step has its row all the same, with its own validation loss. */
static void test_a_loss_that_is_no_number(void **state)
{
	(void)state;
	struct job j;
	struct fake_world w;
	struct peer_run run;
	char path[256], line[2048];
	unsigned rows = 0, numbers = 0, validated = 0; /* the first one */
	job_init(&j, 7);
	j.optimizer.lr = j.optimizer.min_lr = 1e37;
	undisturbed(&j, &w, &run);
	(void)snprintf(path, sizeof(path), "%s/metrics.jsonl", j.dir);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file) != NULL) {
		unsigned step = 0;
		assert_int_equal(sscanf(line, "{\"step\":%u,", &step), 1);
		assert_int_equal(step, ++rows);
		numbers += strstr(line, "\"loss\":null") == NULL ? step : 0;
		validated += strstr(line, "\"val_loss\":null") == NULL ? step : 0;
	}
	(void)fclose(file);
	assert_int_equal(rows, 7);
	assert_int_equal(numbers, 1);
	assert_int_equal(validated, 1);
	runs_finish(&w, &run);
	job_finish(&j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_learns),
		cmocka_unit_test(test_bf16_learns_as_well),
		cmocka_unit_test(test_resume_is_bit_for_bit),
		cmocka_unit_test(test_resume_finds_the_next_one),
		cmocka_unit_test(test_resume_without_memory),
		cmocka_unit_test(test_workers_do_not_matter),
		cmocka_unit_test(test_replay_leaves_no_trace),
		cmocka_unit_test(test_death_and_join),
		cmocka_unit_test(test_join_at_the_end),
		cmocka_unit_test(test_drop_normalises_by_what_arrived),
		cmocka_unit_test(test_scale_arrived),
		cmocka_unit_test(test_a_loss_that_is_no_number),
		cmocka_unit_test(test_full_disk),
		cmocka_unit_test(test_a_slow_disk_at_the_end),
		cmocka_unit_test(test_a_checkpoint_that_ends_in_the_last_round),
		cmocka_unit_test(test_bad_jobs),
	};
	log_configure(LOG_ERROR, false);
	gemm_setup();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
