#include <string.h>

#include "common/json.h"
#include "daemon/checkpoint/bulk_file.h"
#include "daemon/checkpoint/safetensors.h"

static size_t item_numbers(const struct safetensors_item *item)
{
	return (size_t)((item->rows > 0 ? item->rows : 1) * item->columns);
}

static size_t item_bytes(const struct safetensors_item *item)
{
	return item_numbers(item) * sizeof(float);
}

/* Put together in pieces. */
static tr_status put_read(struct bulk_file *out, const struct safetensors_item *items, size_t item,
    struct tr_error *error)
{
	const struct safetensors_source *source = items[item].source;
	size_t numbers = item_numbers(&items[item]);
	for (size_t first = 0; first < numbers;) {
		void *room;
		size_t most;
		tr_status status = bulk_file_room(out, &room, &most, error);
		if (status != TR_OK)
			return status;
		size_t piece = most / sizeof(float);
		piece = numbers - first < piece ? numbers - first : piece;
		source->read(source->arg, item, first, first + piece, room);
		bulk_file_filled(out, piece * sizeof(float));
		first += piece;
	}
	return TR_OK;
}

/* From item `first` on those that lie in memory one behind the other, as they do in the file. */
static size_t put_run(struct bulk_file *out, const struct safetensors_item *items, size_t first,
    size_t count, tr_status *status, struct tr_error *error)
{
	const float *data = items[first].data;
	size_t numbers = 0, i = first;
	for (; i < count && items[i].data == data + numbers; i++)
		numbers += item_numbers(&items[i]);
	*status = bulk_file_put(out, data, numbers * sizeof(float), error);
	return i;
}

static void describe(struct json *j, const struct safetensors_item *items, size_t count)
{
	uint64_t at = 0;
	json_object(j);
	json_key(j, "__metadata__");
	json_object(j);
	json_key(j, "format");
	json_string(j, "pt");
	json_end(j);
	for (size_t i = 0; i < count; i++) {
		json_key(j, items[i].name);
		json_object(j);
		json_key(j, "dtype");
		json_string(j, "F32");
		json_key(j, "shape");
		json_array(j);
		if (items[i].rows > 0)
			json_uint(j, items[i].rows);
		json_uint(j, items[i].columns);
		json_end(j);
		json_key(j, "data_offsets");
		json_array(j);
		json_uint(j, at);
		json_uint(j, at += item_bytes(&items[i]));
		json_end(j);
		json_end(j);
	}
	json_end(j);
}

static size_t padding(size_t length, size_t alignment)
{
	return (alignment - length % alignment) % alignment;
}

/* Padded so that the tensors' bytes begin at a multiple of 8, those of a large file where they need not be copied. */
static tr_status put_header(struct bulk_file *out, const struct safetensors_item *items,
    size_t count, struct tr_error *error)
{
	struct json j = { 0 };
	uint64_t data = 0;
	unsigned char prefix[8], spaces[BULK_ALIGNMENT];
	describe(&j, items, count);
	const char *text = json_text(&j);
	if (text == NULL) {
		json_finish(&j);
		return tr_error_set(error, TR_ENOMEM, "no memory for a header");
	}
	for (size_t i = 0; i < count; i++)
		data += item_bytes(&items[i]);
	size_t length = strlen(text);
	size_t more = padding(sizeof(prefix) + length,
	    data >= BULK_BLOCK_BYTES ? BULK_ALIGNMENT : 8);
	for (int i = 0; i < 8; i++)
		prefix[i] = (unsigned char)((uint64_t)(length + more) >> 8 * i);
	memset(spaces, ' ', sizeof(spaces));
	tr_status status = bulk_file_put(out, prefix, sizeof(prefix), error);
	if (status == TR_OK)
		status = bulk_file_put(out, text, length, error);
	if (status == TR_OK)
		status = bulk_file_put(out, spaces, more, error);
	json_finish(&j);
	return status;
}

tr_status safetensors_write(int fd, const struct safetensors_item *items, size_t count,
    const struct progress *progress, struct tr_digest *digest, struct tr_error *error)
{
	struct bulk_file out;
	bulk_file_begin(&out, fd, progress);
	tr_status status = put_header(&out, items, count, error);
	for (size_t i = 0; status == TR_OK && i < count;) {
		if (items[i].data != NULL)
			i = put_run(&out, items, i, count, &status, error);
		else
			status = put_read(&out, items, i++, error);
	}
	if (status == TR_OK)
		status = bulk_file_end(&out, digest, error);
	bulk_file_finish(&out);
	return status;
}
