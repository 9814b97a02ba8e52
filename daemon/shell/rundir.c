#include "daemon/shell/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/folders.h"

tr_status rundir_make(const char *folder, struct tr_error *error)
{
	tr_status st = folders_make(folder, error);
	if (st != TR_OK)
		return st;
	struct stat status;
	if (stat(folder, &status) != 0 || !S_ISDIR(status.st_mode))
		return tr_error_set(error, TR_EIO, "%s is no folder", folder);
	return TR_OK;
}

static tr_status join(char path[PATH_MAX], const char *folder, const char *name, const char *suffix,
    struct tr_error *error)
{
	if (snprintf(path, PATH_MAX, "%s/%s%s", folder, name, suffix) >= PATH_MAX)
		return tr_error_set(error, TR_EINVAL, "folder name is too long: %s", folder);
	return TR_OK;
}

tr_status rundir_open(const char *folder, const char *program, int *lock_fd, struct tr_error *error)
{
	char path[PATH_MAX], pid[32];
	if (rundir_make(folder, error) != TR_OK ||
	    join(path, folder, "daemon.lock", "", error) != TR_OK)
		return error == NULL ? TR_EIO : error->status;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return tr_error_set(error, TR_EIO, "cannot open %s: %s", path, strerror(errno));
	if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		ssize_t got = pread(fd, pid, sizeof(pid) - 1, 0);
		pid[got < 0 ? 0 : got] = '\0';
		(void)close(fd);
		return tr_error_set(error, TR_EEXIST,
		    "another %s (pid %s) is using %s; end it, or give this one its own --dir",
		    program, pid, folder);
	}
	int length = snprintf(pid, sizeof(pid), "%ld", (long)getpid());
	if (ftruncate(fd, 0) != 0 || pwrite(fd, pid, (size_t)length, 0) != length) {
		tr_status st = tr_error_set(error, TR_EIO, "cannot write %s: %s", path,
		    strerror(errno));
		(void)close(fd);
		return st;
	}
	*lock_fd = fd;
	return TR_OK;
}

tr_status rundir_write(const char *folder, const char *name, const char *text,
    struct tr_error *error)
{
	char path[PATH_MAX], beside[PATH_MAX];
	if (join(path, folder, name, "", error) != TR_OK ||
	    join(beside, folder, name, ".new", error) != TR_OK)
		return TR_EINVAL;
	FILE *file = fopen(beside, "we");
	if (file == NULL)
		return tr_error_set(error, TR_EIO, "cannot write %s: %s", beside, strerror(errno));
	bool written = fprintf(file, "%s\n", text) > 0 && fflush(file) == 0 &&
	    fsync(fileno(file)) == 0;
	if (fclose(file) != 0 || !written || rename(beside, path) != 0) {
		int cause = errno;
		(void)unlink(beside);
		return tr_error_set(error, TR_EIO, "cannot write %s: %s", path, strerror(cause));
	}
	return TR_OK;
}

tr_status rundir_read(const char *folder, const char *name, char *text, size_t size,
    struct tr_error *error)
{
	char path[PATH_MAX];
	if (join(path, folder, name, "", error) != TR_OK)
		return TR_EINVAL;
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return tr_error_set(error, errno == ENOENT ? TR_ENOTFOUND : TR_EIO,
		    "cannot read %s: %s", path, strerror(errno));
	char *line = fgets(text, (int)size, file);
	(void)fclose(file);
	if (line == NULL)
		return tr_error_set(error, TR_EIO, "%s is empty", path);
	text[strcspn(text, "\n")] = '\0';
	return TR_OK;
}

tr_status rundir_announce(const char *folder, const char *address, struct tr_error *error)
{
	char pid[32];
	(void)snprintf(pid, sizeof(pid), "%ld", (long)getpid());
	tr_status st = rundir_write(folder, "pid", pid, error);
	return st == TR_OK ? rundir_write(folder, "address", address, error) : st;
}

void rundir_retract(const char *folder)
{
	char path[PATH_MAX];
	if (join(path, folder, "address", "", NULL) == TR_OK)
		(void)unlink(path);
	if (join(path, folder, "pid", "", NULL) == TR_OK)
		(void)unlink(path);
}
