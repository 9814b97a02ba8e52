/* memberd: the peer-membership service. Options and the loop; the rest is in server/. */
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#include "common/log.h"
#include "common/standard_files.h"
#include "daemon/membership/server/memberd.h"
#include "daemon/membership/server/memberd_settings.h"
#include "daemon/shell/fdlimit.h"
#include "daemon/shell/rundir.h"
#include "daemon/shell/signals.h"

#define EXIT_USAGE 2 /* a wrong option, an address in use or refused, a folder in use */

static struct memberd_settings settings;
static struct memberd *memberd;
static struct signals signals;
static int exit_code;

static void end(void *arg, const char *reason)
{
	(void)arg;
	log_info("server", "memberd ends: %s", reason);
	memberd_stop(memberd);
}

static void failed(void *arg, const char *text)
{
	(void)arg;
	log_error("server", "%s", text);
	exit_code = 1;
	signals_ask(&signals, "it cannot go on");
}

/* TRAIND_HOME/memberd, by default ~/.traind/memberd. */
static const char *default_folder(void)
{
	static char folder[4096];
	const char *base = getenv("TRAIND_HOME"), *home = getenv("HOME");
	if (base != NULL && base[0] != '\0')
		(void)snprintf(folder, sizeof(folder), "%s/memberd", base);
	else
		(void)snprintf(folder, sizeof(folder), "%s/.traind/memberd",
		    home == NULL ? "." : home);
	return folder;
}

static int serve(uv_loop_t *loop)
{
	struct tr_error error;
	struct memberd_options options = {
		.listen = settings.listen,
		.folder = settings.folder,
		.tls = settings.tls,
		.insecure = settings.insecure,
		.core = memberd_settings_core(&settings),
	};
	int lock;
	if (rundir_open(settings.folder, "memberd", &lock, &error) != TR_OK) {
		log_error("server", "%s", error.text);
		return EXIT_USAGE;
	}
	rundir_retract(settings.folder);
	tr_status st = memberd_create(loop, &options, failed, NULL, &memberd, &error);
	if (st != TR_OK) {
		log_error("server", "%s", error.text);
		return st == TR_EEXIST || st == TR_EREFUSED || st == TR_EINVAL ? EXIT_USAGE : 1;
	}
	signals_start(loop, &signals, end, NULL);
	(void)uv_run(loop, UV_RUN_DEFAULT);
	signals_finish(&signals);
	memberd_destroy(memberd);
	return exit_code;
}

int main(int argc, char **argv)
{
	enum cmdline_wish wish;
	struct tr_error error;
	uint64_t open_files;
	standard_files_hold();
	settings.folder = default_folder();
	const struct cmdline_row *rows = memberd_settings_rows(&settings);
	if (cmdline_parse(rows, argc, argv, &wish, &error) != TR_OK) {
		(void)fprintf(stderr, "memberd: %s\n", error.text);
		return EXIT_USAGE;
	}
	if (wish == CMDLINE_HELP) {
		cmdline_help(rows, MEMBERD_USAGE, stdout);
		return 0;
	}
	if (wish == CMDLINE_VERSION) {
		(void)puts("memberd " TR_VERSION);
		return 0;
	}
	log_configure(settings.level, settings.json);
	(void)log_in_background();
	(void)fdlimit_raise(&open_files);
	uv_loop_t loop;
	if (uv_loop_init(&loop) != 0) {
		log_error("server", "cannot make an event loop");
		return 1;
	}
	int code = serve(&loop);
	(void)uv_loop_close(&loop);
	return code;
}
