/* A small model's state and a folder for its checkpoints. */
#ifndef TR_TESTS_UNIT_CHECKPOINT_FIXTURE_H
#define TR_TESTS_UNIT_CHECKPOINT_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/rng.h"
#include "daemon/checkpoint/checkpoint.h"

struct fixture {
	struct layout layout;
	struct optim_arrays arrays, back;
	struct checkpoint_folder folder;
};

static inline float *noise(size_t count, uint64_t stream)
{
	float *x = calloc(count, sizeof(float));
	assert_non_null(x);
	for (size_t i = 0; stream > 0 && i < count; i++)
		x[i] = (float)rng_normal(rng_key(1, 0, 0), stream, i);
	return x;
}

static inline int setup_of(void **state, const struct model_config *config)
{
	struct fixture *f = calloc(1, sizeof(*f));
	assert_non_null(f);
	assert_int_equal(layout_init(config, &f->layout, NULL), TR_OK);
	size_t count = f->layout.count;
	f->arrays = (struct optim_arrays){ .params = noise(count, 1),
		.first = noise(count, 2),
		.second = noise(count, 3) };
	f->back = (struct optim_arrays){ .params = noise(count, 0),
		.first = noise(count, 0),
		.second = noise(count, 0) };
	/* In memory where there is such a file system: a disk's fsync would take most of the time. */
	(void)snprintf(f->folder.dir, sizeof(f->folder.dir), "%s/test_checkpoint_XXXXXX",
	    access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	assert_non_null(mkdtemp(f->folder.dir));
	f->folder.keep = 2;
	*state = f;
	return 0;
}

static inline int setup(void **state)
{
	return setup_of(state,
	    &(struct model_config){ .layers = 2,
	        .width = 12,
	        .heads = 2,
	        .context = 6,
	        .vocab = 256 });
}

/* Files that go past the page cache: of 6 and 11 MB, or two shards of 8.6 MB, written in several calls. */
static inline int setup_large(void **state)
{
	return setup_of(state,
	    &(struct model_config){ .layers = 1,
	        .width = 192,
	        .heads = 2,
	        .context = 6,
	        .vocab = 5120 });
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;
	char command[CHECKPOINT_PATH_MAX];
	(void)snprintf(command, sizeof(command), "rm -r '%s'", f->folder.dir);
	assert_int_equal(system(command), 0);
	layout_finish(&f->layout);
	free(f->arrays.params);
	free(f->arrays.first);
	free(f->arrays.second);
	free(f->back.params);
	free(f->back.first);
	free(f->back.second);
	free(f);
	return 0;
}

static inline void write_step(struct fixture *f, uint64_t step, char path[CHECKPOINT_PATH_MAX])
{
	struct manifest manifest = { .step = step,
		.seed = 4,
		.samples = step * 8,
		.tokens = 7,
		.costs = { .merges = 9,
		    .sent_bytes = 1e12 + 1,
		    .dense_bytes = 3e13,
		    .waited_s = 1.25,
		    .flight_s = 1e5 },
		.lr_base = { 1.0 / 3, -1.0 / 7 } };
	struct tr_error error;
	if (checkpoint_write(&f->folder, &f->layout, &f->arrays, &manifest, "text", NULL, path,
	        &error) != TR_OK)
		fail_msg("%s", error.text);
}

/* What a text file has once becomes something else of the same length or shorter. */
static inline void replace_in(const char *folder, const char *name, const char *from, const char *to)
{
	char path[CHECKPOINT_PATH_MAX + 32], text[8192];
	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	FILE *file = fopen(path, "r+");
	assert_non_null(file);
	size_t length = fread(text, 1, sizeof(text) - 1, file);
	text[length] = '\0';
	char *at = strstr(text, from);
	assert_non_null(at);
	rewind(file);
	assert_true(fprintf(file, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) > 0);
	assert_int_equal(fflush(file), 0);
	assert_int_equal(ftruncate(fileno(file), ftell(file)), 0);
	assert_int_equal(fclose(file), 0);
}

/* Of what a text file has once, and up to (not with) what follows it: that goes. */
static inline void cut_from(const char *folder, const char *name, const char *from, const char *to)
{
	char path[CHECKPOINT_PATH_MAX + 32], text[8192];
	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	size_t length = fread(text, 1, sizeof(text) - 1, file);
	text[length] = '\0';
	assert_int_equal(fclose(file), 0);
	char *at = strstr(text, from), *end = at != NULL ? strstr(at, to) : NULL;
	assert_non_null(end);
	*end = '\0';
	replace_in(folder, name, at, "");
}

/* Of any name that begins with a dot. */
static inline unsigned hidden_left(const struct fixture *f)
{
	DIR *list = opendir(f->folder.dir);
	unsigned count = 0;
	assert_non_null(list);
	for (struct dirent *entry; (entry = readdir(list)) != NULL;)
		count += entry->d_name[0] == '.' && strcmp(entry->d_name, ".") != 0 &&
		    strcmp(entry->d_name, "..") != 0;
	(void)closedir(list);
	return count;
}

#endif
