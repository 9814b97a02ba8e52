#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "client/trainctl/jobfile.h"
#include "client/trainctl/path.h"
#include "common/json.h"
#include "daemon/checkpoint/byte_character.h"

static char folder[64], file[96], text_file[96];

static const char base[] = "name: quick\n"
                           "model: {layers: 2, width: 64, heads: 2, context: 32}\n"
                           "data: {text: [text.txt], validation: 5%}\n"
                           "train:\n"
                           "  steps: 10\n"
                           "  batch_tokens: 256\n"
                           "checkpoint: {dir: runs/q}\n";

static void write_file(const char *path, const char *text)
{
	FILE *out = fopen(path, "w");
	assert_non_null(out);
	assert_int_equal(fwrite(text, 1, strlen(text), out), strlen(text));
	assert_int_equal(fclose(out), 0);
}

static int set_up(void **state)
{
	(void)state;
	(void)snprintf(folder, sizeof(folder), "/tmp/test_jobfile.XXXXXX");
	assert_non_null(mkdtemp(folder));
	(void)snprintf(file, sizeof(file), "%s/job.yaml", folder);
	(void)snprintf(text_file, sizeof(text_file), "%s/text.txt", folder);
	char text[4096];
	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	write_file(text_file, text);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	(void)unlink(file);
	(void)unlink(text_file);
	return rmdir(folder);
}

static void reads(const char *yaml, const char *const *sets, size_t n_sets,
    Traind__V1__JobSpec **spec)
{
	struct tr_error error = { 0 };
	write_file(file, yaml);
	if (jobfile_read(file, sets, n_sets, spec, &error) != TR_OK)
		fail_msg("%s", error.text);
}

static void says(const char *yaml, const char *set, const char *expected)
{
	Traind__V1__JobSpec *spec = NULL;
	struct tr_error error = { 0 };
	write_file(file, yaml);
	if (jobfile_read(file, &set, set != NULL ? 1 : 0, &spec, &error) == TR_OK)
		fail_msg("taken, but should be refused: %s", expected);
	const char *text = error.text;
	if (strncmp(text, file, strlen(file)) == 0)
		text += strlen(file);
	if (strcmp(text, expected) != 0)
		fail_msg("says:   %s\nshould: %s", text, expected);
	assert_null(spec);
}

/* `base` with its line `number` (from 1) replaced. */
static const char *with_line(unsigned number, const char *line)
{
	static char text[2048];
	size_t used = 0;
	unsigned at = 1;
	for (const char *from = base; *from != '\0'; at++) {
		int length = (int)strcspn(from, "\n");
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%.*s\n",
		    at == number ? (int)strlen(line) : length, at == number ? line : from);
		from += length + 1;
	}
	return text;
}

static void test_good_file(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec;
	char runs[128];
	reads(base, NULL, 0, &spec);
	assert_string_equal(spec->name, "quick");
	assert_string_equal(spec->train->data->text[0], text_file);
	assert_int_equal(spec->train->optimizer->steps, 10);
	assert_true(spec->train->data->validation == 0.05);
	(void)snprintf(runs, sizeof(runs), "%s/runs/q", folder);
	assert_string_equal(spec->train->checkpoint->dir, runs);
	traind__v1__job_spec__free_unpacked(spec, NULL);
}

static void test_default_dir_and_single_path(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec;
	char runs[128];
	reads("name: n\ndata: {text: ./text.txt}\nmodel: {context: 32}\ntrain: {steps: 1, "
	      "batch_tokens: 32}\nsync:\n",
	    NULL, 0, &spec);
	assert_string_equal(spec->train->data->text[0], text_file);
	assert_int_equal(spec->train->data->n_text, 1);
	(void)snprintf(runs, sizeof(runs), "%s/runs/n", folder);
	assert_string_equal(spec->train->checkpoint->dir, runs);
	traind__v1__job_spec__free_unpacked(spec, NULL);
}

static void test_sets(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec;
	const char *sets[] = { "train.steps=20", "checkpoint.dir=out", "data.text=/etc/passwd",
		"data.validation=0", "train.steps=30" };
	char here[4096], out[4104];
	assert_non_null(getcwd(here, sizeof(here)));
	reads(base, sets, 4, &spec);
	assert_int_equal(spec->train->optimizer->steps, 20);
	assert_int_equal(spec->train->data->n_text, 1);
	assert_string_equal(spec->train->data->text[0], "/etc/passwd");
	(void)snprintf(out, sizeof(out), "%s/out", here);
	assert_string_equal(spec->train->checkpoint->dir, out);
	traind__v1__job_spec__free_unpacked(spec, NULL);
	reads(base, sets, 5, &spec);
	assert_int_equal(spec->train->optimizer->steps, 30);
	traind__v1__job_spec__free_unpacked(spec, NULL);

	const char *planned[] = { "mesh=auto" };
	reads(base, planned, 1, &spec);
	assert_true(spec->mesh->auto_);
	traind__v1__job_spec__free_unpacked(spec, NULL);

	says(base, "train.lr=fast",
	    "--set: train.lr: found 'fast', allowed: a number from 1e-09 to 10");
	says(base, "train.stps=1",
	    "--set: train.stps: found an unknown key (did you mean 'train.steps'?), allowed: see "
	    "`trainctl help --job-file`");
	says(base, "train.steps",
	    "--set: train.steps: found no '=', allowed: --set key=value, as in --set "
	    "train.steps=100");
	says(base, "=3",
	    "--set: =3: found no key, allowed: --set key=value, as in --set train.steps=100");
	says(base, "model.heads=3",
	    ":2: model.width: found 64, allowed: a multiple of model.heads, which is 3");
	says(base, "model.width=63",
	    "--set: model.width: found 63, allowed: a multiple of model.heads, which is 2");
	says(base, "sync.inner_steps=8",
	    ":1 (with --set): sync.mode: found ddp with settings of the other modes, allowed: "
	    "local_sgd "
	    "or diloco or streaming or eager or hdet, or none of inner_steps, outer_lr, "
	    "outer_momentum, fragments, overlap, alpha, carry, codec, feedback, inner_seconds, "
	    "by_speed, share_by_speed, weights, "
	    "grace_seconds, quorum, alone_steps, alone_after_seconds and those that begin with "
	    "lr_");
}

static void test_lists_of_numbers(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec;
	const char *sets[] = { "mesh.shares=5", "mesh.shares=2" };
	const char
	    *shared = "name: n\ndata: {text: ./text.txt}\nmodel: {context: 32}\ntrain: {steps: 1, "
	              "batch_tokens: 1024}\nmesh: {nodes: 2, shares: [3, 1]}\n";
	reads(shared, NULL, 0, &spec);
	assert_int_equal(spec->mesh->n_shares, 2);
	assert_true(spec->mesh->shares[0] == 3 && spec->mesh->shares[1] == 1);
	traind__v1__job_spec__free_unpacked(spec, NULL);
	reads(shared, sets, 2, &spec);
	assert_int_equal(spec->mesh->n_shares, 2);
	assert_true(spec->mesh->shares[0] == 5 && spec->mesh->shares[1] == 2);
	traind__v1__job_spec__free_unpacked(spec, NULL);
	const char *written[] = { "5,2", "[5, 2]", "5, 2" };
	for (size_t i = 0; i < 3; i++) {
		char set[64];
		const char *one = set;
		(void)snprintf(set, sizeof(set), "mesh.shares=%s", written[i]);
		reads(shared, &one, 1, &spec);
		assert_int_equal(spec->mesh->n_shares, 2);
		assert_true(spec->mesh->shares[0] == 5 && spec->mesh->shares[1] == 2);
		traind__v1__job_spec__free_unpacked(spec, NULL);
	}
	const char *none[] = { "mesh.shares=5", "mesh.shares=[]" };
	reads(shared, none, 2, &spec);
	assert_int_equal(spec->mesh->n_shares, 0);
	traind__v1__job_spec__free_unpacked(spec, NULL);
	reads(with_line(7, "mesh: {shares: []}"), NULL, 0, &spec);
	assert_int_equal(spec->mesh->n_shares, 0);
	traind__v1__job_spec__free_unpacked(spec, NULL);
	says(base, "mesh.shares=3,",
	    "--set: mesh.shares: found nothing, allowed: a list of whole numbers from 1 to 65536");
	says(base, "mesh.shares=[3;1]",
	    "--set: mesh.shares: found '3;1', allowed: a list of whole numbers from 1 to 65536");
	says(with_line(7, "mesh: {shares: [3, x]}"), NULL,
	    ":7: mesh.shares: found 'x', allowed: a list of whole numbers from 1 to 65536");
	says(with_line(7, "mesh: {shares: [0]}"), NULL,
	    ":7: mesh.shares: found 0, allowed: a list of whole numbers from 1 to 65536");
	says(with_line(7, "mesh: {shares: [1, 1]}"), NULL,
	    ":7: mesh.shares: found 2 of them, allowed: one of each of the mesh's 1 replicas");
}

/* As in the file: each entry is a path of its own, from where the caller is. */
static void test_set_lists_of_paths(void **state)
{
	(void)state;
	static const char *const written[][3] = { { "[", ",", "]" }, { "[", ", ", "]" },
		{ "[ '", "' , \"", "\" ]" } };
	Traind__V1__JobSpec *spec;
	char set[256];
	const char *one = set;
	for (size_t i = 0; i < 3; i++) {
		(void)snprintf(set, sizeof(set), "data.text=%s/etc/passwd%s%s%s", written[i][0],
		    written[i][1], text_file, written[i][2]);
		reads(base, &one, 1, &spec);
		assert_int_equal(spec->train->data->n_text, 2);
		assert_string_equal(spec->train->data->text[0], "/etc/passwd");
		assert_string_equal(spec->train->data->text[1], text_file);
		traind__v1__job_spec__free_unpacked(spec, NULL);
	}
	(void)snprintf(set, sizeof(set), "data.text=[%s]", text_file);
	reads(base, &one, 1, &spec);
	assert_int_equal(spec->train->data->n_text, 1);
	traind__v1__job_spec__free_unpacked(spec, NULL);
	says(base, "data.text=[/etc/passwd,]",
	    "--set: data.text: found an empty entry in '[/etc/passwd,]', allowed: a list of 1 to "
	    "256 paths");
	says(base, "data.text=/etc/passwd,b",
	    "--set: data.text: found '/etc/passwd,b', which cannot be read (No such file or "
	    "directory), "
	    "allowed: text files that are there");
}

/* More than a list takes are refused, not left out. */
static void test_set_too_many_paths(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = NULL;
	struct tr_error error = { 0 };
	const char *keys[] = { "data.text", "data.tokens" };
	char set[20000], expected[128];
	const char *sets[257], *one = set;
	for (size_t i = 0; i < 2; i++) {
		size_t used = (size_t)snprintf(set, sizeof(set), "%s=[", keys[i]);
		for (unsigned n = 0; n < 257; n++)
			used += (size_t)snprintf(set + used, sizeof(set) - used, "%s%s",
			    n > 0 ? "," : "", text_file);
		(void)snprintf(set + used, sizeof(set) - used, "]");
		(void)snprintf(expected, sizeof(expected),
		    "--set: %s: found more than 256 of them, allowed: a list of 1 to 256 paths",
		    keys[i]);
		says(base, set, expected);
	}
	/* as many as are allowed are taken, one by one too, and not one more */
	(void)snprintf(set, sizeof(set), "data.text=%s", text_file);
	for (size_t i = 0; i < 257; i++)
		sets[i] = one;
	reads(base, sets, 256, &spec);
	assert_int_equal(spec->train->data->n_text, 256);
	traind__v1__job_spec__free_unpacked(spec, NULL);
	assert_int_equal(jobfile_read(file, sets, 257, &spec, &error), TR_EINVAL);
	assert_string_equal(error.text,
	    "--set: data.text: found more than 256 of them, allowed: a list of 1 to 256 paths");
}

#define SMALL(CONTEXT)                                                       \
	"name: n\ndata: {text: [text.txt]}\nmodel: {context: " CONTEXT "}\n" \
	"train: {steps: 1, batch_tokens: 4096}\n"

/* Workers want twice the context (samples.h). */
static void test_text_of_less_than_two_contexts(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec;
	char set[160], packed[128];
	says(SMALL("2048"), NULL, /* the text has 4,095 bytes */
	    ":2: data.text: found 4095 bytes to train on, allowed: at least 4096, twice "
	    "model.context");
	const char *yaml = SMALL("1024");
	reads(yaml, NULL, 0, &spec);
	traind__v1__job_spec__free_unpacked(spec, NULL);

	/* Compressed it counts as what it is, also in two members, whose last one alone says its size. */
	(void)snprintf(packed, sizeof(packed), "%s/packed.gz", folder);
	(void)snprintf(set, sizeof(set), "data.text=%s", packed);
	const char *one = set;
	for (int members = 1; members <= 2; members++) {
		gzFile gz = gzopen(packed, members == 1 ? "wb" : "ab");
		assert_non_null(gz);
		for (int i = 0; i < 1500; i++)
			assert_int_equal(gzputc(gz, 'a' + i % 26), 'a' + i % 26);
		assert_int_equal(gzclose(gz), Z_OK);
		if (members == 1)
			says(yaml, set,
			    "--set: data.text: found 1500 bytes to train on, allowed: at least "
			    "2048, twice model.context");
	}
	reads(yaml, &one, 1, &spec);
	traind__v1__job_spec__free_unpacked(spec, NULL);
	assert_int_equal(unlink(packed), 0);
}

static void test_gz_that_is_none(void **state)
{
	(void)state;
	char path[128], set[160], expected[400];
	(void)snprintf(path, sizeof(path), "%s/plain.gz", folder);
	(void)snprintf(set, sizeof(set), "data.text=%s", path);
	write_file(path, "plain text, whatever its name says, and as much of it as a job wants");
	(void)snprintf(expected, sizeof(expected),
	    "--set: data.text: found '%s', which is not compressed, allowed: names that end in "
	    ".gz for what gzip wrote",
	    path);
	says(base, set, expected);
	write_file(path, "\x1f\x8b and no more");
	struct tr_error error = { 0 };
	Traind__V1__JobSpec *spec = NULL;
	const char *one = set;
	assert_int_not_equal(jobfile_read(file, &one, 1, &spec, &error), TR_OK);
	assert_non_null(strstr(error.text, "plain.gz', which cannot be read ("));
	assert_int_equal(unlink(path), 0);
}

#define TOKENIZED(CONTEXT)                                          \
	"name: n\ndata: {text: [text.txt], tokenizer: tokenizer}\n" \
	"model: {vocab: 257, context: " CONTEXT "}\n"               \
	"train: {steps: 1, batch_tokens: 4096}\n"

/* Through a tokenizer its tokens count. */
static void test_tokens_of_a_small_text(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec;
	char tokenizer[128], vocab[160], merges[160];
	struct json json = { 0 };
	(void)snprintf(tokenizer, sizeof(tokenizer), "%s/tokenizer", folder);
	(void)snprintf(vocab, sizeof(vocab), "%s/vocab.json", tokenizer);
	(void)snprintf(merges, sizeof(merges), "%s/merges.txt", tokenizer);
	assert_int_equal(mkdir(tokenizer, 0777), 0);
	json_object(&json);
	for (unsigned byte = 0; byte < 256; byte++) {
		char character[3];
		byte_character((unsigned char)byte, character);
		json_key_uint(&json, character, byte);
	}
	json_key_uint(&json, "aa", 256);
	json_end(&json);
	write_file(vocab, json_text(&json));
	json_finish(&json);
	write_file(merges, "#version: 0.2\na a\n");
	reads(TOKENIZED("1024"), NULL, 0, &spec); /* 4,095 bytes are 2,048 tokens */
	traind__v1__job_spec__free_unpacked(spec, NULL);
	says(TOKENIZED("2048"), NULL,
	    ":2: data.text: found 2048 tokens to train on, allowed: at least 4096, twice "
	    "model.context");
	assert_int_equal(unlink(vocab) | unlink(merges) | rmdir(tokenizer), 0);
}

static void test_bad_keys_and_values(void **state)
{
	(void)state;
	const char *train_keys = "steps, batch_tokens, micro_sequences, lr, min_lr, warmup, clip, "
	                         "weight_decay, beta1, beta2, "
	                         "eps, dropout, seed, dtype, strict, eval_every, eval_sequences";
	char expected[512];
	(void)snprintf(expected, sizeof(expected),
	    ":5: train.stesp: found an unknown key (did you mean 'steps'?), allowed: %s",
	    train_keys);
	says(with_line(5, "  stesp: 10"), NULL, expected);
	(void)snprintf(expected, sizeof(expected),
	    ":5: train.layers: found an unknown key (did you mean 'model.layers'?), allowed: %s",
	    train_keys);
	says(with_line(5, "  layers: 10"), NULL, expected);
	says(with_line(1, "title: q"), NULL,
	    ":1: title: found an unknown key, allowed: name, model, data, train, mesh, sync, "
	    "checkpoint, sample");
	static const char *const slips[][2] = { { "trian", "train" }, { "nmae", "name" },
		{ "steps", "train.steps" }, { "chekpoints", "checkpoint" } };
	for (size_t i = 0; i < sizeof(slips) / sizeof(slips[0]); i++) {
		char line[64];
		(void)snprintf(line, sizeof(line), "%s: q", slips[i][0]);
		(void)snprintf(expected, sizeof(expected),
		    ":1: %s: found an unknown key (did you mean '%s'?), allowed: name, model, "
		    "data, "
		    "train, mesh, sync, checkpoint, sample",
		    slips[i][0], slips[i][1]);
		says(with_line(1, line), NULL, expected);
	}
	says(with_line(1, "train.lr: 1"), NULL,
	    ":1: train.lr: found a dotted key, allowed: sections, as in `train: {lr: 1e-3}`");
	says(with_line(5, "  steps: ten"), NULL,
	    ":5: train.steps: found 'ten', allowed: a whole number from 1 to 1000000000");
	says(with_line(5, "  steps: -10"), NULL,
	    ":5: train.steps: found '-10', allowed: a whole number from 1 to 1000000000");
	says(with_line(5, "  steps: 0"), NULL,
	    ":5: train.steps: found 0, allowed: a whole number from 1 to 1000000000");
	says(with_line(5, "  steps:"), NULL,
	    ":5: train.steps: found nothing, allowed: a whole number from 1 to 1000000000");
	says(with_line(5, "  steps: ~"), NULL,
	    ":5: train.steps: found nothing, allowed: a whole number from 1 to 1000000000");
	says(with_line(5, "  steps: [1]"), NULL,
	    ":5: train.steps: found a list, allowed: a whole number from 1 to 1000000000");
	says(with_line(5, "  steps: {a: 1}"), NULL,
	    ":5: train.steps: found a mapping, allowed: a whole number from 1 to 1000000000");
	says(with_line(6, "  steps: 11"), NULL,
	    ":6: train.steps: found the key again (first on line 5), allowed: each key once");
	says(with_line(7, "model: {layers: 3}"), NULL,
	    ":7: model: found the section again, allowed: each section once");
	says(with_line(2, "model: large"), NULL,
	    ":2: model: found 'large', allowed: a mapping of preset, layers, width, heads, "
	    "kv_heads, hidden, tied, rope_theta, norm_eps, "
	    "context, vocab");
	says(with_line(7, "mesh: automatic"), NULL,
	    ":7: mesh: found 'automatic', allowed: auto, or a mapping of auto, nodes, "
	    "workers_per_node, threads, min_nodes, grow, tp, pp, sequence_parallel, schedule, "
	    "chunks, "
	    "recompute, shares, layers, balance, zero_owners, copies, too_few");
	says(with_line(2, "model: {context: 48, layers: 1, width: 8, heads: 1}"), NULL,
	    ":6: train.batch_tokens: found 256, allowed: a multiple of model.context, which is 48 "
	    "(240 or 288)");
	says(with_line(2, "model: {layers: 2000}"), NULL,
	    ":2: model.layers: found 2000, allowed: a whole number from 1 to 256");
	says(with_line(5, "  lr: 1e-3"), NULL,
	    ":5: train.steps: found nothing, allowed: a whole number from 1 to 1000000000");
	says(with_line(3, "data: {text: []}"), NULL,
	    ":3: data.text: found an empty list, allowed: a list of 1 to 256 paths");
	says(with_line(3, "data: {text: [[a]]}"), NULL,
	    ":3: data.text: found a list, allowed: a path");
}

static void test_bad_data(void **state)
{
	(void)state;
	char expected[512];
	(void)snprintf(expected, sizeof(expected),
	    ":3: data.text: found '%s/none.txt', which cannot be read (No such file or "
	    "directory), allowed: text files that are "
	    "there",
	    folder);
	says(with_line(3, "data: {text: [none.txt]}"), NULL, expected);
	(void)snprintf(expected, sizeof(expected),
	    ":3: data.text: found '%s', which is no regular file, allowed: text files", folder);
	says(with_line(3, "data: {text: [.]}"), NULL, expected);
	says(with_line(3, "data: {text: [text.txt], validation: 0.1%}"), NULL,
	    ":3: data.validation: found 0.1%, which holds out 4 of 4095 bytes, allowed: 0, or a "
	    "share of at least 33 bytes, one "
	    "more than model.context");
	says(with_line(3, "data: {text: [/dev/null]}"), NULL,
	    ":3: data.text: found '/dev/null', which is no regular file, allowed: text files");
	(void)snprintf(expected, sizeof(expected),
	    ":7: checkpoint.dir: found '%s', which is no folder, allowed: a folder, or "
	    "a path where one can be made",
	    text_file);
	says(with_line(7, "checkpoint: {dir: text.txt}"), NULL, expected);
	(void)snprintf(expected, sizeof(expected),
	    ":7: checkpoint.resume: found '%s/no', where manifest.json cannot be read (No such "
	    "file or directory), allowed: the "
	    "folder of a checkpoint",
	    folder);
	says(with_line(7, "checkpoint: {resume: no}"), NULL, expected);
}

static void test_bad_yaml(void **state)
{
	(void)state;
	const char *shape = "a mapping: name, model, data, train, mesh, sync, checkpoint, sample";
	char expected[512];
	(void)snprintf(expected, sizeof(expected), ":1: yaml: found an empty file, allowed: %s",
	    shape);
	says("", NULL, expected);
	(void)snprintf(expected, sizeof(expected), ":1: yaml: found a list, allowed: %s", shape);
	says("- a\n- b\n", NULL, expected);
	(void)snprintf(expected, sizeof(expected), ":1: yaml: found 'hello', allowed: %s", shape);
	says("hello", NULL, expected);
	says("name: q\n---\nname: r\n", NULL,
	    ":2: yaml: found a second document, allowed: one job in a file");
	says("name: q\nmodel: {layers: 2\n]\n", NULL,
	    ":3: yaml: found what cannot be read (while parsing a flow mapping, did not find "
	    "expected ',' or '}'), allowed: `key: "
	    "value` lines, indented by spaces");
	says("name: q\n@\n", NULL,
	    ":2: yaml: found what cannot be read (while scanning for the next token, found "
	    "character that cannot start any "
	    "token), allowed: `key: value` lines, indented by spaces");
	says("name: \xff\n", NULL,
	    ":1: yaml: found what cannot be read (invalid leading UTF-8 octet), allowed: `key: "
	    "value` lines, indented by spaces");
	says("name: !!python/object q\n", NULL, ":1: name: found a tag, allowed: plain values");
	says("name: *x\n", NULL,
	    ":1: name: found an alias, allowed: letters, digits, '.', '_' and '-', 1 to 63 bytes");
	says("a: &a [x,x]\nb: &b [*a,*a]\n", NULL,
	    ":1: a: found an unknown key, allowed: name, model, data, train, mesh, sync, "
	    "checkpoint, sample");
	says("? [a]\n: b\n", NULL, ":1: yaml: found a list, allowed: keys that are words");
	says("name: \"a\\0b\"\n", NULL,
	    ":1: name: found a zero byte, allowed: letters, digits, '.', '_' and '-', 1 to 63 "
	    "bytes");
}

static void test_no_file(void **state)
{
	(void)state;
	Traind__V1__JobSpec *spec = NULL;
	struct tr_error error = { 0 };
	assert_int_equal(jobfile_read("/nowhere/job.yaml", NULL, 0, &spec, &error), TR_ENOTFOUND);
	assert_string_equal(error.text,
	    "/nowhere/job.yaml:1: file: found none that can be read "
	    "(No such file or directory), allowed: a job file");
	assert_int_equal(jobfile_read("/tmp", NULL, 0, &spec, &error), TR_EINVAL);
	assert_string_equal(error.text,
	    "/tmp:1: file: found no regular file, allowed: a job file of at most 1048576 bytes");
}

static void test_deep_nesting_ends(void **state)
{
	(void)state;
	size_t depth = 500000;
	char *deep = malloc(depth + 8);
	memcpy(deep, "name: ", 6);
	memset(deep + 6, '[', depth);
	deep[depth + 6] = '\0';
	says(deep, NULL,
	    ":1: name: found a list, allowed: letters, digits, '.', '_' and '-', 1 to 63 bytes");
	free(deep);
}

static void test_paths(void **state)
{
	(void)state;
	char full[4096];
	assert_true(path_absolute("/none/a", "../b/./c//d", full, sizeof(full)));
	assert_string_equal(full, "/none/b/c/d");
	assert_true(path_absolute("/none", "../../../x", full, sizeof(full)));
	assert_string_equal(full, "/x");
	assert_true(path_absolute("/none", "/etc/../etc/hosts", full, sizeof(full)));
	assert_string_equal(full, "/etc/hosts");
	assert_false(path_absolute("/none", "long", full, 4));
	assert_true(path_folder("/etc/hosts", full, sizeof(full)));
	assert_string_equal(full, "/etc");
	assert_true(path_folder("/etc", full, sizeof(full)));
	assert_string_equal(full, "/");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good_file),
		cmocka_unit_test(test_default_dir_and_single_path),
		cmocka_unit_test(test_sets),
		cmocka_unit_test(test_lists_of_numbers),
		cmocka_unit_test(test_set_lists_of_paths),
		cmocka_unit_test(test_set_too_many_paths),
		cmocka_unit_test(test_text_of_less_than_two_contexts),
		cmocka_unit_test(test_gz_that_is_none),
		cmocka_unit_test(test_tokens_of_a_small_text),
		cmocka_unit_test(test_bad_keys_and_values),
		cmocka_unit_test(test_bad_data),
		cmocka_unit_test(test_bad_yaml),
		cmocka_unit_test(test_no_file),
		cmocka_unit_test(test_deep_nesting_ends),
		cmocka_unit_test(test_paths),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
