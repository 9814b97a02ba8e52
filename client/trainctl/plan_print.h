/* A plan for people, and as JSON. */
#ifndef TR_CLIENT_TRAINCTL_PLAN_PRINT_H
#define TR_CLIENT_TRAINCTL_PLAN_PRINT_H

#include <stdbool.h>

#include "daemon/plan/plan_search.h"
#include "traind/v1/trainer.pb-c.h"

struct plan_print {
	const struct plan_input *in;
	const struct plan_result *result;
	const Traind__V1__JobSpec *spec;
	const char *job;       /* the job file's name */
	const char *layers_by; /* in words: where times come from */
	const char *links_by;
	unsigned threads;
	uint32_t slots_left; /* that have no cores */
	uint32_t slots_over; /* more than a job may have workers */
	bool color, pareto;
	const char
	    *rare;  /* sync.mode of a job whose replicas do not sum gradients at each step; NULL */
	bool saves; /* the job writes checkpoints while it trains, not only at its end */
};

tr_status plan_print_people(const struct plan_print *print, struct tr_error *error);
tr_status plan_print_json(const struct plan_print *print, struct tr_error *error);

#endif
