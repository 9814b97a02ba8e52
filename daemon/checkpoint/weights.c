#include "daemon/checkpoint/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void weights_name(const struct layout_tensor *tensor, const char *suffix,
    char to[SAFETENSORS_NAME_MAX])
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
		weights_name(tensor, suffix, names[i]);
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
		uint64_t at;
		weights_name(tensor, suffix, name);
		tr_status status = safetensors_find_f32(file, name, tensor->rows, tensor->columns,
		    &at, error);
		if (status != TR_OK)
			return status;
		status = safetensors_read(file, at, layout_numbers(tensor) * sizeof(float),
		    values + tensor->offset, error);
		if (status != TR_OK)
			return tr_error_wrap(error, "tensor '%s'", name);
	}
	return TR_OK;
}

/* So many numbers of the file are read at once, and then progress is told. */
#define PIECE_NUMBERS (1u << 20)

struct taking {
	const struct safetensors *file;
	uint64_t at; /* the whole tensor, from number `from` of the whole layout on */
	size_t from;
	const struct progress *progress;
	float *piece; /* [PIECE_NUMBERS] */
};

/* Rows [row, row + rows) of it, which have room in t->piece with what lies between them. */
static tr_status take_rows(const struct taking *t, const struct shard_piece *piece, size_t row,
    size_t rows, float *values, struct tr_error *error)
{
	size_t numbers = (rows - 1) * piece->whole_stride + piece->columns;
	size_t first = piece->whole - t->from + row * piece->whole_stride;
	tr_status status = safetensors_read(t->file, t->at + first * sizeof(float),
	    numbers * sizeof(float), t->piece, error);
	for (size_t i = 0; status == TR_OK && i < rows; i++)
		memcpy(values + piece->local + (row + i) * piece->local_stride,
		    t->piece + i * piece->whole_stride, piece->columns * sizeof(float));
	return status;
}

/* One row that is longer than a piece. */
static tr_status take_long_row(const struct taking *t, const struct shard_piece *piece, size_t row,
    float *values, struct tr_error *error)
{
	tr_status status = TR_OK;
	for (size_t at = 0; at < piece->columns && status == TR_OK; at += PIECE_NUMBERS) {
		struct shard_piece part = *piece;
		part.whole += at;
		part.local += at;
		part.columns = piece->columns - at < PIECE_NUMBERS ? piece->columns - at
		                                                   : PIECE_NUMBERS;
		status = take_rows(t, &part, row, 1, values, error);
		progress_tell(t->progress);
	}
	return status;
}

static tr_status take_piece(const struct taking *t, const struct shard_piece *piece, float *values,
    struct tr_error *error)
{
	size_t at_once = piece->columns <= PIECE_NUMBERS;
	if (at_once && piece->whole_stride > 0 && piece->whole_stride < PIECE_NUMBERS)
		at_once = PIECE_NUMBERS / piece->whole_stride;
	tr_status status = TR_OK;
	for (size_t row = 0; row < piece->rows && status == TR_OK;) {
		size_t rows = piece->rows - row < at_once ? piece->rows - row : at_once;
		if (rows > 0) {
			status = take_rows(t, piece, row, rows, values, error);
			progress_tell(t->progress);
		} else {
			rows = 1;
			status = take_long_row(t, piece, row, values, error);
		}
		row += rows;
	}
	return status;
}

static tr_status load_tensor(const struct taking *t, const struct layout *whole,
    const struct layout *local, const struct shard *shard, size_t number, float *values,
    struct tr_error *error)
{
	struct shard_piece pieces[SHARD_PIECES_MAX];
	tr_status status = TR_OK;
	size_t count = shard_pieces(whole, local, shard, number, pieces);
	for (size_t k = 0; k < count && status == TR_OK; k++)
		status = take_piece(t, &pieces[k], values, error);
	return status;
}

static tr_status find(struct taking *t, const struct layout_tensor *tensor, const char *suffix,
    char name[SAFETENSORS_NAME_MAX], struct tr_error *error)
{
	weights_name(tensor, suffix, name);
	t->from = tensor->offset;
	return safetensors_find_f32(t->file, name, tensor->rows, tensor->columns, &t->at, error);
}

static tr_status take_room(struct taking *t, struct tr_error *error)
{
	t->piece = malloc(PIECE_NUMBERS * sizeof(float));
	return t->piece != NULL
	    ? TR_OK
	    : tr_error_set(error, TR_ENOMEM, "no memory for a piece of a tensor");
}

tr_status weights_load_pieces(const struct layout *layout, size_t tensor, const char *suffix,
    const struct safetensors *file, const struct shard_piece *pieces, size_t count,
    const struct progress *progress, float *values, struct tr_error *error)
{
	struct taking taking = { .file = file, .progress = progress };
	char name[SAFETENSORS_NAME_MAX];
	tr_status status = find(&taking, &layout->tensors[tensor], suffix, name, error);
	if (status == TR_OK)
		status = take_room(&taking, error);
	for (size_t k = 0; k < count && status == TR_OK; k++)
		status = take_piece(&taking, &pieces[k], values, error);
	free(taking.piece);
	return status == TR_OK ? TR_OK : tr_error_wrap(error, "tensor '%s'", name);
}

tr_status weights_load_shard(const struct layout *whole, const struct layout *local,
    const struct shard *shard, const char *suffix, const struct safetensors *file,
    const struct progress *progress, float *values, struct tr_error *error)
{
	struct taking taking = { .file = file, .progress = progress };
	tr_status status = TR_OK;
	memset(values, 0, local->count * sizeof(*values));
	if (take_room(&taking, error) != TR_OK)
		return TR_ENOMEM;
	for (size_t i = 0; i < local->tensor_count && status == TR_OK; i++) {
		const struct layout_tensor *tensor = &whole->tensors[local->tensors[i].number];
		char name[SAFETENSORS_NAME_MAX];
		status = find(&taking, tensor, suffix, name, error);
		if (status != TR_OK)
			break;
		status = load_tensor(&taking, whole, local, shard, i, values, error);
		if (status != TR_OK)
			(void)tr_error_wrap(error, "tensor '%s'", name);
		progress_tell(progress);
	}
	free(taking.piece);
	return status;
}
