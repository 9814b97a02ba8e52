#include "daemon/checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/limits.h"
#include "common/json_read.h"

static const struct {
	const char *name;
	enum safetensors_dtype dtype;
	unsigned bytes;
} dtypes[] = {
	{ "F32", SAFETENSORS_F32, 4 },
	{ "I32", SAFETENSORS_I32, 4 },
	{ "I64", SAFETENSORS_I64, 8 },
	{ "F64", SAFETENSORS_F64, 8 },
	{ "F16", SAFETENSORS_F16, 2 },
	{ "BF16", SAFETENSORS_BF16, 2 },
	{ "I8", SAFETENSORS_I8, 1 },
	{ "U8", SAFETENSORS_U8, 1 },
	{ "I16", SAFETENSORS_I16, 2 },
	{ "BOOL", SAFETENSORS_BOOL, 1 },
};

const char *safetensors_dtype_name(enum safetensors_dtype dtype)
{
	size_t i = 0;
	while (dtypes[i].dtype != dtype)
		i++;
	return dtypes[i].name;
}

/* One header entry while it is read. */
struct entry {
	bool has_dtype, has_shape, has_offsets;
	unsigned item_bytes;
	uint64_t begin, end;
};

static bool read_dtype(struct json_reader *r, struct entry *entry, struct safetensors_tensor *t)
{
	char name[8];
	if (!json_read_string(r, name, sizeof(name)))
		return false;
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
		if (strcmp(name, dtypes[i].name) == 0) {
			t->dtype = dtypes[i].dtype;
			entry->item_bytes = dtypes[i].bytes;
			entry->has_dtype = true;
			return true;
		}
	}
	return false;
}

static bool read_shape(struct json_reader *r, struct entry *entry, struct safetensors_tensor *t)
{
	t->dims = 0;
	for (json_read_array(r); json_read_item(r);) {
		if (t->dims == SAFETENSORS_DIMS_MAX || !json_read_uint(r, &t->shape[t->dims]))
			return false;
		t->dims++;
	}
	entry->has_shape = true;
	return !r->failed;
}

static bool read_offsets(struct json_reader *r, struct entry *entry)
{
	char extra = 0;
	entry->has_offsets = json_read_array(r) && json_read_item(r) &&
	    json_read_uint(r, &entry->begin) && json_read_item(r) && json_read_uint(r, &entry->end);
	if (entry->has_offsets && json_read_item(r))
		extra = 1;
	return entry->has_offsets && extra == 0 && !r->failed;
}

/* Whether the bytes from begin to end are what dtype and shape need. */
static bool offsets_fit(const struct entry *entry, const struct safetensors_tensor *t)
{
	uint64_t need = entry->item_bytes;
	if (!entry->has_dtype || !entry->has_shape || !entry->has_offsets ||
	    entry->begin > entry->end)
		return false;
	for (unsigned i = 0; i < t->dims; i++)
		if (__builtin_mul_overflow(need, t->shape[i], &need))
			return false;
	return need == entry->end - entry->begin;
}

/* *end: of its bytes, which may lie beyond the data: then it has none. */
static bool read_entry(struct json_reader *r, uint64_t data, uint64_t data_bytes,
    struct safetensors_tensor *t, uint64_t *end)
{
	struct entry entry = { 0 };
	char key[32];
	for (json_read_object(r); json_read_key(r, key, sizeof(key));) {
		bool good;
		if (strcmp(key, "dtype") == 0)
			good = !entry.has_dtype && read_dtype(r, &entry, t);
		else if (strcmp(key, "shape") == 0)
			good = !entry.has_shape && read_shape(r, &entry, t);
		else
			good = strcmp(key, "data_offsets") == 0 && !entry.has_offsets &&
			    read_offsets(r, &entry);
		if (!good)
			return false;
	}
	if (r->failed || !offsets_fit(&entry, t))
		return false;
	*end = entry.end;
	if (entry.end > data_bytes)
		return true;
	t->at = data + entry.begin;
	t->bytes = (size_t)(entry.end - entry.begin);
	return true;
}

static int by_place(const void *a, const void *b)
{
	const struct safetensors_tensor *x = a, *y = b;
	if (x->at != y->at)
		return x->at < y->at ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct safetensors_tensor *)a)->name,
	    ((const struct safetensors_tensor *)b)->name);
}

/* The tensors tile the data: no holes, no overlap, nothing left. Then sorts by name; names are unique. */
static tr_status check_and_sort(struct safetensors *file, uint64_t data, uint64_t data_bytes,
    struct tr_error *error)
{
	uint64_t at = data;
	if (file->count > 0)
		qsort(file->tensors, file->count, sizeof(*file->tensors), by_place);
	for (size_t i = 0; i < file->count; i++) {
		if (file->tensors[i].at != at)
			return tr_error_set(error, TR_EPROTO,
			    "tensor '%s' overlaps another or leaves a hole", file->tensors[i].name);
		at += file->tensors[i].bytes;
	}
	if (at - data != data_bytes)
		return tr_error_set(error, TR_EPROTO, "%llu bytes of data belong to no tensor",
		    (unsigned long long)(data_bytes - (at - data)));
	if (file->count > 0)
		qsort(file->tensors, file->count, sizeof(*file->tensors), by_name);
	for (size_t i = 1; i < file->count; i++)
		if (strcmp(file->tensors[i - 1].name, file->tensors[i].name) == 0)
			return tr_error_set(error, TR_EPROTO, "tensor '%s' occurs twice",
			    file->tensors[i].name);
	return TR_OK;
}

static struct safetensors_tensor *grow(struct safetensors *file, size_t *capacity)
{
	if (file->count == *capacity) {
		size_t wanted = *capacity == 0 ? 64 : *capacity * 2;
		void *grown = realloc(file->tensors, wanted * sizeof(*file->tensors));
		if (grown == NULL)
			return NULL;
		file->tensors = grown;
		*capacity = wanted;
	}
	return &file->tensors[file->count];
}

static tr_status read_header(struct safetensors *file, const char *header, size_t header_bytes,
    struct tr_error *error)
{
	uint64_t data = 8 + header_bytes, data_bytes = file->size - data, end = 0, last_end = 0;
	struct json_reader r;
	char name[SAFETENSORS_NAME_MAX];
	size_t capacity = 0;
	json_read_init(&r, header, header_bytes);
	for (json_read_object(&r); json_read_key(&r, name, sizeof(name));) {
		if (strcmp(name, "__metadata__") == 0) {
			json_read_skip(&r);
			continue;
		}
		if (file->count == TR_SAFETENSORS_TENSORS_MAX)
			return tr_error_set(error, TR_ELIMIT, "more than %u tensors",
			    TR_SAFETENSORS_TENSORS_MAX);
		struct safetensors_tensor *tensor = grow(file, &capacity);
		if (tensor == NULL)
			return tr_error_set(error, TR_ENOMEM, "no memory for a table of tensors");
		memset(tensor, 0, sizeof(*tensor));
		memcpy(tensor->name, name, sizeof(name));
		if (!read_entry(&r, data, data_bytes, tensor, &end))
			return tr_error_set(error, TR_EPROTO,
			    "the header's entry of '%s' is malformed", name);
		file->count++;
		last_end = end > last_end ? end : last_end;
	}
	if (!json_read_end(&r))
		return tr_error_set(error, TR_EPROTO, "the header is not well-formed JSON");
	if (last_end > data_bytes)
		return tr_error_set(error, TR_EPROTO,
		    "it is %zu bytes long, %llu too few for what its header names", file->size,
		    (unsigned long long)(last_end - data_bytes));
	return check_and_sort(file, data, data_bytes, error);
}

/* Of the first 8 bytes of a file of `size`. */
static tr_status read_length(const unsigned char *in, size_t size, size_t *length,
    struct tr_error *error)
{
	uint64_t bytes = 0;
	for (int i = 7; i >= 0; i--)
		bytes = bytes << 8 | in[i];
	if (bytes > size - 8 || bytes > TR_SAFETENSORS_HEADER_MAX)
		return tr_error_set(error, TR_EPROTO,
		    "it is cut off, or no safetensors file: %zu bytes, with a header of %llu (at "
		    "most %u)",
		    size, (unsigned long long)bytes, TR_SAFETENSORS_HEADER_MAX);
	*length = (size_t)bytes;
	return TR_OK;
}

static tr_status too_short(size_t size, struct tr_error *error)
{
	return tr_error_set(error, TR_EPROTO, "%zu bytes are too few for a safetensors file", size);
}

tr_status safetensors_parse(const void *bytes, size_t size, struct safetensors *out,
    struct tr_error *error)
{
	size_t header_bytes;
	if (size < 8)
		return too_short(size, error);
	tr_status status = read_length(bytes, size, &header_bytes, error);
	if (status != TR_OK)
		return status;
	struct safetensors file = { .bytes = bytes, .size = size, .fd = -1 };
	status = read_header(&file, (const char *)bytes + 8, header_bytes, error);
	if (status != TR_OK) {
		free(file.tensors);
		return status;
	}
	*out = file;
	return TR_OK;
}

#define READ_PIECE (4u << 20)

static tr_status read_at(int fd, uint64_t at, size_t bytes, void *to, struct tr_error *error)
{
	for (char *next = to; bytes > 0;) {
		ssize_t got = pread(fd, next, bytes, (off_t)at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return tr_error_set(error, TR_EIO, "cannot read at byte %llu: %s",
			    (unsigned long long)at,
			    got < 0 ? strerror(errno) : "it became shorter meanwhile");
		next += got;
		at += (uint64_t)got;
		bytes -= (size_t)got;
	}
	return TR_OK;
}

tr_status safetensors_read(const struct safetensors *file, uint64_t at, size_t bytes, void *to,
    struct tr_error *error)
{
	if (file->bytes == NULL)
		return read_at(file->fd, at, bytes, to, error);
	memcpy(to, (const char *)file->bytes + at, bytes);
	return TR_OK;
}

tr_status safetensors_digest(const struct safetensors *file, const struct progress *progress,
    struct tr_digest *digest, struct tr_error *error)
{
	struct tr_digest_stream stream;
	tr_status status = TR_OK;
	if (file->bytes != NULL) {
		*digest = tr_digest_told(file->bytes, file->size, progress);
		return TR_OK;
	}
	char *piece = malloc(READ_PIECE);
	if (piece == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a piece of a file");
	tr_digest_begin(&stream);
	for (size_t at = 0; status == TR_OK && at < file->size;) {
		size_t left = file->size - at, bytes = left < READ_PIECE ? left : READ_PIECE;
		status = read_at(file->fd, at, bytes, piece, error);
		if (status == TR_OK)
			tr_digest_add(&stream, piece, bytes);
		at += bytes;
		progress_tell(progress);
	}
	*digest = tr_digest_end(&stream);
	free(piece);
	return status;
}

static tr_status open_file(const char *path, int *fd, size_t *size, struct tr_error *error)
{
	struct stat about;
	*fd = open(path, O_RDONLY | O_CLOEXEC);
	if (*fd >= 0 && fstat(*fd, &about) == 0) {
		*size = (size_t)about.st_size;
		return TR_OK;
	}
	int cause = errno;
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
	return tr_error_set(error, cause == ENOENT ? TR_ENOTFOUND : TR_EIO, "cannot open %s: %s",
	    path, strerror(cause));
}

static tr_status read_table(struct safetensors *file, struct tr_error *error)
{
	unsigned char prefix[8];
	size_t bytes = 0;
	if (file->size < sizeof(prefix))
		return too_short(file->size, error);
	tr_status status = read_at(file->fd, 0, sizeof(prefix), prefix, error);
	if (status == TR_OK)
		status = read_length(prefix, file->size, &bytes, error);
	if (status != TR_OK)
		return status;
	char *header = malloc(bytes + 1);
	if (header == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a header");
	status = read_at(file->fd, sizeof(prefix), bytes, header, error);
	if (status == TR_OK)
		status = read_header(file, header, bytes, error);
	free(header);
	return status;
}

tr_status safetensors_open(const char *path, struct safetensors *out, struct tr_error *error)
{
	struct safetensors file = { .fd = -1 };
	tr_status status = open_file(path, &file.fd, &file.size, error);
	if (status != TR_OK)
		return status;
	status = read_table(&file, error);
	if (status != TR_OK) {
		safetensors_close(&file);
		return tr_error_wrap(error, "%s", path);
	}
	*out = file;
	return TR_OK;
}

void safetensors_rest(struct safetensors *file)
{
	if (file->fd >= 0)
		(void)close(file->fd);
	file->fd = -1;
}

tr_status safetensors_open_again(const char *path, struct safetensors *file, struct tr_error *error)
{
	size_t size = 0;
	tr_status status = open_file(path, &file->fd, &size, error);
	if (status != TR_OK || size == file->size)
		return status;
	safetensors_rest(file);
	return tr_error_set(error, TR_EIO, "%s: it had %zu bytes, and has %zu now", path,
	    file->size, size);
}

void safetensors_close(struct safetensors *file)
{
	safetensors_rest(file);
	free(file->tensors);
	*file = (struct safetensors){ .fd = -1 };
}

static int name_of(const void *key, const void *tensor)
{
	return strcmp(key, ((const struct safetensors_tensor *)tensor)->name);
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name)
{
	if (file->count == 0)
		return NULL;
	return bsearch(name, file->tensors, file->count, sizeof(*file->tensors), name_of);
}

tr_status safetensors_find_f32(const struct safetensors *file, const char *name, uint64_t rows,
    uint64_t columns, uint64_t *at, struct tr_error *error)
{
	const struct safetensors_tensor *t = safetensors_find(file, name);
	if (t == NULL)
		return tr_error_set(error, TR_ENOTFOUND, "it has no tensor '%s'", name);
	bool fits = rows > 0 ? t->dims == 2 && t->shape[0] == rows && t->shape[1] == columns
	                     : t->dims == 1 && t->shape[0] == columns;
	if (t->dtype != SAFETENSORS_F32 || !fits)
		return tr_error_set(error, TR_EINVAL,
		    "tensor '%s' has %u dimensions [%llu, %llu], this model needs F32 [%llu, %llu]",
		    name, t->dims, (unsigned long long)(t->dims > 0 ? t->shape[0] : 0),
		    (unsigned long long)(t->dims > 1 ? t->shape[1] : 0),
		    (unsigned long long)(rows > 0 ? rows : columns),
		    (unsigned long long)(rows > 0 ? columns : 0));
	*at = t->at;
	return TR_OK;
}
