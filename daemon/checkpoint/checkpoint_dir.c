#include "daemon/checkpoint/checkpoint_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "daemon/checkpoint/manifest.h"

#define GONE       ".gone." /* what is being removed */
#define DAMAGED    ".damaged"
#define OTHER      ".other" /* what a copy has taken the place of */
#define ASIDE_MOST 9        /* of one step */

/* A new folder lasts when the one that names it is on the disk. */
static void sync_parent_of(const char *path)
{
	char parent[4096];
	const char *last = strrchr(path, '/');
	int bytes = last == NULL ? 0 : (int)(last - path);
	(void)snprintf(parent, sizeof(parent), "%.*s%s", bytes, path,
	    bytes > 0          ? ""
	        : last != NULL ? "/"
	                       : ".");
	int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return;
	(void)fsync(fd);
	(void)close(fd);
}

/* Like mkdir -p. */
static tr_status make_folders(const char *path, struct tr_error *error)
{
	char part[4096];
	if (snprintf(part, sizeof(part), "%s", path) >= (int)sizeof(part))
		return tr_error_set(error, TR_EINVAL, "the path is too long");
	for (char *at = part + 1;; at++) {
		if (*at != '/' && *at != '\0')
			continue;
		char kept = *at;
		*at = '\0';
		if (mkdir(part, 0777) == 0)
			sync_parent_of(part);
		else if (errno != EEXIST)
			return tr_error_set(error, TR_EIO, "cannot make %s: %s", part,
			    strerror(errno));
		*at = kept;
		if (kept == '\0')
			return TR_OK;
	}
}

tr_status checkpoint_dir_make(const char *path, struct tr_error *error)
{
	struct stat what;
	tr_status status = make_folders(path, error);
	if (status != TR_OK)
		return status;
	if (stat(path, &what) == 0 && !S_ISDIR(what.st_mode))
		return tr_error_set(error, TR_EIO, "%s is not a folder", path);
	if (faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) != 0)
		return tr_error_set(error, TR_EIO, "cannot write to %s: %s", path, strerror(errno));
	return TR_OK;
}

/* Removes parent/name and the files in it; the manifest first, so that a folder half removed is not taken for a checkpoint. */
void checkpoint_dir_remove(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
	if (list == NULL) {
		if (fd >= 0)
			(void)close(fd);
		return;
	}
	(void)unlinkat(fd, MANIFEST_NAME, 0);
	for (struct dirent *entry; (entry = readdir(list)) != NULL;)
		if (entry->d_name[0] != '.')
			(void)unlinkat(fd, entry->d_name, 0);
	(void)closedir(list);
	if (unlinkat(parent, name, AT_REMOVEDIR) != 0)
		log_warn("checkpoint", "cannot remove the folder %s: %s", name, strerror(errno));
}

static bool is_step(const char *name)
{
	return strncmp(name, "step-", 5) == 0 && strspn(name + 5, "0123456789") == strlen(name + 5);
}

static bool starts(const char *name, const char *with)
{
	return strncmp(name, with, strlen(with)) == 0;
}

/* Takes it away from its writer, should that live still, and removes it. */
static void remove_claimed(int parent, const char *name, const char *mark)
{
	char claimed[CHECKPOINT_HIDDEN_MAX];
	(void)snprintf(claimed, sizeof(claimed), GONE "%s", mark);
	if (renameat(parent, name, parent, claimed) == 0)
		checkpoint_dir_remove(parent, claimed);
}

/* kept: NULL, or the name of one that stays. */
static void remove_hidden(int parent, const char *mark, const char *kept)
{
	int fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
	if (list == NULL) {
		if (fd >= 0)
			(void)close(fd);
		return;
	}
	for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
		if (starts(entry->d_name, ".step-")) {
			if (kept == NULL || strcmp(entry->d_name, kept) != 0)
				remove_claimed(parent, entry->d_name, mark);
		} else if (starts(entry->d_name, GONE))
			checkpoint_dir_remove(parent, entry->d_name);
		else if (starts(entry->d_name, "." CHECKPOINT_LATEST))
			(void)unlinkat(parent, entry->d_name, 0);
	}
	(void)closedir(list);
}

/* Of a name that is never used twice. */
static bool draw_mark(char mark[17])
{
	uint64_t random;
	if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return false;
	(void)snprintf(mark, 17, "%016llx", (unsigned long long)random);
	return true;
}

static void name(struct checkpoint_dir *dir, uint64_t step, const char *mark)
{
	*dir = (struct checkpoint_dir){ .parent = -1, .hidden = -1 };
	(void)snprintf(dir->name, sizeof(dir->name), "step-%08llu", (unsigned long long)step);
	(void)snprintf(dir->hidden_name, sizeof(dir->hidden_name), ".%s.%s", dir->name, mark);
	(void)snprintf(dir->hidden_latest, sizeof(dir->hidden_latest), "." CHECKPOINT_LATEST ".%s",
	    mark);
}

/* joins: the hidden folder may be there. clears: what others left goes. */
static tr_status open_dir(const char *path, struct checkpoint_dir *out, const char *mark,
    bool joins, bool clears, struct tr_error *error)
{
	struct checkpoint_dir dir = *out;
	tr_status status = make_folders(path, error);
	if (status != TR_OK)
		return status;
	dir.parent = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir.parent < 0)
		return tr_error_set(error, TR_EIO, "cannot open it: %s", strerror(errno));
	if (clears)
		remove_hidden(dir.parent, mark, joins ? dir.hidden_name : NULL);
	if (mkdirat(dir.parent, dir.hidden_name, 0777) == 0 || (joins && errno == EEXIST))
		dir.hidden = openat(dir.parent, dir.hidden_name,
		    O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (dir.hidden < 0) {
		(void)tr_error_set(error, TR_EIO, "cannot make a folder in it: %s", strerror(errno));
		(void)close(dir.parent);
		return TR_EIO;
	}
	*out = dir;
	return TR_OK;
}

tr_status checkpoint_dir_begin(const char *path, uint64_t step, struct checkpoint_dir *dir,
    struct tr_error *error)
{
	char mark[17];
	if (!draw_mark(mark))
		return tr_error_set(error, TR_EIO, "cannot draw a name: %s", strerror(errno));
	name(dir, step, mark);
	return open_dir(path, dir, mark, false, true, error);
}

static void name_by_key(struct checkpoint_dir *dir, uint64_t step, uint64_t key)
{
	char mark[17];
	(void)snprintf(mark, sizeof(mark), "%016llx", (unsigned long long)key);
	name(dir, step, mark);
}

/* What others left is taken away by a name that nobody else takes. */
tr_status checkpoint_dir_join(const char *path, uint64_t step, uint64_t key, bool clears,
    struct checkpoint_dir *dir, struct tr_error *error)
{
	char mark[17];
	if (!draw_mark(mark))
		return tr_error_set(error, TR_EIO, "cannot draw a name: %s", strerror(errno));
	name_by_key(dir, step, key);
	return open_dir(path, dir, mark, true, clears, error);
}

void checkpoint_dir_drop(const char *path, uint64_t step, uint64_t key)
{
	struct checkpoint_dir dir;
	char mark[17];
	name_by_key(&dir, step, key);
	dir.parent = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir.parent < 0)
		return;
	if (draw_mark(mark))
		remove_claimed(dir.parent, dir.hidden_name, mark);
	(void)close(dir.parent);
}

void checkpoint_dir_leave(struct checkpoint_dir *dir)
{
	(void)close(dir->hidden);
	(void)close(dir->parent);
}

/* Of renameat2, where the file system has no flags for it (NFS, some FUSE). */
static bool has_no_flags(int cause)
{
	return cause == EINVAL || cause == ENOSYS || cause == EOPNOTSUPP;
}

/* In two renames: who loses its power between them has this step no more, but those before it. */
static int replace(const struct checkpoint_dir *dir)
{
	char old[sizeof(GONE) + CHECKPOINT_HIDDEN_MAX];
	(void)snprintf(old, sizeof(old), GONE "%s", dir->hidden_name);
	if (renameat(dir->parent, dir->name, dir->parent, old) != 0)
		return -1;
	int done = renameat(dir->parent, dir->hidden_name, dir->parent, dir->name), cause = errno;
	if (done == 0)
		checkpoint_dir_remove(dir->parent, old);
	else
		(void)renameat(dir->parent, old, dir->parent, dir->name);
	errno = cause;
	return done;
}

/* The same step was written before: the two change places, then the old one goes. */
static int change_places(const struct checkpoint_dir *dir)
{
	int done = renameat2(dir->parent, dir->hidden_name, dir->parent, dir->name, RENAME_EXCHANGE);
	if (done == 0)
		checkpoint_dir_remove(dir->parent, dir->hidden_name);
	return done != 0 && has_no_flags(errno) ? replace(dir) : done;
}

static tr_status rename_into_place(const struct checkpoint_dir *dir, struct tr_error *error)
{
	int done = renameat(dir->parent, dir->hidden_name, dir->parent, dir->name);
	if (done != 0 && (errno == ENOTEMPTY || errno == EEXIST))
		done = change_places(dir);
	if (done != 0 || fsync(dir->parent) != 0)
		return tr_error_set(error, TR_EIO, "cannot rename: %s", strerror(errno));
	return TR_OK;
}

/* `hidden`: what the link is called until it is there. */
static bool set_latest(int parent, const char *name, const char *hidden)
{
	return symlinkat(name, parent, hidden) == 0 &&
	    renameat(parent, hidden, parent, CHECKPOINT_LATEST) == 0 && fsync(parent) == 0;
}

tr_status checkpoint_dir_publish(struct checkpoint_dir *dir, struct tr_error *error)
{
	tr_status status = rename_into_place(dir, error);
	if (status != TR_OK) {
		checkpoint_dir_abandon(dir);
		return status;
	}
	if (!dir->leaves_latest && !set_latest(dir->parent, dir->name, dir->hidden_latest))
		status = tr_error_set(error, TR_EIO, "cannot set `latest`: %s", strerror(errno));
	(void)close(dir->hidden);
	(void)close(dir->parent);
	return status;
}

void checkpoint_dir_abandon(struct checkpoint_dir *dir)
{
	(void)close(dir->hidden);
	checkpoint_dir_remove(dir->parent, dir->hidden_name);
	(void)close(dir->parent);
}

struct found {
	char name[CHECKPOINT_NAME_MAX];
	struct timespec written;
};

static int newest_first(const void *a, const void *b)
{
	const struct found *x = a, *y = b;
	if (x->written.tv_sec != y->written.tv_sec)
		return x->written.tv_sec < y->written.tv_sec ? 1 : -1;
	if (x->written.tv_nsec != y->written.tv_nsec)
		return x->written.tv_nsec < y->written.tv_nsec ? 1 : -1;
	return strcmp(y->name, x->name);
}

static struct found *list_steps(DIR *list, size_t *count)
{
	struct found *all = NULL;
	size_t used = 0;
	for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
		char manifest[CHECKPOINT_NAME_MAX + sizeof(MANIFEST_NAME) + 1];
		struct stat about = { 0 };
		size_t length = strlen(entry->d_name);
		if (!is_step(entry->d_name) || length >= CHECKPOINT_NAME_MAX)
			continue;
		struct found *grown = realloc(all, (used + 1) * sizeof(*all));
		if (grown == NULL)
			break;
		all = grown;
		(void)snprintf(manifest, sizeof(manifest), "%.*s/%s", CHECKPOINT_NAME_MAX - 1,
		    entry->d_name, MANIFEST_NAME);
		(void)fstatat(dirfd(list), manifest, &about, 0); /* none: the oldest of all */
		memcpy(all[used].name, entry->d_name, length + 1);
		all[used++].written = about.st_mtim;
	}
	*count = used;
	return all;
}

void checkpoint_dir_prune(const char *path, unsigned keep, const char *newest,
    const char *never_delete)
{
	DIR *list = opendir(path);
	size_t count = 0;
	const char *spared = strrchr(never_delete, '/');
	if (list == NULL)
		return;
	struct found *all = list_steps(list, &count);
	if (count > 0)
		qsort(all, count, sizeof(*all), newest_first);
	for (size_t i = keep; i < count; i++)
		if (strcmp(all[i].name, newest) != 0 &&
		    (spared == NULL || strcmp(all[i].name, spared + 1) != 0))
			checkpoint_dir_remove(dirfd(list), all[i].name);
	free(all);
	(void)closedir(list);
}

bool checkpoint_dir_newest(const char *path, uint64_t below, char name[CHECKPOINT_NAME_MAX])
{
	DIR *list = opendir(path);
	size_t count = 0, at = 0;
	if (list == NULL)
		return false;
	struct found *all = list_steps(list, &count);
	(void)closedir(list);
	if (count > 0)
		qsort(all, count, sizeof(*all), newest_first);
	while (at < count && strtoull(all[at].name + 5, NULL, 10) >= below)
		at++;
	bool there = at < count && all[at].written.tv_sec != 0;
	if (there)
		memcpy(name, all[at].name, CHECKPOINT_NAME_MAX);
	free(all);
	return there;
}

/* A folder with files in it is never replaced, with or without the flag. */
static bool rename_to(int parent, const char *name, const char *aside)
{
	return renameat2(parent, name, parent, aside, RENAME_NOREPLACE) == 0 ||
	    (has_no_flags(errno) && renameat(parent, name, parent, aside) == 0);
}

static bool rename_aside(int parent, const char *name, const char *suffix)
{
	for (int i = 1; i <= ASIDE_MOST; i++) {
		char aside[CHECKPOINT_NAME_MAX + 16];
		(void)snprintf(aside, sizeof(aside), i == 1 ? "%s%s" : "%s%s-%d", name, suffix, i);
		if (rename_to(parent, name, aside))
			return true;
		if (errno != EEXIST && errno != ENOTEMPTY)
			return false;
	}
	return false;
}

/* Else the next who reads `latest` would find nothing. */
static void name_another_latest(const char *path, int parent, const char *name, uint64_t step)
{
	char target[CHECKPOINT_HIDDEN_MAX] = "", before[CHECKPOINT_NAME_MAX], mark[17],
	     hidden[CHECKPOINT_HIDDEN_MAX];
	ssize_t length = readlinkat(parent, CHECKPOINT_LATEST, target, sizeof(target) - 1);
	if (length <= 0 || strcmp(target, name) != 0)
		return;
	if (!checkpoint_dir_newest(path, step, before) || !draw_mark(mark))
		return;
	(void)snprintf(hidden, sizeof(hidden), "." CHECKPOINT_LATEST ".%s", mark);
	if (!set_latest(parent, before, hidden))
		log_warn("checkpoint", "cannot set `latest` to %s: %s", before, strerror(errno));
}

void checkpoint_dir_make_way(const struct checkpoint_dir *dir)
{
	if (rename_aside(dir->parent, dir->name, OTHER))
		log_warn("checkpoint",
		    "%s was another one of that step: it is called %s" OTHER " now", dir->name,
		    dir->name);
}

bool checkpoint_dir_has_later(const struct checkpoint_dir *dir, uint64_t step)
{
	char target[CHECKPOINT_HIDDEN_MAX] = "";
	ssize_t length = readlinkat(dir->parent, CHECKPOINT_LATEST, target, sizeof(target) - 1);
	return length > 0 && is_step(target) && strtoull(target + 5, NULL, 10) > step &&
	    faccessat(dir->parent, CHECKPOINT_LATEST "/" MANIFEST_NAME, R_OK, 0) == 0;
}

void checkpoint_dir_set_aside(const char *path, const char *name)
{
	int parent = is_step(name) ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	if (parent < 0)
		return;
	if (rename_aside(parent, name, DAMAGED))
		name_another_latest(path, parent, name, strtoull(name + 5, NULL, 10));
	else if (errno != ENOENT) /* another worker was first */
		log_warn("checkpoint", "cannot rename the damaged %s/%s: %s", path, name,
		    strerror(errno));
	(void)close(parent);
}
