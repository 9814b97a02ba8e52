/* The address that others reach this node at. */
#ifndef TR_DAEMON_NODE_ADVERTISE_H
#define TR_DAEMON_NODE_ADVERTISE_H

#include "common/error.h"
#include "common/limits.h"

/* `listening` is the real one ("0.0.0.0:40312"); `host` from the command line or NULL. TR_EINVAL: everybody's address (0.0.0.0,
 * [::]) means nothing elsewhere, and no host was given; the text says what to write. */
tr_status advertise_address(const char *listening, const char *host, char address[TR_ADDRESS_MAX],
    struct tr_error *error);

#endif
