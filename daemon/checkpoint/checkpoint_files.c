#include "daemon/checkpoint/checkpoint_files.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/checkpoint/weights.h"

static tr_status sync_close(int fd, tr_status status, struct tr_error *error)
{
	if (status == TR_OK && fsync(fd) != 0)
		status = tr_error_set(error, TR_EIO, "cannot sync: %s", strerror(errno));
	if (close(fd) != 0 && status == TR_OK)
		status = tr_error_set(error, TR_EIO, "cannot close: %s", strerror(errno));
	return status;
}

static tr_status create(int dir, const char *name, int *fd, struct tr_error *error)
{
	*fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (*fd < 0)
		return tr_error_set(error, TR_EIO, "cannot create: %s", strerror(errno));
	return TR_OK;
}

tr_status checkpoint_put_text(int dir, const char *name, const char *text, struct tr_error *error)
{
	int fd;
	if (text == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for %s", name);
	tr_status status = create(dir, name, &fd, error);
	if (status != TR_OK)
		return tr_error_wrap(error, "%s", name);
	for (size_t left = strlen(text); status == TR_OK && left > 0;) {
		ssize_t wrote = write(fd, text, left);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0) {
			status = tr_error_set(error, TR_EIO, "cannot write: %s", strerror(errno));
			break;
		}
		text += wrote;
		left -= (size_t)wrote;
	}
	status = sync_close(fd, status, error);
	return status == TR_OK ? TR_OK : tr_error_wrap(error, "%s", name);
}

static tr_status put_tensors(int dir, const char *name, const struct safetensors_item *items,
    size_t count, const struct progress *progress, struct tr_digest *digest, struct tr_error *error)
{
	int fd;
	tr_status status = create(dir, name, &fd, error);
	if (status == TR_OK) {
		status = safetensors_write(fd, items, count, progress, digest, error);
		status = sync_close(fd, status, error);
	}
	return status == TR_OK ? TR_OK : tr_error_wrap(error, "%s", name);
}

/* An item of the file is a tensor of one of the arrays. */
static void read_item(void *arg, size_t item, size_t first, size_t end, float *to)
{
	const struct checkpoint_arrays *arrays = arg;
	const struct layout *layout = arrays->layout;
	size_t tensor = item % layout->tensor_count, offset = layout->tensors[tensor].offset;
	unsigned which = arrays->first + (unsigned)(item / layout->tensor_count);
	arrays->source->read(arrays->source->arg, which, tensor, offset + first, offset + end, to);
}

tr_status checkpoint_put_arrays(int dir, const char *name, const struct checkpoint_arrays *arrays,
    const struct progress *progress, struct tr_digest *digest, struct tr_error *error)
{
	size_t tensors = arrays->layout->tensor_count, count = arrays->count;
	assert(count <= CHECKPOINT_ARRAYS_MAX);
	void *names[CHECKPOINT_ARRAYS_MAX] = { NULL };
	struct safetensors_source source = { read_item, (void *)(uintptr_t)arrays };
	struct safetensors_item *items = calloc(tensors * count, sizeof(*items));
	tr_status status = items == NULL ? TR_ENOMEM : TR_OK;
	for (size_t i = 0; status == TR_OK && i < count; i++) {
		names[i] = weights_items(arrays->layout, arrays->suffixes[i], arrays->values[i],
		    items + i * tensors);
		if (names[i] == NULL)
			status = TR_ENOMEM;
	}
	for (size_t i = 0; status == TR_OK && i < tensors * count; i++)
		items[i].source = &source;
	if (status == TR_OK)
		status = put_tensors(dir, name, items, tensors * count, progress, digest, error);
	else
		(void)tr_error_set(error, status, "no memory for a table of tensors");
	free(items);
	for (size_t i = 0; i < count; i++)
		free(names[i]);
	return status;
}
