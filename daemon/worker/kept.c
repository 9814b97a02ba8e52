#include "daemon/worker/kept.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/folders.h"
#include "common/log.h"
#include "daemon/worker/ending.h"
#include "daemon/worker/trainer_inside.h"

#define READY "peer-"

/* ---- writing ---- */

static bool write_all(int fd, const char *data, size_t bytes)
{
	while (bytes > 0) {
		ssize_t n = write(fd, data, bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		data += n;
		bytes -= (size_t)n;
	}
	return true;
}

/* Under its name when it is whole. */
static bool put(const struct trainer *t, const char *data, size_t bytes)
{
	char made[PATH_MAX], path[PATH_MAX];
	unsigned long long peer = tr_peer_id(t->group);
	struct tr_error error;
	if (folders_make(t->outer.kept, &error) != TR_OK ||
	    snprintf(path, sizeof(path), "%s/" READY "%llu", t->outer.kept, peer) >=
	        (int)sizeof(path) ||
	    snprintf(made, sizeof(made), "%s/new-%llu", t->outer.kept, peer) >= (int)sizeof(made))
		return false;
	int fd = open(made, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	bool done = fd >= 0 && write_all(fd, data, bytes);
	done = fd >= 0 && close(fd) == 0 && done && rename(made, path) == 0;
	if (!done)
		(void)unlink(made);
	return done;
}

void kept_write(const struct trainer *t)
{
	if (t->outer.kept[0] == '\0')
		return;
	ending_hold();
	char *data = malloc(tr_sync_kept_bytes(t->outer.sync));
	size_t bytes = data != NULL ? tr_sync_keep(t->outer.sync, data) : 0;
	if (bytes > 0 && put(t, data, bytes))
		log_info("trainer", "keeps what it learned since its last merge (%.1f MB)",
		    (double)bytes / 1e6);
	else if (bytes > 0 || data == NULL)
		log_error("trainer", "what it learned since its last merge is lost: %s",
		    strerror(errno));
	free(data);
}

/* ---- reading ---- */

/* Another worker may take it first. */
static bool take(const struct trainer *t, const char *name, char *path, size_t size)
{
	char from[PATH_MAX];
	unsigned long long peer = tr_peer_id(t->group);
	return snprintf(from, sizeof(from), "%s/%s", t->outer.kept, name) < (int)sizeof(from) &&
	    snprintf(path, size, "%s/taken-%llu", t->outer.kept, peer) < (int)size &&
	    rename(from, path) == 0;
}

static bool find(const struct trainer *t, char *path, size_t size)
{
	DIR *folder = opendir(t->outer.kept);
	if (folder == NULL)
		return false;
	bool found = false;
	const struct dirent *entry;
	while (!found && (entry = readdir(folder)) != NULL)
		found = strncmp(entry->d_name, READY, strlen(READY)) == 0 &&
		    take(t, entry->d_name, path, size);
	(void)closedir(folder);
	return found;
}

/* NULL: it cannot be read. */
static char *read_all(const char *path, size_t *bytes)
{
	struct stat about;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *data = fd >= 0 && fstat(fd, &about) == 0 && about.st_size > 0
	    ? malloc((size_t)about.st_size)
	    : NULL;
	*bytes = 0;
	while (data != NULL && *bytes < (size_t)about.st_size) {
		ssize_t n = read(fd, data + *bytes, (size_t)about.st_size - *bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			free(data);
			data = NULL;
			break;
		}
		*bytes += (size_t)n;
	}
	if (fd >= 0)
		(void)close(fd);
	return data;
}

void kept_bring(struct trainer *t)
{
	char path[PATH_MAX];
	struct tr_error error = { .text = "it cannot be read" };
	size_t bytes;
	if (t->outer.kept[0] == '\0' || !find(t, path, sizeof(path)))
		return;
	char *data = read_all(path, &bytes);
	tr_status status = data != NULL ? tr_sync_bring(t->outer.sync, data, bytes, &error)
	                                : TR_EIO;
	if (status != TR_OK)
		log_warn("trainer", "what a worker before left is left out: %s", error.text);
	free(data);
	(void)unlink(path);
}
