#include "tests/wan/lab.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/wan/client.h"
#include "tests/wan/control.h"
#include "tests/wan/keeper.h"

#define EVENTS 32

/* What an event is about: a site's place, or one of these, or a client's file above them. */
enum { ABOUT_CONTROL = TOPOLOGY_SITES_MAX, ABOUT_SIGNAL, ABOUT_KEEPER, ABOUT_CLIENT };

struct lab {
	unsigned count; /* sites; the space behind them is the command's */
	struct space spaces[TOPOLOGY_SITES_MAX + 1];
	struct relay relay;
	struct keeper keeper;
	char folder[64], path[96];
	int control, signals, poll;
	pid_t command;
	bool over;
	int exit_code;
	uint64_t patience_ns; /* when the command has had its time; 0: nobody said stop */
};

/* ---- what happens ---- */

static bool watch(const struct lab *lab, int fd, uint64_t about)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = about };
	return epoll_ctl(lab->poll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static void reap(struct lab *lab)
{
	int status;
	while (lab->command > 0 && waitpid(lab->command, &status, WNOHANG) == lab->command) {
		if (WIFEXITED(status))
			lab->exit_code = WEXITSTATUS(status);
		else if (lab->patience_ns ==
		    0) /* else by the SIGTERM that passed on a signal of ours */
			lab->exit_code = 128 + WTERMSIG(status);
		lab->command = 0;
		lab->over = true;
	}
}

static void on_signal(struct lab *lab)
{
	struct signalfd_siginfo info;
	while (read(lab->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			continue;
		lab->over = lab->patience_ns != 0; /* the second one */
		lab->patience_ns = relay_now_ns() + LAB_GRACE_MS * 1000000ull;
		lab->exit_code = 128 + (int)info.ssi_signo;
		if (lab->command > 0)
			(void)kill(lab->command, SIGTERM);
	}
	reap(lab);
}

static void on_control(struct lab *lab)
{
	int client = accept4(lab->control, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (client >= 0 && !watch(lab, client, ABOUT_CLIENT + (uint64_t)client))
		(void)close(client);
}

static void on_event(struct lab *lab, uint64_t about)
{
	if (about < TOPOLOGY_SITES_MAX) {
		relay_read(&lab->relay, (unsigned)about);
	} else if (about == ABOUT_CONTROL) {
		on_control(lab);
	} else if (about == ABOUT_SIGNAL) {
		on_signal(lab);
	} else if (about == ABOUT_KEEPER) {
		fprintf(stderr, "wanlab: the process that clears up was ended\n");
		lab->exit_code = 1;
		lab->over = true;
	} else {
		control_answer((int)(about - ABOUT_CLIENT), &lab->relay, lab->spaces);
		(void)close((int)(about - ABOUT_CLIENT));
	}
}

static void loop(struct lab *lab)
{
	while (!lab->over) {
		struct epoll_event events[EVENTS];
		uint64_t now_ns = relay_now_ns(), sleep_ns = relay_sleep(&lab->relay, now_ns);
		if (lab->patience_ns != 0 && now_ns >= lab->patience_ns)
			return;
		if (lab->patience_ns != 0 && lab->patience_ns - now_ns < sleep_ns)
			sleep_ns = lab->patience_ns - now_ns;
		struct timespec span = { (time_t)(sleep_ns / 1000000000u),
			(long)(sleep_ns % 1000000000u) };
		int count = epoll_pwait2(lab->poll, events, EVENTS,
		    sleep_ns == UINT64_MAX ? NULL : &span, NULL);
		relay_deliver(&lab->relay, relay_now_ns());
		for (int i = 0; i < count; i++)
			on_event(lab, events[i].data.u64);
	}
}

/* ---- the command ---- */

static void tell_environment(const struct lab *lab, const struct topology *topology)
{
	char names[TOPOLOGY_SITES_MAX * TOPOLOGY_NAME_MAX] = "";
	for (unsigned i = 0; i < topology->count; i++) {
		char key[32], address[32];
		size_t length = strlen(names);
		(void)snprintf(names + length, sizeof(names) - length, "%s%s", i > 0 ? " " : "",
		    topology->sites[i].name);
		(void)snprintf(key, sizeof(key), "WANLAB_%s", topology->sites[i].name);
		(void)snprintf(address, sizeof(address), RELAY_ADDRESS "%u", i + 1);
		(void)setenv(key, address, 1);
	}
	(void)setenv("WANLAB_SITES", names, 1);
	(void)setenv(CLIENT_ENVIRONMENT, lab->path, 1);
}

static void run_command(const struct lab *lab, const struct lab_options *options, pid_t parent)
{
	struct tr_error error;
	sigset_t none;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent) /* it died before we said so */
		_exit(1);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	tell_environment(lab, options->topology);
	if (space_enter(lab->spaces[lab->count].net, &error) != TR_OK) {
		fprintf(stderr, "wanlab: %s\n", error.text);
		_exit(126);
	}
	(void)execvp(options->command[0], options->command);
	fprintf(stderr, "wanlab: %s: %s\n", options->command[0], strerror(errno));
	_exit(127);
}

/* ---- setting up ---- */

static tr_status make_spaces(struct lab *lab, struct tr_error *error)
{
	tr_status st = TR_OK;
	for (unsigned i = 0; st == TR_OK && i < lab->count; i++) {
		char address[32];
		(void)snprintf(address, sizeof(address), RELAY_ADDRESS "%u", i + 1);
		st = space_create(&lab->spaces[i], address, RELAY_MTU, error);
	}
	return st == TR_OK ? space_create(&lab->spaces[lab->count], NULL, 0, error) : st;
}

static tr_status make_relay(struct lab *lab, const struct lab_options *options,
    struct tr_error *error)
{
	int devices[TOPOLOGY_SITES_MAX];
	for (unsigned i = 0; i < TOPOLOGY_SITES_MAX; i++)
		devices[i] = i < lab->count ? lab->spaces[i].device : -1;
	return relay_init(&lab->relay, options->topology, devices, options->seed, error);
}

static tr_status make_watches(struct lab *lab, struct tr_error *error)
{
	sigset_t heard;
	(void)sigemptyset(&heard);
	(void)sigaddset(&heard, SIGCHLD);
	(void)sigaddset(&heard, SIGINT);
	(void)sigaddset(&heard, SIGTERM);
	(void)sigaddset(&heard, SIGHUP);
	(void)sigprocmask(SIG_BLOCK, &heard, NULL);
	lab->signals = signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK);
	lab->poll = epoll_create1(EPOLL_CLOEXEC);
	bool well = lab->signals >= 0 && lab->poll >= 0 && watch(lab, lab->signals, ABOUT_SIGNAL) &&
	    watch(lab, lab->control, ABOUT_CONTROL) && watch(lab, lab->keeper.watch, ABOUT_KEEPER);
	for (unsigned i = 0; well && i < lab->count; i++)
		well = watch(lab, lab->spaces[i].device, i);
	return well ? TR_OK : tr_error_set(error, TR_EIO, "epoll: %s", strerror(errno));
}

static tr_status start(struct lab *lab, const struct lab_options *options, struct tr_error *error)
{
	tr_status st = make_spaces(lab, error);
	if (st != TR_OK)
		return st;
	(void)snprintf(lab->folder, sizeof(lab->folder), "/tmp/wanlab-XXXXXX");
	if (mkdtemp(lab->folder) == NULL)
		return tr_error_set(error, TR_EIO, "%s: %s", lab->folder, strerror(errno));
	(void)snprintf(lab->path, sizeof(lab->path), "%s/control", lab->folder);
	st = keeper_start(&lab->keeper, lab->spaces, lab->count + 1, lab->folder, lab->path, error);
	if (st == TR_OK)
		st = make_relay(lab, options, error);
	if (st == TR_OK && (lab->control = control_open(lab->path, error)) < 0)
		st = TR_EIO;
	if (st == TR_OK)
		st = make_watches(lab, error);
	return st;
}

/* So that a busy machine makes no delay of its own. It sleeps most of the time, and the kernel bounds such threads. */
static void hurry(void)
{
	const struct sched_param first = { .sched_priority = 1 };
	(void)prctl(PR_SET_TIMERSLACK, 1);
	(void)sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &first);
}

static void finish(struct lab *lab)
{
	if (lab->command > 0) {
		(void)kill(lab->command, SIGKILL);
		(void)waitpid(lab->command, NULL, 0);
	}
	if (lab->keeper.pid > 0)
		keeper_finish(&lab->keeper);
	space_clear(lab->spaces, lab->count + 1); /* if the keeper could not */
	relay_finish(&lab->relay);
	for (unsigned i = 0; i <= lab->count; i++)
		space_close(&lab->spaces[i]);
	if (lab->control >= 0)
		(void)close(lab->control);
	if (lab->signals >= 0)
		(void)close(lab->signals);
	if (lab->poll >= 0)
		(void)close(lab->poll);
	if (lab->path[0] != '\0') {
		(void)unlink(lab->path);
		(void)rmdir(lab->folder);
	}
}

tr_status lab_run(const struct lab_options *options, int *exit_code, struct tr_error *error)
{
	struct lab lab = { .count = options->topology->count,
		.control = -1,
		.signals = -1,
		.poll = -1 };
	for (unsigned i = 0; i <= lab.count; i++)
		lab.spaces[i] = (struct space){ -1, -1 };
	tr_status st = start(&lab, options, error);
	if (st == TR_OK) {
		pid_t self = getpid();
		lab.command = fork();
		if (lab.command == 0)
			run_command(&lab, options, self);
		if (lab.command < 0)
			st = tr_error_set(error, TR_EIO, "fork: %s", strerror(errno));
	}
	if (st == TR_OK) {
		hurry();
		loop(&lab);
		*exit_code = lab.exit_code;
	}
	finish(&lab);
	return st;
}
