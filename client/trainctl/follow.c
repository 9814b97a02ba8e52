#include "client/trainctl/follow.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/trainctl/interrupt.h"
#include "client/trainctl/keys.h"
#include "client/trainctl/output.h"
#include "client/trainctl/print.h"
#include "client/trainctl/screen.h"
#include "client/trainctl/shown.h"

#define RETRY_MS       200
#define QUEUED_TOLD_MS 1000 /* a command job that still waits for slots after this says so */
#define LOGS_LAST_MS   3000 /* without any of the rest of the output, after the job's end */
#define CANCEL_LAST_MS 15000

enum { SIGNALS = 4, CUT_PEERS_TOLD = 4 };

struct follow {
	struct rpc *rpc;
	const struct follow_options *options;
	Traind__V1__Job *job;
	struct screen screen;
	struct output output;
	struct keys keys;
	uv_signal_t signals[SIGNALS];
	uv_timer_t retry, queued, last; /* last: bounds what is waited for at the end */
	struct grpc_client_call *watch, *logs, *cancel;
	struct shown shown;
	unsigned open_handles;
	enum follow_end end;
	const char *cancel_reason;
	bool done, away, asking, over, unknown_told, cut_told;
	bool cancelling, cancelled; /* asked for; so memberd has answered */
	bool logs_again; /* what a stream that failed has left out was asked for once more */
};

static void start_watch(struct follow *follow);
static void start_logs(struct follow *follow);
static void start_cancel(struct follow *follow);

static void say(struct follow *follow, const char *text)
{
	if (follow->options->quiet || follow->options->output)
		(void)fprintf(stderr, "trainctl: %s\n", text);
	else
		screen_say(&follow->screen, "%s", text);
}

/* The job is over, and the rest of its output does not come: what was shown ends where this says, by worker as its log is named. */
static void say_cut(struct follow *follow, const char *why)
{
	const struct shown *shown = &follow->shown;
	unsigned long long job = follow->options->job;
	if (follow->cut_told)
		return;
	follow->cut_told = true;
	(void)fflush(stdout);
	(void)fprintf(stderr, "trainctl: the end of job %llu's output may be missing: %s;", job,
	    why);
	for (size_t i = 0; i < shown->count && i < CUT_PEERS_TOLD; i++)
		(void)fprintf(stderr, "%s peer %llu's was shown up to byte %llu", i > 0 ? "," : "",
		    (unsigned long long)shown->peers[i].peer,
		    (unsigned long long)shown->peers[i].end);
	if (shown->count > CUT_PEERS_TOLD)
		(void)fprintf(stderr, ", and so on");
	else if (shown->count == 0)
		(void)fprintf(stderr, " nothing was shown");
	(void)fprintf(stderr, "; `trainctl logs %llu` shows what is kept\n", job);
}

static void finish(struct follow *follow, enum follow_end end)
{
	if (follow->done)
		return;
	follow->done = true;
	follow->end = end;
}

static void finish_uncancelled(struct follow *follow)
{
	finish(follow, follow->end == FOLLOW_JOB_ENDED ? FOLLOW_FAILED : follow->end);
}

static void on_last(uv_timer_t *timer)
{
	struct follow *follow = timer->data;
	if (follow->over && follow->logs != NULL && !follow->done)
		say_cut(follow, "it does not come");
	if (follow->cancelling && !follow->cancelled && !follow->over)
		finish_uncancelled(follow);
	else
		finish(follow, follow->end);
}

static void finish_within(struct follow *follow, uint64_t ms, enum follow_end end)
{
	follow->end = end;
	(void)uv_timer_start(&follow->last, on_last, ms, 0);
}

/* ---- the job ---- */

static void on_queued_long(uv_timer_t *timer)
{
	struct follow *follow = timer->data;
	if (follow->job != NULL && follow->job->state == TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED &&
	    follow->options->output)
		(void)fprintf(stderr, "trainctl: job %llu waits: %s\n",
		    (unsigned long long)follow->options->job, follow->job->reason);
}

static void show(struct follow *follow)
{
	if (!follow->options->quiet && !follow->options->output && !follow->asking)
		screen_show(&follow->screen, follow->job, uv_now(&follow->rpc->loop));
}

static void job_over(struct follow *follow)
{
	enum follow_end end = follow->cancelling ? follow->end : FOLLOW_JOB_ENDED;
	follow->over = true;
	follow->end = end;
	/* A stream that has ended before the job may have missed the rest. */
	if (follow->options->output && follow->logs == NULL)
		start_logs(follow);
	if (follow->logs == NULL)
		finish(follow, end);
	else
		finish_within(follow, LOGS_LAST_MS, end);
}

/* Of a newer memberd. Whether the job is over, its stream says: it ends then. */
static void say_unknown(struct follow *follow)
{
	char text[160];
	if (print_is_known(follow->job->state) || follow->unknown_told)
		return;
	follow->unknown_told = true;
	(void)snprintf(text, sizeof(text),
	    "job %llu is in a state that this trainctl does not know (%d): its memberd is newer; "
	    "following it all the same",
	    (unsigned long long)follow->job->id, (int)follow->job->state);
	say(follow, text);
}

static void on_job(void *arg, const uint8_t *message, size_t bytes)
{
	struct follow *follow = arg;
	Traind__V1__Job *job = rpc_unpack(follow->rpc, &traind__v1__job__descriptor, message, bytes);
	if (job == NULL || follow->done) {
		traind__v1__job__free_unpacked(job, NULL);
		return;
	}
	if (follow->job != NULL)
		traind__v1__job__free_unpacked(follow->job, NULL);
	follow->job = job;
	if (follow->away)
		say(follow, "memberd is back");
	follow->away = false;
	show(follow);
	say_unknown(follow);
	if (print_is_over(job->state) && !follow->over)
		job_over(follow);
}

/* memberd is away: it may have moved, or have been ended. */
static void look_for_memberd(struct follow *follow)
{
	struct rpc *rpc = follow->rpc;
	if (follow->watch != NULL || follow->over || rpc_read_record(rpc) != RPC_RECORD_GONE)
		return;
	rpc->status = GRPC_UNAVAILABLE;
	(void)snprintf(rpc->text, sizeof(rpc->text),
	    "job %llu is not followed any more: the cluster in %.300s was ended",
	    (unsigned long long)follow->options->job, rpc->config->cluster);
	finish(follow, FOLLOW_FAILED);
}

static void on_retry(uv_timer_t *timer)
{
	struct follow *follow = timer->data;
	look_for_memberd(follow);
	if (follow->done)
		return;
	if (follow->watch == NULL && !follow->over)
		start_watch(follow);
	if (follow->options->output && follow->logs == NULL && !follow->over)
		start_logs(follow);
	if (follow->cancelling && !follow->cancelled && follow->cancel == NULL && !follow->over)
		start_cancel(follow);
}

/* memberd may be away for a while: what was asked is asked again. */
static bool is_passing(enum grpc_status status)
{
	return status == GRPC_UNAVAILABLE || status == GRPC_CANCELLED ||
	    status == GRPC_DEADLINE_EXCEEDED || status == GRPC_INTERNAL;
}

static void on_watch_ended(void *arg, enum grpc_status status, const char *text)
{
	struct follow *follow = arg;
	const struct grpc_client_call *call = follow->watch;
	follow->watch = NULL;
	if (follow->done || follow->over)
		return;
	if (status != GRPC_OK && !is_passing(status)) {
		rpc_note_end(follow->rpc, call, status, text);
		finish(follow, FOLLOW_FAILED);
		return;
	}
	if (status == GRPC_OK && follow->job != NULL && !print_is_known(follow->job->state)) {
		job_over(follow);
		return;
	}
	if (!follow->away && status != GRPC_OK)
		say(follow, "memberd is away; training goes on; waiting for it");
	follow->away = follow->away || status != GRPC_OK;
	(void)uv_timer_start(&follow->retry, on_retry, RETRY_MS, 0);
}

static void start_watch(struct follow *follow)
{
	static const struct grpc_client_callbacks callbacks = { .message = on_job,
		.ended = on_watch_ended };
	Traind__V1__WatchJobRequest request = TRAIND__V1__WATCH_JOB_REQUEST__INIT;
	struct tr_error error;
	request.job_id = follow->options->job;
	if (rpc_start(follow->rpc, RPC_PATH("WatchJob"), &request, &callbacks, follow,
	        &follow->watch, &error) != TR_OK) {
		follow->watch = NULL;
		(void)uv_timer_start(&follow->retry, on_retry, RETRY_MS, 0);
	}
}

/* ---- the ranks' output ---- */

static void on_chunk(void *arg, const uint8_t *message, size_t bytes)
{
	struct follow *follow = arg;
	Traind__V1__LogChunk *chunk = traind__v1__log_chunk__unpack(NULL, bytes, message);
	if (chunk == NULL)
		return;
	if (follow->over && !follow->cancelling) /* it still comes */
		(void)uv_timer_start(&follow->last, on_last, LOGS_LAST_MS, 0);
	if (chunk->rank < TR_GROUP_PEERS_MAX && chunk->data.len > 0) {
		struct shown_piece piece = shown_add(&follow->shown, chunk);
		output_gap(&follow->output, chunk->rank, piece.missing);
		output_write(&follow->output, chunk->rank, chunk->data.data + piece.skip,
		    chunk->data.len - piece.skip);
	}
	traind__v1__log_chunk__free_unpacked(chunk, NULL);
}

static void on_logs_ended(void *arg, enum grpc_status status, const char *text)
{
	struct follow *follow = arg;
	follow->logs = NULL;
	if (follow->over && status != GRPC_OK && !follow->logs_again) {
		follow->logs_again = true;
		start_logs(follow);
		if (follow->logs != NULL)
			return;
	}
	if (follow->over && !follow->done && status != GRPC_OK)
		say_cut(follow, text[0] != '\0' ? text : grpc_status_name(status));
	if (follow->over)
		finish(follow, follow->end);
	else if (!follow->done && status != GRPC_OK)
		(void)uv_timer_start(&follow->retry, on_retry, RETRY_MS, 0);
}

static void start_logs(struct follow *follow)
{
	static const struct grpc_client_callbacks callbacks = { .message = on_chunk,
		.ended = on_logs_ended };
	Traind__V1__StreamLogsRequest request = TRAIND__V1__STREAM_LOGS_REQUEST__INIT;
	struct tr_error error;
	request.job_id = follow->options->job;
	request.follow = !follow->over;
	shown_begin_again(&follow->shown);
	if (rpc_start(follow->rpc, RPC_PATH("StreamLogs"), &request, &callbacks, follow,
	        &follow->logs, &error) != TR_OK) {
		follow->logs = NULL;
		if (!follow->over)
			(void)uv_timer_start(&follow->retry, on_retry, RETRY_MS, 0);
		else
			say_cut(follow, error.text);
	}
}

/* ---- ending it ---- */

static void on_cancel_ended(void *arg, enum grpc_status status, const char *text)
{
	struct follow *follow = arg;
	const struct grpc_client_call *call = follow->cancel;
	follow->cancel = NULL;
	follow->cancelled = follow->cancelled || status == GRPC_OK;
	if (follow->done || status == GRPC_OK)
		return;
	rpc_note_end(follow->rpc, call, status, text);
	if (is_passing(status))
		(void)uv_timer_start(&follow->retry, on_retry, RETRY_MS, 0);
	else
		finish_uncancelled(follow);
}

static void start_cancel(struct follow *follow)
{
	static const struct grpc_client_callbacks callbacks = { .ended = on_cancel_ended };
	Traind__V1__CancelJobRequest request = TRAIND__V1__CANCEL_JOB_REQUEST__INIT;
	struct tr_error error;
	request.job_id = follow->options->job;
	request.reason = strdup(follow->cancel_reason);
	if (request.reason == NULL ||
	    rpc_start(follow->rpc, RPC_PATH("CancelJob"), &request, &callbacks, follow,
	        &follow->cancel, &error) != TR_OK) {
		follow->cancel = NULL;
		(void)uv_timer_start(&follow->retry, on_retry, RETRY_MS, 0);
	}
	free(request.reason);
}

static void cancel_job(struct follow *follow, enum follow_end end, const char *reason)
{
	if (follow->cancelling) { /* asked twice: no more waiting */
		finish(follow, end);
		return;
	}
	follow->cancelling = true;
	follow->cancel_reason = reason;
	finish_within(follow, CANCEL_LAST_MS, end);
	start_cancel(follow);
}

static void on_closed(uv_handle_t *handle)
{
	struct follow *follow = handle->data;
	follow->open_handles--;
}

static void on_keys_closed(uv_handle_t *handle)
{
	(void)handle;
}

static void stop_asking(struct follow *follow)
{
	follow->asking = false;
	keys_close(&follow->keys, on_keys_closed);
}

static void on_key(void *arg, char key)
{
	struct follow *follow = arg;
	switch (key) {
	case 'd':
	case 'D':
		(void)printf("detach\n");
		stop_asking(follow);
		finish(follow, FOLLOW_DETACHED);
		break;
	case 'c':
	case 'C':
		(void)printf("cancel\n");
		stop_asking(follow);
		cancel_job(follow, FOLLOW_JOB_ENDED, "from the terminal");
		break;
	case 'k':
	case 'K':
	case '\n':
		(void)printf("keep\n");
		stop_asking(follow);
		if (follow->job != NULL)
			show(follow);
		break;
	default:
		break;
	}
	(void)fflush(stdout);
}

static void ask(struct follow *follow)
{
	if (follow->asking) { /* Ctrl-C again means it */
		(void)printf("cancel\n");
		stop_asking(follow);
		cancel_job(follow, FOLLOW_JOB_ENDED, "from the terminal");
		return;
	}
	if (follow->cancelling || !keys_open(&follow->keys, &follow->rpc->loop, on_key, follow)) {
		cancel_job(follow, FOLLOW_INTERRUPTED, "interrupted");
		return;
	}
	follow->asking = true;
	screen_say(&follow->screen, "%s", "");
	(void)printf("job %llu: [d]etach, [c]ancel or [k]eep following? ",
	    (unsigned long long)follow->options->job);
	(void)fflush(stdout);
}

static void on_signal(uv_signal_t *handle, int number)
{
	struct follow *follow = handle->data;
	if (follow->done)
		return;
	if (number == SIGWINCH) {
		if (follow->job != NULL && !follow->asking && !follow->options->quiet &&
		    !follow->options->output)
			screen_redraw(&follow->screen, follow->job);
	} else if (number == SIGHUP) {
		finish(follow, FOLLOW_HANGUP);
	} else if (number == SIGTERM) {
		cancel_job(follow, FOLLOW_TERMINATED, "trainctl was told to end");
	} else if (follow->rpc->config->terminal) {
		ask(follow);
	} else {
		cancel_job(follow, FOLLOW_INTERRUPTED, "interrupted");
	}
}

/* ---- running ---- */

static void open_all(struct follow *follow)
{
	static const int numbers[SIGNALS] = { SIGINT, SIGTERM, SIGHUP, SIGWINCH };
	uv_timer_t *timers[] = { &follow->retry, &follow->queued, &follow->last };
	for (size_t i = 0; i < SIGNALS; i++, follow->open_handles++) {
		(void)uv_signal_init(&follow->rpc->loop, &follow->signals[i]);
		follow->signals[i].data = follow;
		(void)uv_signal_start(&follow->signals[i], on_signal, numbers[i]);
	}
	for (size_t i = 0; i < 3; i++, follow->open_handles++) {
		(void)uv_timer_init(&follow->rpc->loop, timers[i]);
		timers[i]->data = follow;
	}
}

static int close_all(struct follow *follow)
{
	struct grpc_client_call **calls[] = { &follow->watch, &follow->logs, &follow->cancel };
	for (size_t i = 0; i < 3; i++) {
		if (*calls[i] != NULL)
			grpc_client_cancel(*calls[i]);
	}
	keys_close(&follow->keys, on_keys_closed);
	for (size_t i = 0; i < SIGNALS; i++)
		uv_close((uv_handle_t *)&follow->signals[i], on_closed);
	uv_close((uv_handle_t *)&follow->retry, on_closed);
	uv_close((uv_handle_t *)&follow->queued, on_closed);
	uv_close((uv_handle_t *)&follow->last, on_closed);
	while (follow->open_handles > 0 || follow->watch != NULL || follow->logs != NULL ||
	    follow->cancel != NULL)
		(void)uv_run(&follow->rpc->loop, UV_RUN_ONCE);
	/* keys' handle is ours as well: one more turn closes it */
	(void)uv_run(&follow->rpc->loop, UV_RUN_NOWAIT);
	shown_finish(&follow->shown);
	return output_finish(&follow->output);
}

enum follow_end follow_run(struct rpc *rpc, const struct follow_options *options,
    struct follow_result *result)
{
	struct follow follow = { .rpc = rpc, .options = options, .end = FOLLOW_JOB_ENDED };
	follow.screen.config = rpc->config;
	follow.output.raw = options->raw;
	follow.output.color = rpc->config->color;
	bool screen = rpc->config->terminal && !options->quiet && !options->output;
	if (screen)
		keys_echo_control(false);
	open_all(&follow);
	start_watch(&follow);
	if (options->output)
		start_logs(&follow);
	(void)uv_timer_start(&follow.queued, on_queued_long, QUEUED_TOLD_MS, 0);
	int number = interrupt_take(); /* while it was submitted */
	if (number != 0)
		on_signal(&follow.signals[0], number);
	while (!follow.done && uv_run(&rpc->loop, UV_RUN_ONCE) != 0)
		;
	if (follow.asking) { /* the job has ended meanwhile */
		(void)putchar('\n');
		stop_asking(&follow);
	}
	if (screen)
		keys_echo_control(true);
	if (!options->quiet && !options->output && follow.job != NULL)
		screen_end(&follow.screen, follow.job);
	result->output_failed = close_all(&follow);
	if (follow.screen.failed != 0)
		result->output_failed = follow.screen.failed;
	result->job = follow.job;
	result->cancelled = follow.over
	    ? follow.job->state == TRAIND__V1__JOB_STATE__JOB_STATE_CANCELLED
	    : follow.cancelled;
	return follow.end;
}
