/* The best plan for a model on a cluster: every mesh, schedule, microbatch and recomputation that divide, bounded, placed by annealing and
 * timed. Pure, and deterministic: the same input gives the same plan.
 *
 *	struct plan_result *result;
 *	st = plan_search(&input, &(struct plan_search_settings){ .seed = 1 }, &result, &error);
 *	... result->best, result->losers[i].why
 *	plan_search_destroy(result);
 *
 * A search goes from cheap to dear. (1) A choice whose bound (work over all speed) is longer than the best estimate is left.
 * (2) Of the others the best of some starting placements is estimated by formula (plan_predict.h); what saves memory alone (ZeRO-1, sequence parallelism without stages) is left
 * where the plan without it fits. (3) The best estimates, those
 * too that another placement may make fit, are annealed, and the best of these for longer; (4) what comes out is timed on the schedule's
 * lists (timeline.h), and refined by that. (5) Where the front of time and memory is wanted, nothing is left by its bound; what is near the front of all that was timed is
 * annealed, timed and refined too, and then what is one change away from each plan on it.
 */
#ifndef TR_DAEMON_PLAN_PLAN_SEARCH_H
#define TR_DAEMON_PLAN_PLAN_SEARCH_H

#include "daemon/plan/plan_layout.h"

#define PLAN_LOSERS_MAX 12
#define PLAN_WHY_MAX    200

struct plan_search_settings {
	uint64_t seed;
	bool pareto;
	struct plan_choice
	    only; /* choices that are not so are not tried: mesh, sequences and recompute, each if it is not 0; so many chunks are tried besides others */
	bool exact; /* and schedule, chunks, recompute, own_rows and owners, whatever they are */
	bool whole; /* none but replicas of whole models, with all their moments */
	/* Of these alone those that it says yes to; NULL: all. */
	bool (*is_wanted)(const void *arg, const struct plan_choice *choice);
	const void *arg;
	bool (*gives_up)(void); /* asked again and again; true: TR_ECANCELLED. NULL: never */
};

struct plan_loser {
	struct plan plan;
	char why[PLAN_WHY_MAX]; /* "the bubble takes 31 ms more" */
};

struct plan_result {
	struct plan best;
	uint32_t loser_count; /* the nearest first, at most one of a mesh and its chunks */
	struct plan_loser losers[PLAN_LOSERS_MAX];
	/* Of all plans that were timed those that no other beats in both time and memory, if they were asked for: the best first, each with less memory than those before. */
	struct plan *pareto;
	uint32_t pareto_count;
	uint32_t choices, bounded, needless, unfit,
	    annealed; /* how many there were, and what became of them */
};

/* TR_EINVAL: the input, or no choice divides the batch; TR_ELIMIT: none fits, the words say what is needed, what is there and what would
 * do; TR_ENOMEM; TR_ECANCELLED. */
tr_status plan_search(const struct plan_input *in, const struct plan_search_settings *settings,
    struct plan_result **result, struct tr_error *error);
void plan_search_destroy(struct plan_result *result); /* accepts NULL */

/* Every choice that can be, in a fixed order: call until it is false, *choice zeroed before the first. Of many workers not every dp is, nor more chunks than PLAN_CHUNKS_TRIED,
 * but those of `only` are. */
bool plan_choice_next(const struct plan_layout *layout, const struct plan_choice *only,
    struct plan_choice *choice);
/* Whether it is as `only` and `exact` say. */
bool plan_choice_is_wanted(const struct plan_search_settings *settings,
    const struct plan_choice *choice);
/* "dp 2 x pp 4 x tp 1, 1f1b, microbatch 2": into `text`, which is returned. */
#define PLAN_CHOICE_TEXT_MAX 160
const char *plan_choice_text(const struct plan_choice *choice, char text[PLAN_CHOICE_TEXT_MAX]);

#endif
