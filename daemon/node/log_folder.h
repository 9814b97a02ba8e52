/* The folders of logs: one a job, the newest ones kept. */
#ifndef TR_DAEMON_NODE_LOG_FOLDER_H
#define TR_DAEMON_NODE_LOG_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* The name of the peer's file, in folder/job-<id>; logfile_open makes that folder. */
tr_status log_folder_file(const char *folder, uint64_t job, uint32_t rank, uint64_t peer,
    char *path, size_t size, struct tr_error *error);

/* The name of the file that the peer left there, whatever its rank. TR_ENOTFOUND: none. */
tr_status log_folder_find(const char *folder, uint64_t job, uint64_t peer, char *path, size_t size,
    struct tr_error *error);

/* Removes what is there under the peer's number: of a peer that begins it is another cluster's, which had the same numbers. */
void log_folder_drop(const char *folder, uint64_t job, uint64_t peer);

/* Removes the oldest jobs' folders (those in which a file appeared longest ago: another cluster's jobs may have any number) until at most `keep` are left, but none of a job of which spares(arg, job) says that it is still written (NULL: of none); returns how
 * many were removed. */
size_t log_folder_prune(const char *folder, size_t keep, bool (*spares)(void *arg, uint64_t job),
    void *arg);

#endif
