/* One rank's log: a file that is rotated at a size, with the newest few kept: NAME, NAME.1, NAME.2. Positions in it count from
 * the first byte ever written, so that a reader can follow across rotations, and go on with another one where it was. NAME.at
 * holds the position of the newest file; it is there once there was a rotation.
 * One thread; blocking file calls.
 */
#ifndef TR_DAEMON_NODE_LOGFILE_H
#define TR_DAEMON_NODE_LOGFILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define LOGFILE_FILES_MAX 8

struct logfile {
	char path[PATH_MAX - 16];
	int fd; /* of the newest file; -1: read only */
	int stuck; /* why the newest file could not be renamed (errno), so that it grows; 0: it could */
	unsigned files_max;
	uint64_t bytes_max;                /* of one file */
	uint64_t sizes[LOGFILE_FILES_MAX]; /* [0]: the newest */
	uint64_t end;                      /* position behind the last byte */
};

/* For writing; goes on behind what is there. Makes its folder, also where that or the file went away meanwhile. After an error of the disk each write tries again. */
tr_status logfile_open(struct logfile *log, const char *path, uint64_t bytes_max,
    unsigned files_max, struct tr_error *error);
/* For reading what an earlier process wrote. TR_ENOTFOUND. */
tr_status logfile_open_old(struct logfile *log, const char *path, unsigned files_max,
    struct tr_error *error);
/* Rotates first if the piece does not fit; where that cannot be done it goes on in the file that there is. On an error (disk full) the piece is lost, the file stays whole. */
tr_status logfile_write(struct logfile *log, const void *data, size_t bytes, struct tr_error *error);
uint64_t logfile_begin(const struct logfile *log); /* position of the oldest byte kept */
/* Reads at most `max` bytes at *position, which moves to the oldest byte kept if those before are gone, and then past
 * what was read. 0 bytes: at the end. */
tr_status logfile_read(const struct logfile *log, uint64_t *position, void *data, size_t max,
    size_t *bytes, struct tr_error *error);
void logfile_close(struct logfile *log); /* zeroed: nothing */

#endif
