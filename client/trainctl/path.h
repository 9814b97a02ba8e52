/* Paths as text. */
#ifndef TR_CLIENT_TRAINCTL_PATH_H
#define TR_CLIENT_TRAINCTL_PATH_H

#include <stdbool.h>
#include <stddef.h>

/* `path` from `base` (absolute): the real path if it exists, else joined with "." and ".." folded.
 * False: too long. */
bool path_absolute(const char *base, const char *path, char *full, size_t bytes);
/* The real path of the folder that holds `path`. False: no such folder (errno). */
bool path_folder(const char *path, char *folder, size_t bytes);
/* Makes a folder and those above it, mode 0755. False: errno says why. */
bool path_make_folder(const char *path);

#endif
