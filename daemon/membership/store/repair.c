#include "daemon/membership/store/repair.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"

#define SEGMENT_BYTES   (8u << 20) /* what C-Raft preallocates */
#define HEADER_BYTES    16         /* u64 format, u64 first index (format 2) */
#define BATCH_BYTES_MIN 32         /* checksums, count, one entry's header */
#define METADATA_BYTES  32

static uint64_t word_at(const uint8_t *bytes)
{
	uint64_t word = 0;
	for (int i = 7; i >= 0; i--)
		word = word << 8 | bytes[i];
	return word;
}

static tr_status fault(struct tr_error *error, const char *path)
{
	return tr_error_set(error, TR_EIO, "cannot repair %s: %s", path, strerror(errno));
}

static bool zeros_only(int fd, off_t from, off_t size)
{
	uint8_t block[4096];
	for (off_t at = from; at < size;) {
		ssize_t n = pread(fd, block, sizeof(block), at);
		if (n <= 0)
			return n == 0;
		for (ssize_t i = 0; i < n; i++)
			if (block[i] != 0)
				return false;
		at += n;
	}
	return true;
}

/* Could there be a batch? Its count of entries stands after the checksums and is never zero. */
static bool first_batch_there(int fd, const uint8_t *header, off_t size)
{
	uint64_t format = word_at(header);
	if (format != 1 && format != 2)
		return false;
	return !zeros_only(fd, format == 1 ? 8 : HEADER_BYTES, size);
}

static tr_status repair_open_segment(const char *path, struct tr_error *error)
{
	uint8_t header[HEADER_BYTES] = { 0 };
	struct stat st;
	tr_status status = TR_OK;
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0) {
		status = fault(error, path);
		goto out;
	}
	ssize_t got = pread(fd, header, sizeof(header), 0);
	if (got < 0) { /* of what is in there nothing is known */
		status = fault(error, path);
	} else if (st.st_size < HEADER_BYTES + BATCH_BYTES_MIN || got != (ssize_t)sizeof(header) ||
	    !first_batch_there(fd, header, st.st_size)) {
		if (unlink(path) != 0)
			status = fault(error, path);
	} else if (st.st_size < SEGMENT_BYTES) {
		log_info("store", "%s ends after %lld bytes: its torn end is dropped", path,
		    (long long)st.st_size);
		if (ftruncate(fd, SEGMENT_BYTES) != 0 || fsync(fd) != 0)
			status = fault(error, path);
	}
out:
	if (fd >= 0)
		(void)close(fd);
	return status;
}

struct metadata {
	bool well;
	uint64_t version, term;
};

static struct metadata metadata_read(const char *path)
{
	uint8_t bytes[METADATA_BYTES];
	struct metadata metadata = { 0 };
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return metadata;
	ssize_t n = read(fd, bytes, sizeof(bytes));
	(void)close(fd);
	if (n != (ssize_t)sizeof(bytes) || word_at(bytes) != 1)
		return metadata;
	metadata.version = word_at(bytes + 8);
	metadata.term = word_at(bytes + 16);
	metadata.well = metadata.version != 0 && metadata.term != 0;
	return metadata;
}

/* Terms never fall from one version to the next. */
static bool torn(struct metadata one, struct metadata other)
{
	return other.well &&
	    (!one.well || one.version == other.version ||
	        (one.version > other.version && one.term < other.term));
}

/* A cluster of one elects itself without a new term, so its term is that of its founding, for ever. */
static tr_status metadata_renew(const char *one, const char *two, struct tr_error *error)
{
	static const uint8_t founding[METADATA_BYTES] = { [0] = 1, [8] = 1, [16] = 1 };
	log_warn("store", "%s is not readable: it is written again", one);
	if (unlink(two) != 0 && errno != ENOENT)
		return fault(error, two);
	int fd = open(one, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return fault(error, one);
	tr_status status = TR_OK;
	if (write(fd, founding, sizeof(founding)) != (ssize_t)sizeof(founding) || fsync(fd) != 0)
		status = fault(error, one);
	(void)close(fd);
	return status;
}

static tr_status repair_metadata(const char *folder, struct tr_error *error)
{
	char one[PATH_MAX], two[PATH_MAX];
	if (snprintf(one, sizeof(one), "%s/metadata1", folder) >= (int)sizeof(one) ||
	    snprintf(two, sizeof(two), "%s/metadata2", folder) >= (int)sizeof(two))
		return tr_error_set(error, TR_EINVAL, "the folder's path is too long: %s", folder);
	struct metadata first = metadata_read(one), second = metadata_read(two);
	if (!first.well && !second.well)
		return metadata_renew(one, two, error);
	if (torn(second, first)) {
		if (unlink(two) != 0 && errno != ENOENT)
			return fault(error, two);
	} else if (torn(first, second)) {
		if (unlink(one) != 0 && errno != ENOENT)
			return fault(error, one);
	}
	return TR_OK;
}

void repair_sync(const char *folder)
{
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		(void)fsync(fd);
		(void)close(fd);
	}
}

tr_status repair_folder(const char *folder, struct tr_error *error)
{
	DIR *dir = opendir(folder);
	if (dir == NULL)
		return tr_error_set(error, TR_EIO, "cannot read %s: %s", folder, strerror(errno));
	tr_status status = TR_OK;
	for (struct dirent *entry; status == TR_OK && (entry = readdir(dir)) != NULL;) {
		char path[PATH_MAX];
		unsigned long long number;
		int used = 0;
		if (sscanf(entry->d_name, "open-%llu%n", &number, &used) != 1 ||
		    entry->d_name[used] != '\0')
			continue;
		if (snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) < (int)sizeof(path))
			status = repair_open_segment(path, error);
	}
	(void)closedir(dir);
	if (status == TR_OK)
		status = repair_metadata(folder, error);
	repair_sync(folder);
	return status;
}
