#include "daemon/node/process.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/log.h"
#include "daemon/node/cgroup.h"
#include "daemon/node/descend.h"
#include "daemon/node/shepherd.h"
#include "daemon/node/shepherd_spec.h"

/* Between two looks at who is still there. Most are gone in a moment; who has much memory, or a device's, takes seconds. */
#define SWEEP_PAUSE_MS      2
#define SWEEP_PAUSE_MS_MOST 64

struct process {
	uv_process_t handle; /* the shepherd */
	uv_poll_t control;
	uv_timer_t sweep; /* its shepherd died: until nothing is left */
	uint64_t pause_ms;
	int control_fd;
	int handles_open;
	bool started, halted, exited, shepherd_died;
	struct process_end end;
	char cgroup[512];
	const struct process_callbacks *callbacks;
	void *arg;
	struct process *next;
};

/* Shepherds alive: their pids are what is not to be swept up as an orphan. One loop, one thread. */
static struct process *live;

void process_reason(int exit_code, int signal_number, char *text, size_t size)
{
	const char *name = signal_number == 0 ? NULL : sigabbrev_np(signal_number);
	if (signal_number == 0)
		(void)snprintf(text, size, "exit code %d", exit_code);
	else if (name != NULL)
		(void)snprintf(text, size, "killed by SIG%s", name);
	else
		(void)snprintf(text, size, "killed by signal %d", signal_number);
}

/* A shepherd was killed: its worker is dead, with it or before it, but orphans of that worker came to us, a subreaper. Returns how many
 * are not gone yet. */
static size_t kill_orphans(const struct process *dead)
{
	size_t spares = 0;
	for (const struct process *p = live; p != NULL; p = p->next)
		spares++;
	pid_t *spare = calloc(spares, sizeof(*spare));
	if (spare == NULL)
		return 1; /* later */
	spares = 0;
	for (const struct process *p = live; p != NULL; p = p->next)
		if (!p->shepherd_died)
			spare[spares++] = p->handle.pid;
	/* A worker and all that it starts are of sessions of their own, and cannot come into ours: who is of ours was started by us for something
	 * else (measure_run.h), and who did so waits for it, as libuv does for shepherds. */
	struct descend orphans = { .root = getpid(),
		.spare = spare,
		.spares = spares,
		.session = getsid(0) };
	(void)cgroup_kill(dead->cgroup);
	size_t left = descend_signal(&orphans, SIGKILL);
	descend_reap(&orphans);
	free(spare);
	return left;
}

static void remove_live(struct process *process)
{
	for (struct process **at = &live; *at != NULL; at = &(*at)->next) {
		if (*at == process) {
			*at = process->next;
			return;
		}
	}
}

static void process_over(uv_handle_t *handle)
{
	struct process *process = handle->data;
	(void)close(process->control_fd); /* not before: process_stop may be called until now */
	remove_live(process);
	process->callbacks->ended(process->arg, &process->end);
	free(process);
}

static void sweep(uv_timer_t *timer)
{
	struct process *process = timer->data;
	if (process->shepherd_died && kill_orphans(process) > 0) {
		(void)uv_timer_start(timer, sweep, process->pause_ms, 0);
		if (process->pause_ms < SWEEP_PAUSE_MS_MOST)
			process->pause_ms *= 2;
		return;
	}
	if (process->shepherd_died)
		cgroup_remove(process->cgroup);
	uv_close((uv_handle_t *)timer, process_over);
}

static void handle_closed(uv_handle_t *handle)
{
	struct process *process = handle->data;
	if (--process->handles_open == 0)
		sweep(&process->sweep);
}

static void set_halted(struct process *process, int signal)
{
	process->halted = signal != 0;
	process->callbacks->halted(process->arg, signal);
}

static void hear(struct process *process)
{
	struct shepherd_message message;
	while (recv(process->control_fd, &message, sizeof(message), MSG_DONTWAIT) ==
	    (ssize_t)sizeof(message)) {
		if (message.kind == SHEPHERD_STARTED && !process->started) {
			process->started = true;
			process->callbacks->started(process->arg, message.a);
		} else if (message.kind == SHEPHERD_HALTED) {
			set_halted(process, message.a);
		} else if (message.kind == SHEPHERD_EXITED) {
			process->exited = true;
			if (process->halted) /* what it started may live on for a while */
				set_halted(process, 0);
			process->end.exit_code = message.a;
			process->end.signal = message.b;
			process_reason(message.a, message.b, process->end.reason,
			    sizeof(process->end.reason));
		}
	}
}

static void control_ready(uv_poll_t *poll, int status, int events)
{
	(void)events;
	struct process *process = poll->data;
	hear(process);
	/* At the other end's close the descriptor stays readable: the exit callback is what we wait for then. */
	char byte;
	if (status != 0 || recv(process->control_fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0)
		(void)uv_poll_stop(poll);
}

static void shepherd_exited(uv_process_t *handle, int64_t exit_status, int term_signal)
{
	struct process *process = handle->data;
	hear(process);
	/* Also where the worker's end is known: what it left behind may live. */
	process->shepherd_died = !process->exited || term_signal != 0;
	if (!process->exited) {
		process->end.exit_code = (int)exit_status;
		process->end.signal = term_signal == 0 ? SIGKILL : term_signal;
		(void)snprintf(process->end.reason, sizeof(process->end.reason),
		    "its shepherd ended early (%s %d)", term_signal != 0 ? "signal" : "exit code",
		    term_signal != 0 ? term_signal : (int)exit_status);
	}
	uv_close((uv_handle_t *)&process->control, handle_closed);
	uv_close((uv_handle_t *)&process->handle, handle_closed);
}

static int spawn_shepherd(uv_loop_t *loop, struct process *process,
    const struct process_options *options, int control_fd, int spec_fd)
{
	uv_stdio_container_t stdio[6] = {
		{ .flags = UV_IGNORE },
		{ .flags = UV_INHERIT_FD, .data.fd = options->out_fd },
		{ .flags = UV_INHERIT_FD, .data.fd = options->err_fd },
		[SHEPHERD_FD_CONTROL] = { .flags = UV_INHERIT_FD, .data.fd = control_fd },
		[SHEPHERD_FD_SPEC] = { .flags = UV_INHERIT_FD, .data.fd = spec_fd },
		[SHEPHERD_FD_CHANNEL] = { .flags = UV_INHERIT_FD, .data.fd = options->channel_fd },
	};
	char *argv[] = { "traind", SHEPHERD_ARGUMENT, NULL };
	uv_process_options_t spawn = {
		.exit_cb = shepherd_exited,
		.file = "/proc/self/exe",
		.args = argv,
		/* A session of its own: signals to traind's process group are not for it. */
		.flags = UV_PROCESS_DETACHED,
		.stdio = stdio,
		.stdio_count = options->channel_fd >= 0 ? 6 : 5,
	};
	return uv_spawn(loop, &process->handle, &spawn);
}

static void discard_closed(uv_handle_t *handle)
{
	struct process *process = handle->data;
	if (process->handles_open-- > 0)
		return;
	(void)close(process->control_fd);
	free(process);
}

static void watch_control(uv_loop_t *loop, struct process *process)
{
	(void)uv_poll_init(loop, &process->control, process->control_fd);
	(void)uv_timer_init(loop, &process->sweep);
	process->control.data = process->sweep.data = process;
	process->pause_ms = SWEEP_PAUSE_MS;
	process->handles_open = 2; /* the sweep's beside */
	(void)uv_poll_start(&process->control, UV_READABLE, control_ready);
}

tr_status process_start(uv_loop_t *loop, const struct process_options *options,
    const struct process_callbacks *callbacks, void *arg, struct process **process,
    struct tr_error *error)
{
	int pair[2], spec_fd;
	struct shepherd_spec spec = {
		.traind = getpid(),
		.grace_ms = options->grace_ms,
		.open_files = options->open_files,
		.channel = options->channel_fd >= 0,
		.cgroup = options->cgroup,
		.directory = options->directory,
		.argv = options->argv,
		.environment = options->environment,
	};
	struct process *made = calloc(1, sizeof(*made));
	if (made == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	made->callbacks = callbacks;
	made->arg = arg;
	made->handle.data = made;
	(void)snprintf(made->cgroup, sizeof(made->cgroup), "%s", options->cgroup);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
		tr_status st = tr_error_set(error, TR_EIO, "cannot make a socket pair: %s",
		    strerror(errno));
		free(made);
		return st;
	}
	made->control_fd = pair[0];
	if (shepherd_spec_write(&spec, &spec_fd, error) != TR_OK) {
		(void)close(pair[0]);
		(void)close(pair[1]);
		free(made);
		return TR_EIO;
	}
	int rc = spawn_shepherd(loop, made, options, pair[1], spec_fd);
	(void)close(spec_fd);
	(void)close(pair[1]);
	watch_control(loop, made);
	if (rc != 0) {
		uv_close((uv_handle_t *)&made->control, discard_closed);
		uv_close((uv_handle_t *)&made->handle, discard_closed);
		uv_close((uv_handle_t *)&made->sweep, discard_closed);
		return tr_error_set(error, TR_EIO, "cannot start a process: %s", uv_strerror(rc));
	}
	made->next = live;
	live = made;
	*process = made;
	return TR_OK;
}

void process_stop(struct process *process, unsigned grace_ms)
{
	struct shepherd_message message = { SHEPHERD_STOP, (int32_t)grace_ms, 0 };
	if (send(process->control_fd, &message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
	    errno != EPIPE && errno != ECONNRESET)
		log_warn("worker", "pid %d: cannot tell its shepherd to stop: %s",
		    process->handle.pid, strerror(errno));
}
