/* Low-communication training by the trainer, over a stand-in group (fake_coll.h): one worker's is plain training, resume is bit for bit, workers that come later agree with the others. */
#include "common/log.h"
#include "daemon/worker/gemm.h"
#include "tests/unit/trainer_world.h"

static void talk_rarely(struct job *j, const char *mode, uint64_t inner_steps)
{
	j->sync.mode = (char *)(uintptr_t)mode;
	j->sync.inner_steps = inner_steps;
}

/* Parameters averaged after each step of a single worker are that worker's. */
static void test_local_sgd_of_one_is_training(void **state)
{
	(void)state;
	struct job j;
	struct fake_world plain, w;
	struct peer_run alone, run;
	job_init(&j, 8);
	undisturbed(&j, &plain, &alone);
	talk_rarely(&j, "local_sgd", 1);
	undisturbed(&j, &w, &run);
	assert_true(distance(&alone, &run) < 1e-5);
	assert_true(fabs(plain.groups[0].loss - w.groups[0].loss) < 1e-5);
	assert_true(fabs(plain.groups[0].val_loss - w.groups[0].val_loss) < 1e-5);
	assert_int_equal(w.groups[0].steps_reported, 8);
	runs_finish(&plain, &alone);
	runs_finish(&w, &run);
	job_finish(&j);
}

/* A single worker's moments are all there are, so nothing is lost at a merge. */
static void test_diloco_resumes_bit_for_bit(void **state)
{
	(void)state;
	struct job j;
	char whole[256], resumed[256];
	job_init(&j, 12);
	talk_rarely(&j, "diloco", 3);
	train_to(&j, 12, "whole", "");
	train_to(&j, 6, "half", "");
	train_to(&j, 12, "resumed", "half");
	(void)snprintf(whole, sizeof(whole), "%s/whole/latest", j.folder);
	(void)snprintf(resumed, sizeof(resumed), "%s/resumed/latest", j.folder);
	assert_same_file(whole, resumed, MANIFEST_MODEL);
	assert_same_file(whole, resumed, MANIFEST_OPTIMIZER);
	/* Nothing is left to train: it ends with what it had. */
	train_to(&j, 12, "again", "whole");
	(void)snprintf(resumed, sizeof(resumed), "%s/again/latest", j.folder);
	assert_same_file(whole, resumed, MANIFEST_MODEL);
	assert_same_file(whole, resumed, MANIFEST_OPTIMIZER);
	job_finish(&j);
}

static void test_workers_that_talk_rarely_agree(void **state)
{
	(void)state;
	static const char *const modes[] = { "local_sgd", "diloco", "streaming", "eager" };
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		struct job j;
		struct fake_world w;
		struct peer_run runs[FAKE_PEERS_MAX];
		job_init(&j, 30);
		talk_rarely(&j, modes[i], 5);
		fake_world_init(&w, 3);
		w.restart_at = 3;         /* a round that is abandoned and begun again */
		w.groups[2].joins_at = 2; /* and one who comes later */
		run_world(&j, &w, runs);
		for (unsigned p = 0; p < 3; p++) {
			assert_ok(&runs[p]);
			assert_same_bits(&runs[0], &runs[p]);
		}
		assert_true(w.groups[0].first_loss > 4 && w.groups[0].val_loss < 3);
		runs_finish(&w, runs);
		job_finish(&j);
	}
}

static void assert_latest(const struct job *j, const char *name)
{
	char path[256], real_path[4096];
	(void)snprintf(path, sizeof(path), "%s/latest", j->dir);
	assert_non_null(realpath(path, real_path));
	assert_string_equal(strrchr(real_path, '/') + 1, name);
}

/* `latest` was another one when it looked, or its disk has others: what it joins goes on as it began. */
static void test_a_joiner_with_another_checkpoint(void **state)
{
	(void)state;
	static const char *const found[2][2] = { { "four", "eight" }, { "eight", "four" } };
	static const uint64_t begun_at[2] = { 1, 2 }; /* merges; rounds are numbered from there */
	struct job j, other;
	job_init(&j, 8);
	job_init(&other, 16);
	other.texts[0] = j.text_path;
	talk_rarely(&j, "diloco", 4);
	talk_rarely(&other, "diloco", 4);
	train_to(&j, 4, "four", "");
	train_to(&j, 8, "eight", "");
	j.optimizer.steps = 16;
	for (unsigned i = 0; i < 2; i++) {
		struct fake_world w;
		struct peer_run runs[2];
		(void)snprintf(j.dir, sizeof(j.dir), "%s/run%u", j.folder, i);
		(void)snprintf(j.resume, sizeof(j.resume), "%s/%s", j.folder, found[i][0]);
		(void)snprintf(other.resume, sizeof(other.resume), "%s/%s", j.folder, found[i][1]);
		fake_world_init(&w, 2);
		w.groups[1].joins_at = begun_at[i] + 2;
		run_jobs((struct job *const[]){ &j, &other }, &w, runs);
		assert_ok(&runs[0]);
		assert_ok(&runs[1]);
		assert_same_bits(&runs[0], &runs[1]);
		for (unsigned p = 0; p < 2; p++)
			assert_int_equal(runs[p].begun, 4 * begun_at[i] * BATCH);
		assert_latest(&j, "step-00000016");
		runs_finish(&w, runs);
	}
	job_finish(&other);
	job_finish(&j);
}

/* The others have merged everything by then, and the last of them dies over the last checkpoint. */
static void test_a_joiner_at_the_end_writes(void **state)
{
	(void)state;
	struct job j;
	struct fake_world w;
	struct peer_run runs[2];
	char path[256];
	job_init(&j, 10);
	talk_rarely(&j, "diloco", 5);
	fake_world_init(&w, 2);
	w.groups[0].dies_at = w.groups[1].joins_at = 3;
	run_world(&j, &w, runs);
	assert_int_equal(runs[0].status, TR_EEVICTED);
	assert_ok(&runs[1]);
	(void)snprintf(path, sizeof(path), "%s/step-00000000", j.dir);
	assert_int_not_equal(access(path, F_OK), 0);
	assert_latest(&j, "step-00000010");
	runs_finish(&w, runs);
	job_finish(&j);
}

/* Each validates its part, by how many they are; the row of the next merge has the mean. One that has come since has no part in it, though it was counted. */
static void test_a_part_of_a_validation_is_none(void **state)
{
	(void)state;
	static const bool whole[] = { false, true, false, true };
	struct job j;
	struct fake_world w;
	struct peer_run runs[2];
	char path[256], line[2048];
	unsigned rows = 0;
	job_init(&j, 20);
	talk_rarely(&j, "diloco", 5);
	fake_world_init(&w, 2);
	w.groups[1].joins_at = 2;
	run_world(&j, &w, runs);
	assert_ok(&runs[0]);
	assert_ok(&runs[1]);
	(void)snprintf(path, sizeof(path), "%s/metrics.jsonl", j.dir);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	for (; fgets(line, sizeof(line), file) != NULL; rows++) {
		assert_true(rows < 4);
		assert_int_equal(strstr(line, "\"val_loss\":null") == NULL, whole[rows]);
	}
	(void)fclose(file);
	assert_int_equal(rows, 4);
	runs_finish(&w, runs);
	job_finish(&j);
}

/* Races end with round 13, in which the last winner gives its moments; training began anew at step 12. Who waited for that round has them, who comes later has none. */
static void test_moments_of_who_joins_after_races(void **state)
{
	(void)state;
	static const uint64_t joins_at[] = { 9, 13, 40 }, ages[] = { 88, 88, 20 };
	for (size_t i = 0; i < sizeof(ages) / sizeof(ages[0]); i++) {
		struct job j;
		struct fake_world w;
		struct peer_run runs[3];
		job_init(&j, 100);
		talk_rarely(&j, "hdet", 2);
		j.sync.lr_search = true;
		j.optimizer.eval_every = 0;
		fake_world_init(&w, 3);
		w.groups[2].joins_at = joins_at[i];
		run_world(&j, &w, runs);
		for (unsigned p = 0; p < 3; p++)
			assert_ok(&runs[p]);
		assert_int_equal(runs[0].age, 88);
		assert_int_equal(runs[1].age, 88);
		assert_int_equal(runs[2].age, ages[i]);
		runs_finish(&w, runs);
		job_finish(&j);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_local_sgd_of_one_is_training),
		cmocka_unit_test(test_diloco_resumes_bit_for_bit),
		cmocka_unit_test(test_workers_that_talk_rarely_agree),
		cmocka_unit_test(test_a_part_of_a_validation_is_none),
		cmocka_unit_test(test_a_joiner_at_the_end_writes),
		cmocka_unit_test(test_a_joiner_with_another_checkpoint),
		cmocka_unit_test(test_moments_of_who_joins_after_races),
	};
	log_configure(LOG_ERROR, false);
	gemm_setup();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
