/* The planner beside exhaustive search, on the synthetic clusters of tests/unit/plan_exhaustive.h, as rows of a Markdown table; and how long it
 * plans for 8 nodes and for 64: docs/sharding.md.
 *
 *	planquality [FIRST [LAST]]
 */
#include <time.h>

#include "tests/unit/plan_exhaustive.h"

static double cpu_s(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static struct plan_result *planned(const struct plan_input *in, double *took_s)
{
	struct plan_result *result;
	struct tr_error error;
	double began = cpu_s();

	if (plan_search(in, &(struct plan_search_settings){ .seed = 1 }, &result, &error) != TR_OK) {
		fprintf(stderr, "planquality: %s\n", error.text);
		exit(1);
	}
	*took_s = cpu_s() - began;
	return result;
}

/* How much longer the step of what was found is than that of the best of all. Says the plan in a row, of what jobs run the numbers alone. */
static double compared(struct plan_case *c, bool runnable, bool row)
{
	struct exhaustive *e = malloc(sizeof(*e));
	char text[PLAN_CHOICE_TEXT_MAX];
	double took_s;

	if (e == NULL)
		exit(1);
	c->in.runnable = runnable;
	struct plan_result *result = planned(&c->in, &took_s);
	exhaustive_search(&c->in, result->best.times.step_s, e);
	double found_s = result->best.times.step_s, ratio = found_s / e->best_s;
	if (row && runnable)
		printf(" %.0f | %.0f | %.3f |\n", 1e3 * found_s, 1e3 * e->best_s, ratio);
	else if (row)
		printf("| %s | %s | %.0f | %.0f | %.3f | %.2f | %llu |", c->name,
		    plan_choice_text(&result->best.choice, text), 1e3 * found_s, 1e3 * e->best_s,
		    ratio, took_s, (unsigned long long)e->placements);
	plan_search_destroy(result);
	free(e);
	return ratio;
}

static double one_case(struct plan_case *c, bool row)
{
	double any = compared(c, false, row), runnable = compared(c, true, row);

	plan_cluster_finish(&c->cluster);
	return fmax(any, runnable);
}

/* Clusters by chance, of 4 or 5 workers; those that no plan fits are passed over. */
static double many(unsigned count)
{
	unsigned tried = 0, exact = 0;
	double worst = 1;

	for (uint64_t seed = 100; tried < count; seed++) {
		struct plan_case c;
		case_random(&c, "", seed, seed % 3 == 0 ? 2 : 4 + seed % 2, seed % 3 == 0 ? 2 : 1);
		c.in.batch = seed % 4 == 0 ? 24 : 8;
		c.model.untied = seed % 5 == 0;
		struct plan_result *result;
		if (plan_search(&c.in, &(struct plan_search_settings){ .seed = 1 }, &result,
		        NULL) != TR_OK) {
			plan_cluster_finish(&c.cluster);
			continue;
		}
		plan_search_destroy(result);
		double ratio = one_case(&c, false);
		worst = fmax(worst, ratio);
		exact += ratio < 1.0001;
		tried++;
	}
	printf("\n%u clusters by chance, of 4 or 5 workers: worst ratio %.3f; %u times the best "
	       "plan "
	       "of all\n\n",
	    tried, worst, exact);
	return worst;
}

/* Nodes with uneven links and speeds; plans that jobs run. False: it took more than most_s. */
static bool large(uint32_t nodes, uint32_t each, uint32_t batch, double most_s)
{
	struct plan_case c;
	char text[PLAN_CHOICE_TEXT_MAX];
	double took_s;

	case_random(&c, "", 9, nodes, each);
	for (uint32_t i = 0; i < nodes * each; i++)
		c.cluster.workers[i].memory_bytes = 2 * GIB;
	c.model.layers = 48;
	c.in.batch = batch;
	c.in.runnable = true;
	struct plan_result *result = planned(&c.in, &took_s);
	printf("| %u nodes of %u | %s | %.0f | %.1f | %u | %u |\n", nodes, each,
	    plan_choice_text(&result->best.choice, text), 1e3 * result->best.times.step_s, took_s,
	    result->choices, result->bounded);
	plan_search_destroy(result);
	plan_cluster_finish(&c.cluster);
	return took_s <= most_s;
}

int main(int argc, char **argv)
{
	unsigned first = argc > 1 ? (unsigned)atoi(argv[1]) : 0,
	         last = argc > 2 ? (unsigned)atoi(argv[2]) : PLAN_CASES - 1;
	double worst = 0;

	printf("| cluster | plan | step, ms | best of all, ms | ratio | CPU, s | placements tried "
	       "| as jobs run it: step, ms | best of these, ms | ratio |\n"
	       "|---|---|---|---|---|---|---|---|---|---|\n");
	for (unsigned i = first; i <= last && i < PLAN_CASES; i++) {
		struct plan_case c;
		case_make(&c, i);
		worst = fmax(worst, one_case(&c, true));
		(void)fflush(stdout);
	}
	printf("\nworst ratio: %.3f\n\n", worst);
	if (argc > 1)
		return worst > 1.05;
	worst = fmax(worst, many(40));
	printf("| cluster | plan | step, ms | CPU, s | choices | left by their bound "
	       "|\n|---|---|---|---|---|---|\n");
	bool quick = large(8, 1, 64, 10);
	quick = large(8, 4, 64, 10) && quick;
	quick = large(64, 1, 256, 60) && quick;
	quick = large(64, 4, 512, 60) && quick;
	return worst > 1.05 || !quick;
}
