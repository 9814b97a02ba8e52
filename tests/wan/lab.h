/* A laboratory: sites (space.h), the relay between them (relay.h), who speaks to it (control.h), who clears up behind it
 * (keeper.h), and the command that it lives for.
 */
#ifndef TR_TESTS_WAN_LAB_H
#define TR_TESTS_WAN_LAB_H

#include "tests/wan/topology.h"

#define LAB_GRACE_MS 3000 /* for the command, after a signal that ends the laboratory */

struct lab_options {
	const struct topology *topology;
	uint64_t seed;
	char *const *command; /* NULL at the end; runs in a namespace with a loopback only */
};

/* Until the command has ended or a signal says so. The command's environment says WANLAB_SOCKET=PATH, WANLAB_SITES="eu us" and
 * WANLAB_eu=10.99.0.1 for each site. `exit_code`: the command's, or 128 and its signal. */
tr_status lab_run(const struct lab_options *options, int *exit_code, struct tr_error *error);

#endif
