/* Makes a folder that a crash left behind openable for libraft 0.15, without losing an entry that was acknowledged.
 *
 * C-Raft appends to preallocated files "open-N". It copes with a torn tail that is followed by zeros, but not with
 *  - a file that ends early (it takes the short read for an I/O error and, with auto-recovery on, moves the whole file away,
 *    acknowledged entries included, so auto-recovery is off here): such a file is extended with zeros again;
 *  - a file whose first block is torn (format or first index wrong): nothing in it was ever acknowledged, since the first
 *    batch is written together with that block: such a file is removed;
 *  - metadata files that are not readable: written again.
 */
#ifndef TR_DAEMON_MEMBERSHIP_REPAIR_H
#define TR_DAEMON_MEMBERSHIP_REPAIR_H

#include "common/error.h"

/* Names made, renamed or removed in it outlive a power cut from here on. */
void repair_sync(const char *folder);

/* `folder` holds C-Raft's files; it exists. */
tr_status repair_folder(const char *folder, struct tr_error *error);

#endif
