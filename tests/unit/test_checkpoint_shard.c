/* Shards out of a checkpoint of the whole, and a checkpoint out of shards. */
#include "tests/unit/checkpoint_fixture.h"

#include "daemon/checkpoint/shard.h"
#include "daemon/worker/saver.h"

static void fail_unless_ok(tr_status status, const struct tr_error *error)
{
	if (status != TR_OK)
		fail_msg("%s", error->text);
}

static void assert_taken(const struct fixture *f, const struct layout *local,
    const struct shard *shard, const float *whole, const float *read)
{
	float *expected = noise(local->count, 0);
	shard_take(&f->layout, local, shard, whole, expected);
	assert_memory_equal(expected, read, local->count * sizeof(float));
	free(expected);
}

static void count(void *arg)
{
	++*(size_t *)arg;
}

/* Each reads what is its own, and nothing of what was there before stays: not in the padding either. */
static void test_shards_of_the_whole(void **state)
{
	struct fixture *f = *state;
	static const uint32_t sizes[] = { 1, 2 };
	char path[CHECKPOINT_PATH_MAX], found[CHECKPOINT_PATH_MAX];
	struct manifest manifest;
	struct tr_error error = { 0 };
	write_step(f, 30, path);
	for (size_t i = 0; i < 2; i++)
		for (uint32_t rank = 0; rank < sizes[i]; rank++) {
			struct shard shard = { .rank = rank, .size = sizes[i] };
			struct layout local;
			assert_int_equal(shard_layout(&f->layout, &shard, &local, NULL), TR_OK);
			struct optim_arrays mine = { .params = noise(local.count, 7),
				.first = noise(local.count, 8),
				.second = noise(local.count, 9) };
			size_t words = 0;
			struct progress told = { count, &words, NULL };
			fail_unless_ok(checkpoint_read_shard(f->folder.dir, &f->layout, &local,
			                   &shard, &mine, &told, &manifest, found, &error),
			    &error);
			/* Of three arrays each tensor, and the bytes of both files. */
			assert_true(words >= 3 * local.tensor_count + 2);
			assert_int_equal(manifest.step, 30);
			assert_taken(f, &local, &shard, f->arrays.params, mine.params);
			assert_taken(f, &local, &shard, f->arrays.first, mine.first);
			assert_taken(f, &local, &shard, f->arrays.second, mine.second);
			free(mine.params);
			free(mine.first);
			free(mine.second);
			layout_finish(&local);
		}
}

static void remove_folder(void *path)
{
	char command[CHECKPOINT_PATH_MAX + 16];
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", (const char *)path);
	assert_int_equal(system(command), 0);
}

/* By a writer that keeps one alone, as soon as its first bytes were read. */
static void test_removed_meanwhile(void **state)
{
	struct fixture *f = *state;
	char path[CHECKPOINT_PATH_MAX], found[CHECKPOINT_PATH_MAX];
	struct shard shard = { .rank = 0, .size = 2 };
	struct layout local;
	struct manifest manifest;
	struct tr_error error = { 0 };
	struct progress removes = { remove_folder, path, NULL };
	write_step(f, 30, path);
	assert_int_equal(shard_layout(&f->layout, &shard, &local, NULL), TR_OK);
	struct optim_arrays mine = { .params = noise(local.count, 7),
		.first = noise(local.count, 8),
		.second = noise(local.count, 9) };
	fail_unless_ok(checkpoint_read_shard(path, &f->layout, &local, &shard, &mine, &removes,
	                   &manifest, found, &error),
	    &error);
	assert_int_not_equal(access(path, F_OK), 0);
	assert_taken(f, &local, &shard, f->arrays.params, mine.params);
	assert_taken(f, &local, &shard, f->arrays.second, mine.second);
	free(mine.params);
	free(mine.first);
	free(mine.second);
	layout_finish(&local);
}

enum { PARTS = 2 };
struct parts {
	const struct fixture *f;
	struct layout local[PARTS];
	float *mine[PARTS][3], *later;
	bool copied;
};

static struct shard part(uint32_t rank)
{
	return (struct shard){ .rank = rank, .size = PARTS };
}

static void make_parts(struct parts *parts, const struct fixture *f)
{
	const float *const from[] = { f->arrays.params, f->arrays.first, f->arrays.second };
	*parts = (struct parts){ .f = f };
	for (uint32_t rank = 0; rank < PARTS; rank++) {
		struct shard shard = part(rank);
		struct layout *local = &parts->local[rank];
		assert_int_equal(shard_layout(&f->layout, &shard, local, NULL), TR_OK);
		for (unsigned a = 0; a < 3; a++) {
			parts->mine[rank][a] = noise(local->count, 0);
			shard_take(&f->layout, local, &shard, from[a], parts->mine[rank][a]);
		}
	}
	/* What is not there before it is copied. */
	parts->later = parts->mine[0][0];
	parts->mine[0][0] = noise(parts->local[0].count, 9);
}

static void copy_later(void *arg)
{
	struct parts *parts = arg;
	memcpy(parts->mine[0][0], parts->later, parts->local[0].count * sizeof(float));
	parts->copied = true;
}

static void read_parts(void *arg, unsigned which, size_t tensor, size_t first, size_t end, float *to)
{
	const struct parts *parts = arg;
	assert_true(parts->copied);
	for (uint32_t rank = 0; rank < PARTS; rank++) {
		struct shard shard = part(rank);
		shard_put_part(&parts->f->layout, &parts->local[rank], &shard, tensor,
		    parts->mine[rank][which], first, end, to);
	}
}

static void finish_parts(struct parts *parts)
{
	for (uint32_t rank = 0; rank < PARTS; rank++) {
		for (unsigned a = 0; a < 3; a++)
			free(parts->mine[rank][a]);
		layout_finish(&parts->local[rank]);
	}
	free(parts->later);
}

/* Each range of a tensor, from any number on, is what the whole array has there. */
static void test_any_part_of_shards(void **state)
{
	struct fixture *f = *state;
	struct parts parts;
	make_parts(&parts, f);
	copy_later(&parts);
	for (size_t t = 0; t < f->layout.tensor_count; t++) {
		size_t offset = f->layout.tensors[t].offset,
		       numbers = layout_numbers(&f->layout.tensors[t]);
		float *to = noise(numbers, 0);
		for (size_t first = 0; first < numbers; first += 1 + numbers / 37)
			for (size_t end = first + 1; end <= numbers; end += 1 + numbers / 29) {
				memset(to, 0x7f, numbers * sizeof(*to));
				read_parts(&parts, 1, t, offset + first, offset + end, to);
				assert_memory_equal(to, f->arrays.first + offset + first,
				    (end - first) * sizeof(*to));
				assert_true(end - first == numbers ||
				    memcmp(to + (end - first), "\x7f\x7f\x7f\x7f", 4) == 0);
			}
		free(to);
	}
	finish_parts(&parts);
}

static void test_the_whole_of_shards(void **state)
{
	struct fixture *f = *state;
	struct parts parts;
	const struct saver_parts lent = { { read_parts, &parts, false }, copy_later };
	struct manifest manifest = { .step = 40, .round = 47 }, read;
	struct saver *saver;
	struct saver_result result;
	struct tr_error error = { 0 };
	char found[CHECKPOINT_PATH_MAX];
	fail_unless_ok(saver_create(&f->folder, &f->layout, &saver, &error), &error);
	make_parts(&parts, f);
	fail_unless_ok(saver_start_parts(saver, &lent, &manifest, &error), &error);
	assert_int_equal(saver_start_parts(saver, &lent, &manifest, &error), TR_EAGAIN);
	saver_settle(saver, NULL, 0);
	assert_true(parts.copied);
	assert_true(saver_result(saver, true, &result));
	fail_unless_ok(result.status, &result.error);
	fail_unless_ok(checkpoint_read(result.path, &f->layout, &f->back, &read, found, &error),
	    &error);
	assert_int_equal(read.step, 40);
	assert_int_equal(read.round, 47);
	for (size_t t = 0; t < f->layout.tensor_count; t++) {
		size_t at = f->layout.tensors[t].offset;
		size_t bytes = layout_numbers(&f->layout.tensors[t]) * sizeof(float);
		assert_memory_equal(f->arrays.params + at, f->back.params + at, bytes);
		assert_memory_equal(f->arrays.first + at, f->back.first + at, bytes);
		assert_memory_equal(f->arrays.second + at, f->back.second + at, bytes);
	}
	saver_destroy(saver);
	finish_parts(&parts);
}

/* Looking reads no large file, and says whose it is; where rounds and steps are the same nothing is said of rounds. */
static void test_look(void **state)
{
	struct fixture *f = *state;
	char path[CHECKPOINT_PATH_MAX], found[CHECKPOINT_PATH_MAX], name[CHECKPOINT_PATH_MAX + 32];
	struct manifest manifest;
	struct tr_error error = { 0 };
	assert_int_equal(checkpoint_look(f->folder.dir, &f->layout, &manifest, found, &error),
	    TR_ENOTFOUND);
	write_step(f, 30, path);
	(void)snprintf(name, sizeof(name), "%s/%s", path, MANIFEST_MODEL);
	assert_int_equal(unlink(name), 0);
	fail_unless_ok(checkpoint_look(f->folder.dir, &f->layout, &manifest, found, &error), &error);
	assert_string_equal(found, path);
	assert_true(manifest.step == 30 && manifest.round == 0);
	struct layout other = f->layout;
	other.config.heads = 4;
	assert_int_equal(checkpoint_look(path, &other, &manifest, found, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "model.heads: found 4, allowed: 2"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_shards_of_the_whole, setup, teardown),
		cmocka_unit_test_setup_teardown(test_removed_meanwhile, setup, teardown),
		cmocka_unit_test_setup_teardown(test_any_part_of_shards, setup, teardown),
		cmocka_unit_test_setup_teardown(test_the_whole_of_shards, setup, teardown),
		cmocka_unit_test_setup_teardown(test_look, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
