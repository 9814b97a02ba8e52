/* Checkpoints in shards: any mesh reads what any mesh has written; what several write is there when all of it is, and not before. */
#include "tests/unit/checkpoint_fixture.h"

#include <dirent.h>

#include "daemon/checkpoint/checkpoint_copy.h"
#include "daemon/checkpoint/checkpoint_shards.h"
#include "daemon/checkpoint/mesh_shards.h"

#define KEY  0x5eed
#define STEP 40

static void must(tr_status status, const struct tr_error *error)
{
	if (status != TR_OK)
		fail_msg("%s", error->text);
}

static void lay(const struct fixture *f, const uint32_t mesh[3], struct mesh_shards *shards)
{
	struct mesh of = { .size = { [MESH_DP] = 1, [MESH_PP] = mesh[0], [MESH_TP] = mesh[1] } };
	struct tr_error error = { 0 };
	must(mesh_shards_create(&f->layout, &of, mesh[2], NULL, shards, &error), &error);
}

static struct optim_arrays room(const struct layout *layout, bool outer)
{
	return (struct optim_arrays){ .params = noise(layout->count, 1),
		.first = noise(layout->count, 2),
		.second = noise(layout->count, 3),
		.outer = outer ? noise(layout->count, 4) : NULL };
}

static void give_back(struct optim_arrays *arrays)
{
	free(arrays->params);
	free(arrays->first);
	free(arrays->second);
	free(arrays->outer);
}

static void take(const struct fixture *f, const struct layout *local, const struct shard *shard,
    const struct optim_arrays *mine)
{
	shard_take(&f->layout, local, shard, f->arrays.params, mine->params);
	shard_take(&f->layout, local, shard, f->arrays.first, mine->first);
	shard_take(&f->layout, local, shard, f->arrays.second, mine->second);
	if (mine->outer != NULL) /* as the second moments, for want of others */
		shard_take(&f->layout, local, shard, f->arrays.second, mine->outer);
}

static tr_status write_shard(const struct fixture *f, const struct mesh_shards *shards,
    uint32_t number, bool outer, char hex[TR_DIGEST_HEX_MAX], struct tr_error *error)
{
	struct shard shard;
	struct tr_digest digest = { 0, 0 };
	const struct layout *local = mesh_shards_layout(shards, number, &shard);
	struct optim_arrays mine = room(local, outer);
	take(f, local, &shard, &mine);
	tr_status status = checkpoint_write_shard(&f->folder, STEP, KEY, number, local, &mine, NULL,
	    &digest, error);
	(void)tr_digest_hex(digest, hex);
	give_back(&mine);
	return status;
}

static struct manifest manifest_of(const struct mesh_shards *shards)
{
	return (struct manifest){ .step = STEP,
		.age = STEP,
		.shards = { .count = mesh_shards_count(shards),
		    .pp = shards->mesh.size[MESH_PP],
		    .tp = shards->mesh.size[MESH_TP],
		    .chunks = shards->chunks } };
}

static void write_all(const struct fixture *f, const struct mesh_shards *shards, bool outer,
    struct manifest *manifest)
{
	struct tr_error error = { 0 };
	*manifest = manifest_of(shards);
	for (uint32_t k = 0; k < manifest->shards.count; k++)
		must(write_shard(f, shards, k, outer, manifest->shards.files[k], &error), &error);
}

static void assert_shard(const struct fixture *f, const struct layout *local,
    const struct shard *shard, const struct optim_arrays *read)
{
	struct optim_arrays right = room(local, true);
	size_t bytes = local->count * sizeof(float);
	take(f, local, shard, &right);
	assert_memory_equal(right.params, read->params, bytes);
	assert_memory_equal(right.first, read->first, bytes);
	assert_memory_equal(right.second, read->second, bytes);
	if (read->outer != NULL)
		assert_memory_equal(right.outer, read->outer, bytes);
	give_back(&right);
}

static void assert_read(const struct fixture *f, const uint32_t mesh[3], bool outer)
{
	struct mesh_shards shards;
	struct tr_error error = { 0 };
	struct manifest manifest;
	char found[CHECKPOINT_PATH_MAX];
	lay(f, mesh, &shards);
	for (uint32_t k = 0; k < mesh_shards_count(&shards); k++) {
		struct shard shard;
		const struct layout *local = mesh_shards_layout(&shards, k, &shard);
		struct optim_arrays mine = room(local, true);
		must(checkpoint_read_shard(f->folder.dir, &f->layout, local, &shard, &mine, NULL,
		         &manifest, found, &error),
		    &error);
		if (!outer) { /* there is none: zeros */
			for (size_t i = 0; i < local->count; i++)
				assert_true(mine.outer[i] == 0);
			free(mine.outer);
			mine.outer = NULL;
		}
		assert_shard(f, local, &shard, &mine);
		give_back(&mine);
	}
	mesh_shards_finish(&shards);
}

/* pp, tp, chunks */
static const uint32_t meshes[][3] = { { 1, 1, 1 }, { 1, 2, 1 }, { 2, 1, 1 }, { 2, 2, 1 },
	{ 2, 1, 2 }, { 4, 2, 1 } };
enum { MESHES = sizeof(meshes) / sizeof(meshes[0]) };

static void test_any_mesh_reads_any_other(void **state)
{
	struct fixture *f = *state;
	struct tr_error error = { 0 };
	for (size_t i = 0; i < MESHES; i++) {
		struct mesh_shards shards;
		struct manifest manifest, read;
		char path[CHECKPOINT_PATH_MAX], found[CHECKPOINT_PATH_MAX];
		bool outer = i % 2 == 1;
		lay(f, meshes[i], &shards);
		write_all(f, &shards, outer, &manifest);
		must(checkpoint_publish_shards(&f->folder, &f->layout, &manifest, KEY, path, &error),
		    &error);
		for (size_t k = 0; k < MESHES; k++)
			assert_read(f, meshes[k], outer);
		struct optim_arrays whole = room(&f->layout, false);
		must(checkpoint_read(path, &f->layout, &whole, &read, found, &error), &error);
		for (size_t k = 0; k < f->layout.tensor_count; k++) {
			size_t at = f->layout.tensors[k].offset,
			       bytes = layout_numbers(&f->layout.tensors[k]) * sizeof(float);
			assert_memory_equal(whole.params + at, f->arrays.params + at, bytes);
			assert_memory_equal(whole.second + at, f->arrays.second + at, bytes);
		}
		assert_int_equal(read.step, STEP);
		assert_string_equal(read.model, manifest.model);
		give_back(&whole);
		mesh_shards_finish(&shards);
	}
}

/* Nothing but what begins so is in the folder. */
static unsigned count_of(const struct fixture *f, const char *begin)
{
	unsigned count = 0;
	DIR *list = opendir(f->folder.dir);
	assert_non_null(list);
	for (struct dirent *entry; (entry = readdir(list)) != NULL;)
		count += strncmp(entry->d_name, begin, strlen(begin)) == 0;
	(void)closedir(list);
	return count;
}

/* On machines that share no folder: who publishes sees its own shard alone. */
static void test_a_shard_is_not_there(void **state)
{
	struct fixture *f = *state;
	struct mesh_shards shards;
	struct tr_error error = { 0 };
	char path[CHECKPOINT_PATH_MAX], hidden[CHECKPOINT_PATH_MAX * 2];
	lay(f, meshes[3], &shards);
	struct manifest manifest;
	write_all(f, &shards, false, &manifest);
	(void)snprintf(hidden, sizeof(hidden), "%s/.step-%08d.%016x/shard-00002.safetensors",
	    f->folder.dir, STEP, KEY);
	assert_int_equal(unlink(hidden), 0);
	assert_int_equal(checkpoint_publish_shards(&f->folder, &f->layout, &manifest, KEY, path,
	                     &error),
	    TR_EINVAL);
	assert_non_null(strstr(error.text, "shard-00002.safetensors is not in it"));
	assert_int_equal(count_of(f, "step-") + count_of(f, ".step-"), 0);
	mesh_shards_finish(&shards);
}

/* Given up: nothing stays. And what a try that was lost has left goes with the next one, whose own files stay. */
static void test_tries(void **state)
{
	struct fixture *f = *state;
	struct mesh_shards shards;
	struct tr_error error = { 0 };
	struct checkpoint_folder *folder = &f->folder;
	char hex[TR_DIGEST_HEX_MAX];
	lay(f, meshes[1], &shards);
	must(write_shard(f, &shards, 0, false, hex, &error), &error);
	assert_int_equal(count_of(f, ".step-"), 1);
	checkpoint_drop_shards(folder, STEP, KEY);
	checkpoint_drop_shards(folder, STEP, KEY);
	assert_int_equal(count_of(f, ".step-"), 0);
	struct shard shard;
	struct tr_digest digest;
	const struct layout *local = mesh_shards_layout(&shards, 0, &shard);
	struct optim_arrays mine = room(local, false);
	must(checkpoint_write_shard(folder, STEP, 1, 0, local, &mine, NULL, &digest, &error),
	    &error);
	must(write_shard(f, &shards, 1, false, hex, &error), &error);
	must(write_shard(f, &shards, 0, false, hex, &error), &error);
	assert_int_equal(count_of(f, ".step-"), 1);
	give_back(&mine);
	mesh_shards_finish(&shards);
}

static void test_damaged(void **state)
{
	struct fixture *f = *state;
	struct mesh_shards shards;
	struct tr_error error = { 0 };
	struct manifest manifest;
	char path[CHECKPOINT_PATH_MAX], name[CHECKPOINT_PATH_MAX + 64], found[CHECKPOINT_PATH_MAX];
	lay(f, meshes[2], &shards);
	write_all(f, &shards, false, &manifest);
	must(checkpoint_publish_shards(&f->folder, &f->layout, &manifest, KEY, path, &error),
	    &error);
	(void)snprintf(name, sizeof(name), "%s/shard-00001.safetensors", path);
	FILE *file = fopen(name, "r+");
	assert_non_null(file);
	assert_int_equal(fseek(file, -3, SEEK_END), 0);
	int byte = fgetc(file);
	assert_int_equal(fseek(file, -3, SEEK_END), 0);
	assert_int_not_equal(fputc(byte ^ 4, file), EOF);
	assert_int_equal(fclose(file), 0);
	/* Of two stages each reads its own file alone. */
	for (uint32_t k = 0; k < 2; k++) {
		struct shard shard;
		const struct layout *local = mesh_shards_layout(&shards, k, &shard);
		struct optim_arrays mine = room(local, false);
		tr_status status = checkpoint_read_shard(path, &f->layout, local, &shard, &mine,
		    NULL, &manifest, found, &error);
		assert_int_equal(status, k == 0 ? TR_OK : TR_EDIGEST);
		give_back(&mine);
	}
	assert_non_null(strstr(error.text, "shard-00001.safetensors is damaged"));
	mesh_shards_finish(&shards);
}

/* Manifests that no writer makes. */
static void test_manifests(void **state)
{
	struct fixture *f = *state;
	struct mesh_shards shards;
	struct tr_error error = { 0 };
	lay(f, meshes[3], &shards);
	struct manifest right = manifest_of(&shards), read;
	for (uint32_t k = 0; k < 4; k++)
		(void)tr_digest_hex(tr_digest_of(&k, sizeof(k)), right.shards.files[k]);
	(void)snprintf(right.config, sizeof(right.config), "00");
	for (unsigned i = 0; i < 6; i++) {
		struct manifest m = right;
		if (i == 1)
			m.shards.tp = 1;
		if (i == 2)
			m.shards.files[3][0] = '\0';
		if (i == 3)
			m.shards.chunks = 0;
		if (i == 4)
			m.shards.pp = 300;
		if (i == 5)
			m.shards.count = 3;
		char *text = manifest_text(&m);
		assert_non_null(text);
		tr_status status = manifest_parse(text, strlen(text), &read, &error);
		assert_int_equal(status, i == 0 ? TR_OK : TR_EDIGEST);
		free(text);
	}
	manifest_sum_shards(&right);
	char *text = manifest_text(&right);
	must(manifest_parse(text, strlen(text), &read, &error), &error);
	assert_int_equal(read.shards.count, 4);
	assert_string_equal(read.model, right.model);
	assert_string_equal(read.shards.files[3], right.shards.files[3]);
	free(text);
	mesh_shards_finish(&shards);
}

/* Whole by its digests, but its mesh is none that could have written it: layers that are not all, or too many chunks. */
static void test_meshes_that_nobody_has(void **state)
{
	struct fixture *f = *state;
	static const struct {
		uint32_t chunks, layers[2];
		tr_status expected;
	} cases[] = { { 1, { 3, 2 }, TR_OK }, { 1, { 3, 1 }, TR_EDIGEST },
		{ 1, { 2, 4 }, TR_EDIGEST }, { UINT32_MAX, { 3, 2 }, TR_EDIGEST } };
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mesh of = { .size = { [MESH_DP] = 1, [MESH_PP] = 2, [MESH_TP] = 1 } };
		struct mesh_shards shards;
		struct tr_error error = { 0 };
		struct manifest manifest, read;
		char path[CHECKPOINT_PATH_MAX], found[CHECKPOINT_PATH_MAX];
		must(mesh_shards_create(&f->layout, &of, 1, cases[0].layers, &shards, &error),
		    &error);
		write_all(f, &shards, false, &manifest);
		manifest.shards.chunks = cases[i].chunks;
		memcpy(manifest.shards.layers, cases[i].layers, sizeof(cases[i].layers));
		must(checkpoint_publish_shards(&f->folder, &f->layout, &manifest, KEY, path, &error),
		    &error);
		struct optim_arrays whole = room(&f->layout, false);
		tr_status status = checkpoint_read(path, &f->layout, &whole, &read, found, &error);
		assert_int_equal(status, cases[i].expected);
		give_back(&whole);
		mesh_shards_finish(&shards);
	}
}

/* Who was held up with an older try publishes it, or begins to write for it, when the others are done with the next one: the first does no harm, of the second the error says that all can begin anew. */
static void test_a_late_writer(void **state)
{
	struct fixture *f = *state;
	struct mesh_shards shards;
	struct tr_error error = { 0 };
	struct manifest manifest;
	char path[CHECKPOINT_PATH_MAX];
	lay(f, meshes[1], &shards);
	write_all(f, &shards, false, &manifest);
	struct shard shard;
	struct tr_digest digest;
	const struct layout *local = mesh_shards_layout(&shards, 0, &shard);
	struct optim_arrays mine = room(local, false);
	assert_int_equal(checkpoint_publish_shards(&f->folder, &f->layout, &manifest, 1, path,
	                     &error),
	    TR_ESTALE);
	must(checkpoint_publish_shards(&f->folder, &f->layout, &manifest, KEY, path, &error),
	    &error);
	write_all(f, &shards, false, &manifest);
	must(checkpoint_write_shard(&f->folder, STEP, 1, 0, local, &mine, NULL, &digest, &error),
	    &error);
	assert_int_equal(checkpoint_publish_shards(&f->folder, &f->layout, &manifest, KEY, path,
	                     &error),
	    TR_ESTALE);
	give_back(&mine);
	mesh_shards_finish(&shards);
}

/* Or machines that do not see the folder would get one with a manifest and no shard. */
static void test_no_copy_is_made(void **state)
{
	struct fixture *f = *state;
	struct mesh_shards shards;
	struct tr_error error = { 0 };
	struct manifest manifest, read;
	struct checkpoint_copy copy;
	int64_t sizes[CHECKPOINT_COPY_FILES];
	char path[CHECKPOINT_PATH_MAX], found[CHECKPOINT_PATH_MAX];
	lay(f, meshes[1], &shards);
	write_all(f, &shards, false, &manifest);
	must(checkpoint_publish_shards(&f->folder, &f->layout, &manifest, KEY, path, &error),
	    &error);
	must(checkpoint_look(path, &f->layout, &read, found, &error), &error);
	assert_int_equal(checkpoint_copy_open(path, &read, &copy, sizes, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "it is in 2 shards, of which no copies are made"));
	mesh_shards_finish(&shards);
}

static int setup_deep(void **state)
{
	return setup_of(state,
	    &(struct model_config){ .layers = 5,
	        .width = 12,
	        .heads = 2,
	        .context = 6,
	        .vocab = 67 });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_any_mesh_reads_any_other, setup_deep, teardown),
		cmocka_unit_test_setup_teardown(test_a_shard_is_not_there, setup, teardown),
		cmocka_unit_test_setup_teardown(test_tries, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
		cmocka_unit_test_setup_teardown(test_manifests, setup, teardown),
		cmocka_unit_test_setup_teardown(test_meshes_that_nobody_has, setup_deep, teardown),
		cmocka_unit_test_setup_teardown(test_a_late_writer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_copy_is_made, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
