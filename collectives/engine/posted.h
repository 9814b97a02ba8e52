/* Events for a member's core that became due while another was acted on: each follows when that is done.
 *
 *	posted_add(&posted, &event);                        the first is taken once nothing is acted on
 *	while ((next = posted_take(&posted)) != NULL) {
 *		step(&next->event);                         which may add more
 *		free(next);
 *	}
 */
#ifndef TR_COLLECTIVES_ENGINE_POSTED_H
#define TR_COLLECTIVES_ENGINE_POSTED_H

#include <stdbool.h>

#include "collectives/core/group.h"

struct posted_event {
	struct posted_event *next;
	struct group_event event;
	char reason[256]; /* event.reason */
};

struct posted {
	struct posted_event *first, **end;
};

void posted_init(struct posted *posted);
void posted_finish(struct posted *posted);
/* Its reason is copied. False: out of memory. */
bool posted_add(struct posted *posted, const struct group_event *event);
/* The first, which is the caller's to free; NULL: there is none. */
struct posted_event *posted_take(struct posted *posted);

#endif
