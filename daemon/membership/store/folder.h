/* memberd's folder: made, locked, and with a log in it that is whole. Inside the store only. */
#ifndef TR_DAEMON_MEMBERSHIP_FOLDER_H
#define TR_DAEMON_MEMBERSHIP_FOLDER_H

#include <limits.h>

#include "common/error.h"

/* `data` gets the path of C-Raft's folder within. The lock lasts until lock_fd is closed, by whatever end of the process. */
tr_status folder_prepare(const char *folder, char data[PATH_MAX], int *lock_fd,
    struct tr_error *error);

#endif
