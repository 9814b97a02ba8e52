#include "daemon/checkpoint/checkpoint_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/checkpoint/checkpoint.h"
#include "daemon/checkpoint/checkpoint_files.h"

#define FILE_BYTES_MAX (INT64_C(1) << 50)

/* The manifest last: a folder without it is no checkpoint. */
static const char *const names[CHECKPOINT_COPY_FILES] = { MANIFEST_MODEL, MANIFEST_OPTIMIZER,
	MANIFEST_CONFIG, MANIFEST_SAMPLE, MANIFEST_NAME };

uint64_t checkpoint_copy_bytes(const int64_t sizes[CHECKPOINT_COPY_FILES])
{
	uint64_t all = 0;
	for (unsigned i = 0; i < CHECKPOINT_COPY_FILES; i++) {
		if (sizes[i] < -1 || sizes[i] > FILE_BYTES_MAX)
			return UINT64_MAX;
		all += sizes[i] > 0 ? (uint64_t)sizes[i] : 0;
	}
	return sizes[CHECKPOINT_COPY_FILES - 1] > 0 ? all : UINT64_MAX;
}

static tr_status failed(const char *what, unsigned file, struct tr_error *error)
{
	return tr_error_set(error, TR_EIO, "%s: cannot %s: %s", names[file], what, strerror(errno));
}

/* Of files that are there and not empty. */
static unsigned next_file(const struct checkpoint_copy *copy)
{
	unsigned file = copy->next;
	while (file < CHECKPOINT_COPY_FILES && copy->sizes[file] <= 0)
		file++;
	return file;
}

static tr_status end_file(struct checkpoint_copy *copy, bool sync, struct tr_error *error)
{
	tr_status status = TR_OK;
	if (copy->fd < 0)
		return TR_OK;
	if (sync && fsync(copy->fd) != 0)
		status = failed("sync", copy->next - 1, error);
	if (close(copy->fd) != 0 && status == TR_OK)
		status = failed("close", copy->next - 1, error);
	copy->fd = -1;
	return status;
}

/* ---- there ---- */

tr_status checkpoint_copy_open(const char *path, const struct manifest *manifest,
    struct checkpoint_copy *copy, int64_t sizes[CHECKPOINT_COPY_FILES], struct tr_error *error)
{
	*copy = (struct checkpoint_copy){ .folder = -1, .fd = -1, .lock = -1, .manifest = manifest };
	if (manifest->shards.count > 0) /* TR_EINVAL: another worker's is none either */
		return tr_error_set(error, TR_EINVAL,
		    "it is in %u shards, of which no copies are made: all nodes have to share its "
		    "folder",
		    manifest->shards.count);
	copy->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (copy->folder < 0)
		return tr_error_set(error, TR_EIO, "%s: cannot open: %s", path, strerror(errno));
	for (unsigned i = 0; i < CHECKPOINT_COPY_FILES; i++) {
		struct stat about;
		bool there = fstatat(copy->folder, names[i], &about, 0) == 0;
		if (!there && errno != ENOENT) {
			tr_status status = failed("look at it", i, error);
			checkpoint_copy_close(copy);
			return status;
		}
		sizes[i] = copy->sizes[i] = there ? (int64_t)about.st_size : -1;
	}
	if (checkpoint_copy_bytes(sizes) != UINT64_MAX)
		return TR_OK;
	checkpoint_copy_close(copy);
	return tr_error_set(error, TR_EIO, "%s: these are no checkpoint's files", path);
}

/* "": nobody knows, or says. */
static const char *digest_of(const struct manifest *manifest, unsigned file)
{
	const char *name = names[file];
	return strcmp(name, MANIFEST_MODEL) == 0    ? manifest->model
	    : strcmp(name, MANIFEST_OPTIMIZER) == 0 ? manifest->optimizer
	    : strcmp(name, MANIFEST_CONFIG) == 0    ? manifest->config
	                                            : "";
}

static tr_status check_digest(const struct checkpoint_copy *copy, struct tr_error *error)
{
	unsigned file = copy->next - 1;
	const char *digest = digest_of(copy->manifest, file);
	return digest[0] == '\0'
	    ? TR_OK
	    : checkpoint_compare_digest(names[file], digest, tr_digest_end(&copy->digest), error);
}

tr_status checkpoint_copy_read(struct checkpoint_copy *copy, void *to, size_t bytes,
    struct tr_error *error)
{
	for (uint8_t *at = to; bytes > 0;) {
		if (copy->left == 0) {
			unsigned file = next_file(copy);
			tr_status status = end_file(copy, false, error);
			if (status != TR_OK)
				return status;
			if (file == CHECKPOINT_COPY_FILES)
				return tr_error_set(error, TR_EINVAL, "it has no more bytes");
			copy->fd = openat(copy->folder, names[file], O_RDONLY | O_CLOEXEC);
			copy->next = file + 1;
			copy->left = copy->sizes[file];
			if (copy->fd < 0)
				return failed("open", file, error);
			tr_digest_begin(&copy->digest);
		}
		size_t most = bytes < (uint64_t)copy->left ? bytes : (size_t)copy->left;
		ssize_t got = read(copy->fd, at, most);
		if (got < 0 && errno == EINTR)
			continue;
		if (got == 0)
			return tr_error_set(error, TR_EIO, "%s: it ends before its end",
			    names[copy->next - 1]);
		if (got < 0)
			return failed("read", copy->next - 1, error);
		tr_digest_add(&copy->digest, at, (size_t)got);
		at += got;
		bytes -= (size_t)got;
		copy->left -= got;
		if (copy->left == 0 && check_digest(copy, error) != TR_OK)
			return TR_EDIGEST;
	}
	return TR_OK;
}

void checkpoint_copy_close(struct checkpoint_copy *copy)
{
	(void)end_file(copy, false, NULL);
	if (copy->folder >= 0)
		(void)close(copy->folder);
	copy->folder = -1;
}

/* ---- here ---- */

/* Those without bytes, too. */
static tr_status create_next(struct checkpoint_copy *copy, struct tr_error *error)
{
	tr_status status = end_file(copy, true, error);
	while (status == TR_OK && copy->next < CHECKPOINT_COPY_FILES) {
		unsigned file = copy->next++;
		if (copy->sizes[file] < 0)
			continue;
		copy->fd = openat(copy->dir.hidden, names[file],
		    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (copy->fd < 0)
			return failed("create", file, error);
		copy->left = copy->sizes[file];
		if (copy->left > 0)
			break;
		status = end_file(copy, true, error);
	}
	return status;
}

/* Another worker of this machine may be making the same copy: then that one counts, since each that begins removes what it takes for an interrupted writer's. Where folders cannot be locked nobody
 * is kept out. */
static bool is_made_elsewhere(struct checkpoint_copy *copy, const char *parent)
{
	copy->lock = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return copy->lock >= 0 && flock(copy->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

/* The other one's is there, or will not come. */
static void wait_for_it(const struct checkpoint_copy *copy)
{
	while (flock(copy->lock, LOCK_EX) != 0 && errno == EINTR)
		;
}

static void unlock(struct checkpoint_copy *copy)
{
	if (copy->lock >= 0)
		(void)close(copy->lock);
	copy->lock = -1;
}

/* Splits it; false: it has not the name of a step. */
static bool split(const char *path, char parent[CHECKPOINT_PATH_MAX], uint64_t *step)
{
	const char *name = strrchr(path, '/');
	unsigned long long number;
	int end = 0;
	if (name == NULL || sscanf(name, "/step-%llu%n", &number, &end) != 1 || name[end] != '\0')
		return false;
	*step = number;
	(void)snprintf(parent, CHECKPOINT_PATH_MAX, "%.*s", (int)(name - path), path);
	return true;
}

tr_status checkpoint_copy_begin(const char *path, const int64_t sizes[CHECKPOINT_COPY_FILES],
    struct checkpoint_copy *copy, struct tr_error *error)
{
	char parent[CHECKPOINT_PATH_MAX];
	uint64_t step;
	if (!split(path, parent, &step))
		return tr_error_set(error, TR_EINVAL,
		    "%s: no copy is put there: it has not the name of a step's folder", path);
	if (checkpoint_copy_bytes(sizes) == UINT64_MAX)
		return tr_error_set(error, TR_EINVAL, "%s: no checkpoint has such files", path);
	*copy = (struct checkpoint_copy){ .folder = -1, .fd = -1, .lock = -1, .step = step };
	memcpy(copy->sizes, sizes, sizeof(copy->sizes));
	tr_status status = checkpoint_dir_make(parent, error);
	if (status == TR_OK)
		copy->elsewhere = is_made_elsewhere(copy, parent);
	if (status == TR_OK && !copy->elsewhere)
		status = checkpoint_dir_begin(parent, step, &copy->dir, error);
	if (status == TR_OK)
		return TR_OK;
	unlock(copy);
	return tr_error_wrap(error, "%s", parent);
}

tr_status checkpoint_copy_write(struct checkpoint_copy *copy, const void *from, size_t bytes,
    struct tr_error *error)
{
	if (copy->elsewhere)
		return TR_OK;
	for (const uint8_t *at = from; bytes > 0;) {
		tr_status status = copy->left == 0 ? create_next(copy, error) : TR_OK;
		if (status != TR_OK)
			return status;
		if (copy->left == 0)
			return tr_error_set(error, TR_EINVAL, "more bytes than its files have");
		size_t most = bytes < (uint64_t)copy->left ? bytes : (size_t)copy->left;
		ssize_t wrote = write(copy->fd, at, most);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0)
			return failed("write", copy->next - 1, error);
		at += wrote;
		bytes -= (size_t)wrote;
		copy->left -= wrote;
	}
	return TR_OK;
}

static tr_status publish(struct checkpoint_copy *copy, struct tr_error *error)
{
	if (fsync(copy->dir.hidden) != 0) {
		(void)tr_error_set(error, TR_EIO, "cannot sync: %s", strerror(errno));
		checkpoint_dir_abandon(&copy->dir);
		return TR_EIO;
	}
	copy->dir.leaves_latest = checkpoint_dir_has_later(&copy->dir, copy->step);
	checkpoint_dir_make_way(&copy->dir);
	return checkpoint_dir_publish(&copy->dir, error);
}

static tr_status end_copy(struct checkpoint_copy *copy, bool whole, struct tr_error *error)
{
	bool more = copy->left > 0 || next_file(copy) < CHECKPOINT_COPY_FILES;
	tr_status status = whole && more
	    ? tr_error_set(error, TR_EINVAL, "fewer bytes than its files have")
	    : TR_OK;
	if (whole && status == TR_OK)
		status = create_next(copy, error); /* syncs the last one */
	else
		(void)end_file(copy, false, NULL);
	if (whole && status == TR_OK)
		return publish(copy, error);
	(void)end_file(copy, false, NULL);
	checkpoint_dir_abandon(&copy->dir);
	return status;
}

tr_status checkpoint_copy_end(struct checkpoint_copy *copy, bool whole, struct tr_error *error)
{
	tr_status status = TR_OK;
	if (!copy->elsewhere)
		status = end_copy(copy, whole, error);
	else if (whole)
		wait_for_it(copy);
	unlock(copy);
	return status;
}

void checkpoint_copy_prune(const struct checkpoint_folder *folder, const char *path)
{
	size_t bytes = strlen(folder->dir);
	if (bytes > 0 && strncmp(path, folder->dir, bytes) == 0 && path[bytes] == '/' &&
	    strchr(path + bytes + 1, '/') == NULL)
		checkpoint_dir_prune(folder->dir, folder->keep, path + bytes + 1,
		    folder->never_delete);
}
