/* As mkdir -p, but for the mode: whatever of `path` is not there is made, for its owner only (0700). That it is a folder in the end is the
 * caller's to see. TR_EINVAL: it is no path; TR_EIO: says which folder, and why. Any thread. */
#ifndef TR_COMMON_FOLDERS_H
#define TR_COMMON_FOLDERS_H

#include "common/error.h"

tr_status folders_make(const char *path, struct tr_error *error);

#endif
