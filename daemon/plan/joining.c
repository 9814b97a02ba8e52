#include "daemon/plan/joining.h"

#include <stdio.h>

static uint64_t left_of(const struct joining *j)
{
	return j->steps > j->done ? j->steps - j->done : 0;
}

uint64_t joining_left_ns(const struct joining *j)
{
	uint64_t left = left_of(j);

	return left > 0 && j->step_ns > UINT64_MAX / left ? UINT64_MAX : left * j->step_ns;
}

static bool is_known(const struct joining *j)
{
	return j->step_ns > 0 && j->steps > 0 && j->start_ns > 0 && j->round_steps > 0;
}

/* It enters while a round is under way, takes part in the next one, for which it gets its state, and is one of those who share the batch from the one after that on. */
static uint64_t steps_of_its_own(const struct joining *j)
{
	uint64_t until = j->start_ns / j->step_ns;

	if (until >= left_of(j))
		return 0;
	uint64_t rounds = (j->done + until) / j->round_steps + 2;
	return rounds > j->steps / j->round_steps ? 0 : j->steps - rounds * j->round_steps;
}

/* What of its state a round does not cover the others wait for. */
static uint64_t waited_ns(const struct joining *j)
{
	bool covered = j->step_ns > UINT64_MAX / j->round_steps ||
	    j->state_ns <= j->step_ns * j->round_steps;

	return covered ? 0 : j->state_ns - j->step_ns * j->round_steps;
}

struct worth joining_worth(const struct joining *j)
{
	if (!is_known(j))
		return (struct worth){ 0 };
	return (struct worth){ .step_ns = j->step_ns,
		.next_ns = worth_at_best_ns(j->step_ns, j->workers, j->next_workers),
		.steps_left = steps_of_its_own(j),
		.cost_ns = waited_ns(j) };
}

bool joining_pays(const struct joining *j)
{
	struct worth worth = joining_worth(j);

	return worthwhile(&worth);
}

const char *joining_words(const struct joining *j, char text[JOINING_TEXT])
{
	struct worth worth = joining_worth(j);
	char words[WORTH_TEXT], from[64] = "";

	if (worth.steps_left > 0 && !worthwhile(&worth)) {
		(void)snprintf(text, JOINING_TEXT, "when it works %s", worth_words(&worth, words));
		return text;
	}
	if (j->round_steps > 1)
		(void)snprintf(from, sizeof(from),
		    "; it trains from the second merge after that on");
	(void)snprintf(text, JOINING_TEXT,
	    "%llu steps are left, %.3g s, and a worker needs %.3g s to start and get its state%s",
	    (unsigned long long)left_of(j), 1e-9 * (double)joining_left_ns(j),
	    1e-9 * ((double)j->start_ns + (double)j->state_ns), from);
	return text;
}

bool joining_asks_again(const struct joining_refused *refused, const struct joining *j)
{
	uint64_t left = joining_left_ns(j);

	return refused->workers != j->workers ||
	    (left > refused->left_ns &&
	        left - refused->left_ns > refused->left_ns / 100 * JOINING_AGAIN_PERCENT) ||
	    (refused->state_ns > j->state_ns &&
	        refused->state_ns - j->state_ns > refused->state_ns / 100 * JOINING_AGAIN_PERCENT);
}
