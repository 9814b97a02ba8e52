/* What is shown of a plan, for people (plan_print.c) and as JSON (plan_json.c). */
#ifndef TR_CLIENT_TRAINCTL_PLAN_VIEW_H
#define TR_CLIENT_TRAINCTL_PLAN_VIEW_H

#include "common/json.h"
#include "client/trainctl/plan_print.h"
#include "daemon/plan/plan_layout.h"
#include "daemon/plan/schedule.h"

struct plan_view {
	const struct plan_print *p;
	const struct plan *best;
	struct plan_layout *layout; /* of the best plan, with its traffic */
	struct schedule schedule;   /* of the replica that has most to do */
	uint32_t dp, pp, tp;
};

/* Then plan_view_finish. */
tr_status plan_view_init(struct plan_view *v, const struct plan_print *p, struct tr_error *error);
void plan_view_finish(struct plan_view *v);

double plan_view_tokens_per_s(const struct plan_view *v, const struct plan *plan);
const struct plan_worker *plan_view_worker(const struct plan_view *v, uint32_t rank);
const char *plan_view_node(const struct plan_view *v, uint32_t node);
/* Calls `take` with each "key=value" of the plan. Returns what plan_keys_text says of how unevenly they place workers (plan_keys.h). */
uint32_t plan_view_keys(const struct plan_view *v,
    void (*take)(struct json *json, const char *key, bool first), struct json *json);
/* Of rank 0, which writes if nobody dies, with what it takes for that. */
uint64_t plan_view_writer(const struct plan_view *v);
/* Number of a host's card among the layout's links; UINT32_MAX: one link alone carries all that goes through it, and says so. */
uint32_t plan_view_card(const struct plan_view *v, uint32_t host, bool in);
/* The same of a site's cable; UINT32_MAX also where nothing is known of it. */
uint32_t plan_view_cable(const struct plan_view *v, uint32_t site, bool in);

#endif
