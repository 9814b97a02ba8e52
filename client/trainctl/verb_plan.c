#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainctl/interrupt.h"
#include "client/trainctl/jobfile.h"
#include "client/trainctl/plan_print.h"
#include "client/trainctl/planning.h"
#include "client/trainctl/verbs.h"
#include "daemon/plan/job_sync.h"

const struct args_row verb_plan_options[] = {
	{ "--cluster", NULL, "FILE",
	    "plan for the nodes and links that FILE describes (configs/cluster.yaml is an example) "
	    "instead of the running cluster",
	    false },
	{ "--costs", NULL, "FILE",
	    "times and sizes of layers, as `trainworker --measure` prints them, instead of "
	    "measuring "
	    "on this machine",
	    false },
	{ "--measure", NULL, NULL,
	    "measure all links of the running cluster anew (see `trainctl nodes`), also when all "
	    "are known",
	    false },
	{ "--auto", NULL, NULL, "as `mesh: auto` chooses: for the slots that are free now", false },
	{ "--any", NULL, NULL,
	    "plans that jobs cannot run: layers over chunks as they fit best, microbatches all of "
	    "one size",
	    false },
	{ "--pareto", NULL, NULL, "print also the plans that are slower but take less memory",
	    false },
	{ "--as-is", NULL, NULL,
	    "no other plan than the job's own mesh, schedule and train.micro_sequences: what a "
	    "step of it takes",
	    false },
	{ "--set", NULL, "KEY=VALUE", "override a key of the job file (repeatable)", false },
	{ NULL, NULL, NULL, NULL, false },
};

static tr_status show(const struct verb_call *call, const struct planning *p, bool pareto,
    struct tr_error *error)
{
	struct plan_print print = { .in = &p->in,
		.result = p->result,
		.spec = p->spec,
		.job = call->args->words[0],
		.layers_by = p->layers_by,
		.links_by = p->around.links_by,
		.threads = p->threads,
		.slots_left = p->around.slots_left,
		.slots_over = p->around.slots_over,
		.color = call->config->color,
		.pareto = pareto,
		.rare = job_sync_is_rare(p->spec->train->sync) ? p->spec->train->sync->mode : NULL,
		.saves = p->spec->train->checkpoint != NULL &&
		    p->spec->train->checkpoint->every > 0 };
	return call->config->json ? plan_print_json(&print, error)
	                          : plan_print_people(&print, error);
}

static int plan(struct verb_call *call, const Traind__V1__JobSpec *spec, struct rpc *rpc)
{
	struct tr_error error;
	const struct planning_options options = { .rpc = rpc,
		.cluster_file = args_value(call->args, "--cluster"),
		.costs_file = args_value(call->args, "--costs"),
		.links = args_has(call->args, "--measure") ? PLANNING_LINKS_NEW
		                                           : PLANNING_LINKS_MISSING,
		.free = args_has(call->args, "--auto"),
		.any = args_has(call->args, "--any"),
		.as_is = args_has(call->args, "--as-is"),
		.pareto = args_has(call->args, "--pareto") };
	struct planning *p = calloc(1, sizeof(*p));
	if (p == NULL)
		return verbs_complain(EXIT_JOB_FAILED, "out of memory");
	tr_status st = planning_make(spec, &options, p, &error);
	/* A file that is wrong is the caller's; that there is no plan is an answer. */
	bool usage = p->wrong_file;
	if (st == TR_OK && interrupt_pending() == 0)
		st = show(call, p, options.pareto, &error);
	planning_finish(p);
	free(p);
	int number = interrupt_take();
	if (number != 0)
		return verbs_complain(interrupt_exit_code(number), "%s before there was a plan",
		    interrupt_words(number));
	if (st == TR_EUNAVAILABLE && rpc != NULL && rpc->status != GRPC_OK)
		return rpc_complain(rpc);
	return st == TR_OK ? EXIT_OK
	                   : verbs_complain(usage ? EXIT_USAGE : EXIT_JOB_FAILED, "%s", error.text);
}

static int plan_here(struct verb_call *call, const Traind__V1__JobSpec *spec)
{
	struct rpc rpc;
	struct tr_error error;
	if (args_value(call->args, "--cluster") != NULL)
		return plan(call, spec, NULL);
	if (rpc_open(&rpc, call->config, &error) != TR_OK)
		return verbs_complain(EXIT_USAGE, "%s", error.text);
	int code = plan(call, spec, &rpc);
	rpc_close(&rpc);
	return code;
}

static tr_status read_job(const struct args *args, Traind__V1__JobSpec **spec,
    struct tr_error *error)
{
	const char **sets = calloc(args->n_given + 1, sizeof(*sets));
	size_t count = 0;
	if (sets == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	for (size_t i = 0; i < args->n_given; i++)
		if (strcmp(args->given[i].row->name, "--set") == 0)
			sets[count++] = args->given[i].value;
	tr_status st = jobfile_read(args->words[0], sets, count, spec, error);
	free(sets);
	return st;
}

/* Of two options that contradict each other neither would do what it says. */
static tr_status check_options(const struct args *args, struct tr_error *error)
{
	static const struct {
		const char *one, *other, *why;
	} apart[] = {
		{ "--measure", "--cluster", "the links of a running cluster are measured" },
		{ "--auto", "--cluster", "slots are free in a running cluster" },
		{ "--pareto", "--as-is", "the job's own plan is the only one" },
	};
	for (size_t i = 0; i < sizeof(apart) / sizeof(apart[0]); i++)
		if (args_has(args, apart[i].one) && args_has(args, apart[i].other))
			return tr_error_set(error, TR_EINVAL, "%s does not go with %s: %s",
			    apart[i].one, apart[i].other, apart[i].why);
	return TR_OK;
}

int verb_plan(struct verb_call *call)
{
	struct tr_error error;
	Traind__V1__JobSpec *spec = NULL;
	if (check_options(call->args, &error) != TR_OK)
		return verbs_complain(EXIT_USAGE, "%s", error.text);
	if (read_job(call->args, &spec, &error) != TR_OK)
		return verbs_bad_input(call, error.text);
	interrupt_begin();
	int code = plan_here(call, spec);
	traind__v1__job_spec__free_unpacked(spec, NULL);
	return code;
}
