/* Checkpoints: what is read is what was written, damage is found and named, old ones go, the newest never. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/checkpoint/checkpoint_dir.h"
#include "daemon/checkpoint/hf_config.h"
#include "checkpoint_fixture.h"

static bool is_there(const struct fixture *f, const char *name)
{
	char path[CHECKPOINT_PATH_MAX];
	(void)snprintf(path, sizeof(path), "%s/%s", f->folder.dir, name);
	return access(path, F_OK) == 0;
}

static void test_round_trip(void **state)
{
	struct fixture *f = *state;
	char path[CHECKPOINT_PATH_MAX], found[CHECKPOINT_PATH_MAX];
	struct manifest manifest;
	struct tr_error error;
	const char *from[2] = { path, f->folder.dir };
	write_step(f, 200, path);
	for (size_t i = 0; i < 2; i++) {
		if (checkpoint_read(from[i], &f->layout, &f->back, &manifest, found, &error) !=
		    TR_OK)
			fail_msg("%s", error.text);
		assert_string_equal(found, path);
		assert_int_equal(manifest.step, 200);
		assert_int_equal(manifest.samples, 1600);
		assert_true(manifest.costs.merges == 9 && manifest.costs.sent_bytes == 1e12 + 1 &&
		    manifest.costs.dense_bytes == 3e13 && manifest.costs.waited_s == 1.25 &&
		    manifest.costs.flight_s == 1e5);
		assert_true(manifest.lr_base[0] == 1.0 / 3 && manifest.lr_base[1] == -1.0 / 7);
		for (size_t t = 0; t < f->layout.tensor_count; t++) {
			size_t at = f->layout.tensors[t].offset;
			size_t bytes = layout_numbers(&f->layout.tensors[t]) * sizeof(float);
			assert_memory_equal(f->arrays.params + at, f->back.params + at, bytes);
			assert_memory_equal(f->arrays.first + at, f->back.first + at, bytes);
			assert_memory_equal(f->arrays.second + at, f->back.second + at, bytes);
		}
	}
}

/* Where the order of samples began anew goes with them; one that is beyond them is not believed. */
static void test_an_order_that_began_anew(void **state)
{
	(void)state;
	static struct manifest manifest, back; /* an account is large */
	manifest.step = 20;
	manifest.account.cursor = 640;
	(void)tr_digest_hex((struct tr_digest){ 1, 2 }, manifest.model);
	for (uint64_t anew = 0; anew <= 960; anew += 320) {
		struct tr_error error;
		manifest.account.anew = anew;
		char *text = manifest_text(&manifest);
		assert_non_null(text);
		assert_true((strstr(text, "samples_anew") != NULL) == (anew > 0));
		tr_status status = manifest_parse(text, strlen(text), &back, &error);
		free(text);
		assert_int_equal(status, anew <= 640 ? TR_OK : TR_EPROTO);
		if (status == TR_OK)
			assert_true(back.account.anew == anew && back.account.cursor == 640);
	}
}

/* Moments of who came later, or began anew, were made by fewer steps: their bias is of so many. */
static void test_moments_of_fewer_steps(void **state)
{
	(void)state;
	static struct manifest manifest, back;
	manifest.step = 20;
	(void)tr_digest_hex((struct tr_digest){ 1, 2 }, manifest.model);
	for (uint64_t age = 0; age <= 30; age += 10) {
		struct tr_error error;
		manifest.age = age;
		char *text = manifest_text(&manifest);
		assert_non_null(text);
		assert_true((strstr(text, "moments_steps") == NULL) == (age == 20));
		assert_int_equal(manifest_parse(text, strlen(text), &back, &error), TR_OK);
		free(text);
		assert_int_equal(back.age, age < 20 ? age : 20);
	}
}

/* Whose it is. */
static void test_a_job(void **state)
{
	(void)state;
	static struct manifest manifest, back;
	(void)tr_digest_hex((struct tr_digest){ 1, 2 }, manifest.model);
	for (uint64_t id = 0; id < 2; id++) {
		manifest.job = (struct manifest_job){ id, 1764417600123, "a \"job\"" };
		char *text = manifest_text(&manifest);
		assert_non_null(text);
		assert_int_equal(manifest_parse(text, strlen(text), &back, NULL), TR_OK);
		free(text);
		assert_true(back.job.id == id);
		assert_string_equal(back.job.name, id == 0 ? "" : "a \"job\"");
		assert_true(back.job.submitted_unix_ms == (id == 0 ? 0 : 1764417600123));
	}
}

/* The job's dropout goes with them; what is no share is none. */
static void test_dropout(void **state)
{
	(void)state;
	static struct manifest manifest, back;
	(void)tr_digest_hex((struct tr_digest){ 1, 2 }, manifest.model);
	static const double shares[] = { 0, 0.1, 0.9, 1, 7 };
	for (size_t i = 0; i < 5; i++) {
		manifest.dropout = shares[i];
		char *text = manifest_text(&manifest);
		assert_non_null(text);
		assert_true((strstr(text, "dropout") != NULL) == (i > 0));
		assert_int_equal(manifest_parse(text, strlen(text), &back, NULL), TR_OK);
		free(text);
		assert_true(back.dropout == (i < 3 ? shares[i] : 0));
	}
}

/* All that a manifest can say. */
static char *full_manifest(struct manifest *back)
{
	static struct manifest manifest; /* an account is large */
	struct tr_error error;
	manifest = (struct manifest){ .job = { 3, 1764417600123, "a job" },
		.step = 20,
		.round = 23,
		.seed = 4,
		.samples = 640,
		.account = { .cursor = 640, .free_count = 1, .free = { { 8, 16 } }, .anew = 64 },
		.tokens = 7,
		.age = 12,
		.costs = { .merges = 9, .sent_bytes = 1e12, .waited_s = 1.25 },
		.dropout = 0.1,
		.lr_base = { 1.0 / 3, -1.0 / 7 } };
	char *const digests[] = { manifest.spec, manifest.order, manifest.model, manifest.optimizer,
		manifest.config };
	for (uint64_t i = 0; i < 5; i++)
		(void)tr_digest_hex(tr_digest_of(&i, sizeof(i)), digests[i]);
	char *text = manifest_text(&manifest);
	assert_non_null(text);
	if (manifest_parse(text, strlen(text), back, &error) != TR_OK)
		fail_msg("%s", error.text);
	return text;
}

/* Of any bit: it says something else than it did to nobody. */
static void test_each_bit_of_a_manifest(void **state)
{
	(void)state;
	static struct manifest whole, back;
	char *text = full_manifest(&whole);
	size_t length = strlen(text), refused = 0;
	for (size_t bit = 0; bit < 8 * length; bit++) {
		text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
		if (manifest_parse(text, length, &back, NULL) != TR_OK)
			refused++;
		else if (memcmp(&back, &whole, sizeof(back)) != 0)
			fail_msg("bit %zu of byte %zu: %s", bit % 8, bit / 8, text);
		text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
	}
	/* But for the name of its own digest all that it says is held against that. */
	assert_true(refused >= 8 * (length - strlen("digest")));
	free(text);
}

/* Of older versions, which have no digest of their own: no file that it names is passed by, and moments that were written are not missing. */
static void test_names_of_files(void **state)
{
	(void)state;
	static const char *const names[] = { MANIFEST_CONFIG, MANIFEST_MODEL, MANIFEST_OPTIMIZER };
	static struct manifest whole, back;
	char *text = full_manifest(&whole), without[64];
	struct tr_error error;
	char *end = strstr(text, ",\"digest\":");
	assert_non_null(end);
	(void)strcpy(end, "}");
	assert_int_equal(manifest_parse(text, strlen(text), &back, &error), TR_OK);
	assert_memory_equal(&back, &whole, sizeof(back));
	for (size_t i = 0; i < 3; i++)
		for (size_t k = 0; names[i][k] != '\0'; k++) {
			char *at = strstr(text, names[i]), says[64];
			at[k] = (char)(at[k] ^ 1);
			(void)snprintf(says, sizeof(says), "found '%.*s'", (int)strlen(names[i]),
			    at);
			assert_int_equal(manifest_parse(text, strlen(text), &back, &error),
			    TR_EDIGEST);
			assert_non_null(strstr(error.text, says));
			at[k] = (char)(at[k] ^ 1);
		}
	(void)snprintf(without, sizeof(without), ",\"" MANIFEST_OPTIMIZER "\":\"%s\"",
	    whole.optimizer);
	(void)strcpy(strstr(text, without), "}}");
	assert_int_equal(manifest_parse(text, strlen(text), &back, &error), TR_EDIGEST);
	assert_non_null(strstr(error.text, "no optimizer.safetensors"));
	/* An import has none. */
	char *spec = strstr(text, whole.spec);
	memmove(spec, spec + strlen(whole.spec), strlen(spec + strlen(whole.spec)) + 1);
	assert_int_equal(manifest_parse(text, strlen(text), &back, &error), TR_OK);
	free(text);
}

/* One byte of any file changed: the error names it, in one line. */
static void test_damage(void **state)
{
	struct fixture *f = *state;
	static const char *const names[] = { MANIFEST_MODEL, MANIFEST_OPTIMIZER, MANIFEST_NAME };
	char path[CHECKPOINT_PATH_MAX], found[CHECKPOINT_PATH_MAX];
	for (size_t i = 0; i < 3; i++) {
		char name[CHECKPOINT_PATH_MAX + 32];
		struct manifest manifest;
		struct tr_error error;
		struct stat about = { 0 };
		char byte;
		write_step(f, 7, path);
		(void)snprintf(name, sizeof(name), "%s/%s", path, names[i]);
		int fd = open(name, O_RDWR);
		assert_true(fd >= 0 && fstat(fd, &about) == 0);
		assert_int_equal(pread(fd, &byte, 1, about.st_size - 5), 1);
		byte ^= 4;
		assert_int_equal(pwrite(fd, &byte, 1, about.st_size - 5), 1);
		assert_int_equal(close(fd), 0);
		assert_int_not_equal(checkpoint_read(path, &f->layout, &f->back, &manifest, found,
		                         &error),
		    TR_OK);
		assert_non_null(strstr(error.text, f->folder.dir));
		assert_non_null(strstr(error.text, names[i]));
		assert_null(strchr(error.text, '\n'));
	}
}

/* Another epsilon, which is as good a config.json: its digest tells. Checkpoints that have none are read as they are. */
static void test_a_config_that_was_changed(void **state)
{
	struct fixture *f = *state;
	static const char eps[] = "\"layer_norm_epsilon\":1e-05",
	                  other[] = "\"layer_norm_epsilon\":1e-04";
	char path[CHECKPOINT_PATH_MAX], found[CHECKPOINT_PATH_MAX];
	struct manifest manifest;
	struct tr_error error;
	struct model_config config;
	write_step(f, 7, path);
	assert_int_equal(checkpoint_config(path, &config, &manifest, found, &error), TR_OK);
	assert_int_equal(strlen(manifest.config), TR_DIGEST_HEX_MAX - 1);
	replace_in(path, HF_CONFIG_NAME, eps, other);
	assert_int_equal(checkpoint_config(path, &config, &manifest, found, &error), TR_EDIGEST);
	assert_int_equal(checkpoint_look(path, &f->layout, &manifest, found, &error), TR_EDIGEST);
	assert_int_equal(checkpoint_read(path, &f->layout, &f->back, &manifest, found, &error),
	    TR_EDIGEST);
	assert_non_null(
	    strstr(error.text, "/step-00000007: config.json is damaged: its digest is "));

	/* As older ones are: without what was added later. */
	cut_from(path, MANIFEST_NAME, "\"config.json\":", "\"model.safetensors\"");
	cut_from(path, MANIFEST_NAME, ",\"digest\":", "}");
	assert_int_equal(checkpoint_config(path, &config, &manifest, found, &error), TR_OK);
	assert_true(config.norm_eps == 1e-4 && manifest.config[0] == '\0');
	assert_int_equal(checkpoint_look(path, &f->layout, &manifest, found, &error), TR_EINVAL);
	replace_in(path, HF_CONFIG_NAME, other, eps);
	assert_int_equal(checkpoint_read(path, &f->layout, &f->back, &manifest, found, &error),
	    TR_OK);
}

static int preads_to_failure; /* 0: none fails */
static int pread_errno;       /* 0: the file ends */

/* The linker takes this instead of the C library's. */
ssize_t pread(int fd, void *to, size_t bytes, off_t at)
{
	if (preads_to_failure > 0 && --preads_to_failure == 0) {
		errno = pread_errno;
		return pread_errno == 0 ? 0 : -1;
	}
	return (ssize_t)syscall(SYS_pread64, fd, to, bytes, at);
}

/* A bad sector, or a server that is away, wherever it is found: an error in words, never a SIGBUS. */
static void test_a_disk_that_does_not_give_it_up(void **state)
{
	struct fixture *f = *state;
	char path[CHECKPOINT_PATH_MAX], found[CHECKPOINT_PATH_MAX];
	struct manifest manifest;
	struct tr_error error;
	tr_status status = TR_EIO;
	int reads = 0;
	write_step(f, 200, path);
	for (; status != TR_OK; reads++) {
		preads_to_failure = reads + 1;
		pread_errno = reads % 2 == 0 ? EIO : 0;
		status = checkpoint_read(path, &f->layout, &f->back, &manifest, found, &error);
		if (status != TR_OK) {
			assert_int_equal(status, TR_EIO);
			assert_non_null(strstr(error.text, ".safetensors: "));
			assert_non_null(strstr(error.text, "cannot read at byte "));
		}
	}
	preads_to_failure = 0;
	/* Of each of two files the header, its digest, and each tensor at least. */
	assert_true(reads > (int)(3 * f->layout.tensor_count + 6));
}

static void test_nothing_there(void **state)
{
	struct fixture *f = *state;
	char found[CHECKPOINT_PATH_MAX];
	struct manifest manifest;
	struct tr_error error;
	assert_int_equal(checkpoint_read(f->folder.dir, &f->layout, &f->back, &manifest, found,
	                     &error),
	    TR_ENOTFOUND);
	assert_non_null(strstr(error.text, "found no manifest.json in it"));
}

static void test_keep(void **state)
{
	struct fixture *f = *state;
	char path[CHECKPOINT_PATH_MAX], target[64] = "";
	char latest[CHECKPOINT_PATH_MAX];
	(void)snprintf(latest, sizeof(latest), "%s/latest", f->folder.dir);
	write_step(f, 900, f->folder.never_delete);
	write_step(f, 100, path);
	write_step(f, 200, path);
	write_step(f, 300, path);
	/* A new run counts from 1 again: what is old is told by time. The one resumed from stays. */
	assert_true(is_there(f, "step-00000900"));
	assert_false(is_there(f, "step-00000100"));
	assert_true(is_there(f, "step-00000200") && is_there(f, "step-00000300"));
	assert_true(readlink(latest, target, sizeof(target) - 1) > 0);
	assert_string_equal(target, "step-00000300");
	/* The same step again takes the place of the old one. */
	f->arrays.params[0] = 5;
	write_step(f, 300, path);
	assert_true(is_there(f, "step-00000200") && is_there(f, "step-00000300"));
	assert_int_equal(hidden_left(f), 0);
	struct manifest manifest;
	char found[CHECKPOINT_PATH_MAX];
	assert_int_equal(checkpoint_read(latest, &f->layout, &f->back, &manifest, found, NULL),
	    TR_OK);
	assert_true(f->back.params[0] == 5.0f);
}

/* What a writer that was killed left behind goes with the next write, and is never taken for a checkpoint. */
static void test_interrupted(void **state)
{
	struct fixture *f = *state;
	char path[CHECKPOINT_PATH_MAX], name[CHECKPOINT_PATH_MAX];
	(void)snprintf(name, sizeof(name), "%s/.step-00000050", f->folder.dir);
	assert_int_equal(mkdir(name, 0777), 0);
	(void)snprintf(name, sizeof(name), "%s/.step-00000050/model.safetensors", f->folder.dir);
	int fd = open(name, O_CREAT | O_WRONLY, 0666);
	assert_true(fd >= 0 && close(fd) == 0);
	(void)snprintf(name, sizeof(name), "%s/.gone.1", f->folder.dir);
	assert_int_equal(mkdir(name, 0777), 0);
	(void)snprintf(name, sizeof(name), "%s/.latest.1", f->folder.dir);
	assert_int_equal(symlink("step-00000050", name), 0);
	write_step(f, 60, path);
	assert_int_equal(hidden_left(f), 0);
	assert_true(is_there(f, "step-00000060"));
}

/* A worker that was stopped, or cut off from memberd, goes on writing the step that its successor writes too. What it
 * publishes must be its own, whole, and never the successor's half. */
static void test_two_writers(void **state)
{
	struct fixture *f = *state;
	struct checkpoint_dir late, successor;
	struct manifest manifest;
	struct tr_error error;
	char path[CHECKPOINT_PATH_MAX], found[CHECKPOINT_PATH_MAX];
	write_step(f, 200, path);
	assert_int_equal(checkpoint_dir_begin(f->folder.dir, 200, &late, &error), TR_OK);
	assert_int_equal(checkpoint_dir_begin(f->folder.dir, 200, &successor, &error), TR_OK);
	int fd = openat(successor.hidden, "model.safetensors", O_CREAT | O_WRONLY, 0666);
	assert_true(fd >= 0 && close(fd) == 0);
	assert_int_not_equal(checkpoint_dir_publish(&late, &error), TR_OK);
	if (checkpoint_read(path, &f->layout, &f->back, &manifest, found, &error) != TR_OK)
		fail_msg("%s", error.text);
	assert_int_equal(manifest.step, 200);
	checkpoint_dir_abandon(&successor);
	write_step(f, 300, path);
	assert_int_equal(checkpoint_read(f->folder.dir, &f->layout, &f->back, &manifest, found,
	                     &error),
	    TR_OK);
	assert_int_equal(manifest.step, 300);
	assert_int_equal(hidden_left(f), 0);
}

static void test_unwritable(void **state)
{
	struct fixture *f = *state;
	struct checkpoint_folder folder = f->folder;
	struct manifest manifest = { .step = 1 };
	struct tr_error error;
	char path[CHECKPOINT_PATH_MAX];
	(void)snprintf(folder.dir, sizeof(folder.dir), "%s", "/proc/nowhere");
	assert_int_equal(checkpoint_write(&folder, &f->layout, &f->arrays, &manifest, NULL, NULL,
	                     path, &error),
	    TR_EIO);
	assert_non_null(strstr(error.text, "checkpoint of step 1 in /proc/nowhere: cannot make"));
}

/* Before a job begins. */
static void test_make_folder(void **state)
{
	struct fixture *f = *state;
	struct checkpoint_folder folder = f->folder;
	struct tr_error error;
	(void)strcat(folder.dir, "/a/b");
	assert_int_equal(checkpoint_make_folder(&folder, &error), TR_OK);
	assert_int_equal(checkpoint_make_folder(&folder, &error), TR_OK); /* it is there */
	assert_int_equal(rmdir(folder.dir), 0);
	int fd = open(folder.dir, O_CREAT | O_WRONLY, 0666);
	assert_true(fd >= 0 && close(fd) == 0);
	assert_int_equal(checkpoint_make_folder(&folder, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "checkpoint.dir: "));
	assert_non_null(strstr(error.text, "/a/b is not a folder; allowed: a folder that"));
	assert_int_equal(unlink(folder.dir), 0);
	*strrchr(folder.dir, '/') = '\0';
	assert_int_equal(rmdir(folder.dir), 0);
}
int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
		cmocka_unit_test(test_an_order_that_began_anew),
		cmocka_unit_test(test_moments_of_fewer_steps),
		cmocka_unit_test(test_a_job),
		cmocka_unit_test(test_dropout),
		cmocka_unit_test(test_each_bit_of_a_manifest),
		cmocka_unit_test(test_names_of_files),
		cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_config_that_was_changed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_disk_that_does_not_give_it_up, setup,
		    teardown),
		cmocka_unit_test_setup_teardown(test_nothing_there, setup, teardown),
		cmocka_unit_test_setup_teardown(test_keep, setup, teardown),
		cmocka_unit_test_setup_teardown(test_interrupted, setup, teardown),
		cmocka_unit_test_setup_teardown(test_two_writers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unwritable, setup, teardown),
		cmocka_unit_test_setup_teardown(test_make_folder, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
