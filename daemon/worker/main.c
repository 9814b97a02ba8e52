/* trainworker: the native trainer. Started by traind, which hands it a channel to the engine and its job. */
#include <cblas.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "collectives/coll.h"
#include "common/error.h"
#include "common/limits.h"
#include "common/log.h"
#include "daemon/worker/gemm.h"
#include "daemon/worker/gemm_kernels.h"
#include "daemon/worker/measure.h"
#include "daemon/worker/trainer.h"

static int fail(const struct tr_error *error)
{
	log_error("trainworker", "%s", error->text);
	return 1;
}

/* For whoever asks what a job cost its links; without an answer there is nothing to say. */
static void log_traffic(tr_group *group)
{
	struct tr_stats stats = TR_STATS_INIT;
	struct tr_error error;
	if (tr_stats_get(group, &stats, &error) != TR_OK)
		return;
	log_info("trainworker",
	    "traffic: sent %llu bytes by tcp, %llu by shm; received %llu, %llu; %llu rounds",
	    (unsigned long long)stats.tcp_sent_bytes, (unsigned long long)stats.shm_sent_bytes,
	    (unsigned long long)stats.tcp_received_bytes,
	    (unsigned long long)stats.shm_received_bytes, (unsigned long long)stats.rounds);
}

/* 0: there is none. */
static unsigned long number_of(const char *variable)
{
	const char *text = getenv(variable);
	return text != NULL ? strtoul(text, NULL, 10) : 0;
}

static void tell_numbers(struct trainer *trainer)
{
	trainer_is_on(trainer, number_of("TRAIND_NODE_ID"));
	trainer_look_often(trainer, (unsigned)number_of("TRAIND_DRIFT_STEPS"));
	trainer_pause_remesh(trainer, (unsigned)number_of("TRAIND_REMESH_PAUSE_MS"));
	trainer_pause_join(trainer, (unsigned)number_of("TRAIND_JOIN_PAUSE_MS"));
}

static int train(tr_group *group)
{
	struct tr_error error;
	struct tr_assignment assignment;
	if (tr_assignment_get(group, &assignment) != TR_OK) {
		(void)tr_error_set(&error, TR_ENOTFOUND, "traind gave no job to this worker");
		return fail(&error);
	}
	Traind__V1__JobSpec *spec = traind__v1__job_spec__unpack(NULL, assignment.spec_bytes,
	    assignment.spec);
	if (spec == NULL || spec->train == NULL) {
		if (spec != NULL)
			traind__v1__job_spec__free_unpacked(spec, NULL);
		(void)tr_error_set(&error, TR_EPROTO, "the job is not one for the native trainer");
		return fail(&error);
	}
	log_info("trainworker", "job %llu, rank %u of %u, peer %llu, %u threads",
	    (unsigned long long)assignment.job, assignment.rank, assignment.world_size,
	    (unsigned long long)assignment.peer, assignment.threads);
	gemm_setup();
	gemm_kernels_log(getenv(GEMM_KERNELS_VARIABLE));
	struct trainer *trainer;
	int result = 0;
	uint64_t submitted_unix_ms = number_of("TRAIND_JOB_SUBMITTED_UNIX_MS");
	if (trainer_create(group, spec, assignment.threads, submitted_unix_ms, &trainer, &error) ==
	    TR_OK) {
		const char *folder = getenv("TRAIND_SAMPLES_LOG"), *kept = getenv("TRAIND_KEPT");
		tell_numbers(trainer);
		if (kept != NULL)
			trainer_keep(trainer, kept);
		tr_status status = folder != NULL ? trainer_log_samples(trainer, folder, &error)
		                                  : TR_OK;
		if (status != TR_OK || trainer_run(trainer, &error) != TR_OK)
			result = fail(&error);
		else
			log_traffic(group);
		trainer_destroy(trainer);
	} else {
		result = fail(&error);
	}
	traind__v1__job_spec__free_unpacked(spec, NULL);
	return result;
}

/* What is measured is for whoever started us, and takes all of its cores. By hand there is nobody to end with. */
static int measure(char **words)
{
	pid_t by = (pid_t)number_of("TRAIND_MEASURE_RUN_BY");
	if (by != 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != by))
		return 1;
	return measure_program(words);
}

int main(int argc, char **argv)
{
	bool measures = argc >= 5 && argc <= 7 && strcmp(argv[1], "--measure") == 0;
	bool tells = argc == 2 && strcmp(argv[1], "--kernels") == 0;
	if (argc == 1 || measures || tells)
		gemm_kernels_prefer(getenv(GEMM_KERNELS_VARIABLE), argv);
	if (tells)
		return puts(openblas_get_corename()) < 0;
	if (measures)
		return measure(argv + 2);
	if (argc > 1) {
		bool version = strcmp(argv[1], "--version") == 0;
		(void)fprintf(version ? stdout : stderr,
		    version ? "trainworker " TR_VERSION "\n"
		            : "trainworker is started by traind; to train, use `trainctl launch "
		              "FILE`\n");
		return version ? 0 : 2;
	}
	/* A checkpoint that grows past a limit on files is an error of that write, not the end of the worker. */
	(void)signal(SIGXFSZ, SIG_IGN);
	(void)signal(SIGPIPE, SIG_IGN);
	tr_group *group;
	struct tr_error error;
	if (tr_group_attach(&group, &error) != TR_OK) {
		(void)fprintf(stderr,
		    "trainworker: %s; it is started by traind, see `trainctl launch`\n",
		    error.text);
		return 1;
	}
	int result = train(group);
	tr_group_leave(group);
	return result;
}
