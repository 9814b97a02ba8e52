/* Whether a change of mesh pays: what it saves of each step that is left beside what the change takes. Pure, in whole numbers: all contributors of a round know the same, and so decide the
 * same.
 *
 *	struct worth worth = { .step_ns = pace_step_ns(&pace), .next_ns = ..., .steps_left = 120, .cost_ns = pace_cost_ns(&pace, bytes) };
 *	if (worthwhile(&worth)) ...
 *	worth_words(&worth, text);                  // "120 steps are left, each 12 ms shorter: 1.4 s, for a change of 0.1 s"
 */
#ifndef TR_DAEMON_PLAN_WORTHWHILE_H
#define TR_DAEMON_PLAN_WORTHWHILE_H

#include <stdbool.h>
#include <stdint.h>

/* Of a step, less is not worth it: so much one look at it differs from the next. */
#define WORTH_PERCENT 10
#define WORTH_TEXT    160

struct worth {
	uint64_t step_ns; /* as it is; 0: not known, so it is not known that the change does not pay */
	uint64_t next_ns; /* as it will be */
	uint64_t steps_left;
	uint64_t cost_ns; /* of the change */
};

bool worthwhile(const struct worth *worth);
/* Into `text`, which is returned. */
const char *worth_words(const struct worth *worth, char text[WORTH_TEXT]);

/* A step of a mesh that the job asks for, whose steps nobody has seen: at best its workers do in proportion more; if they are not more, or little, it is taken to be worth WORTH_PERCENT. */
uint64_t worth_at_best_ns(uint64_t step_ns, uint32_t workers, uint32_t next_workers);

#endif
