/* Times and memory of a model's parts: measured by a trainworker on this machine (daemon/worker/measure.h says how, and what the lines are), or read from a file in which
 * somebody has kept such lines. */
#ifndef TR_CLIENT_TRAINCTL_PLAN_MEASURED_H
#define TR_CLIENT_TRAINCTL_PLAN_MEASURED_H

#include "daemon/plan/plan_costs.h"
#include "traind/v1/trainer.pb-c.h"

struct plan_measured {
	struct plan_costs costs; /* costs.at points to rows */
	struct plan_cost rows[PLAN_COSTS_MAX];
	char of[PLAN_COSTS_OF_MAX]; /* plan_costs_of; "": the lines do not say */
	double on_core; /* part of its time that the thread which measured had of a core */
};

struct plan_measured_limits {
	unsigned threads;
	unsigned beside; /* measure_run.h */
	uint32_t tp_most, sequences_most;
};

/* Starts it and waits. TR_ENOTFOUND: there is no trainworker; TR_EIO; TR_EPROTO. */
tr_status plan_measured_here(const Traind__V1__JobSpec *spec,
    const struct plan_measured_limits *limits, const char *search_path,
    struct plan_measured *measured, struct tr_error *error);
tr_status plan_measured_read(const char *path, struct plan_measured *measured,
    struct tr_error *error);

#endif
