/* Network namespaces for sites: unnamed, so that one is gone once no process and no open file of it is left. In each there are
 * a loopback and one TUN device with the site's address, which is all that it can send through. Needs root. The calling
 * process must have one thread; it ends up where it was.
 */
#ifndef TR_TESTS_WAN_SPACE_H
#define TR_TESTS_WAN_SPACE_H

#include <sys/types.h>

#include "common/error.h"

#define SPACES_MAX 32

struct space {
	int net;    /* the namespace */
	int device; /* of TUN, non-blocking; -1: none */
};

/* `address`: NULL: a loopback alone. */
tr_status space_create(struct space *space, const char *address, unsigned mtu,
    struct tr_error *error);
void space_close(struct space *space);
/* This process goes into the namespace. */
tr_status space_enter(int net, struct tr_error *error);
/* SIGKILL for every process in one of these namespaces (not in the caller's), again until there is none. `count`: at most
 * SPACES_MAX. */
void space_clear(const struct space *spaces, unsigned count);

#endif
