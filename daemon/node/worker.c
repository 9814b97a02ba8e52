#include "daemon/node/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/engine/engine.h"
#include "common/limits.h"
#include "common/log.h"
#include "daemon/node/capture.h"
#include "daemon/node/environment.h"
#include "daemon/node/kept.h"
#include "daemon/node/logs.h"
#include "daemon/node/process.h"

/* How long an end waits for its last lines (a slow disk must not keep a death from memberd), and then for the engine, which has
 * seen the channel close as soon as it runs. */
#define DRAIN_WAIT_MS 500
#define HEARD_WAIT_MS 5000
/* For who gave up to say why, and to end by itself. */
#define WHY_WAIT_MS  500
#define HALTED_WORDS "was stopped by SIG%s for %" PRIu64 " ms (--stopped-timeout-ms)"

struct worker {
	struct workers *workers;
	uint64_t job, group, peer;
	uint32_t rank;
	pid_t pid;
	struct process *process; /* NULL: ended */
	struct process_end end;
	char last_lines[CAPTURE_TAIL_MAX + 1];
	char stop_reason[256]; /* why we ended it; "": we did not */
	int halted_by;         /* a signal; 0: it goes on */
	bool halted_too_long;  /* and so it ends */
	bool says_why;         /* evicted, and was told why by its engine: it is let speak */
	/* For a process that is stopped, then for one that says why it ends or whose channel closed, then for its last words. */
	uv_timer_t wait;
	bool drained; /* all it wrote is in its log */
	bool heard;   /* the engine has passed on all that it said: its channel is closed */
	Traind__Peer__LastWords *words; /* then */
	struct worker *next;
};

/* The pipes and the channel of one worker; -1: closed, or given away. */
struct ends {
	int out[2], err[2], channel[2];
};

static struct worker *find(const struct workers *workers, uint64_t peer)
{
	struct worker *worker = workers->first;
	while (worker != NULL && worker->peer != peer)
		worker = worker->next;
	return worker;
}

static void stop(struct worker *worker, unsigned grace_ms, const char *reason)
{
	if (worker->process == NULL || worker->says_why)
		return;
	if (worker->stop_reason[0] == '\0')
		(void)snprintf(worker->stop_reason, sizeof(worker->stop_reason), "%s", reason);
	process_stop(worker->process, grace_ms);
}

/* ---- its end */

static void report_end(struct workers *workers, uint64_t job, uint64_t peer,
    const struct process_end *end, const char *last_lines, Traind__Peer__LastWords *words)
{
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	Traind__Peer__WorkerExited exited = TRAIND__PEER__WORKER_EXITED__INIT;
	char reason[sizeof(end->reason)], lines[CAPTURE_TAIL_MAX + 1];
	(void)snprintf(reason, sizeof(reason), "%s", end->reason);
	(void)snprintf(lines, sizeof(lines), "%s", last_lines);
	exited.job_id = job;
	exited.peer = peer;
	exited.exit_code = end->exit_code;
	exited.signal = end->signal;
	exited.reason = reason;
	exited.last_lines = lines;
	exited.last_words = words;
	worker_ends_keep(&workers->ends, &exited);
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_WORKER_EXITED;
	message.worker_exited = &exited;
	workers->report(workers->arg, &message);
}

static void freed(uv_handle_t *handle)
{
	free(handle->data);
}

static void remove_worker(struct worker *worker)
{
	struct workers *workers = worker->workers;
	struct worker **at = &workers->first;
	while (*at != worker)
		at = &(*at)->next;
	*at = worker->next;
	workers->count--;
	if (worker->group != 0)
		engine_remove(workers->engine, worker->group, worker->peer, worker->end.reason);
	if (worker->words != NULL && worker->group != 0)
		worker->words->learning_left = kept_any(workers->folder, worker->group);
	report_end(workers, worker->job, worker->peer, &worker->end, worker->last_lines,
	    worker->words);
	if (worker->words != NULL)
		traind__peer__last_words__free_unpacked(worker->words, NULL);
	uv_close((uv_handle_t *)&worker->wait, freed);
	workers->changed(workers->arg);
}

static void process_started(void *arg, pid_t pid)
{
	struct worker *worker = arg;
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	Traind__Peer__WorkerStarted started = TRAIND__PEER__WORKER_STARTED__INIT;
	worker->pid = pid;
	log_info("worker", "job %" PRIu64 ": peer %" PRIu64 " (rank %" PRIu32 ") runs as pid %ld",
	    worker->job, worker->peer, worker->rank, (long)pid);
	started.job_id = worker->job;
	started.peer = worker->peer;
	started.pid = (uint32_t)pid;
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_WORKER_STARTED;
	message.worker_started = &started;
	worker->workers->report(worker->workers->arg, &message);
}

static void halted_too_long(uv_timer_t *timer)
{
	struct worker *worker = timer->data;
	log_warn("worker", "job %" PRIu64 ": peer %" PRIu64 " is ended: it " HALTED_WORDS,
	    worker->job, worker->peer, sigabbrev_np(worker->halted_by), worker->workers->halted_ms);
	worker->halted_too_long = true;
	stop(worker, 0, "it stood still");
}

/* That it goes on may be the next thing that this loop reads: we may have stood still. */
static void halted_for_long(uv_timer_t *timer)
{
	(void)uv_timer_start(timer, halted_too_long, 1, 0);
}

/* Its group waits for it, and its engine's heartbeats go on. Who has left its group may stand still. */
static void process_halted(void *arg, int signal)
{
	struct worker *worker = arg;
	if (worker->group == 0 || worker->heard || worker->says_why || worker->halted_too_long ||
	    worker->workers->halted_ms == 0)
		return;
	worker->halted_by = signal;
	if (signal != 0)
		(void)uv_timer_start(&worker->wait, halted_for_long, worker->workers->halted_ms, 0);
	else
		(void)uv_timer_stop(&worker->wait);
}

/* Its end is told last: with the end of its workers a job is done, and its last words must have come by then. */
static void remove_if_complete(struct worker *worker)
{
	if (worker->process != NULL || !worker->drained || (worker->group != 0 && !worker->heard))
		return;
	(void)uv_timer_stop(&worker->wait);
	remove_worker(worker);
}

static void not_heard(uv_timer_t *timer)
{
	struct worker *worker = timer->data;
	log_error("worker", "job %" PRIu64 ": peer %" PRIu64 ": its last words did not come",
	    worker->job, worker->peer);
	worker->heard = true;
	remove_if_complete(worker);
}

static void not_drained(uv_timer_t *timer)
{
	struct worker *worker = timer->data;
	worker->drained = true;
	/* The engine's words may be the next thing that this loop reads: we may have stood still. */
	(void)uv_timer_start(&worker->wait, not_heard, HEARD_WAIT_MS, 0);
	remove_if_complete(worker);
}

static void process_ended(void *arg, const struct process_end *end)
{
	struct worker *worker = arg;
	worker->process = NULL;
	worker->end = *end;
	if (worker->halted_too_long)
		(void)snprintf(worker->end.reason, sizeof(worker->end.reason), HALTED_WORDS,
		    sigabbrev_np(worker->halted_by), worker->workers->halted_ms);
	log_info("worker", "job %" PRIu64 ": peer %" PRIu64 " ended: %s%s%s", worker->job,
	    worker->peer, worker->end.reason, worker->stop_reason[0] != '\0' ? ", " : "",
	    worker->stop_reason);
	logs_finish(worker->workers->logs, worker->peer);
	(void)uv_timer_start(&worker->wait, not_drained, DRAIN_WAIT_MS, 0);
}

void workers_drained(struct workers *workers, uint64_t peer, const char *last_lines)
{
	struct worker *worker = find(workers, peer);
	if (worker == NULL || worker->process != NULL)
		return;
	(void)snprintf(worker->last_lines, sizeof(worker->last_lines), "%s", last_lines);
	worker->drained = true;
	(void)uv_timer_start(&worker->wait, not_heard, HEARD_WAIT_MS, 0);
	remove_if_complete(worker);
}

/* ---- its start */

static void close_ends(struct ends *ends)
{
	int *all = &ends->out[0];
	for (size_t i = 0; i < sizeof(*ends) / sizeof(int); i++) {
		if (all[i] >= 0)
			(void)close(all[i]);
		all[i] = -1;
	}
}

static tr_status open_ends(struct ends *ends, bool channel, struct tr_error *error)
{
	*ends = (struct ends){ { -1, -1 }, { -1, -1 }, { -1, -1 } };
	if (pipe2(ends->out, O_CLOEXEC) == 0 && pipe2(ends->err, O_CLOEXEC) == 0 &&
	    (!channel || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends->channel) == 0))
		return TR_OK;
	tr_status st = tr_error_set(error, TR_EIO, "cannot make pipes: %s", strerror(errno));
	close_ends(ends);
	return st;
}

static unsigned threads_of(const struct workers *workers, const Traind__Peer__StartWorker *start)
{
	const Traind__V1__Mesh *mesh = start->spec == NULL ? NULL : start->spec->mesh;
	if (mesh != NULL && mesh->threads > 0)
		return mesh->threads;
	unsigned threads = workers->cores / (workers->slots > 0 ? workers->slots : 1);
	return threads > 0 ? threads : 1;
}

static bool trains_alone(const Traind__V1__JobSpec *spec)
{
	return spec->train != NULL && spec->train->sync != NULL &&
	    spec->train->sync->alone_steps > 0;
}

static tr_status spawn(struct worker *worker, const Traind__Peer__StartWorker *start,
    const struct ends *ends, struct tr_error *error)
{
	static const struct process_callbacks callbacks = { process_started, process_halted,
		process_ended };
	struct workers *workers = worker->workers;
	const Traind__V1__CommandSpec *command = start->spec->command;
	const char *native[] = { workers->trainworker, NULL };
	char kept[PATH_MAX] = "";
	if (trains_alone(start->spec))
		kept_folder(workers->folder, start->group, kept, sizeof(kept));
	char **environment = environment_of(start, workers->set_omp, workers->node, kept);
	char cgroup[512] = "";
	/* protobuf lists have no NULL at their end. */
	const char **argv = command == NULL ? NULL : calloc(command->n_argv + 1, sizeof(*argv));
	if (environment == NULL || (command != NULL && argv == NULL)) {
		environment_free(environment);
		free((void *)argv);
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	}
	if (command != NULL)
		memcpy((void *)argv, (const void *)command->argv, command->n_argv * sizeof(*argv));
	if (workers->cgroup[0] != '\0' &&
	    snprintf(cgroup, sizeof(cgroup), "%speer-%" PRIu64 "-%" PRIu64, workers->cgroup,
	        worker->peer, ++workers->cgroup_serial) >= (int)sizeof(cgroup))
		cgroup[0] = '\0';
	struct process_options options = {
		.argv = command != NULL ? argv : native,
		.environment = (const char *const *)environment,
		.directory = command != NULL ? command->directory : "",
		.cgroup = cgroup,
		.channel_fd = ends->channel[1],
		.out_fd = ends->out[1],
		.err_fd = ends->err[1],
		.open_files = workers->open_files,
		.grace_ms = TR_WORKER_TERM_GRACE_MS,
	};
	tr_status st = process_start(workers->loop, &options, &callbacks, worker, &worker->process,
	    error);
	environment_free(environment);
	free((void *)argv);
	return st;
}

static tr_status check(const Traind__Peer__StartWorker *start, struct tr_error *error)
{
	const Traind__V1__JobSpec *spec = start->spec;
	bool command = spec != NULL && spec->command != NULL;
	if (spec == NULL || (command && spec->command->n_argv == 0) ||
	    (!command && spec->train == NULL))
		return tr_error_set(error, TR_EINVAL,
		    "the job says neither what to train nor what to run");
	if (!command && start->group == 0)
		return tr_error_set(error, TR_EINVAL, "a native worker without a group");
	return TR_OK;
}

static tr_status start_worker(struct worker *worker, const Traind__Peer__StartWorker *start,
    struct tr_error *error)
{
	struct workers *workers = worker->workers;
	struct ends ends;
	tr_status st = check(start, error);
	if (st == TR_OK)
		st = open_ends(&ends, start->group != 0, error);
	if (st != TR_OK)
		return st;
	if (start->group != 0) {
		int engines = ends.channel[0];
		ends.channel[0] = -1; /* also on an error: its number may be another file's then */
		st = engine_add_worker(workers->engine, start, threads_of(workers, start), engines,
		    error);
		if (st != TR_OK)
			goto close;
	}
	st = spawn(worker, start, &ends, error);
	if (st != TR_OK) {
		engine_remove(workers->engine, start->group, start->peer, "it could not be started");
		goto close;
	}
	logs_capture(workers->logs, worker->job, worker->rank, worker->peer, ends.out[0],
	    ends.err[0]);
	ends.out[0] = ends.err[0] = -1;
close:
	close_ends(&ends);
	return st;
}

static void report_again(void *arg, Traind__Peer__WorkerExited *end)
{
	struct workers *workers = arg;
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_WORKER_EXITED;
	message.worker_exited = end;
	workers->report(workers->arg, &message);
}

void workers_start(struct workers *workers, const Traind__Peer__StartWorker *start)
{
	struct tr_error error = { 0 };
	Traind__Peer__WorkerExited *ended = worker_ends_find(&workers->ends, start->peer);
	if (ended !=
	    NULL) /* memberd, started again, may not have heard of it yet: no peer runs twice */
		report_again(workers, ended);
	if (ended != NULL || find(workers, start->peer) != NULL)
		return;
	struct worker *worker = calloc(1, sizeof(*worker));
	tr_status st = worker == NULL ? tr_error_set(&error, TR_ENOMEM, "out of memory") : TR_OK;
	if (st == TR_OK) {
		worker->workers = workers;
		worker->job = start->job_id;
		worker->group = start->group;
		worker->peer = start->peer;
		worker->rank = start->rank;
		st = start_worker(worker, start, &error);
	}
	if (st != TR_OK) {
		struct process_end end = { .exit_code = 127 };
		log_error("worker", "job %" PRIu64 ": peer %" PRIu64 " cannot be started: %s",
		    start->job_id, start->peer, error.text);
		(void)snprintf(end.reason, sizeof(end.reason), "could not be started");
		report_end(workers, start->job_id, start->peer, &end, error.text, NULL);
		free(worker);
		return;
	}
	(void)uv_timer_init(workers->loop, &worker->wait);
	worker->wait.data = worker;
	worker->next = workers->first;
	workers->first = worker;
	workers->count++;
}

/* ---- stops */

void workers_stop(struct workers *workers, uint64_t job, uint64_t peer, unsigned grace_ms,
    const char *reason)
{
	for (struct worker *worker = workers->first; worker != NULL; worker = worker->next)
		if ((job == 0 || worker->job == job) && (peer == 0 || worker->peer == peer))
			stop(worker, grace_ms, reason);
}

static void has_said_why(uv_timer_t *timer)
{
	struct worker *worker = timer->data;
	worker->says_why = false;
	stop(worker, TR_WORKER_TERM_GRACE_MS, "evicted");
}

void workers_evict(struct workers *workers, const Traind__Peer__PeerEvicted *evicted)
{
	struct worker *worker = find(workers, evicted->peer);
	if (worker == NULL || worker->group != evicted->group)
		return;
	log_warn("worker", "job %" PRIu64 ": peer %" PRIu64 " was evicted: %s", worker->job,
	    worker->peer, evicted->reason);
	/* Its channel may be closed already: its engine told it when it told memberd. */
	worker->says_why = evicted->refuses && worker->process != NULL && worker->halted_by == 0;
	if (worker->says_why)
		(void)uv_timer_start(&worker->wait, has_said_why, WHY_WAIT_MS, 0);
	else
		stop(worker, TR_WORKER_TERM_GRACE_MS, "evicted");
}

static void channel_closed_long_ago(uv_timer_t *timer)
{
	stop(timer->data, TR_WORKER_TERM_GRACE_MS, "it closed its channel and stayed");
}

void workers_channel_closed(struct workers *workers, uint64_t group, uint64_t peer,
    Traind__Peer__LastWords *words)
{
	struct worker *worker = find(workers, peer);
	if (worker == NULL || worker->group != group || worker->words != NULL) {
		if (words != NULL)
			traind__peer__last_words__free_unpacked(words, NULL);
		return;
	}
	worker->heard = true;
	worker->words = words;
	if (worker->process == NULL)
		remove_if_complete(worker);
	else if (!worker->says_why) /* its time is shorter, and runs already */
		(void)uv_timer_start(&worker->wait, channel_closed_long_ago,
		    TR_WORKER_TERM_GRACE_MS, 0);
}

/* ---- lists */

void workers_report_ends(struct workers *workers)
{
	worker_ends_each(&workers->ends, report_again, workers);
}

size_t workers_list(const struct workers *workers, struct worker_here *rows, size_t max)
{
	size_t count = 0;
	for (const struct worker *worker = workers->first; worker != NULL && count < max;
	     worker = worker->next)
		rows[count++] = (struct worker_here){ worker->job, worker->group, worker->peer,
			worker->pid };
	return count;
}

void workers_forget_ends(struct workers *workers)
{
	worker_ends_finish(&workers->ends);
}
