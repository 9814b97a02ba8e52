#include "daemon/membership/store/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/membership/store/life.h"
#include "daemon/membership/store/repair.h"

static tr_status folder_fault(const char *folder, struct tr_error *error)
{
	return tr_error_set(error, TR_EIO,
	    "cannot write to memberd's folder %.256s: %s; make it writable for this user or choose "
	    "another",
	    folder, strerror(errno));
}

static void remove_files(const char *folder)
{
	char path[PATH_MAX];
	DIR *dir = opendir(folder);
	for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;)
		if (snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) < (int)sizeof(path))
			(void)unlink(path);
	if (dir != NULL)
		(void)closedir(dir);
}

/* A log begins whole or not at all: it is made aside and renamed. */
static tr_status found(const char *folder, const char *data, struct tr_error *error)
{
	char aside[PATH_MAX];
	if (access(data, F_OK) == 0)
		return access(data, R_OK | W_OK | X_OK) == 0 ? TR_OK : folder_fault(data, error);
	if (snprintf(aside, sizeof(aside), "%s.new", data) >= (int)sizeof(aside))
		return tr_error_set(error, TR_EINVAL, "the folder's path is too long: %.256s", data);
	if (mkdir(aside, 0700) != 0 && errno != EEXIST)
		return folder_fault(aside, error);
	remove_files(aside);
	tr_status status = life_found(aside, error);
	if (status != TR_OK)
		return status;
	repair_sync(aside);
	if (rename(aside, data) != 0)
		return folder_fault(aside, error);
	repair_sync(folder);
	return TR_OK;
}

/* Two memberds over one log would destroy it. */
static tr_status lock_folder(const char *folder, int *lock_fd, struct tr_error *error)
{
	char path[PATH_MAX];
	if (snprintf(path, sizeof(path), "%s/lock", folder) >= (int)sizeof(path))
		return tr_error_set(error, TR_EINVAL, "the folder's path is too long: %s", folder);
	*lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (*lock_fd < 0)
		return folder_fault(folder, error);
	if (flock(*lock_fd, LOCK_EX | LOCK_NB) == 0)
		return TR_OK;
	return tr_error_set(error, errno == EWOULDBLOCK ? TR_EEXIST : TR_EIO,
	    errno == EWOULDBLOCK
	        ? "another memberd uses the folder %s: stop it or choose another folder"
	        : "cannot lock the folder %s",
	    folder);
}

tr_status folder_prepare(const char *folder, char data[PATH_MAX], int *lock_fd,
    struct tr_error *error)
{
	if (snprintf(data, PATH_MAX, "%s/raft", folder) >= PATH_MAX - 8)
		return tr_error_set(error, TR_EINVAL, "the folder's path is too long: %.256s",
		    folder);
	if (mkdir(folder, 0700) != 0 && errno != EEXIST)
		return folder_fault(folder, error);
	tr_status status = lock_folder(folder, lock_fd, error);
	if (status != TR_OK)
		return status;
	status = found(folder, data, error);
	if (status != TR_OK)
		(void)close(*lock_fd);
	return status;
}
