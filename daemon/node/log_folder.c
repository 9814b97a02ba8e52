#include "daemon/node/log_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
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

struct job_folder {
	uint64_t job;
	struct timespec changed; /* a worker began, or a file was rotated */
};

static int by_age(const void *left, const void *right)
{
	const struct job_folder *a = left, *b = right;
	if (a->changed.tv_sec != b->changed.tv_sec)
		return a->changed.tv_sec < b->changed.tv_sec ? -1 : 1;
	if (a->changed.tv_nsec != b->changed.tv_nsec)
		return a->changed.tv_nsec < b->changed.tv_nsec ? -1 : 1;
	return a->job < b->job ? -1 : a->job > b->job;
}

/* The oldest first; the caller frees them. */
static struct job_folder *list_jobs(const char *folder, size_t *count)
{
	struct job_folder *jobs = NULL;
	size_t room = 0;
	const struct dirent *entry;
	DIR *all = opendir(folder);
	*count = 0;
	while (all != NULL && (entry = readdir(all)) != NULL) {
		struct stat status;
		uint64_t job = job_of(entry->d_name);
		if (job == 0 || fstatat(dirfd(all), entry->d_name, &status, 0) != 0)
			continue;
		if (*count == room) {
			struct job_folder *more = realloc(jobs, (room * 2 + 64) * sizeof(*more));
			if (more == NULL)
				break;
			jobs = more;
			room = room * 2 + 64;
		}
		jobs[(*count)++] = (struct job_folder){ job, status.st_mtim };
	}
	if (all != NULL)
		(void)closedir(all);
	if (*count > 0)
		qsort(jobs, *count, sizeof(*jobs), by_age);
	return jobs;
}

static void remove_job(const char *folder, uint64_t job)
{
	char path[PATH_MAX];
	(void)snprintf(path, sizeof(path), "%s/job-%" PRIu64, folder, job);
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
	size_t count, removed = 0;
	struct job_folder *jobs = list_jobs(folder, &count);
	size_t over = count > keep ? count - keep : 0;
	for (size_t i = 0; i < count && removed < over; i++) {
		if (spares != NULL && spares(arg, jobs[i].job))
			continue;
		remove_job(folder, jobs[i].job);
		removed++;
	}
	free(jobs);
	return removed;
}
