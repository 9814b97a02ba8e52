/* A checkpoint's files that go from one disk to another (daemon/checkpoint/checkpoint_copy.h), whatever the pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/checkpoint/checkpoint_copy.h"

static char root[64];
static const struct manifest none;
static const struct {
	const char *name;
	size_t bytes;
} files[] = { { "model.safetensors", 70001 }, { "optimizer.safetensors", 5 }, { "config.json", 0 },
	{ "manifest.json", 300 } };
enum { FILES = sizeof(files) / sizeof(files[0]), ALL = 70001 + 5 + 300 };

static int make_root(void **state)
{
	(void)state;
	(void)snprintf(root, sizeof(root), "/tmp/traind-copy-XXXXXX");
	return mkdtemp(root) == NULL;
}

static int remove_root(void **state)
{
	char command[128];
	(void)state;
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", root);
	return system(command);
}

static uint8_t byte_of(size_t file, size_t at)
{
	return (uint8_t)(at * 7 + file * 31 + at / 251);
}

static const char *in_root(const char *name)
{
	static char path[4][256];
	static unsigned turn;
	char *to = path[turn++ % 4];
	(void)snprintf(to, sizeof(path[0]), "%s/%s", root, name);
	return to;
}

static void put(const char *folder)
{
	assert_true(mkdir(in_root("from"), 0700) == 0 && mkdir(in_root(folder), 0700) == 0);
	for (size_t f = 0; f < FILES; f++) {
		char path[320];
		(void)snprintf(path, sizeof(path), "%s/%s", in_root(folder), files[f].name);
		FILE *file = fopen(path, "w");
		assert_non_null(file);
		for (size_t i = 0; i < files[f].bytes; i++)
			(void)fputc(byte_of(f, i), file);
		assert_int_equal(fclose(file), 0);
	}
}

static void check(const char *folder)
{
	for (size_t f = 0; f < FILES; f++) {
		char path[320];
		(void)snprintf(path, sizeof(path), "%s/%s", in_root(folder), files[f].name);
		FILE *file = fopen(path, "r");
		assert_non_null(file);
		for (size_t i = 0; i < files[f].bytes; i++)
			assert_int_equal(fgetc(file), byte_of(f, i));
		assert_int_equal(fgetc(file), EOF);
		(void)fclose(file);
	}
}

/* What is in a folder, but . and .. */
static unsigned entries(const char *folder)
{
	unsigned count = 0;
	DIR *list = opendir(in_root(folder));
	assert_non_null(list);
	while (readdir(list) != NULL)
		count++;
	(void)closedir(list);
	return count - 2;
}

/* Of both ends, in pieces of so many bytes; up to `until` of them. */
static tr_status copy(const char *to, size_t piece, size_t until, struct tr_error *error)
{
	struct checkpoint_copy from, into;
	int64_t sizes[CHECKPOINT_COPY_FILES];
	uint8_t *bytes = malloc(piece);
	assert_non_null(bytes);
	assert_int_equal(checkpoint_copy_open(in_root("from/step-00000040"), &none, &from, sizes,
	                     error),
	    TR_OK);
	assert_int_equal(checkpoint_copy_bytes(sizes), ALL);
	assert_int_equal(checkpoint_copy_begin(in_root(to), sizes, &into, error), TR_OK);
	for (size_t left = until; left > 0;) {
		size_t now = left < piece ? left : piece;
		assert_int_equal(checkpoint_copy_read(&from, bytes, now, error), TR_OK);
		assert_int_equal(checkpoint_copy_write(&into, bytes, now, error), TR_OK);
		left -= now;
	}
	checkpoint_copy_close(&from);
	free(bytes);
	return checkpoint_copy_end(&into, true, error);
}

static void any_pieces(void **state)
{
	(void)state;
	const size_t pieces[] = { 1, 7, 5, 300, 4096, 70001, 70006, ALL, 2 * ALL };
	struct tr_error error;
	put("from/step-00000040");
	for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		char to[64], link[64] = "";
		(void)snprintf(to, sizeof(to), "to-%zu/step-00000040", i);
		if (copy(to, pieces[i], ALL, &error) != TR_OK)
			fail_msg("%s", error.text);
		check(to);
		*strrchr(to, '/') = '\0';
		assert_int_equal(entries(to), 2); /* and `latest` */
		char latest[128];
		(void)snprintf(latest, sizeof(latest), "%s/latest", in_root(to));
		assert_true(readlink(latest, link, sizeof(link) - 1) > 0);
		assert_string_equal(link, "step-00000040");
	}
	/* In the place of one that was there. */
	assert_int_equal(copy("to-0/step-00000040", 1000, ALL, &error), TR_OK);
	check("to-0/step-00000040");
	check("to-0/step-00000040.other");
	assert_int_equal(entries("to-0"), 3);
}

/* Else the one that begins later would remove what the first has written. */
static void two_of_one_disk_make_one_copy(void **state)
{
	(void)state;
	struct checkpoint_copy from, into[3];
	int64_t sizes[CHECKPOINT_COPY_FILES];
	uint8_t *bytes = malloc(ALL);
	struct tr_error error;
	put("from/step-00000040");
	assert_non_null(bytes);
	assert_int_equal(checkpoint_copy_open(in_root("from/step-00000040"), &none, &from, sizes,
	                     &error),
	    TR_OK);
	assert_int_equal(checkpoint_copy_read(&from, bytes, ALL, &error), TR_OK);
	for (int i = 0; i < 3; i++)
		assert_int_equal(checkpoint_copy_begin(in_root("to/step-00000040"), sizes, &into[i],
		                     &error),
		    TR_OK);
	assert_true(!into[0].elsewhere && into[1].elsewhere && into[2].elsewhere);
	for (size_t at = 0; at < ALL; at += ALL / 2)
		for (int i = 0; i < 3; i++)
			assert_int_equal(checkpoint_copy_write(&into[i], bytes + at, ALL / 2,
			                     &error),
			    TR_OK);
	assert_int_equal(checkpoint_copy_end(&into[1], false, &error), TR_OK);
	assert_int_equal(checkpoint_copy_end(&into[0], true, &error), TR_OK);
	check("to/step-00000040");
	assert_int_equal(checkpoint_copy_end(&into[2], true, &error), TR_OK);
	assert_int_equal(entries("to"), 2);
	checkpoint_copy_close(&from);
	free(bytes);
}

static void put_step(const char *name)
{
	char path[320];
	(void)snprintf(path, sizeof(path), "%s/manifest.json", in_root(name));
	assert_int_equal(mkdir(in_root(name), 0700), 0);
	FILE *file = fopen(path, "w");
	assert_true(file != NULL && fclose(file) == 0);
}

static void latest_stays_with_what_has_more_steps(void **state)
{
	(void)state;
	struct tr_error error;
	char link[64] = "";
	put("from/step-00000040");
	assert_int_equal(mkdir(in_root("to"), 0700), 0);
	put_step("to/step-00000060");
	assert_int_equal(symlink("step-00000060", in_root("to/latest")), 0);
	assert_int_equal(copy("to/step-00000040", 1000, ALL, &error), TR_OK);
	assert_int_equal(readlink(in_root("to/latest"), link, sizeof(link) - 1), 13);
	assert_string_equal(link, "step-00000060");
	check("to/step-00000040");
	/* What it names is gone. */
	assert_int_equal(rename(in_root("to/step-00000060"), in_root("elsewhere")), 0);
	assert_int_equal(copy("to/step-00000040", 1000, ALL, &error), TR_OK);
	assert_int_equal(readlink(in_root("to/latest"), link, sizeof(link) - 1), 13);
	assert_string_equal(link, "step-00000040");
}

/* A node that never writes one itself would have them all. */
static void no_more_copies_stay_than_a_writer_keeps(void **state)
{
	(void)state;
	struct tr_error error;
	struct checkpoint_folder folder = { .keep = 2 };
	(void)snprintf(folder.dir, sizeof(folder.dir), "%s", in_root("to"));
	put("from/step-00000040");
	for (int step = 1; step <= 4; step++) {
		char name[64];
		(void)snprintf(name, sizeof(name), "to/step-%08d", step);
		assert_int_equal(copy(name, 1000, ALL, &error), TR_OK);
		checkpoint_copy_prune(&folder, in_root("elsewhere/step-00000001"));
		checkpoint_copy_prune(&folder, in_root("to/in/step-00000001"));
		assert_int_equal(entries("to"), step < 4 ? step + 1 : 5);
	}
	checkpoint_copy_prune(&folder, in_root("to/step-00000004"));
	assert_int_equal(entries("to"), 3);
	check("to/step-00000003");
	check("to/step-00000004");
}

static void what_is_not_whole_is_not_there(void **state)
{
	(void)state;
	struct tr_error error;
	const size_t until[] = { 0, 1, 70001, 70002, ALL - 1 };
	put("from/step-00000040");
	for (size_t i = 0; i < sizeof(until) / sizeof(until[0]); i++) {
		assert_int_equal(copy("to/step-00000040", 999, until[i], &error), TR_EINVAL);
		assert_non_null(strstr(error.text, "fewer bytes than its files have"));
		assert_int_equal(entries("to"), 0);
	}
}

static void what_cannot_be_is_refused(void **state)
{
	(void)state;
	struct checkpoint_copy one;
	struct tr_error error;
	int64_t sizes[CHECKPOINT_COPY_FILES] = { 3, -1, -1, -1, 2 };
	char byte = 0;
	assert_int_equal(checkpoint_copy_begin(in_root("to/odd"), sizes, &one, &error), TR_EINVAL);
	assert_int_equal(checkpoint_copy_begin(in_root("to/step-7-best"), sizes, &one, &error),
	    TR_EINVAL);
	assert_non_null(strstr(error.text, "it has not the name of a step's folder"));
	assert_int_equal(checkpoint_copy_begin(in_root("to/step-7"), sizes, &one, &error), TR_OK);
	for (int i = 0; i < 5; i++)
		assert_int_equal(checkpoint_copy_write(&one, &byte, 1, &error), TR_OK);
	assert_int_equal(checkpoint_copy_write(&one, &byte, 1, &error), TR_EINVAL);
	assert_int_equal(checkpoint_copy_end(&one, false, &error), TR_OK);
	assert_int_equal(entries("to"), 0);
	sizes[4] = -1; /* no manifest */
	assert_int_equal(checkpoint_copy_begin(in_root("to/step-7"), sizes, &one, &error),
	    TR_EINVAL);
	sizes[4] = INT64_MAX;
	assert_int_equal(checkpoint_copy_begin(in_root("to/step-7"), sizes, &one, &error),
	    TR_EINVAL);
	sizes[4] = -2;
	assert_true(checkpoint_copy_bytes(sizes) == UINT64_MAX);
	assert_int_equal(checkpoint_copy_open(in_root("none"), &none, &one, sizes, &error), TR_EIO);
	assert_int_equal(checkpoint_copy_open(in_root("to"), &none, &one, sizes, &error), TR_EIO);
	/* A file that became shorter. */
	put("from/step-00000040");
	assert_int_equal(checkpoint_copy_open(in_root("from/step-00000040"), &none, &one, sizes,
	                     &error),
	    TR_OK);
	assert_int_equal(truncate(in_root("from/step-00000040/model.safetensors"), 10), 0);
	uint8_t some[20];
	assert_int_equal(checkpoint_copy_read(&one, some, sizeof(some), &error), TR_EIO);
	assert_non_null(strstr(error.text, "model.safetensors: it ends before its end"));
	checkpoint_copy_close(&one);
}

static void say_digest(char hex[TR_DIGEST_HEX_MAX], size_t file)
{
	uint8_t *bytes = malloc(files[file].bytes);
	assert_non_null(bytes);
	for (size_t i = 0; i < files[file].bytes; i++)
		bytes[i] = byte_of(file, i);
	(void)tr_digest_hex(tr_digest_of(bytes, files[file].bytes), hex);
	free(bytes);
}

/* Who gives it finds out, at the file's end, whatever the pieces. */
static void what_is_damaged_is_not_given(void **state)
{
	(void)state;
	static uint8_t bytes[ALL];
	const size_t pieces[] = { 1, 300, 70001, ALL };
	struct manifest manifest = { .step = 40 };
	say_digest(manifest.model, 0);
	say_digest(manifest.optimizer, 1);
	put("from/step-00000040");
	for (size_t i = 0; i < 4 * sizeof(pieces) / sizeof(pieces[0]); i++) {
		struct checkpoint_copy from;
		int64_t sizes[CHECKPOINT_COPY_FILES];
		struct tr_error error = { .text = "" };
		size_t got = 0, piece = pieces[i % 4], spoilt = i / 4; /* 0, 1: that file */
		char *digest = spoilt == 0 ? manifest.model : manifest.optimizer, kept = digest[0];
		if (spoilt < 2)
			digest[0] = kept == '0' ? '1' : '0';
		else if (spoilt == 3)
			digest[0] = '\0'; /* nobody knows */
		assert_int_equal(checkpoint_copy_open(in_root("from/step-00000040"), &manifest,
		                     &from, sizes, &error),
		    TR_OK);
		tr_status status = TR_OK;
		while (status == TR_OK && got < ALL) {
			size_t now = ALL - got < piece ? ALL - got : piece;
			status = checkpoint_copy_read(&from, bytes, now, &error);
			got += status == TR_OK ? now : 0;
		}
		checkpoint_copy_close(&from);
		assert_int_equal(status, spoilt < 2 ? TR_EDIGEST : TR_OK);
		assert_true(spoilt >= 2 || got < files[0].bytes + spoilt * files[1].bytes);
		assert_true(spoilt >= 2 || strstr(error.text, "safetensors is damaged: ") != NULL);
		digest[0] = kept;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(any_pieces, make_root, remove_root),
		cmocka_unit_test_setup_teardown(two_of_one_disk_make_one_copy, make_root,
		    remove_root),
		cmocka_unit_test_setup_teardown(latest_stays_with_what_has_more_steps, make_root,
		    remove_root),
		cmocka_unit_test_setup_teardown(no_more_copies_stay_than_a_writer_keeps, make_root,
		    remove_root),
		cmocka_unit_test_setup_teardown(what_is_not_whole_is_not_there, make_root,
		    remove_root),
		cmocka_unit_test_setup_teardown(what_is_damaged_is_not_given, make_root,
		    remove_root),
		cmocka_unit_test_setup_teardown(what_cannot_be_is_refused, make_root, remove_root),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
