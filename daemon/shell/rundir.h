/* The folder of a daemon: made with its parents, locked against a second daemon, files in it replaced whole. */
#ifndef TR_DAEMON_SHELL_RUNDIR_H
#define TR_DAEMON_SHELL_RUNDIR_H

#include <stddef.h>

#include "common/error.h"

/* Creates the folder and its parents (mode 0700) and locks it; the lock lasts until *lock_fd is closed, or the process
 * ends. TR_EEXIST: another process has it; the text names its pid and says what to do. */
tr_status rundir_open(const char *folder, const char *program, int *lock_fd, struct tr_error *error);

/* Makes a folder and its parents, mode 0700; one that exists is fine. */
tr_status rundir_make(const char *folder, struct tr_error *error);

/* Replaces folder/name by `text` and a newline: written beside it, synced, renamed. */
tr_status rundir_write(const char *folder, const char *name, const char *text,
    struct tr_error *error);

/* First line of folder/name without its newline. TR_ENOTFOUND if there is no such file. */
tr_status rundir_read(const char *folder, const char *name, char *text, size_t size,
    struct tr_error *error);

/* Writes `address` and `pid`: from now on the daemon serves. */
tr_status rundir_announce(const char *folder, const char *address, struct tr_error *error);
void rundir_retract(const char *folder);

#endif
