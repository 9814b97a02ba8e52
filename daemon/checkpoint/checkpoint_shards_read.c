#include <stdlib.h>
#include <string.h>

#include "daemon/checkpoint/checkpoint_files.h"
#include "daemon/checkpoint/checkpoint_shards.h"
#include "daemon/checkpoint/mesh_shards.h"
#include "daemon/checkpoint/reshard.h"
#include "daemon/checkpoint/weights.h"

enum { ARRAYS = 4 };
static const char *const suffixes[ARRAYS] = { "", ".exp_avg", ".exp_avg_sq", ".outer_momentum" };

/* All that is read of one checkpoint. */
struct reading {
	const char *folder;
	const struct manifest *manifest;
	const struct checkpoint_wanted *wanted;
	const struct layout *local; /* of what is wanted: */
	struct shard shard;
	float *arrays[ARRAYS]; /* NULL: not wanted */
	struct mesh_shards from;
	bool *whole; /* [local->tensor_count]: it is the same in several shards, and was read */
};

/* What shard `number` of the checkpoint has of tensor `tensor` of the wanted one. The pieces are from the one's arrays to the other's. */
static size_t common(const struct reading *r, uint32_t number, size_t tensor,
    struct shard_piece pieces[RESHARD_BLOCKS_MAX])
{
	const struct layout *whole = r->wanted->whole;
	struct shard_piece has[SHARD_PIECES_MAX], needs[SHARD_PIECES_MAX];
	struct reshard_block blocks[RESHARD_BLOCKS_MAX];
	struct shard shard;
	size_t in_whole = r->local->tensors[tensor].number;
	size_t theirs = mesh_shards_tensor(&r->from, number, in_whole);
	if (theirs == LAYOUT_NONE || r->whole[tensor])
		return 0;
	const struct layout *layout = mesh_shards_layout(&r->from, number, &shard);
	size_t had = shard_pieces(whole, layout, &shard, theirs, has);
	size_t needed = shard_pieces(whole, r->local, &r->shard, tensor, needs);
	size_t count = reshard_common(&whole->tensors[in_whole], has, had, needs, needed, blocks);
	for (size_t i = 0; i < count; i++)
		pieces[i] = (struct shard_piece){ blocks[i].rows, blocks[i].columns, blocks[i].from,
			blocks[i].from_stride, blocks[i].to, blocks[i].to_stride };
	return count;
}

static bool has_any(const struct reading *r, uint32_t number)
{
	struct shard_piece pieces[RESHARD_BLOCKS_MAX];
	for (size_t i = 0; i < r->local->tensor_count; i++)
		if (common(r, number, i, pieces) > 0)
			return true;
	return false;
}

/* Of a job without there is none: it begins with zeros. */
static bool is_lacking(unsigned array, const struct safetensors *file,
    const struct layout_tensor *tensor, const char *suffix)
{
	char name[SAFETENSORS_NAME_MAX];
	uint64_t at;
	weights_name(tensor, suffix, name);
	return array + 1 == ARRAYS &&
	    safetensors_find_f32(file, name, tensor->rows, tensor->columns, &at, NULL) ==
	    TR_ENOTFOUND;
}

static tr_status read_tensor(struct reading *r, const struct safetensors *file, uint32_t number,
    size_t tensor, struct tr_error *error)
{
	struct shard_piece pieces[RESHARD_BLOCKS_MAX];
	struct shard shard;
	size_t count = common(r, number, tensor, pieces);
	const struct layout *layout = mesh_shards_layout(&r->from, number, &shard);
	tr_status status = TR_OK;
	if (count == 0)
		return TR_OK;
	size_t theirs = mesh_shards_tensor(&r->from, number, r->local->tensors[tensor].number);
	for (unsigned a = 0; a < ARRAYS && status == TR_OK; a++)
		if (r->arrays[a] != NULL &&
		    !is_lacking(a, file, &layout->tensors[theirs], suffixes[a]))
			status = weights_load_pieces(layout, theirs, suffixes[a], file, pieces,
			    count, r->wanted->progress, r->arrays[a], error);
	r->whole[tensor] = shard_whole(r->wanted->whole, layout, theirs);
	progress_tell(r->wanted->progress);
	return status;
}

static tr_status read_shard(struct reading *r, uint32_t number, struct tr_error *error)
{
	struct safetensors file = { .fd = -1 };
	char name[MANIFEST_SHARD_MAX];
	tr_status status = checkpoint_open_file(r->folder, manifest_shard_name(number, name), &file,
	    error);
	if (status == TR_OK)
		status = checkpoint_check_file(name, r->manifest->shards.files[number],
		    r->wanted->progress, &file, error);
	for (size_t i = 0; i < r->local->tensor_count && status == TR_OK; i++) {
		status = read_tensor(r, &file, number, i, error);
		if (status != TR_OK)
			(void)tr_error_wrap(error, "%s", name);
	}
	safetensors_close(&file);
	return status;
}

static tr_status read_all(struct reading *r, struct tr_error *error)
{
	tr_status status = TR_OK;
	r->whole = calloc(r->local->tensor_count, sizeof(*r->whole));
	if (r->whole == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a table of tensors");
	for (unsigned a = 0; a < ARRAYS; a++)
		if (r->arrays[a] != NULL)
			memset(r->arrays[a], 0, r->local->count * sizeof(float));
	for (uint32_t k = 0; k < mesh_shards_count(&r->from) && status == TR_OK; k++)
		if (has_any(r, k))
			status = read_shard(r, k, error);
	free(r->whole);
	return status;
}

/* What is in no stage would be read as zeros. */
static tr_status check_layers(const struct manifest_shards *s, uint32_t layers,
    struct tr_error *error)
{
	uint64_t dealt = 0;
	for (uint32_t i = 0; i < s->pp; i++)
		dealt += s->layers[i];
	return dealt == layers || s->layers[0] == 0
	    ? TR_OK
	    : tr_error_set(error, TR_EDIGEST,
	          "it is damaged: its stages have %llu layers, and the model %u",
	          (unsigned long long)dealt, layers);
}

tr_status checkpoint_load_shards(const char *folder, const struct checkpoint_wanted *wanted,
    const struct manifest *manifest, struct tr_error *error)
{
	const struct manifest_shards *s = &manifest->shards;
	const struct optim_arrays *arrays = wanted->arrays;
	struct mesh mesh = { .size = { [MESH_DP] = 1, [MESH_PP] = s->pp, [MESH_TP] = s->tp } };
	bool moments = arrays->first != NULL;
	struct reading r = { .folder = folder,
		.manifest = manifest,
		.wanted = wanted,
		.local = wanted->local != NULL ? wanted->local : wanted->whole,
		.arrays = { arrays->params, arrays->first, arrays->second,
		    moments ? arrays->outer : NULL } };
	r.shard = wanted->shard != NULL
	    ? *wanted->shard
	    : (struct shard){ .size = 1, .depth = wanted->whole->depth };
	tr_status status = check_layers(s, wanted->whole->config.layers, error);
	if (status == TR_OK)
		status = mesh_shards_create(wanted->whole, &mesh, s->chunks,
		    s->layers[0] > 0 ? s->layers : NULL, &r.from, error);
	if (status != TR_OK) /* no mesh that could have written it */
		return tr_error_wrap(error, "%s", MANIFEST_NAME);
	status = read_all(&r, error);
	mesh_shards_finish(&r.from);
	return status;
}
