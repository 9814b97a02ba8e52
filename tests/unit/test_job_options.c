#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/limits.h"
#include "daemon/plan/job_options.h"
#include "daemon/plan/job_sync.h"
#include "tests/unit/good_job.h"

static void sets_refused(const char *key, const char *text, const char *says)
{
	Traind__V1__JobSpec *spec = job_spec_new(true);
	struct tr_error error = { 0 };
	assert_int_equal(job_option_set(spec, key, text, &error), TR_EINVAL);
	if (strcmp(error.text, says) != 0)
		fail_msg("says:    %s\nshould:  %s", error.text, says);
	drop(spec);
}

static void test_values_arrive(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = good();
	struct tr_error error = { 0 };
	if (job_validate(spec, &error) != TR_OK)
		fail_msg("%s", error.text);
	assert_string_equal(spec->name, "quickstart");
	assert_int_equal(spec->train->model->width, 128);
	assert_string_equal(spec->train->model->preset, "gpt2");
	assert_true(spec->train->data->validation == 0.05);
	assert_int_equal(spec->train->data->n_text, 1);
	assert_int_equal(spec->train->optimizer->batch_tokens, 8192);
	assert_true(spec->train->optimizer->beta1 == 0.9);
	assert_true(spec->train->optimizer->min_lr == 0);
	assert_int_equal(spec->train->sync->deterministic, 1);
	assert_string_equal(spec->train->sync->on_loss, "drop");
	assert_int_equal(spec->mesh->workers, 3);
	assert_int_equal(spec->train->checkpoint->keep, 2);
	/* 4 * (12 * 128^2 + 13 * 128) + (256 + 128) * 128 + 2 * 128 */
	assert_int_equal(job_parameters(spec), 842496);
	drop(spec);
}

static void test_validate_is_idempotent(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = good();
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	size_t bytes = traind__v1__job_spec__get_packed_size(spec);
	uint8_t *once = malloc(bytes), *twice = malloc(bytes);
	traind__v1__job_spec__pack(spec, once);
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	assert_int_equal(traind__v1__job_spec__get_packed_size(spec), bytes);
	traind__v1__job_spec__pack(spec, twice);
	assert_memory_equal(once, twice, bytes);
	free(once);
	free(twice);
	drop(spec);
}

/* 0 is "unset" on the wire, so a key that may be 0 must have 0 as its default. */
static void test_rows_are_sound(void **state)
{
	(void)state;
	for (const struct job_option *row = job_options(); row->key != NULL; row++) {
		bool number = row->kind == OPTION_UINT || row->kind == OPTION_DOUBLE ||
		    row->kind == OPTION_FRACTION;
		if (number && row->least <= 0 &&
		    (row->fallback == NULL || strtod(row->fallback, NULL) != 0))
			fail_msg("%s may be 0 and has another default", row->key);
		if (number && row->least > row->most)
			fail_msg("%s has an empty range", row->key);
		assert_non_null(row->help);
		assert_ptr_equal(job_option_find(row->key), row);
		if (row->fallback == NULL || row->kind == OPTION_PATH ||
		    job_option_list_most(row) > 0)
			continue;
		Traind__V1__JobSpec *spec = job_spec_new(true);
		set_good(spec, row->key, row->fallback);
		drop(spec);
	}
	assert_null(job_option_find("train"));
	assert_true(job_option_is_section("train"));
	assert_false(job_option_is_section("trai"));
	assert_false(job_option_is_section(""));
}

static void test_text_refused(void **state)
{
	(void)state;
	sets_refused("train.lr", "fast",
	    "train.lr: found 'fast', allowed: a number from 1e-09 to 10");
	sets_refused("train.lr", "0", "train.lr: found 0, allowed: a number from 1e-09 to 10");
	sets_refused("train.lr", "nan", "train.lr: found 'nan', allowed: a number from 1e-09 to 10");
	sets_refused("train.lr", "1e-3x",
	    "train.lr: found '1e-3x', allowed: a number from 1e-09 to 10");
	sets_refused("train.lr", "0x1", "train.lr: found '0x1', allowed: a number from 1e-09 to 10");
	sets_refused("train.lr", "", "train.lr: found nothing, allowed: a number from 1e-09 to 10");
	sets_refused("model.layers", "-1",
	    "model.layers: found '-1', allowed: a whole number from 1 to 256");
	sets_refused("model.layers", "1.5",
	    "model.layers: found '1.5', allowed: a whole number from 1 to 256");
	sets_refused("model.layers", "300",
	    "model.layers: found 300, allowed: a whole number from 1 to 256");
	sets_refused("model.layers", "99999999999999999999999",
	    "model.layers: found '99999999999999999999999', allowed: a whole number from 1 to 256");
	sets_refused("sync.on_loss", "pray", "sync.on_loss: found 'pray', allowed: replay or drop");
	sets_refused("sync.on_loss", "repl", "sync.on_loss: found 'repl', allowed: replay or drop");
	sets_refused("sync.mode", "dilocco",
	    "sync.mode: found 'dilocco', allowed: ddp or local_sgd or diloco or streaming or "
	    "eager or hdet");
	sets_refused("sync.deterministic", "yes",
	    "sync.deterministic: found 'yes', allowed: true or false");
	sets_refused("data.validation", "60%",
	    "data.validation: found 0.6, allowed: a share from 0% to 50% (or 0 to 0.5)");
	sets_refused("name", "a/b",
	    "name: found 'a/b', allowed: letters, digits, '.', '_' and '-', 1 to 63 bytes");
	sets_refused("name", "..",
	    "name: found '..', allowed: letters, digits, '.', '_' and '-', 1 to 63 bytes");
	sets_refused("data.text", "", "data.text: found nothing, allowed: a list of 1 to 256 paths");
	sets_refused("train.stps", "1",
	    "train.stps: found an unknown key (did you mean 'train.steps'?), allowed: see "
	    "`trainctl help --job-file`");
	sets_refused("zzzzzz", "1",
	    "zzzzzz: found an unknown key, allowed: see `trainctl help --job-file`");
}

static void test_suggestions(void **state)
{
	(void)state;
	assert_string_equal(job_option_suggest("train.step"), "train.steps");
	assert_string_equal(job_option_suggest("steps"), "train.steps");
	assert_string_equal(job_option_suggest("model.lr"), "train.lr");
	assert_string_equal(job_option_suggest("train.bacth_tokens"), "train.batch_tokens");
	assert_null(job_option_suggest("train.momentum_of_the_optimizer_that_is_not_there_at_all"));
	assert_null(job_option_suggest("quantum"));
}

static Traind__V1__JobSpec *good_llama(void)
{
	Traind__V1__JobSpec *spec = good();
	set_good(spec, "model.preset", "llama");
	return spec;
}

static void test_llama(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = good_llama();
	struct model_config config;
	set_good(spec, "model.kv_heads", "2");
	set_good(spec, "model.tied", "false");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	/* 8/3 of 128 is 341.3; 4 * (128 * (128 + 2 * 64 + 128 + 3 * 384) + 2 * 128) + 2 * 256 * 128 + 128 */
	assert_int_equal(job_parameters(spec), 853120);
	assert_int_equal(job_model_config(spec->train->model, &config, NULL), TR_OK);
	assert_true(config.preset == MODEL_LLAMA && config.untied && config.rope_theta == 10000);
	assert_int_equal(config.hidden, 384);
	assert_int_equal(config.head_width, 32);
	drop(spec);
	spec = good_llama();
	set_good(spec, "model.kv_heads", "3");
	refused(spec, "model.kv_heads: found 3, allowed: a divisor of model.heads, which is 4");
	spec = good_llama();
	set_good(spec, "model.heads", "128");
	refused(spec,
	    "model.heads: found 128, which makes heads of 1 channels, allowed: heads of an even "
	    "number of channels, since positions turn them in pairs");
	spec = good_llama();
	set_good(spec, "model.rope_theta", "0.5");
	refused(spec, "model.rope_theta: found 0.5, allowed: a number from 1 to 1e9");
	spec = good();
	set_good(spec, "model.tied", "false");
	refused(spec,
	    "model.tied: found false, allowed: true, since the head of gpt2 is its token "
	    "embedding");
	spec = good();
	set_good(spec, "model.rope_theta", "500000");
	refused(spec,
	    "model.rope_theta: found 500000, allowed: none, since the positions of gpt2 are "
	    "learned");
	spec = good();
	set_good(spec, "model.kv_heads", "2");
	refused(spec,
	    "model.kv_heads: found 2, allowed: model.heads, which is 4, since gpt2 has keys and "
	    "values for each head");
}

/* A text of bytes, or files of tokens. */
static void test_data(void **state)
{
	(void)state;
	struct model_config config;
	Traind__V1__JobSpec *spec = good();
	job_option_clear(spec, "data.text");
	refused(spec, "data.text: found nothing, allowed: a list of 1 to 256 paths");
	spec = good();
	set_good(spec, "data.tokens", "/a.bin");
	refused(spec, "data.tokens: found data.text as well, allowed: one of them");
	spec = good();
	set_good(spec, "model.vocab", "50257");
	refused(spec,
	    "model.vocab: found 50257, allowed: bytes, since without data.tokenizer data.text is "
	    "read byte by byte");
	spec = good();
	set_good(spec, "data.tokenizer", "/gpt2");
	refused(spec,
	    "model.vocab: found bytes, allowed: how many tokens data.tokenizer has, as 50257 of "
	    "GPT-2");
	spec = good();
	job_option_clear(spec, "data.text");
	set_good(spec, "data.tokens", "/a.bin");
	refused(spec,
	    "model.vocab: found bytes, allowed: how many tokens data.tokens has, as 50257 of "
	    "GPT-2");
	const char *const bad[] = { "1", "words", "16777217", "5k" };
	for (size_t i = 0; i < 4; i++) {
		char says[120];
		(void)snprintf(says, sizeof(says),
		    "model.vocab: found '%s', allowed: bytes or a whole number from 2 to 16777216",
		    bad[i]);
		spec = good();
		job_option_clear(spec, "data.text");
		set_good(spec, "data.tokens", "/a.bin");
		set_good(spec, "model.vocab", bad[i]);
		refused(spec, says);
	}
	spec = good();
	job_option_clear(spec, "data.text");
	set_good(spec, "data.tokens", "/a.bin");
	set_good(spec, "model.vocab", "50257");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	assert_int_equal(job_model_config(spec->train->model, &config, NULL), TR_OK);
	assert_int_equal(config.vocab, 50257);
	set_good(spec, "sample.tokens", "10");
	refused(spec,
	    "sample.tokens: found 10, allowed: 0, since without data.tokenizer nothing tells which "
	    "text a token is");
}

static void test_sync_refused(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = good();
	set_good(spec, "sync.inner_steps", "64");
	refused(spec,
	    "sync.mode: found ddp with settings of the other modes, allowed: local_sgd or diloco "
	    "or streaming or eager or hdet, or none of inner_steps, outer_lr, outer_momentum, "
	    "fragments, "
	    "overlap, alpha, carry, codec, feedback, inner_seconds, by_speed, share_by_speed, "
	    "weights, grace_seconds, "
	    "quorum, "
	    "alone_steps, alone_after_seconds and "
	    "those that begin with lr_");

	spec = good();
	set_good(spec, "sync.mode", "diloco");
	set_good(spec, "sync.inner_seconds", "30");
	set_good(spec, "sync.by_speed", "true");
	refused(spec,
	    "sync.by_speed: found 1, allowed: 0 (false) beside inner_seconds: one of the two");

	spec = good();
	set_good(spec, "sync.mode", "diloco");
	set_good(spec, "sync.share_by_speed", "true");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	set_good(spec, "sync.by_speed", "true");
	refused(spec,
	    "sync.share_by_speed: found 1, allowed: 0 (false) beside by_speed: one of the two");

	spec = good();
	set_good(spec, "sync.mode", "diloco");
	set_good(spec, "sync.quorum", "2");
	refused(spec, "sync.quorum: found 2, allowed: nothing without grace_seconds");

	spec = good();
	set_good(spec, "sync.mode", "diloco");
	set_good(spec, "sync.lr_spread", "0.1");
	refused(spec, "sync.lr_spread: found 0.1, allowed: nothing unless the mode is hdet");

	spec = good();
	set_good(spec, "sync.mode", "streaming");
	set_good(spec, "sync.inner_steps", "60");
	set_good(spec, "sync.fragments", "3");
	set_good(spec, "sync.overlap", "21");
	refused(spec, "sync.overlap: found 21, allowed: 0 to 20, inner_steps / fragments");
}

static void test_whole_refused(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = good();
	set_good(spec, "model.heads", "3");
	refused(spec, "model.width: found 128, allowed: a multiple of model.heads, which is 3");

	spec = good();
	set_good(spec, "train.batch_tokens", "1000");
	refused(spec,
	    "train.batch_tokens: found 1000, allowed: a multiple of model.context, which "
	    "is 128 (896 or 1024)");

	spec = good();
	set_good(spec, "train.batch_tokens", "256");
	refused(spec,
	    "train.batch_tokens: found 256 (sequences: 2), allowed: at least 384, a "
	    "sequence for each of the mesh's 3 workers");

	spec = good();
	set_good(spec, "train.warmup", "601");
	refused(spec, "train.warmup: found 601, allowed: at most train.steps, which is 600");

	spec = good();
	set_good(spec, "train.min_lr", "0.1");
	refused(spec, "train.min_lr: found 0.1, allowed: at most train.lr, which is 0.001");

	spec = good();
	set_good(spec, "mesh.min_nodes", "4");
	refused(spec, "mesh.min_nodes: found 4, allowed: at most mesh.nodes, which is 3");

	spec = good();
	set_good(spec, "mesh.workers_per_node", "200");
	refused(spec,
	    "mesh.workers_per_node: found 200, which on 3 nodes makes 600 workers, "
	    "allowed: at most 256 workers");

	spec = good();
	set_good(spec, "model.width", "16384");
	set_good(spec, "model.layers", "4");
	refused(spec,
	    "model.width: found 16384, which with 4 layers makes 12.9 G parameters: 12.9 G (206 "
	    "GB of state) for each of the 1 that share it (mesh.tp x mesh.pp), allowed: at most "
	    "4.0 G for each");

	/* Shared by four it is none too large. */
	spec = good();
	set_good(spec, "model.width", "16384");
	set_good(spec, "model.layers", "4");
	set_good(spec, "mesh.nodes", "4");
	set_good(spec, "mesh.pp", "4");
	set_good(spec, "sync.on_loss", "replay");
	struct tr_error error;
	if (job_validate(spec, &error) != TR_OK)
		fail_msg("%s", error.text);
	drop(spec);

	spec = good();
	job_option_clear(spec, "train.steps");
	refused(spec, "train.steps: found nothing, allowed: a whole number from 1 to 1000000000");

	spec = good();
	job_option_clear(spec, "data.text");
	refused(spec, "data.text: found nothing, allowed: a list of 1 to 256 paths");

	spec = good();
	set_good(spec, "data.text", "relative.txt");
	refused(spec, "data.text: found 'relative.txt', allowed: an absolute path");

	spec = good();
	job_option_clear(spec, "checkpoint.dir");
	refused(spec, "checkpoint.dir: found nothing, allowed: a path");
}

/* What comes by the API did not pass job_option_set(). */
static void feedback_is(const char *codec, const char *given, double expected)
{
	Traind__V1__JobSpec *spec = good();
	struct tr_sync_options options;
	struct tr_error error = { 0 };
	set_good(spec, "sync.mode", "diloco");
	set_good(spec, "sync.codec", codec);
	if (given != NULL)
		set_good(spec, "sync.feedback", given);
	if (job_sync_options(spec->train, 100, &options, &error) != TR_OK)
		fail_msg("%s", error.text);
	if (fabs(options.feedback - expected) > 0)
		fail_msg("%s, %s: %g", codec, given, options.feedback);
	drop(spec);
}

/* Error feedback that is on unless something is said can be turned off. */
static void test_feedback(void **state)
{
	(void)state;
	feedback_is("int2", NULL, 0.95);
	feedback_is("int2", "0.5", 0.5);
	feedback_is("int2", "-1", 0);
	feedback_is("int4", NULL, 0);
	sets_refused("sync.feedback", "-2",
	    "sync.feedback: found -2, allowed: a number from -1 to 1");
}

static void test_wire_values_refused(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = good();
	spec->train->optimizer->lr = NAN;
	refused(spec, "train.lr: found nan, allowed: a number from 1e-09 to 10");

	spec = good();
	spec->train->model->layers = UINT32_MAX;
	refused(spec, "model.layers: found 4294967295, allowed: a whole number from 1 to 256");

	spec = good();
	spec->mesh->workers = 7;
	refused(spec, "mesh.workers: found 7, allowed: nodes times workers_per_node, which is 3");

	spec = good();
	spec->command = calloc(1, sizeof(*spec->command));
	traind__v1__command_spec__init(spec->command);
	refused(spec, "train: found train and command, allowed: exactly one of train and command");

	spec = calloc(1, sizeof(*spec));
	traind__v1__job_spec__init(spec);
	refused(spec,
	    "train: found neither train nor command, allowed: exactly one of train and command");

	spec = calloc(1, sizeof(*spec));
	traind__v1__job_spec__init(spec);
	spec->train = calloc(1, sizeof(*spec->train));
	traind__v1__train_spec__init(spec->train);
	refused(spec,
	    "name: found nothing, allowed: letters, digits, '.', '_' and '-', 1 to 63 bytes");
}

static Traind__V1__JobSpec *command(const char *program, uint32_t workers)
{
	Traind__V1__JobSpec *spec = job_spec_new(false);
	spec->command->argv = calloc(1, sizeof(char *));
	spec->command->argv[0] = strdup(program);
	spec->command->n_argv = 1;
	spec->mesh->workers = workers;
	return spec;
}

static void add_env(Traind__V1__JobSpec *spec, const char *text)
{
	spec->command->env = calloc(1, sizeof(char *));
	spec->command->env[0] = strdup(text);
	spec->command->n_env = 1;
}

static void test_commands(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = command("true", 4);
	add_env(spec, "PATH=/bin");
	assert_int_equal(job_validate(spec, NULL), TR_OK);
	assert_string_equal(spec->name, "command");
	drop(spec);

	refused(command("true", 0), "mesh.workers: found 0, allowed: a whole number from 1 to 256");
	refused(command("true", 257),
	    "mesh.workers: found 257, allowed: a whole number from 1 to 256");
	refused(command("", 1), "command.argv: found nothing, allowed: a program and its arguments");
	refused(job_spec_new(false),
	    "command.argv: found nothing, allowed: a program and its arguments");
	spec = command("true", 1);
	add_env(spec, "1=x");
	refused(spec, "command.env: found '1=x', allowed: KEY=value");
	spec = command("true", 1);
	add_env(spec, "novalue");
	refused(spec, "command.env: found 'novalue', allowed: KEY=value");
	spec = command("true", 1);
	spec->command->directory = strdup("here");
	refused(spec, "command.directory: found 'here', allowed: an absolute path");
	spec = command("true", 2);
	spec->mesh->nodes = 3;
	refused(spec, "mesh.nodes: found 3, allowed: at most mesh.workers, which is 2");
}

static void test_text_sizes(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = good();
	struct tr_error error = { 0 };
	assert_int_equal(job_validate(spec, &error), TR_OK);
	assert_int_equal(job_validate_text(spec, 100000, &error), TR_OK);
	assert_int_equal(job_validate_text(spec, 2579, &error), TR_EINVAL);
	assert_string_equal(error.text,
	    "data.validation: found 5%, which holds out 128 of 2579 "
	    "bytes, allowed: 0, or a share of "
	    "at least 129 bytes, one more than model.context");
	assert_int_equal(job_validate_text(spec, 2580, &error), TR_OK);
	assert_int_equal(job_validate_text(spec, 100, &error), TR_EINVAL);
	assert_string_equal(error.text,
	    "data.text: found 95 bytes to train on, allowed: at least "
	    "256, twice model.context");
	spec->train->data->validation = 0;
	assert_int_equal(job_validate_text(spec, 255, &error), TR_EINVAL);
	assert_int_equal(job_validate_text(spec, 256, &error), TR_OK);
	drop(spec);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values_arrive),
		cmocka_unit_test(test_validate_is_idempotent),
		cmocka_unit_test(test_rows_are_sound),
		cmocka_unit_test(test_text_refused),
		cmocka_unit_test(test_suggestions),
		cmocka_unit_test(test_llama),
		cmocka_unit_test(test_data),
		cmocka_unit_test(test_sync_refused),
		cmocka_unit_test(test_whole_refused),
		cmocka_unit_test(test_feedback),
		cmocka_unit_test(test_wire_values_refused),
		cmocka_unit_test(test_commands),
		cmocka_unit_test(test_text_sizes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
