#include "daemon/node/logfile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/folders.h"

static void name_of(const struct logfile *log, unsigned age, char path[PATH_MAX])
{
	if (age == 0)
		(void)snprintf(path, PATH_MAX, "%s", log->path);
	else
		(void)snprintf(path, PATH_MAX, "%s.%u", log->path, age);
}

/* Of the newest file's first byte; 0: nobody has written it down. */
static uint64_t read_place(const struct logfile *log)
{
	char path[PATH_MAX], text[24] = "";
	(void)snprintf(path, sizeof(path), "%s.at", log->path);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t got = read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	return got > 0 ? strtoull(text, NULL, 10) : 0;
}

/* Without it (a full disk) later readers count from the oldest byte kept. */
static void write_place(const struct logfile *log)
{
	char path[PATH_MAX], text[24];
	(void)snprintf(path, sizeof(path), "%s.at", log->path);
	int length = snprintf(text, sizeof(text), "%" PRIu64 "\n", log->end);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (write(fd, text, (size_t)length) != length)
		(void)unlink(path);
	(void)close(fd);
}

/* Sizes of the files that are there, and where they end. */
static bool measure(struct logfile *log)
{
	bool any = false;
	uint64_t place = read_place(log);
	for (unsigned age = 0; age < log->files_max; age++) {
		char path[PATH_MAX];
		struct stat status;
		name_of(log, age, path);
		bool there = stat(path, &status) == 0;
		log->sizes[age] = there ? (uint64_t)status.st_size : 0;
		log->end += log->sizes[age];
		any |= there;
	}
	if (place + log->sizes[0] > log->end) /* older files are gone */
		log->end = place + log->sizes[0];
	return any;
}

static tr_status prepare(struct logfile *log, const char *path, unsigned files_max,
    struct tr_error *error)
{
	*log = (struct logfile){ .fd = -1,
		.files_max = files_max < LOGFILE_FILES_MAX ? files_max : LOGFILE_FILES_MAX };
	if ((size_t)snprintf(log->path, sizeof(log->path), "%s", path) >= sizeof(log->path))
		return tr_error_set(error, TR_EINVAL, "path of a log is too long: %s", path);
	return TR_OK;
}

static int open_to_append(const struct logfile *log)
{
	return open(log->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static tr_status make_folder_of(const struct logfile *log, struct tr_error *error)
{
	char folder[PATH_MAX];
	const char *slash = strrchr(log->path, '/');
	if (slash == NULL)
		return TR_OK;
	(void)snprintf(folder, sizeof(folder), "%.*s", (int)(slash - log->path), log->path);
	return folders_make(folder, error);
}

static tr_status open_newest(struct logfile *log, struct tr_error *error)
{
	log->fd = open_to_append(log);
	if (log->fd < 0 && errno == ENOENT) {
		tr_status st = make_folder_of(log, error);
		if (st != TR_OK)
			return st;
		log->fd = open_to_append(log);
	}
	if (log->fd < 0)
		return tr_error_set(error, TR_EIO, "cannot open %s: %s", log->path, strerror(errno));
	return TR_OK;
}

tr_status logfile_open(struct logfile *log, const char *path, uint64_t bytes_max,
    unsigned files_max, struct tr_error *error)
{
	tr_status st = prepare(log, path, files_max, error);
	if (st != TR_OK)
		return st;
	log->bytes_max = bytes_max;
	(void)measure(log);
	return open_newest(log, error);
}

tr_status logfile_open_old(struct logfile *log, const char *path, unsigned files_max,
    struct tr_error *error)
{
	tr_status st = prepare(log, path, files_max, error);
	if (st == TR_OK && !measure(log))
		st = tr_error_set(error, TR_ENOTFOUND, "no log %s", path);
	return st;
}

/* False: the file system does not let it (errno). Then all bytes that are kept are where sizes say. */
static bool shift(struct logfile *log)
{
	char from[PATH_MAX], to[PATH_MAX];
	for (unsigned age = log->files_max - 1; age > 0; age--) {
		name_of(log, age - 1, from);
		name_of(log, age, to);
		if (rename(from, to) == 0) {
			log->sizes[age] = log->sizes[age - 1];
			log->sizes[age - 1] = 0;
		} else if (errno != ENOENT) {
			return false;
		} else if (log->sizes[age - 1] > 0) { /* somebody removed it */
			(void)unlink(to);
			log->sizes[age] = log->sizes[age - 1] = 0;
		} /* else it was not written yet, or moved when the one before it could not be */
	}
	return log->files_max > 1 || unlink(log->path) == 0 || errno == ENOENT;
}

static tr_status rotate(struct logfile *log, struct tr_error *error)
{
	log->stuck = shift(log) ? 0 : errno;
	if (log->stuck != 0)
		return TR_OK; /* the same file goes on, however large */
	(void)close(log->fd);
	log->sizes[0] = 0;
	write_place(log);
	return open_newest(log, error);
}

/* Somebody removed the file: nobody can read what is written to it. Another one begins at the same position, before which nothing is kept. */
static tr_status begin_again_if_gone(struct logfile *log, struct tr_error *error)
{
	struct stat status;
	if (log->fd < 0 || fstat(log->fd, &status) != 0 || status.st_nlink > 0)
		return TR_OK;
	(void)close(log->fd);
	memset(log->sizes, 0, sizeof(log->sizes));
	tr_status st = open_newest(log, error);
	if (st == TR_OK)
		write_place(log);
	return st;
}

tr_status logfile_write(struct logfile *log, const void *data, size_t bytes, struct tr_error *error)
{
	if (begin_again_if_gone(log, error) != TR_OK)
		return TR_EIO;
	if (log->fd < 0 && open_newest(log, error) != TR_OK)
		return TR_EIO;
	if (log->sizes[0] > 0 && log->sizes[0] + bytes > log->bytes_max &&
	    rotate(log, error) != TR_OK)
		return TR_EIO;
	size_t done = 0;
	while (done < bytes) {
		ssize_t wrote = write(log->fd, (const char *)data + done, bytes - done);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote < 0) {
			tr_status st = tr_error_set(error, TR_EIO, "cannot write %s: %s", log->path,
			    strerror(errno));
			if (done > 0 && ftruncate(log->fd, (off_t)log->sizes[0]) != 0) {
				log->sizes[0] += done;
				log->end += done;
			}
			return st;
		}
		done += (size_t)wrote;
	}
	log->sizes[0] += bytes;
	log->end += bytes;
	return TR_OK;
}

uint64_t logfile_begin(const struct logfile *log)
{
	uint64_t kept = 0;
	for (unsigned age = 0; age < log->files_max; age++)
		kept += log->sizes[age];
	return log->end - kept;
}

tr_status logfile_read(const struct logfile *log, uint64_t *position, void *data, size_t max,
    size_t *bytes, struct tr_error *error)
{
	uint64_t at = logfile_begin(log);
	if (*position < at)
		*position = at;
	for (unsigned age = log->files_max; age-- > 0; at += log->sizes[age]) {
		if (*position >= at + log->sizes[age])
			continue;
		char path[PATH_MAX];
		name_of(log, age, path);
		uint64_t left = at + log->sizes[age] - *position;
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return tr_error_set(error, TR_EIO, "cannot open %s: %s", path,
			    strerror(errno));
		ssize_t got = pread(fd, data, left < max ? (size_t)left : max,
		    (off_t)(*position - at));
		int cause = errno;
		(void)close(fd);
		if (got <= 0)
			return tr_error_set(error, TR_EIO, "cannot read %s: %s", path,
			    got < 0 ? strerror(cause) : "it was cut by somebody");
		*position += (uint64_t)got;
		*bytes = (size_t)got;
		return TR_OK;
	}
	*bytes = 0;
	return TR_OK;
}

void logfile_close(struct logfile *log)
{
	if (log->path[0] != '\0' && log->fd >= 0)
		(void)close(log->fd);
	*log = (struct logfile){ .fd = -1 };
}
