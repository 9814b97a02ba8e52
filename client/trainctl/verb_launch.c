#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "client/trainctl/embedded.h"
#include "client/trainctl/follow.h"
#include "client/trainctl/interrupt.h"
#include "client/trainctl/job_json.h"
#include "client/trainctl/launch_spec.h"
#include "client/trainctl/planning.h"
#include "client/trainctl/print.h"
#include "client/trainctl/verbs.h"

#define SUBMIT_DEADLINE_MS 30000

const struct args_row verb_launch_options[] = {
	{ "--set", NULL, "KEY=VALUE",
	    "override a key of the job file, as in --set train.steps=100 (repeatable)", false },
	{ "--costs", NULL, "FILE",
	    "a job of `mesh: auto` is planned with times and sizes of layers as `trainworker "
	    "--measure` prints them, instead of measuring on this machine",
	    false },
	{ "--workers", "-n", "N", "start CMD N times instead of training from a job file", true },
	{ "--nodes", NULL, "M", "with -n: spread the workers over M nodes", false },
	{ "--env", NULL, "KEY=VALUE",
	    "with -n: a variable for the workers, besides PATH, PYTHON*, CUDA* and the like "
	    "(repeatable)",
	    false },
	{ "--name", NULL, "NAME", "with -n: the job's name (default: the program's)", false },
	{ "--detach", "-d", NULL, "do not follow: print the job's number and return", false },
	{ "--keep", NULL, NULL, "leave an embedded cluster running when the job has ended", false },
	{ NULL, NULL, NULL, NULL, false },
};

struct launch {
	struct verb_call *call;
	struct config *config;
	Traind__V1__JobSpec *spec;
	struct rpc rpc;
	bool open, started; /* the rpc; an embedded cluster, by us */
	bool tried;         /* to start one */
	uint64_t job;
};

/* What a signal has made give up says nothing: run does. */
static int fail(int code, const char *text)
{
	int number = interrupt_pending();
	return number != 0 ? interrupt_exit_code(number) : verbs_complain(code, "%s", text);
}

static void *submit_once(struct launch *launch, char *request_id)
{
	Traind__V1__SubmitJobRequest request = TRAIND__V1__SUBMIT_JOB_REQUEST__INIT;
	request.request_id = request_id;
	request.spec = launch->spec;
	/* From here on there may be a job: a signal is for who follows it. */
	launch->rpc.steady = true;
	interrupt_leaves(
	    "trainctl: ended at once: the job may have been submitted, and a cluster started "
	    "for it; see `trainctl jobs` and `trainctl down`\n");
	return rpc_call(&launch->rpc, RPC_PATH("SubmitJob"), &request,
	    &traind__v1__submit_job_response__descriptor, SUBMIT_DEADLINE_MS);
}

/* Still to be planned. */
static bool is_open(const struct launch *launch)
{
	return launch->spec->train != NULL && launch->spec->mesh->auto_ &&
	    launch->spec->plan == NULL;
}

/* What is to be planned gets a slot for each core, or for each `threads` of them. */
static unsigned slots_of(const struct launch *launch, size_t nodes)
{
	const Traind__V1__Mesh *mesh = launch->spec->mesh;
	unsigned threads = mesh->threads > 0 ? mesh->threads : 1;
	unsigned cores = uv_available_parallelism();
	if (is_open(launch))
		return cores / threads > 0 ? cores / threads : 1;
	return launch->spec->train != NULL ? mesh->workers_per_node
	                                   : (unsigned)((mesh->workers + nodes - 1) / nodes);
}

static int start_embedded(struct launch *launch)
{
	struct tr_error error;
	const Traind__V1__Mesh *mesh = launch->spec->mesh;
	size_t nodes = mesh->nodes > 0 ? mesh->nodes : 1;
	unsigned slots = slots_of(launch, nodes);
	rpc_close(&launch->rpc);
	launch->open = false;
	launch->tried = true;
	if (embedded_start(launch->config, nodes, slots, &launch->started, &error) != TR_OK)
		return fail(EXIT_JOB_FAILED, error.text);
	if (rpc_open(&launch->rpc, launch->config, &error) != TR_OK)
		return verbs_complain(EXIT_JOB_FAILED, "%s", error.text);
	launch->open = true;
	return EXIT_OK;
}

/* Nobody there, and nobody was named: then it is ours to start one. */
static bool may_start(const struct launch *launch)
{
	return launch->rpc.status == GRPC_UNAVAILABLE && launch->rpc.lost &&
	    launch->config->address_by >= CONFIG_BY_HOME;
}

static int plan_once(struct launch *launch)
{
	const struct planning_options options = { .rpc = &launch->rpc,
		.costs_file = args_value(launch->call->args, "--costs"),
		.links = PLANNING_LINKS_MISSING,
		.free = true };
	struct tr_error error;
	struct planning *p = calloc(1, sizeof(*p));
	if (p == NULL)
		return verbs_complain(EXIT_JOB_FAILED, "out of memory");
	launch->rpc.status = GRPC_OK;
	tr_status st = planning_make(launch->spec, &options, p, &error);
	if (st == TR_OK)
		st = planning_keep(p, launch->spec, &error);
	if (st == TR_OK && interrupt_pending() != 0)
		st = interrupt_error(&error);
	if (st == TR_OK && !launch->config->json)
		planning_print(p);
	bool usage = p->wrong_file;
	planning_finish(p);
	free(p);
	if (st == TR_EUNAVAILABLE && launch->rpc.status != GRPC_OK && interrupt_pending() == 0)
		return EXIT_UNREACHABLE;
	return st == TR_OK ? EXIT_OK : fail(usage ? EXIT_USAGE : EXIT_JOB_FAILED, error.text);
}

/* A job of `mesh: auto`, for what is free now; a cluster of our own if there is none. */
static int plan(struct launch *launch)
{
	int code = plan_once(launch);
	if (code == EXIT_UNREACHABLE && may_start(launch)) {
		code = start_embedded(launch);
		if (code == EXIT_OK)
			code = plan_once(launch);
	}
	return code == EXIT_UNREACHABLE ? rpc_complain(&launch->rpc) : code;
}

static int submit(struct launch *launch)
{
	char request_id[40];
	uint64_t random[2];
	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return verbs_complain(EXIT_JOB_FAILED, "no random numbers");
	(void)snprintf(request_id, sizeof(request_id), "%016llx%016llx",
	    (unsigned long long)random[0], (unsigned long long)random[1]);
	Traind__V1__SubmitJobResponse *response = submit_once(launch, request_id);
	if (response == NULL && may_start(launch)) {
		int code = interrupt_pending() == 0 ? start_embedded(launch) : EXIT_OK;
		if (code != EXIT_OK || interrupt_pending() != 0)
			return code;
		response = submit_once(launch, request_id);
	}
	if (response == NULL) {
		(void)interrupt_take(); /* it ends without that */
		return rpc_complain(&launch->rpc);
	}
	launch->job = response->job_id;
	traind__v1__submit_job_response__free_unpacked(response, NULL);
	return EXIT_OK;
}

static int say_detached(const struct launch *launch)
{
	unsigned long long job = launch->job;
	struct json json = { 0 };
	if (launch->config->json) {
		json_object(&json);
		json_key_uint(&json, "id", job);
		json_key(&json, "address");
		json_string(&json, launch->config->address);
		json_end(&json);
		print_json_text(&json);
	} else {
		(void)printf("job %llu goes on by itself; `trainctl status %llu`, "
		             "`trainctl logs %llu -f`, `trainctl cancel %llu`\n",
		    job, job, job, job);
	}
	if (launch->started)
		(void)fprintf(stderr, "trainctl: the cluster stays up: `trainctl down` ends it\n");
	return EXIT_OK;
}

static void print_ending(const Traind__V1__Job *job)
{
	const Traind__V1__Progress *progress = job->progress;
	char time[PRINT_FIGURE_MAX], first[PRINT_FIGURE_MAX], last[PRINT_FIGURE_MAX],
	    val[PRINT_FIGURE_MAX];
	if (progress == NULL || job->state != TRAIND__V1__JOB_STATE__JOB_STATE_DONE)
		return;
	if (progress->sample != NULL && progress->sample[0] != '\0')
		(void)printf("\n---- sample ----\n%s\n----------------\n", progress->sample);
	(void)printf("job %llu done: %llu steps in %s", (unsigned long long)job->id,
	    (unsigned long long)progress->step, print_duration(print_seconds_of(job), time));
	if (!isnan(progress->first_loss)) /* of a checkpoint that was at its end there is none */
		(void)printf(", loss %s -> %s", print_loss(progress->first_loss, first),
		    print_loss(progress->loss, last));
	if (!isnan(progress->val_loss))
		(void)printf(", validation %s", print_loss(progress->val_loss, val));
	(void)putchar('\n');
	if (progress->checkpoint != NULL && progress->checkpoint[0] != '\0')
		(void)printf("checkpoint %s\n", progress->checkpoint);
	else
		(void)printf("no checkpoint was written: `trainctl status %llu` says why\n",
		    (unsigned long long)job->id);
}

static int code_of(const Traind__V1__Job *job)
{
	switch (job->state) {
	case TRAIND__V1__JOB_STATE__JOB_STATE_DONE:
		return EXIT_OK;
	case TRAIND__V1__JOB_STATE__JOB_STATE_CANCELLED:
		return verbs_complain(EXIT_CANCELLED, "job %llu was cancelled: %s",
		    (unsigned long long)job->id, job->reason);
	default:
		(void)verbs_complain(EXIT_JOB_FAILED, "job %llu %s: %s",
		    (unsigned long long)job->id, print_state(job->state), job->reason);
		return job->exit_code > 0 && job->exit_code < 256 ? job->exit_code
		                                                  : EXIT_JOB_FAILED;
	}
}

static int say_ended(const struct launch *launch, int code, const char *why, bool cancelled)
{
	unsigned long long job = (unsigned long long)launch->job;
	if (cancelled)
		return verbs_complain(code, "%s: job %llu was cancelled", why, job);
	return verbs_complain(code,
	    "%s, but job %llu was not cancelled%s%s; `trainctl cancel %llu` does that", why, job,
	    launch->rpc.text[0] != '\0' ? ": " : "", launch->rpc.text, job);
}

static int end_of(struct launch *launch, enum follow_end end, const Traind__V1__Job *job,
    bool cancelled)
{
	bool told = end == FOLLOW_INTERRUPTED || end == FOLLOW_TERMINATED;
	if (told && !cancelled && job != NULL && print_is_over(job->state))
		end = FOLLOW_JOB_ENDED; /* before it could be cancelled */
	switch (end) {
	case FOLLOW_JOB_ENDED:
		if (job != NULL && !print_is_known(job->state))
			return verbs_complain(EXIT_UNKNOWN,
			    "job %llu ended in a state that this trainctl does not know (%d): its "
			    "memberd is newer%s%s",
			    (unsigned long long)launch->job, (int)job->state,
			    job->reason[0] != '\0' ? ": " : "", job->reason);
		if (job == NULL || !print_is_over(job->state))
			return verbs_complain(EXIT_JOB_FAILED,
			    "job %llu was not seen to end: `trainctl status %llu`",
			    (unsigned long long)launch->job, (unsigned long long)launch->job);
		if (!launch->config->json)
			print_ending(job);
		return code_of(job);
	case FOLLOW_DETACHED:
		return say_detached(launch);
	case FOLLOW_HANGUP:
		return EXIT_HANGUP;
	case FOLLOW_INTERRUPTED:
		return say_ended(launch, EXIT_INTERRUPTED, "interrupted", cancelled);
	case FOLLOW_TERMINATED:
		return say_ended(launch, EXIT_TERMINATED, "told to end", cancelled);
	case FOLLOW_FAILED:
		break;
	}
	return rpc_complain(&launch->rpc);
}

/* *leave: the job may still run, so an embedded cluster must stay. */
static int follow(struct launch *launch, bool *leave)
{
	bool command = launch->spec->command != NULL;
	struct follow_options options = { .job = launch->job,
		.output = command && !launch->config->json,
		.raw = command && launch->spec->mesh->workers == 1,
		.quiet = launch->config->json };
	struct follow_result result;
	enum follow_end end = follow_run(&launch->rpc, &options, &result);
	Traind__V1__Job *job = result.job;
	int code = end_of(launch, end, job, result.cancelled);
	*leave = end == FOLLOW_DETACHED || end == FOLLOW_HANGUP;
	if (launch->config->json && job != NULL && end != FOLLOW_DETACHED) {
		struct json json = { 0 };
		job_json_write(&json, job, true);
		print_json_text(&json);
	}
	if (job != NULL)
		traind__v1__job__free_unpacked(job, NULL);
	if (result.output_failed == 0 || result.output_failed == EPIPE)
		return code;
	return verbs_complain(code != EXIT_OK ? code : EXIT_JOB_FAILED, "standard output: %s",
	    strerror(result.output_failed));
}

/* Before there was a job. */
static int say_interrupted(const struct launch *launch, int number, bool keep)
{
	const char *after = "";
	if (launch->started)
		after = keep
		    ? "; the cluster that was started for it stays: `trainctl down` ends it"
		    : "; ending the cluster that was started for it";
	else if (launch->tried)
		after = "; what it had started was ended again";
	return verbs_complain(interrupt_exit_code(number), "%s before the job was submitted%s",
	    interrupt_words(number), after);
}

/* As far as there is a job, or none for a reason that was said. Once it may be there, a signal is follow's. */
static int plan_and_submit(struct launch *launch, bool keep)
{
	int code = is_open(launch) ? plan(launch) : EXIT_OK;
	if (code == EXIT_OK && interrupt_pending() == 0)
		code = submit(launch);
	int number = launch->job == 0 ? interrupt_take() : 0;
	return number != 0 ? say_interrupted(launch, number, keep) : code;
}

static int run(struct launch *launch)
{
	struct tr_error error;
	bool leave = false, keep = args_has(launch->call->args, "--keep");
	interrupt_begin();
	int code = plan_and_submit(launch, keep);
	if (code == EXIT_OK && args_has(launch->call->args, "--detach") && interrupt_pending() == 0)
		return say_detached(launch);
	if (code == EXIT_OK) {
		code = follow(launch, &leave);
		interrupt_leaves(launch->started ? "trainctl: ended at once: `trainctl down` ends "
		                                   "what is left of the cluster\n"
		                                 : NULL);
		interrupt_begin(); /* libuv had the signals: the end of the cluster is not to be cut in two */
	}
	launch->rpc.steady = true;
	if (launch->started && !leave && !keep &&
	    embedded_stop(launch->config, launch->open ? &launch->rpc : NULL, &error) != TR_OK)
		return verbs_complain(code != EXIT_OK ? code : EXIT_JOB_FAILED, "%s", error.text);
	return code;
}

int verb_launch(struct verb_call *call)
{
	struct launch launch = { .call = call, .config = call->config };
	struct tr_error error;
	if (launch_spec_read(call->args, &launch.spec, &error) != TR_OK)
		return verbs_bad_input(call, error.text);
	int code = EXIT_USAGE;
	if (rpc_open(&launch.rpc, call->config, &error) != TR_OK) {
		(void)verbs_complain(code, "%s", error.text);
	} else {
		launch.open = true;
		code = run(&launch);
	}
	if (launch.open)
		rpc_close(&launch.rpc);
	traind__v1__job_spec__free_unpacked(launch.spec, NULL);
	return code;
}
