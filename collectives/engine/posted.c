#include "collectives/engine/posted.h"

#include <stdio.h>
#include <stdlib.h>

void posted_init(struct posted *posted)
{
	*posted = (struct posted){ .end = &posted->first };
}

void posted_finish(struct posted *posted)
{
	struct posted_event *event;
	while ((event = posted_take(posted)) != NULL)
		free(event);
}

bool posted_add(struct posted *posted, const struct group_event *event)
{
	struct posted_event *added = calloc(1, sizeof(*added));
	if (added == NULL)
		return false;
	added->event = *event;
	(void)snprintf(added->reason, sizeof(added->reason), "%s", event->reason);
	added->event.reason = added->reason;
	*posted->end = added;
	posted->end = &added->next;
	return true;
}

struct posted_event *posted_take(struct posted *posted)
{
	struct posted_event *first = posted->first;
	if (first == NULL)
		return NULL;
	posted->first = first->next;
	if (posted->first == NULL)
		posted->end = &posted->first;
	return first;
}
