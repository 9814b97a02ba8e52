/* The last touch: workers, layers and microbatches of a plan change places as long as the timeline finds the step shorter. Inside the
 * planner. Pure. */
#ifndef TR_DAEMON_PLAN_PLAN_REFINE_H
#define TR_DAEMON_PLAN_PLAN_REFINE_H

#include "daemon/plan/plan_layout.h"

/* `plan` was predicted. Where no change is one for the better, some workers change places by chance and it begins again, `shakes` times
 * (iterated local search). Ends too when timelines of *budget instructions have been run; *budget has what is left. plan_predict's errors. */
tr_status plan_refine(struct plan_layout *layout, uint32_t shakes, uint64_t *budget,
    struct plan *plan, struct tr_error *error);
/* Times all plans that are one change away, for the layout's front; `plan` stays as it is. Budget and errors as above. */
tr_status plan_refine_around(struct plan_layout *layout, uint64_t *budget, const struct plan *plan,
    struct tr_error *error);

#endif
