#include "daemon/node/node_settings.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/limits.h"

#define TEXT(field) .kind = CMDLINE_TEXT, .target = &settings->field

const struct cmdline_row *node_settings_rows(struct node_settings *settings)
{
	static struct cmdline_row rows[14];
	const struct cmdline_row table[] = {
		{ .name = "memberd",
		    TEXT(memberd),
		    .metavar = "ADDR",
		    .fallback = "127.0.0.1:7070",
		    .help = "the membership service" },
		{ .name = "listen",
		    TEXT(listen),
		    .metavar = "ADDR",
		    .fallback = "127.0.0.1:0",
		    .help = "the one port: peers, gRPC, /healthz; port 0: any" },
		{ .name = "advertise",
		    TEXT(advertise),
		    .metavar = "HOST",
		    .help = "where others reach this node (default: as in --listen)" },
		{ .name = "api-socket",
		    TEXT(api_socket),
		    .metavar = "PATH",
		    .help = "gRPC on a UNIX socket (default DIR/api.sock)" },
		{ .name = "dir",
		    TEXT(folder),
		    .metavar = "DIR",
		    .help = "node-id, logs, `address` and `pid` (default $TRAIND_HOME/node, or "
		            "~/.traind/node)" },
		{ .name = "name",
		    TEXT(name),
		    .metavar = "NAME",
		    .help = "of this node (default: the host's)" },
		{ .name = "slots",
		    .kind = CMDLINE_COUNT,
		    .target = &settings->slots,
		    .least = 0,
		    .most = TR_GROUP_PEERS_MAX,
		    .metavar = "N",
		    .fallback = "1",
		    .help = "workers at once" },
		{ .name = "trainworker",
		    TEXT(trainworker),
		    .metavar = "PATH",
		    .help = "the native trainer (default: beside this program, or in PATH)" },
		{ .name = "stopped-timeout-ms",
		    .kind = CMDLINE_COUNT,
		    .target = &settings->halted_ms,
		    .least = 0,
		    .most = TR_HALTED_MS_MAX,
		    .metavar = "MS",
		    .fallback = "1000",
		    .help = "how long a worker of a group may be stopped by a signal; 0: for "
		            "ever" },
		{ .name = "tls",
		    TEXT(tls),
		    .metavar = "DIR",
		    .help = "TLS 1.3, with ca.crt, node.crt and node.key of DIR (trainctl cert); "
		            "who "
		            "has no certificate of that CA is refused" },
		{ .name = "insecure",
		    .kind = CMDLINE_FLAG,
		    .target = &settings->insecure,
		    .help = "allow an address that is not loopback, without TLS" },
		{ .name = "log-level",
		    .kind = CMDLINE_LEVEL,
		    .target = &settings->level,
		    .metavar = "LEVEL",
		    .fallback = "info",
		    .help = "debug, info, warn or error" },
		{ .name = "log-format",
		    .kind = CMDLINE_STYLE,
		    .target = &settings->json,
		    .metavar = "FORMAT",
		    .fallback = "text",
		    .help = "text or json, one line an event, on stderr" },
		{ .name = NULL },
	};
	_Static_assert(sizeof(rows) == sizeof(table), "one row for each");
	memcpy(rows, table, sizeof(table));
	return rows;
}

static tr_status check_given(const char *path, struct tr_error *error)
{
	struct stat status;
	if (strchr(path, '/') == NULL) /* execvp looks in PATH, when a worker starts */
		return TR_OK;
	if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
		errno = EISDIR;
	else if (access(path, X_OK) == 0)
		return TR_OK;
	return tr_error_set(error, TR_EINVAL,
	    "--trainworker: found '%s', which cannot be run (%s), allowed: a program", path,
	    strerror(errno));
}

tr_status node_settings_find_trainworker(struct node_settings *settings, struct tr_error *error)
{
	static char path[PATH_MAX];
	char own[PATH_MAX];
	if (settings->trainworker != NULL)
		return check_given(settings->trainworker, error);
	settings->trainworker = path;
	ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);
	own[length > 0 ? length : 0] = '\0';
	char *slash = strrchr(own, '/');
	if (slash != NULL) {
		*slash = '\0';
		int wrote = snprintf(path, sizeof(path), "%s/trainworker", own);
		if (wrote > 0 && (size_t)wrote < sizeof(path) && access(path, X_OK) == 0)
			return TR_OK;
	}
	(void)snprintf(path, sizeof(path), "trainworker");
	return TR_OK;
}
