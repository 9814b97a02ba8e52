/* Folders of Hugging Face's transformers that are not as they should be: each is refused in one line, and nothing is left behind. Good ones
 * are in tests/parity/test_huggingface.py. */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/checkpoint/hf_config.h"
#include "daemon/checkpoint/hf_folder.h"
#include "daemon/checkpoint/weights.h"

#define LLAMA                                                                                \
	"\"model_type\":\"llama\",\"num_hidden_layers\":1,\"hidden_size\":8,"                \
	"\"num_attention_heads\":2,\"intermediate_size\":12,\"max_position_embeddings\":16," \
	"\"vocab_size\":256"
#define GPT2                                                                                  \
	"\"model_type\":\"gpt2\",\"n_layer\":1,\"n_embd\":8,\"n_head\":2,\"n_positions\":16," \
	"\"vocab_size\":256"

static void says(const char *got, const char *wanted)
{
	if (strstr(got, wanted) == NULL || strchr(got, '\n') != NULL)
		fail_msg("says:   %s\nshould: %s", got, wanted);
}

static void refused(const char *config, const char *wanted)
{
	struct model_config out;
	struct tr_error error;
	assert_int_not_equal(hf_config_parse(config, strlen(config), &out, &error), TR_OK);
	says(error.text, wanted);
}

static struct model_config parsed(const char *config)
{
	struct model_config out;
	struct tr_error error;
	if (hf_config_parse(config, strlen(config), &out, &error) != TR_OK)
		fail_msg("%s", error.text);
	return out;
}

static void test_configs(void **state)
{
	(void)state;
	struct model_config c = parsed("{" LLAMA ",\"unknown\":{\"a\":[1,{}]},\"head_dim\":4}");
	assert_true(c.preset == MODEL_LLAMA && c.untied && c.kv_heads == 2 && c.hidden == 12);
	assert_true(c.norm_eps == 1e-6 && c.rope_theta == 10000 && c.head_width == 4);
	c = parsed(
	    "{" LLAMA ",\"rope_theta\":5e5,\"rope_scaling\":null,\"tie_word_embeddings\":true}");
	assert_true(c.rope_theta == 5e5 && !c.untied);
	c = parsed(
	    "{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7.0}}");
	assert_true(c.rope_theta == 7);
	/* Of both objects transformers takes rope_scaling alone, if there is something in it. */
	c = parsed("{" LLAMA ",\"rope_parameters\":{\"rope_theta\":7.0},\"rope_theta\":9,"
	           "\"rope_scaling\":{\"type\":\"default\"}}");
	assert_true(c.rope_theta == 9);
	c = parsed("{" LLAMA ",\"rope_parameters\":{\"rope_theta\":7.0},\"rope_scaling\":{}}");
	assert_true(c.rope_theta == 7);
	c = parsed("{" GPT2 ",\"n_inner\":null}");
	assert_true(c.preset == MODEL_GPT2 && !c.untied && c.hidden == 32 && c.norm_eps == 1e-5);

	refused("", "not a well-formed JSON object");
	refused("[1]", "not a well-formed JSON object");
	refused("{" LLAMA, "not a well-formed JSON object");
	refused("{}", "model_type: found nothing, allowed: gpt2 or llama");
	refused("{\"model_type\":\"mistral\"}",
	    "model_type: found \"mistral\", allowed: gpt2 or llama");
	refused("{\"model_type\":\"gpt2\"}", "n_layer: found nothing, allowed: a whole number");
	refused("{" GPT2 ",\"n_inner\":-4}",
	    "n_inner: found -4, allowed: a whole number from 1 to 16777216");
	refused("{" GPT2 ",\"activation_function\":\"relu\"}",
	    "activation_function: found \"relu\", allowed: \"gelu_new\"");
	refused("{" GPT2 ",\"tie_word_embeddings\":false}", "model.tied: found false");
	refused("{" LLAMA ",\"attention_bias\":true}", "attention_bias: found true, allowed: false");
	refused("{" LLAMA ",\"is_causal\":false}", "is_causal: found false, allowed: true");
	refused("{" GPT2 ",\"is_causal\":false}", "is_causal: found false, allowed: true");
	refused("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0}}",
	    "rope_scaling: rope_type: found \"llama3\", allowed: \"default\"");
	refused("{" LLAMA ",\"head_dim\":8}", "head_dim: found 8, allowed: hidden_size");
	refused("{" LLAMA ",\"num_key_value_heads\":3}", "model.kv_heads: found 3");
	refused("{" LLAMA ",\"rms_norm_eps\":\"small\"}", "rms_norm_eps: found \"small\"");
}

/* What is written is read as the same. */
static void test_config_round_trip(void **state)
{
	(void)state;
	struct model_config all[] = { parsed(
		                          "{" GPT2 ",\"n_inner\":20,\"layer_norm_epsilon\":0.001}"),
		parsed("{" LLAMA ",\"num_key_value_heads\":1,\"rope_theta\":123.5}"),
		parsed("{" LLAMA ",\"tie_word_embeddings\":true}") };
	for (size_t i = 0; i < 3; i++) {
		char *text = hf_config_text(&all[i], 0);
		assert_non_null(text);
		struct model_config back = parsed(text);
		assert_memory_equal(&back, &all[i], sizeof(back));
		free(text);
	}
}

/* Shares that training leaves out are no part of the config: whatever they say, it is read. */
static void test_dropout(void **state)
{
	(void)state;
	struct model_config gpt2 = parsed("{" GPT2 ",\"resid_pdrop\":0.5,\"attn_pdrop\":\"?\"}");
	struct model_config llama = parsed("{" LLAMA ",\"attention_dropout\":0.25}");
	char *text = hf_config_text(&gpt2, 0.125);
	assert_non_null(
	    strstr(text, "\"resid_pdrop\":0.125,\"embd_pdrop\":0.125,\"attn_pdrop\":0.125"));
	free(text);
	text = hf_config_text(&gpt2, 0);
	assert_non_null(strstr(text, "\"resid_pdrop\":0,\"embd_pdrop\":0,\"attn_pdrop\":0,"));
	free(text);
	text = hf_config_text(&llama, 0.125);
	assert_non_null(strstr(text, "\"attention_dropout\":0.125"));
	assert_null(strstr(text, "pdrop"));
	free(text);
	text = hf_config_text(&llama, 0);
	assert_null(strstr(text, "dropout"));
	free(text);
}

struct fixture {
	char root[64], folder[128], to[128];
	struct layout layout;
	float *params;
};

static void put(const struct fixture *f, const char *name, const void *data, size_t bytes)
{
	char path[256];
	(void)snprintf(path, sizeof(path), "%s/%s", f->folder, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	assert_true(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes && close(fd) == 0);
}

/* Writes the first `count` tensors, with `items` changed by the caller. */
static void put_tensors(const struct fixture *f, struct safetensors_item *items, size_t count)
{
	char path[256];
	struct tr_digest digest;
	(void)snprintf(path, sizeof(path), "%s/model.safetensors", f->folder);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	assert_true(fd >= 0);
	assert_int_equal(safetensors_write(fd, items, count, NULL, &digest, NULL), TR_OK);
	assert_int_equal(close(fd), 0);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	assert_non_null(f);
	struct model_config config = parsed("{" LLAMA "}");
	(void)snprintf(f->root, sizeof(f->root), "/tmp/test_hf_folder_XXXXXX");
	assert_non_null(mkdtemp(f->root));
	(void)snprintf(f->folder, sizeof(f->folder), "%s/saved", f->root);
	(void)snprintf(f->to, sizeof(f->to), "%s/to", f->root);
	assert_int_equal(mkdir(f->folder, 0777), 0);
	assert_int_equal(layout_init(&config, &f->layout, NULL), TR_OK);
	f->params = calloc(f->layout.count, sizeof(float));
	assert_non_null(f->params);
	for (size_t i = 0; i < f->layout.count; i++)
		f->params[i] = (float)i;
	put(f, "config.json", "{" LLAMA "}", strlen("{" LLAMA "}"));
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	char command[128];
	(void)snprintf(command, sizeof(command), "rm -r '%s'", f->root);
	assert_int_equal(system(command), 0);
	layout_finish(&f->layout);
	free(f->params);
	free(f);
	return 0;
}

static void import_refused(const struct fixture *f, const char *wanted)
{
	struct hf_result result;
	struct tr_error error;
	struct stat about;
	assert_int_not_equal(hf_import(f->folder, f->to, &result, &error), TR_OK);
	says(error.text, wanted);
	assert_int_not_equal(stat(f->to, &about), 0);
}

/* The linker takes this instead of the C library's. */
static const char *shrinks;    /* the file that becomes shorter... */
static unsigned shrinks_after; /* ...with this read of it */

ssize_t pread(int fd, void *to, size_t bytes, off_t at)
{
	ssize_t got = syscall(SYS_pread64, fd, to, bytes, at);
	if (shrinks != NULL && --shrinks_after == 0)
		assert_int_equal(truncate(shrinks, 4096), 0);
	return got;
}

static void test_a_file_that_shrinks(void **state)
{
	struct fixture *f = *state;
	char path[256];
	struct safetensors_item *items = calloc(f->layout.tensor_count, sizeof(*items));
	assert_non_null(items);
	void *names = weights_items(&f->layout, "", f->params, items);
	assert_non_null(names);
	(void)snprintf(path, sizeof(path), "%s/model.safetensors", f->folder);
	/* Its header's length, its header; then the first of the tensors. */
	const char *const words[] = { "/saved/model.safetensors: it had ",
		"/saved/model.safetensors: it had ",
		"/saved: model.safetensors: tensor 'model.layers.0.input_layernorm.weight': cannot "
		"read at byte" };
	for (unsigned i = 0; i < 3; i++) {
		put_tensors(f, items, f->layout.tensor_count);
		shrinks = path;
		shrinks_after = i + 1;
		import_refused(f, words[i]);
		shrinks = NULL;
	}
	free(items);
	free(names);
}

/* Each tensor in a file of its own, and fewer descriptors than that. */
static void test_more_files_than_descriptors(void **state)
{
	struct fixture *f = *state;
	char index[4096] = "{\"weight_map\":{";
	struct rlimit before, few;
	struct hf_result result;
	struct tr_error error;
	struct safetensors_item *items = calloc(f->layout.tensor_count, sizeof(*items));
	assert_non_null(items);
	void *names = weights_items(&f->layout, "", f->params, items);
	assert_non_null(names);
	for (size_t i = 0; i < f->layout.tensor_count; i++) {
		char from[256], to[256];
		put_tensors(f, &items[i], 1);
		(void)snprintf(from, sizeof(from), "%s/model.safetensors", f->folder);
		(void)snprintf(to, sizeof(to), "%s/%zu.safetensors", f->folder, i);
		assert_int_equal(rename(from, to), 0);
		(void)snprintf(index + strlen(index), sizeof(index) - strlen(index),
		    "%s\"%s\":\"%zu.safetensors\"", i > 0 ? "," : "", items[i].name, i);
	}
	(void)snprintf(index + strlen(index), sizeof(index) - strlen(index), "}}");
	put(f, "model.safetensors.index.json", index, strlen(index));
	int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_true(next >= 0 && close(next) == 0);
	assert_true(f->layout.tensor_count > 8);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = (struct rlimit){ (rlim_t)next + 6, before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	tr_status status = hf_import(f->folder, f->to, &result, &error);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	if (status != TR_OK)
		fail_msg("%s", error.text);
	free(items);
	free(names);
}

static void test_bad_folders(void **state)
{
	struct fixture *f = *state;
	struct safetensors_item *items = calloc(f->layout.tensor_count + 1, sizeof(*items));
	assert_non_null(items);
	void *names = weights_items(&f->layout, "", f->params, items);
	size_t count = f->layout.tensor_count;
	assert_non_null(names);
	import_refused(f, "model.safetensors: No such file");
	put(f, "model.safetensors", "no", 2);
	import_refused(f, "model.safetensors: 2 bytes are too few");
	put_tensors(f, items, count - 1);
	import_refused(f, "it has no tensor 'lm_head.weight'");
	items[count] = (struct safetensors_item){ "model.layers.0.self_attn.q_proj.bias", 0, 8,
		f->params, NULL };
	put_tensors(f, items, count + 1);
	import_refused(f,
	    "tensor 'model.layers.0.self_attn.q_proj.bias' is no part of such a model");
	items[0].rows = 8;
	items[0].columns = 256;
	put_tensors(f, items, count);
	import_refused(f,
	    "tensor 'model.embed_tokens.weight': found the shape [8, 256], allowed: [256, 8]");
	free(items);
	free(names);
}

/* Of a tied model a file may have the head once more. If it is another one, transformers (5) computes with it, whatever the config says. */
static void test_a_tied_head_that_is_another(void **state)
{
	struct fixture *f = *state;
	static const char config[] = "{" LLAMA ",\"tie_word_embeddings\":true}";
	struct hf_result result;
	struct tr_error error;
	struct safetensors_item *items = calloc(f->layout.tensor_count, sizeof(*items));
	assert_non_null(items);
	void *names = weights_items(&f->layout, "", f->params, items);
	size_t count = f->layout.tensor_count;
	assert_non_null(names);
	assert_string_equal(items[count - 1].name, "lm_head.weight");
	put(f, "config.json", config, strlen(config));
	put_tensors(f, items, count);
	import_refused(f,
	    "tensor 'lm_head.weight': found other numbers than the token embedding's, allowed: the "
	    "same, as config.json says (tie_word_embeddings)");
	items[count - 1].columns = 4;
	put_tensors(f, items, count);
	import_refused(f,
	    "tensor 'lm_head.weight': found the shape [256, 4], allowed: [256, 8], as config.json");
	items[count - 1].columns = 8;
	items[count - 1].data = items[0].data;
	put_tensors(f, items, count);
	if (hf_import(f->folder, f->to, &result, &error) != TR_OK)
		fail_msg("%s", error.text);
	free(items);
	free(names);
}

/* A config whose parameters wrap around 2^64, with the first tensor alone, which is larger than what is left of them. */
static void test_sizes_that_wrap(void **state)
{
	struct fixture *f = *state;
	static const char config
	    [] = "{\"model_type\":\"gpt2\",\"n_layer\":65536,\"n_embd\":11756832,\"n_head\":1,"
	         "\"n_inner\":427728,\"n_positions\":1,\"vocab_size\":8}";
	static const char
	    header[] = "{\"transformer.wte.weight\":{\"dtype\":\"F16\",\"shape\":[8,11756832],"
	               "\"data_offsets\":[0,188109312]}}";
	char path[256];
	uint64_t length = strlen(header);
	put(f, "config.json", config, strlen(config));
	(void)snprintf(path, sizeof(path), "%s/model.safetensors", f->folder);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	assert_true(fd >= 0 && write(fd, &length, sizeof(length)) == sizeof(length) &&
	    write(fd, header, length) == (ssize_t)length &&
	    ftruncate(fd, (off_t)(sizeof(length) + length + 188109312)) == 0 && close(fd) == 0);
	import_refused(f, "make more than 1099511627776 parameters");
}

static void test_bad_numbers_and_indexes(void **state)
{
	struct fixture *f = *state;
	static const char header[] = "{\"model.norm.weight\":{\"dtype\":\"I32\",\"shape\":[8],"
	                             "\"data_offsets\":[0,32]}}";
	char file[8 + sizeof(header) - 1 + 32] = { (char)(sizeof(header) - 1) };
	memcpy(file + 8, header, sizeof(header) - 1);
	put(f, "model.safetensors", file, sizeof(file));
	import_refused(f, "it has no tensor 'model.embed_tokens.weight'");
	char path[256];
	(void)snprintf(path, sizeof(path), "%s/model.safetensors", f->folder);
	assert_int_equal(unlink(path), 0);
	const char *const indexes[][2] = {
		{ "{", "it is not well-formed" },
		{ "{\"weight_map\":{\"a\":\"../b\"}}", "'../b' is no file of this folder" },
		{ "{\"weight_map\":{\"a\":\"b.safetensors\"}}", "b.safetensors: No such file" },
		{ "{\"weight_map\":{}}", "it has no tensor 'model.embed_tokens.weight'" },
	};
	for (size_t i = 0; i < sizeof(indexes) / sizeof(indexes[0]); i++) {
		put(f, "model.safetensors.index.json", indexes[i][0], strlen(indexes[i][0]));
		import_refused(f, indexes[i][1]);
	}
}

static size_t entries(const char *folder)
{
	DIR *list = opendir(folder);
	size_t count = 0;
	assert_non_null(list);
	while (readdir(list) != NULL)
		count++;
	(void)closedir(list);
	return count - 2;
}

static void import_of_a_damaged_manifest(const char *found, const char *out)
{
	struct hf_result result;
	struct tr_error error;
	char path[CHECKPOINT_PATH_MAX + 32], text[1024] = "";
	/* One of the manifest, which says what those digests are. */
	(void)snprintf(path, sizeof(path), "%s/manifest.json", found);
	int fd = open(path, O_RDWR);
	assert_true(fd >= 0 && pread(fd, text, sizeof(text), 0) > 0);
	char *name = memmem(text, sizeof(text), "config.json", 11);
	assert_non_null(name);
	assert_true(pwrite(fd, "b", 1, name - text) == 1 && close(fd) == 0);
	assert_int_equal(hf_import(found, out, &result, &error), TR_EDIGEST);
	says(error.text, "manifest.json: it is damaged: found 'bonfig.json' among its files");
	/* One that the disk does not give up is not one that is not there: nobody would have looked at the digests. */
	assert_true(unlink(path) == 0 && mkdir(path, 0700) == 0);
	assert_int_equal(hf_import(found, out, &result, &error), TR_EIO);
	says(error.text, "manifest.json: cannot read: Is a directory");
}

static void test_import_and_export(void **state)
{
	struct fixture *f = *state;
	struct hf_result result;
	struct tr_error error;
	char out[160], path[CHECKPOINT_PATH_MAX + 32], text[1024] = "";
	struct safetensors_item *items = calloc(f->layout.tensor_count, sizeof(*items));
	void *names = items == NULL ? NULL : weights_items(&f->layout, "", f->params, items);
	assert_non_null(names);
	put_tensors(f, items, f->layout.tensor_count);
	if (hf_import(f->folder, f->to, &result, &error) != TR_OK)
		fail_msg("%s", error.text);
	assert_int_equal(entries(result.path), 3); /* no optimizer */
	assert_true(result.dropout == 0 && result.dropout_text[0] == '\0');

	/* A job goes on from it: the moments stay as they were. */
	struct optim_arrays arrays = { .params = calloc(f->layout.count, sizeof(float)),
		.first = calloc(f->layout.count, sizeof(float)),
		.second = calloc(f->layout.count, sizeof(float)) };
	struct manifest manifest;
	char found[CHECKPOINT_PATH_MAX];
	assert_true(arrays.params != NULL && arrays.first != NULL && arrays.second != NULL);
	if (checkpoint_read(f->to, &f->layout, &arrays, &manifest, found, &error) != TR_OK)
		fail_msg("%s", error.text);
	assert_int_equal(manifest.step, 0);
	for (size_t t = 0; t < f->layout.tensor_count; t++)
		assert_memory_equal(arrays.params + f->layout.tensors[t].offset, items[t].data,
		    layout_numbers(&f->layout.tensors[t]) * sizeof(float));

	(void)snprintf(out, sizeof(out), "%s/out", f->root);
	const atomic_bool cancelled = true;
	size_t before = entries(f->root);
	assert_int_equal(hf_export(f->to, out, NULL, &cancelled, &result, &error), TR_ECANCELLED);
	assert_int_equal(entries(f->root), before);
	if (hf_export(f->to, out, NULL, NULL, &result, &error) != TR_OK)
		fail_msg("%s", error.text);
	assert_int_equal(entries(out), 6);
	assert_int_equal(hf_export(f->to, out, NULL, NULL, &result, &error), TR_EINVAL);
	says(error.text, "it is there and not empty");
	assert_int_equal(hf_export(f->folder, out, NULL, NULL, &result, &error), TR_ENOTFOUND);
	says(error.text, "found no manifest.json in it");
	/* One bit of the weights. */
	(void)snprintf(path, sizeof(path), "%s/model.safetensors", found);
	int fd = open(path, O_RDWR);
	assert_true(fd >= 0 && pwrite(fd, "x", 1, 3000) == 1 && close(fd) == 0);
	(void)snprintf(out, sizeof(out), "%s/damaged", f->root);
	assert_int_equal(hf_export(f->to, out, NULL, NULL, &result, &error), TR_EDIGEST);
	says(error.text, "model.safetensors is damaged");
	/* Nor is it imported: it is one of ours, and has a manifest. */
	assert_int_equal(hf_import(found, out, &result, &error), TR_EDIGEST);
	says(error.text, "model.safetensors is damaged");
	/* One of config.json, of which nothing else tells. */
	(void)snprintf(path, sizeof(path), "%s/config.json", found);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0 && pread(fd, text, sizeof(text), 0) > 0);
	char *theta = memmem(text, sizeof(text), "10000", 5);
	assert_non_null(theta);
	assert_true(pwrite(fd, "3", 1, theta - text) == 1 && close(fd) == 0);
	assert_int_equal(hf_export(f->to, out, NULL, NULL, &result, &error), TR_EDIGEST);
	says(error.text, "config.json is damaged");
	assert_int_equal(hf_import(found, out, &result, &error), TR_EDIGEST);
	says(error.text, "config.json is damaged");
	import_of_a_damaged_manifest(found, out);
	assert_int_equal(entries(f->root), 3);
	free(arrays.params);
	free(arrays.first);
	free(arrays.second);
	free(items);
	free(names);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_configs),
		cmocka_unit_test(test_config_round_trip),
		cmocka_unit_test(test_dropout),
		cmocka_unit_test_setup_teardown(test_a_file_that_shrinks, setup, teardown),
		cmocka_unit_test_setup_teardown(test_more_files_than_descriptors, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_folders, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_tied_head_that_is_another, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sizes_that_wrap, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_numbers_and_indexes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_import_and_export, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
