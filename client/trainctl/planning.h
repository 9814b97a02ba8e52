/* Planning a job, for `trainctl plan` and for jobs of `mesh: auto`: cluster and links, costs of layers, the search; and what of it a job keeps. */
#ifndef TR_CLIENT_TRAINCTL_PLANNING_H
#define TR_CLIENT_TRAINCTL_PLANNING_H

#include "client/trainctl/plan_measured.h"
#include "client/trainctl/planning_cluster.h"
#include "daemon/plan/job_mesh_sync.h"
#include "daemon/plan/plan_search.h"

struct planning_options {
	const char *cluster_file; /* NULL: the running cluster, by `rpc` */
	const char *costs_file;   /* NULL: measured on this machine */
	struct rpc *rpc;
	enum planning_links links;
	bool free;  /* for a job that is to run now: on what is free of the running cluster */
	bool any;   /* plans that jobs cannot run (plan_layout.h, runnable) */
	bool as_is; /* only the job's own mesh, schedule and microbatch */
	bool pareto;
};

struct planning {
	const Traind__V1__JobSpec *spec; /* borrowed */
	struct model_config model;
	struct planning_cluster around;
	struct plan_measured measured;
	double alone_s; /* a layer with one sequence, as one worker that is alone on its machine; 0: nobody knows */
	struct plan_input in;
	struct dealing dealt; /* in.dealt, where there is one */
	bool keeps_dealing; /* the plan is as for equal workers, and is not made anew in mid-job */
	struct job_mesh_rounds rounds; /* of replicas that train apart */
	struct plan_result *result;
	bool wrong_file; /* one of the options: it cannot be read, or used */
	unsigned threads;
	char layers_by[512];
};

/* `spec` is validated. TR_EINVAL: the cluster's file, or no such plan; TR_ELIMIT: none fits; TR_EUNAVAILABLE: no cluster, and others. planning_finish in
 * any case. */
tr_status planning_make(const Traind__V1__JobSpec *spec, const struct planning_options *options,
    struct planning *planning, struct tr_error *error);
void planning_finish(struct planning *planning);

/* The best plan becomes the job's: its mesh, microbatch, threads and nodes. */
tr_status planning_keep(const struct planning *planning, Traind__V1__JobSpec *spec,
    struct tr_error *error);

/* The best plan in a few lines on stdout, and where its figures come from. */
void planning_print(const struct planning *planning);

#endif
