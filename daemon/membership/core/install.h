/* From the reports of a proposal to the view and its resume plan, in the log. Inside the core only.
 */
#ifndef TR_DAEMON_MEMBERSHIP_CORE_INSTALL_H
#define TR_DAEMON_MEMBERSHIP_CORE_INSTALL_H

#include "daemon/membership/core/state.h"

/* All members of the group's proposal have reported. */
void install_append(struct membership *m, struct group *group);

#endif
