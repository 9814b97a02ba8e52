/* Words about plans: why one lost, and why none fits. Inside the planner. Pure. */
#ifndef TR_DAEMON_PLAN_PLAN_WHY_H
#define TR_DAEMON_PLAN_PLAN_WHY_H

#include "daemon/plan/plan_search.h"

/* Into `why`, PLAN_WHY_MAX bytes. */
void plan_why_lost(const struct plan_layout *layout, const struct plan *best,
    const struct plan *loser, char *why);

/* `closest`: the plan that lacks least. TR_ELIMIT with what it needs, what there is, and what would do: more memory, or more workers for a plan that the settings want. */
tr_status plan_why_none_fits(struct plan_layout *layout,
    const struct plan_search_settings *settings, const struct plan *closest,
    struct tr_error *error);

#endif
