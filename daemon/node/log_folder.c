#include "daemon/node/log_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

tr_status log_folder_file(const char *folder, uint64_t job, uint32_t rank, uint64_t peer,
    char *path, size_t size, struct tr_error *error)
{
	int length = snprintf(path, size,
	    "%s/job-%" PRIu64 "/rank-%" PRIu32 ".peer-%" PRIu64 ".log", folder, job, rank, peer);
	if (length < 0 || (size_t)length >= size)
		return tr_error_set(error, TR_EINVAL, "path of a log is too long: %s", folder);
	return TR_OK;
}

tr_status log_folder_find(const char *folder, uint64_t job, uint64_t peer, char *path, size_t size,
    struct tr_error *error)
{
	char name[64];
	const struct dirent *entry = NULL;
	(void)snprintf(path, size, "%s/job-%" PRIu64, folder, job);
	(void)snprintf(name, sizeof(name), "rank-*.peer-%" PRIu64 ".log", peer);
	DIR *of_job = opendir(path);
	while (of_job != NULL && (entry = readdir(of_job)) != NULL)
		if (fnmatch(name, entry->d_name, 0) == 0)
			break;
	int length = entry == NULL
	    ? -1
	    : snprintf(path, size, "%s/job-%" PRIu64 "/%s", folder, job, entry->d_name);
	if (of_job != NULL)
		(void)closedir(of_job);
	if (length >= 0 && (size_t)length < size)
		return TR_OK;
	return tr_error_set(error, TR_ENOTFOUND,
	    "no output of peer %" PRIu64 " of job %" PRIu64 " is kept here", peer, job);
}

void log_folder_drop(const char *folder, uint64_t job, uint64_t peer)
{
	char path[PATH_MAX], name[64];
	(void)snprintf(path, sizeof(path), "%s/job-%" PRIu64, folder, job);
	(void)snprintf(name, sizeof(name), "rank-*.peer-%" PRIu64 ".log*", peer);
	DIR *of_job = opendir(path);
	if (of_job == NULL)
		return;
	const struct dirent *entry;
	while ((entry = readdir(of_job)) != NULL)
		if (fnmatch(name, entry->d_name, 0) == 0)
			(void)unlinkat(dirfd(of_job), entry->d_name, 0);
	(void)closedir(of_job);
}

/* The job's id, or 0 for other names. */
static uint64_t job_of(const char *name)
{
	char *end;
	if (strncmp(name, "job-", 4) != 0)
		return 0;
	uint64_t job = strtoull(name + 4, &end, 10);
	return *end == '\0' ? job : 0;
}

static int only_jobs(const struct dirent *entry)
{
	return job_of(entry->d_name) != 0;
}

static int by_age(const struct dirent **a, const struct dirent **b)
{
	uint64_t left = job_of((*a)->d_name), right = job_of((*b)->d_name);
	return left < right ? -1 : left > right;
}

static void remove_job(const char *folder, const char *name)
{
	char path[PATH_MAX];
	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	DIR *of_job = opendir(path);
	if (of_job == NULL)
		return;
	const struct dirent *entry;
	while ((entry = readdir(of_job)) != NULL)
		if (strncmp(entry->d_name, "rank-", 5) == 0)
			(void)unlinkat(dirfd(of_job), entry->d_name, 0);
	(void)closedir(of_job);
	(void)rmdir(path);
}

size_t log_folder_prune(const char *folder, size_t keep, bool (*spares)(void *arg, uint64_t job),
    void *arg)
{
	struct dirent **entries;
	int count = scandir(folder, &entries, only_jobs, by_age);
	if (count < 0)
		return 0;
	size_t over = (size_t)count > keep ? (size_t)count - keep : 0, removed = 0;
	for (size_t i = 0; i < (size_t)count; i++) {
		if (removed < over && (spares == NULL || !spares(arg, job_of(entries[i]->d_name)))) {
			remove_job(folder, entries[i]->d_name);
			removed++;
		}
		free(entries[i]);
	}
	free((void *)entries);
	return removed;
}
