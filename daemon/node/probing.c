#include "daemon/node/probing.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "collectives/transport/address.h"
#include "collectives/transport/probe.h"
#include "collectives/transport/socket.h"
#include "common/limits.h"
#include "common/log.h"
#include "daemon/shell/measure_run.h"

struct probe_task {
	struct mail mail; /* from its thread, when that is done */
	struct probing *probing;
	struct probe_task *next;
	pthread_t thread;
	bool serves;
	struct stream stream; /* serves */
	uint64_t measurement;
	char address[TR_ADDRESS_MAX]; /* empty: what this host shares */
	uint64_t token[2];
	bool beside;
	uint8_t *job; /* packed: a layer of it is measured too; NULL: none is */
	size_t job_bytes;
	unsigned threads;
	tr_status status;
	struct probe_figures figures;
	double layer_s;
	struct tr_error error, layer_error;
};

/* One layer, with one sequence: of a line "cost 1 1 ..." (daemon/worker/measure.h) the fifth and sixth figures. */
static void measure_layer(struct probe_task *task)
{
	const struct measure_run run = { .program = task->probing->trainworker,
		.job = task->job,
		.job_bytes = task->job_bytes,
		.threads = task->threads,
		.tp_most = 1,
		.sequences_most = 1,
		.most_ms = TR_PROBE_MS,
		.stop = &task->probing->stop };
	double forward_s, backward_s;
	char *text = NULL;
	if (measure_run(&run, &text, &task->layer_error) != TR_OK)
		return;
	const char *line = strstr(text, "cost 1 1 ");
	if (line != NULL && sscanf(line, "cost 1 1 %*f %*f %lf %lf", &forward_s, &backward_s) == 2)
		task->layer_s = forward_s + backward_s;
	else
		(void)tr_error_set(&task->layer_error, TR_EPROTO,
		    "trainworker --measure said nothing of a layer");
	free(text);
}

static void measure_host(struct probe_task *task)
{
	task->status = probe_memory(&task->figures, &task->error);
	if (task->job != NULL)
		measure_layer(task);
}

static void *run(void *arg)
{
	struct probe_task *task = arg;
	const atomic_bool *stop = &task->probing->stop;
	if (task->serves)
		task->status = probe_serve(task->stream, task->token, stop, &task->error);
	else if (task->address[0] == '\0')
		measure_host(task);
	else
		task->status = probe_dial(&(struct probe_target){ task->address, task->probing->tls,
		                              { task->token[0], task->token[1] }, task->beside },
		    stop, &task->figures, &task->error);
	mailbox_post(&task->probing->box, &task->mail);
	return NULL;
}

static void report(struct probing *probing, const struct probe_task *task)
{
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	Traind__Peer__LinkMeasured measured = TRAIND__PEER__LINK_MEASURED__INIT;
	measured.measurement = task->measurement;
	measured.round_trip_s = task->figures.round_trip_s;
	measured.there_bytes_per_s = task->figures.there_bytes_per_s;
	measured.back_bytes_per_s = task->figures.back_bytes_per_s;
	measured.layer_s = task->layer_s;
	measured.layer_error = (char *)(uintptr_t)
	                           task->layer_error.text; /* proto3 strings are not written to */
	if (task->status != TR_OK)
		measured.error = (char *)(uintptr_t)
		                     task->error.text; /* proto3 strings are not written to */
	measured.unreachable = task->status == TR_EUNAVAILABLE;
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_LINK_MEASURED;
	message.link_measured = &measured;
	probing->report(probing->arg, &message);
}

static void task_free(struct probe_task *task)
{
	free(task->job);
	free(task);
}

static void task_over(struct mail *mail, bool dropped)
{
	struct probe_task *task = (struct probe_task *)mail;
	struct probing *probing = task->probing;
	struct probe_task **at = &probing->tasks;
	if (!dropped) /* else probing_close has waited for it */
		(void)pthread_join(task->thread, NULL);
	while (*at != task)
		at = &(*at)->next;
	*at = task->next;
	probing->served -= task->serves;
	if (!dropped && !task->serves)
		report(probing, task);
	else if (!dropped && task->status != TR_OK)
		log_info("probe", "a way to us was not measured: %s", task->error.text);
	task_free(task);
}

/* Takes the task. */
static void begin(struct probing *probing, struct probe_task *task)
{
	task->mail.run = task_over;
	task->probing = probing;
	int cause = pthread_create(&task->thread, NULL, run, task);
	if (cause == 0) {
		task->next = probing->tasks;
		probing->tasks = task;
		probing->served += task->serves;
		return;
	}
	if (task->serves) {
		stream_close(&task->stream);
	} else {
		task->status = tr_error_set(&task->error, TR_ENOMEM,
		    "no thread to measure with: %s", strerror(cause));
		report(probing, task);
	}
	task_free(task);
}

tr_status probing_start(struct probing *probing, uv_loop_t *loop, struct tls_context *tls,
    bool insecure, struct tr_error *error)
{
	probing->tls = tls;
	probing->anywhere = tls != NULL || insecure;
	atomic_init(&probing->stop, false);
	while (getrandom(probing->token, sizeof(probing->token), 0) < 0)
		if (errno != EINTR)
			return tr_error_set(error, TR_EIO, "no random numbers: %s", strerror(errno));
	tr_status st = mailbox_init(&probing->box, loop, error);
	probing->open = st == TR_OK;
	return st;
}

/* How many are under way: each has a thread. */
static unsigned measures(const struct probing *probing)
{
	unsigned count = 0;
	for (const struct probe_task *task = probing->tasks; task != NULL; task = task->next)
		count += !task->serves;
	return count;
}

/* What would be too much for us, or goes where nobody allowed it. */
static tr_status check_measure(const struct probing *probing,
    const Traind__Peer__MeasureLink *measure, struct tr_error *error)
{
	if (measures(probing) >= TR_PROBES_MEASURED_MAX)
		return tr_error_set(error, TR_ELIMIT,
		    "%d measurements are under way here, no more than that",
		    TR_PROBES_MEASURED_MAX);
	return measure->address[0] == '\0'
	    ? TR_OK
	    : address_check_told(measure->address, probing->anywhere, error);
}

void probing_measure(struct probing *probing, const Traind__Peer__MeasureLink *measure)
{
	struct probe_task *task = calloc(1, sizeof(*task));
	if (task == NULL) {
		log_error("probe", "out of memory: memberd waits in vain for a measurement");
		return;
	}
	task->measurement = measure->measurement;
	task->status = check_measure(probing, measure, &task->error);
	if (task->status != TR_OK) {
		report(probing, task);
		task_free(task);
		return;
	}
	task->token[0] = measure->token_low;
	task->token[1] = measure->token_high;
	task->beside = measure->beside;
	(void)snprintf(task->address, sizeof(task->address), "%s", measure->address);
	if (measure->job != NULL) {
		task->job_bytes = traind__v1__job_spec__get_packed_size(measure->job);
		task->job = malloc(task->job_bytes + 1);
		task->threads = measure->threads;
	}
	if (task->job != NULL)
		(void)traind__v1__job_spec__pack(measure->job, task->job);
	begin(probing, task);
}

void probing_accept(struct probing *probing, struct stream stream)
{
	struct probe_task *task = probing->served < TR_PROBES_SERVED_MAX ? calloc(1, sizeof(*task))
	                                                                 : NULL;
	if (task == NULL) { /* who dialled says so to memberd */
		stream_close(&stream);
		return;
	}
	task->serves = true;
	task->stream = stream;
	task->token[0] = probing->token[0];
	task->token[1] = probing->token[1];
	begin(probing, task);
}

void probing_close(struct probing *probing)
{
	if (!probing->open)
		return;
	probing->open = false;
	atomic_store(&probing->stop, true);
	/* Their letters are in the box then, which frees them. */
	for (const struct probe_task *task = probing->tasks; task != NULL; task = task->next)
		(void)pthread_join(task->thread, NULL);
	mailbox_close(&probing->box, NULL);
}
