#include "daemon/checkpoint/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void make_name(char to[SAFETENSORS_NAME_MAX], const struct layout_tensor *tensor,
    const char *suffix)
{
	(void)snprintf(to, SAFETENSORS_NAME_MAX, "%s%s", tensor->name, suffix);
}

void *weights_items(const struct layout *layout, const char *suffix, const float *values,
    struct safetensors_item *items)
{
	char(*names)[SAFETENSORS_NAME_MAX] = calloc(layout->tensor_count, SAFETENSORS_NAME_MAX);
	if (names == NULL)
		return NULL;
	for (size_t i = 0; i < layout->tensor_count; i++) {
		const struct layout_tensor *tensor = &layout->tensors[i];
		make_name(names[i], tensor, suffix);
		items[i] = (struct safetensors_item){ names[i], tensor->rows, tensor->columns,
			values != NULL ? values + tensor->offset : NULL, NULL };
	}
	return names;
}

tr_status weights_load(const struct layout *layout, const char *suffix,
    const struct safetensors *file, float *values, struct tr_error *error)
{
	for (size_t i = 0; i < layout->tensor_count; i++) {
		const struct layout_tensor *tensor = &layout->tensors[i];
		char name[SAFETENSORS_NAME_MAX];
		const void *data;
		make_name(name, tensor, suffix);
		tr_status status = safetensors_find_f32(file, name, tensor->rows, tensor->columns,
		    &data, error);
		if (status != TR_OK)
			return status;
		memcpy(values + tensor->offset, data, layout_numbers(tensor) * sizeof(float));
	}
	return TR_OK;
}

/* So many bytes are taken between two tellings. */
#define TELL_BYTES (4u << 20)

/* `data`: the whole tensor, from number `from` of the whole layout on; not necessarily aligned. */
static void take_piece(const struct shard_piece *piece, const void *data, size_t from,
    const struct progress *progress, float *values)
{
	const char *bytes = data;
	size_t untold = 0;
	for (size_t row = 0; row < piece->rows; row++) {
		memcpy(values + piece->local + row * piece->local_stride,
		    bytes + (piece->whole - from + row * piece->whole_stride) * sizeof(float),
		    piece->columns * sizeof(float));
		untold += piece->columns * sizeof(float);
		if (untold < TELL_BYTES)
			continue;
		progress_tell(progress);
		untold = 0;
	}
}

tr_status weights_load_shard(const struct layout *whole, const struct layout *local,
    const struct shard *shard, const char *suffix, const struct safetensors *file,
    const struct progress *progress, float *values, struct tr_error *error)
{
	struct shard_piece pieces[SHARD_PIECES_MAX];
	memset(values, 0, local->count * sizeof(*values));
	for (size_t i = 0; i < local->tensor_count; i++) {
		const struct layout_tensor *tensor = &whole->tensors[local->tensors[i].number];
		char name[SAFETENSORS_NAME_MAX];
		const void *data;
		make_name(name, tensor, suffix);
		tr_status status = safetensors_find_f32(file, name, tensor->rows, tensor->columns,
		    &data, error);
		if (status != TR_OK)
			return status;
		size_t count = shard_pieces(whole, local, shard, i, pieces);
		for (size_t k = 0; k < count; k++)
			take_piece(&pieces[k], data, tensor->offset, progress, values);
		progress_tell(progress);
	}
	return TR_OK;
}
