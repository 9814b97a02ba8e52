/* Starting daemons: spawned apart from us (own session), their `address` file awaited by inotify, their death by SIGCHLD. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "client/trainctl/cluster.h"
#include "client/trainctl/interrupt.h"
#include "client/trainctl/path.h"
#include "client/trainctl/rpc.h"

#define START_DEADLINE_MS 30000
#define REGISTER_POLL_MS  5
#define LOG_TAIL_BYTES    300
#define STRAYS_MAX        1024
#define END_GRACE_MS      2000
#define LOOPBACK_ANY_PORT "127.0.0.1:0"
#define SLOTS_FILE        "slots" /* in a node's folder */

struct starting {
	struct cluster *cluster;
	struct cluster_daemon *daemon;
	char folder[PATH_MAX];
	uv_loop_t *loop;
	uv_process_t process;
	uv_fs_event_t watch;
	uv_timer_t timer;
	struct interrupt_watch interrupt;
	bool watching, exited, overdue, settled;
	int64_t exit_status;
	int exit_signal;
};

static void read_line(const char *folder, const char *name, char *text, size_t bytes)
{
	char path[PATH_MAX];
	(void)snprintf(path, sizeof(path), "%.*s/%s", PATH_MAX - 64, folder, name);
	text[0] = '\0';
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return;
	if (fgets(text, (int)bytes, file) == NULL)
		text[0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	(void)fclose(file);
}

static void log_tail(const char *folder, char tail[LOG_TAIL_BYTES])
{
	char path[PATH_MAX];
	(void)snprintf(path, sizeof(path), "%.*s/log", PATH_MAX - 64, folder);
	(void)snprintf(tail, LOG_TAIL_BYTES, "(it is empty: is the disk full?)");
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat info;
	if (fd < 0)
		return;
	off_t from = fstat(fd, &info) == 0 && info.st_size > LOG_TAIL_BYTES - 1
	    ? info.st_size - LOG_TAIL_BYTES + 1
	    : 0;
	ssize_t got = pread(fd, tail, LOG_TAIL_BYTES - 1, from);
	(void)close(fd);
	if (got <= 0)
		return;
	tail[got] = '\0';
	char *start = from > 0 ? strchr(tail, '\n') : NULL;
	if (start != NULL && start[1] != '\0')
		memmove(tail, start + 1, strlen(start + 1) + 1);
	size_t length = strlen(tail);
	if (length > 0 && tail[length - 1] == '\n')
		tail[length - 1] = '\0';
}

static void on_exit_of(uv_process_t *process, int64_t status, int number)
{
	struct starting *starting = process->data;
	starting->exited = true;
	starting->exit_status = status;
	starting->exit_signal = number;
}

static void on_change(uv_fs_event_t *watch, const char *name, int events, int status)
{
	(void)name;
	(void)events;
	(void)status;
	struct starting *starting = watch->data;
	read_line(starting->folder, "address", starting->daemon->address,
	    sizeof(starting->daemon->address));
}

static void on_overdue(uv_timer_t *timer)
{
	((struct starting *)timer->data)->overdue = true;
}

static void on_closed(uv_handle_t *handle)
{
	(void)handle;
}

/* The environment with our mark; free the array and its last entry. */
static char **marked_environment(const struct cluster *cluster)
{
	size_t count = 0;
	while (environ[count] != NULL)
		count++;
	char **list = calloc(count + 2, sizeof(*list));
	char *mark = malloc(PATH_MAX + 32);
	if (list == NULL || mark == NULL) {
		free(list);
		free(mark);
		return NULL;
	}
	(void)snprintf(mark, PATH_MAX + 32, CLUSTER_MARK "=%s", cluster->folder);
	memcpy(list, environ, count * sizeof(*list));
	list[count] = mark;
	return list;
}

static int spawn(struct starting *starting, char **argv)
{
	char log[PATH_MAX];
	(void)snprintf(log, sizeof(log), "%.*s/log", PATH_MAX - 64, starting->folder);
	int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	char **environment = marked_environment(starting->cluster);
	if (fd < 0 || environment == NULL) {
		free(environment);
		return fd < 0 ? -errno : UV_ENOMEM;
	}
	uv_stdio_container_t stdio[] = { { .flags = UV_IGNORE },
		{ .flags = UV_INHERIT_FD, .data.fd = fd },
		{ .flags = UV_INHERIT_FD, .data.fd = fd } };
	uv_process_options_t options = { .exit_cb = on_exit_of,
		.file = argv[0],
		.args = argv,
		.env = environment,
		.cwd = "/",
		.flags = UV_PROCESS_DETACHED,
		.stdio_count = 3,
		.stdio = stdio };
	int failed = uv_spawn(starting->loop, &starting->process, &options);
	(void)close(fd);
	size_t last = 0;
	while (environment[last + 1] != NULL)
		last++;
	free(environment[last]);
	free(environment);
	return failed;
}

/* What a trainctl that was killed has started and could not record yet: it holds the folder. */
static void end_stray(const struct starting *starting)
{
	char mark[PATH_MAX + 32];
	struct proc found[STRAYS_MAX];
	(void)snprintf(mark, sizeof(mark), CLUSTER_MARK "=%s", starting->cluster->folder);
	size_t count = proc_marked(mark, found, STRAYS_MAX), strays = 0;
	for (size_t i = 0; i < count; i++)
		if (proc_has_argument(found[i].pid, starting->folder))
			found[strays++] = found[i];
	(void)proc_end(found, strays, END_GRACE_MS);
}

/* The program runs and its address is known, or the error says why not. */
static tr_status await_address(struct starting *starting, const char *program,
    struct tr_error *error)
{
	char tail[LOG_TAIL_BYTES];
	on_change(&starting->watch, NULL, 0, 0); /* it may have been faster than the watch */
	while (!starting->exited && !starting->overdue && interrupt_pending() == 0 &&
	    starting->daemon->address[0] == '\0')
		(void)uv_run(starting->loop, UV_RUN_ONCE);
	if (interrupt_pending() != 0)
		return interrupt_error(error);
	if (!starting->exited && starting->daemon->address[0] != '\0')
		return TR_OK;
	log_tail(starting->folder, tail);
	if (starting->exit_signal != 0)
		return tr_error_set(error, TR_EIO,
		    "%s was ended by signal %d; its log, %s/log, ends:\n%s", program,
		    starting->exit_signal, starting->folder, tail);
	if (starting->exited)
		return tr_error_set(error, TR_EIO,
		    "%s ended with exit code %d; its log, %s/log, ends:\n%s", program,
		    (int)starting->exit_status, starting->folder, tail);
	return tr_error_set(error, TR_ETIMEDOUT,
	    "%s gave no address within %d s; its log, %s/log, ends:\n%s", program,
	    START_DEADLINE_MS / 1000, starting->folder, tail);
}

static tr_status prepare_folder(struct starting *starting, struct tr_error *error)
{
	char path[PATH_MAX];
	(void)snprintf(starting->folder, sizeof(starting->folder), "%.*s/%s", PATH_MAX - 128,
	    starting->cluster->folder, starting->daemon->name);
	if (!path_make_folder(starting->folder))
		return tr_error_set(error, TR_EIO, "cannot make %s: %s", starting->folder,
		    strerror(errno));
	/* What an earlier daemon of this folder left. */
	end_stray(starting);
	(void)snprintf(path, sizeof(path), "%.*s/address", PATH_MAX - 64, starting->folder);
	(void)unlink(path);
	starting->daemon->address[0] = '\0';
	return TR_OK;
}

static tr_status start_daemon(struct cluster *cluster, struct cluster_daemon *daemon, char **argv,
    struct tr_error *error)
{
	uv_loop_t loop;
	struct starting starting = { .cluster = cluster, .daemon = daemon, .loop = &loop };
	starting.process.data = starting.watch.data = starting.timer.data = &starting;
	tr_status status = prepare_folder(&starting, error);
	if (status != TR_OK)
		return status;
	if (uv_loop_init(&loop) != 0)
		return tr_error_set(error, TR_EIO, "no event loop");
	(void)uv_fs_event_init(&loop, &starting.watch);
	(void)uv_timer_init(&loop, &starting.timer);
	(void)uv_timer_start(&starting.timer, on_overdue, START_DEADLINE_MS, 0);
	interrupt_watch_open(&starting.interrupt, &loop);
	interrupt_watch_start(&starting.interrupt);
	int failed = uv_fs_event_start(&starting.watch, on_change, starting.folder, 0);
	bool spawned = failed == 0;
	if (spawned) {
		failed = spawn(&starting, argv);
		daemon->process.pid = failed == 0 ? starting.process.pid : 0;
		daemon->process.start_time = proc_start_time(daemon->process.pid);
	}
	if (failed != 0)
		status = tr_error_set(error, TR_EIO, "cannot start %s: %s", argv[0],
		    uv_strerror(failed));
	else
		status = await_address(&starting, argv[0], error);
	uv_close((uv_handle_t *)&starting.watch, on_closed);
	uv_close((uv_handle_t *)&starting.timer, on_closed);
	interrupt_watch_close(&starting.interrupt);
	if (spawned)
		uv_close((uv_handle_t *)&starting.process, on_closed);
	(void)uv_run(&loop, UV_RUN_DEFAULT);
	(void)uv_loop_close(&loop);
	return status;
}

static tr_status find_program(const char *name, const struct cluster_plan *plan,
    char path[PATH_MAX], struct tr_error *error)
{
	if (proc_find_program(name, plan->search_path, path, PATH_MAX))
		return TR_OK;
	return tr_error_set(error, TR_ENOTFOUND,
	    "%s is neither beside trainctl nor in PATH: build it with `make`, or put it there",
	    name);
}

static tr_status start_memberd(struct cluster *cluster, const struct cluster_plan *plan,
    struct tr_error *error)
{
	char program[PATH_MAX], folder[PATH_MAX], listen[TR_ADDRESS_MAX];
	struct cluster_daemon *memberd = &cluster->memberd;
	tr_status status = find_program("memberd", plan, program, error);
	if (status != TR_OK)
		return status;
	/* The nodes that live know the old address. */
	(void)snprintf(listen, sizeof(listen), "%s",
	    memberd->address[0] != '\0' ? memberd->address : LOOPBACK_ANY_PORT);
	(void)snprintf(memberd->name, sizeof(memberd->name), "memberd");
	(void)snprintf(folder, sizeof(folder), "%.*s/memberd", PATH_MAX - 64, cluster->folder);
	char *argv[] = { program, (char[]){ "--listen" }, listen, (char[]){ "--dir" }, folder,
		NULL };
	return start_daemon(cluster, memberd, argv, error);
}

/* What it had when it ran here last, else 1. */
static unsigned slots_before(const struct cluster *cluster, const struct cluster_daemon *node)
{
	char folder[PATH_MAX], line[16];
	(void)snprintf(folder, sizeof(folder), "%.*s/%s", PATH_MAX - 128, cluster->folder,
	    node->name);
	read_line(folder, SLOTS_FILE, line, sizeof(line));
	unsigned long slots = strtoul(line, NULL, 10);
	return slots >= 1 && slots <= TR_GROUP_PEERS_MAX ? (unsigned)slots : 1;
}

/* For the next time; `cluster.json` goes with `down`. */
static tr_status keep_slots(const char *folder, unsigned slots, struct tr_error *error)
{
	char path[PATH_MAX];
	(void)snprintf(path, sizeof(path), "%.*s/" SLOTS_FILE, PATH_MAX - 64, folder);
	FILE *file = fopen(path, "we");
	bool good = file != NULL && fprintf(file, "%u\n", slots) > 0;
	if (file != NULL)
		good = fclose(file) == 0 && good;
	return good ? TR_OK
	            : tr_error_set(error, TR_EIO, "cannot write %s: %s", path, strerror(errno));
}

static tr_status start_node(struct cluster *cluster, struct cluster_daemon *node,
    const struct cluster_plan *plan, struct tr_error *error)
{
	char program[PATH_MAX], folder[PATH_MAX], slots[16];
	tr_status status = find_program("traind", plan, program, error);
	if (status != TR_OK)
		return status;
	(void)snprintf(folder, sizeof(folder), "%.*s/%s", PATH_MAX - 128, cluster->folder,
	    node->name);
	(void)snprintf(slots, sizeof(slots), "%u", node->slots);
	char *argv[] = { program, (char[]){ "--memberd" }, cluster->memberd.address,
		(char[]){ "--listen" }, (char[]){ LOOPBACK_ANY_PORT }, (char[]){ "--dir" }, folder,
		(char[]){ "--slots" }, slots, (char[]){ "--name" }, node->name, NULL };
	status = start_daemon(cluster, node, argv, error);
	return status == TR_OK ? keep_slots(folder, node->slots, error) : status;
}

/* Whether memberd knows this very process, not an earlier one of its address, as alive. */
static bool is_known(const Traind__V1__ListNodesResponse *listed,
    const struct cluster_daemon *daemon)
{
	for (size_t i = 0; i < listed->n_nodes; i++) {
		const Traind__V1__Node *node = listed->nodes[i];
		if (strcmp(node->address, daemon->address) == 0 &&
		    node->pid == (uint32_t)daemon->process.pid && strcmp(node->state, "alive") == 0)
			return true;
	}
	return false;
}

/* The live ones that memberd knows, less those in whose place it still knows the one before: a launch could be sent to that. */
static size_t count_registered(const struct cluster *now, const struct cluster *before,
    const Traind__V1__ListNodesResponse *listed)
{
	size_t count = 0;
	for (size_t i = 0; i < now->n_nodes; i++) {
		const struct cluster_daemon *node = &now->nodes[i], *old = &before->nodes[i];
		bool replaced = i < before->n_nodes && old->process.pid != node->process.pid;
		count += cluster_daemon_alive(node) && is_known(listed, node) &&
		        !(replaced && is_known(listed, old))
		    ? 1
		    : 0;
	}
	return count;
}

static tr_status await_registration(const struct cluster *cluster, const struct cluster *before,
    struct tr_error *error)
{
	struct config config = { .address_by = CONFIG_BY_HOME };
	(void)snprintf(config.address, sizeof(config.address), "%s", cluster->memberd.address);
	Traind__V1__ListNodesRequest request = TRAIND__V1__LIST_NODES_REQUEST__INIT;
	struct rpc rpc;
	size_t alive = cluster_count_alive(cluster) - 1, registered = 0;
	tr_status status = rpc_open(&rpc, &config, error);
	if (status != TR_OK)
		return status;
	for (unsigned waited = 0;
	     registered < alive && waited < START_DEADLINE_MS && interrupt_pending() == 0;
	     waited += REGISTER_POLL_MS) {
		Traind__V1__ListNodesResponse *listed = rpc_call(&rpc, RPC_PATH("ListNodes"),
		    &request, &traind__v1__list_nodes_response__descriptor, START_DEADLINE_MS);
		if (listed != NULL) {
			registered = count_registered(cluster, before, listed);
			traind__v1__list_nodes_response__free_unpacked(listed, NULL);
		}
		if (registered < alive)
			uv_sleep(REGISTER_POLL_MS);
	}
	if (interrupt_pending() != 0)
		status = interrupt_error(error);
	else if (registered < alive)
		status = tr_error_set(error, TR_ETIMEDOUT,
		    "memberd at %s knows %zu of %zu nodes as they are now after %d s (%s); the "
		    "logs are in %s/*/log",
		    cluster->memberd.address, registered, alive, START_DEADLINE_MS / 1000, rpc.text,
		    cluster->folder);
	rpc_close(&rpc);
	return status;
}

static tr_status start_missing(struct cluster *cluster, const struct cluster *before,
    const struct cluster_plan *plan, struct tr_error *error)
{
	tr_status status = TR_OK;
	if (!cluster_await_dead(cluster))
		return cluster_still_ends(cluster, error);
	/* Saved after each, so that `trainctl down` finds what a killed `up` leaves. */
	if (!cluster_daemon_alive(&cluster->memberd)) {
		status = start_memberd(cluster, plan, error);
		if (status == TR_OK)
			status = cluster_save(cluster, error);
	}
	for (size_t i = 0; i < cluster->n_nodes && status == TR_OK && plan->replace; i++) {
		if (cluster_daemon_alive(&cluster->nodes[i]))
			continue;
		if (plan->slots > 0)
			cluster->nodes[i].slots = plan->slots;
		status = start_node(cluster, &cluster->nodes[i], plan, error);
		if (status == TR_OK)
			status = cluster_save(cluster, error);
	}
	while (status == TR_OK && cluster->n_nodes < plan->nodes) {
		struct cluster_daemon *node = &cluster->nodes[cluster->n_nodes++];
		*node = (struct cluster_daemon){ .slots = plan->slots };
		(void)snprintf(node->name, sizeof(node->name), CLUSTER_NODE_NAME, cluster->n_nodes);
		if (node->slots == 0)
			node->slots = slots_before(cluster, node);
		status = start_node(cluster, node, plan, error);
		if (status == TR_OK)
			status = cluster_save(cluster, error);
	}
	return status == TR_OK ? await_registration(cluster, before, error) : status;
}

/* Those that `now` has and `before` had not. */
static void end_new(const struct cluster *before, const struct cluster *now)
{
	struct proc started[CLUSTER_NODES_MAX + 1];
	size_t count = 0;
	for (size_t i = 0; i < now->n_nodes; i++) {
		if (i >= before->n_nodes ||
		    before->nodes[i].process.pid != now->nodes[i].process.pid)
			started[count++] = now->nodes[i].process;
	}
	if (before->memberd.process.pid != now->memberd.process.pid)
		started[count++] = now->memberd.process;
	(void)proc_end(started, count, END_GRACE_MS);
}

/* Nobody uses the cluster of an unfinished record, and the next launch starts it anew. */
static tr_status start_all(struct cluster *cluster, const struct cluster *before,
    const struct cluster_plan *plan, struct tr_error *error)
{
	cluster->starting = cluster->starting || before->memberd.process.pid == 0;
	tr_status status = start_missing(cluster, before, plan, error);
	bool was = cluster->starting;
	cluster->starting = false;
	return status == TR_OK && was ? cluster_save(cluster, error) : status;
}

tr_status cluster_start(struct cluster *cluster, const struct cluster_plan *plan,
    struct tr_error *error)
{
	struct cluster *before = malloc(sizeof(*before));
	if (before == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	*before = *cluster;
	interrupt_leaves(
	    "trainctl: ended at once: daemons may have been left; `trainctl down` ends them\n");
	tr_status status = start_all(cluster, before, plan, error);
	if (status != TR_OK) {
		end_new(before, cluster);
		*cluster = *before;
		(void)(cluster->memberd.process.pid > 0 ? cluster_save(cluster, NULL)
		                                        : cluster_forget(cluster, NULL));
		interrupt_leaves(NULL);
	}
	free(before);
	return status;
}
