/* traind: the daemon of a node. Options and the loop; the rest is beside this file. As `traind --shepherd` it is the tiny
 * process between traind and a worker (shepherd.h). */
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <uv.h>

#include "common/limits.h"
#include "common/log.h"
#include "common/standard_files.h"
#include "daemon/node/node.h"
#include "daemon/node/node_settings.h"
#include "daemon/node/shepherd.h"
#include "daemon/shell/fdlimit.h"
#include "daemon/shell/rundir.h"
#include "daemon/shell/signals.h"

#define EXIT_USAGE \
	2 /* a wrong option, an address in use or refused, a folder in use or that cannot be used */

static struct node_settings settings;
static struct node *node;
static struct signals signals;

static void end(void *arg, const char *reason)
{
	(void)arg;
	log_info("node", "traind ends: %s", reason);
	node_stop(node, reason);
}

static void set_defaults(void)
{
	static char folder[PATH_MAX], name[TR_NAME_MAX];
	const char *base = getenv("TRAIND_HOME"), *home = getenv("HOME");
	if (base != NULL && base[0] != '\0')
		(void)snprintf(folder, sizeof(folder), "%s/node", base);
	else
		(void)snprintf(folder, sizeof(folder), "%s/.traind/node", home == NULL ? "." : home);
	if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0')
		(void)snprintf(name, sizeof(name), "node");
	settings.folder = folder;
	settings.name = name;
}

static int fail(tr_status status, const struct tr_error *error)
{
	log_error("node", "%s", error->text);
	return status == TR_EEXIST || status == TR_EREFUSED || status == TR_EINVAL ? EXIT_USAGE : 1;
}

static int serve(uv_loop_t *loop)
{
	struct tr_error error;
	uint64_t open_files;
	int lock;
	(void)fdlimit_raise(&open_files);
	tr_status st = rundir_open(settings.folder, "traind", &lock, &error);
	if (st != TR_OK) {
		log_error("node", "%s", error.text);
		return EXIT_USAGE;
	}
	rundir_retract(settings.folder);
	/* Orphans of a worker whose shepherd was killed come to us. */
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	struct node_options options = {
		.memberd = settings.memberd,
		.listen = settings.listen,
		.advertise = settings.advertise,
		.api_socket = settings.api_socket,
		.folder = settings.folder,
		.name = settings.name,
		.trainworker = settings.trainworker,
		.slots = (unsigned)settings.slots,
		.halted_ms = settings.halted_ms,
		.tls = settings.tls,
		.insecure = settings.insecure,
		.set_omp = getenv("OMP_NUM_THREADS") == NULL,
		.open_files = open_files,
	};
	st = node_create(loop, &options, &node, &error);
	if (st != TR_OK) {
		return fail(st, &error);
	}
	signals_start(loop, &signals, end, NULL);
	(void)uv_run(loop, UV_RUN_DEFAULT);
	signals_finish(&signals);
	node_destroy(node);
	return 0;
}

/* Segments come and go by the megabyte at each step: giving that memory back to the kernel in between costs more than a tenth
 * of a step's CPU in page faults. */
static void keep_freed_memory(void)
{
	(void)mallopt(M_MMAP_THRESHOLD, 4 << 20);
	(void)mallopt(M_TRIM_THRESHOLD, 8 << 20);
}

int main(int argc, char **argv)
{
	enum cmdline_wish wish;
	struct tr_error error;
	if (argc == 2 && strcmp(argv[1], SHEPHERD_ARGUMENT) == 0)
		return shepherd_run();
	standard_files_hold();
	set_defaults();
	const struct cmdline_row *rows = node_settings_rows(&settings);
	tr_status st = cmdline_parse(rows, argc, argv, &wish, &error);
	if (st == TR_OK && wish == CMDLINE_RUN)
		st = node_settings_find_trainworker(&settings, &error);
	if (st != TR_OK) {
		(void)fprintf(stderr, "traind: %s\n", error.text);
		return EXIT_USAGE;
	}
	if (wish == CMDLINE_HELP) {
		cmdline_help(rows, NODE_USAGE, stdout);
		return 0;
	}
	if (wish == CMDLINE_VERSION) {
		(void)puts("traind " TR_VERSION);
		return 0;
	}
	log_configure(settings.level, settings.json);
	(void)log_in_background();
	keep_freed_memory();
	uv_loop_t loop;
	if (uv_loop_init(&loop) != 0) {
		log_error("node", "cannot make an event loop");
		return 1;
	}
	int code = serve(&loop);
	(void)uv_loop_close(&loop);
	return code;
}
