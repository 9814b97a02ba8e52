#include "daemon/membership/server/memberd_settings.h"

#include <string.h>

#include "common/limits.h"

const struct cmdline_row *memberd_settings_rows(struct memberd_settings *settings)
{
	static struct cmdline_row rows[10];
	const struct cmdline_row table[] = {
		{ .name = "listen",
		    .kind = CMDLINE_TEXT,
		    .target = &settings->listen,
		    .metavar = "ADDR",
		    .fallback = "127.0.0.1:7070",
		    .help = "the one port: nodes, gRPC, /healthz" },
		{ .name = "dir",
		    .kind = CMDLINE_TEXT,
		    .target = &settings->folder,
		    .metavar = "DIR",
		    .help = "the log, `address` and `pid` (default $TRAIND_HOME/memberd, or "
		            "~/.traind/memberd)" },
		{ .name = "tls",
		    .kind = CMDLINE_TEXT,
		    .target = &settings->tls,
		    .metavar = "DIR",
		    .help = "TLS 1.3, with ca.crt, node.crt and node.key of DIR (trainctl cert); "
		            "who "
		            "has no certificate of that CA is refused" },
		{ .name = "insecure",
		    .kind = CMDLINE_FLAG,
		    .target = &settings->insecure,
		    .help = "allow an address that is not loopback, without TLS" },
		{ .name = "heartbeat-timeout-ms",
		    .kind = CMDLINE_COUNT,
		    .target = &settings->heartbeat_timeout_ms,
		    .least = 100,
		    .most = 600000,
		    .metavar = "MS",
		    .fallback = "1000",
		    .help = "silence after which a node is lost; more where round trips are long" },
		{ .name = "progress-timeout-ms",
		    .kind = CMDLINE_COUNT,
		    .target = &settings->progress_timeout_ms,
		    .least = 100,
		    .most = 3600000,
		    .metavar = "MS",
		    .fallback = "20000",
		    .help = "how long a worker may neither compute nor wait" },
		{ .name = "no-relay",
		    .kind = CMDLINE_FLAG,
		    .target = &settings->no_relay,
		    .help = "relay nothing between members that cannot dial each other; a traind "
		            "that "
		            "both reach still does" },
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

struct membership_options memberd_settings_core(const struct memberd_settings *settings)
{
	uint64_t interval_ms = TR_HEARTBEAT_INTERVAL_MS;
	if (interval_ms > settings->heartbeat_timeout_ms / 5)
		interval_ms = settings->heartbeat_timeout_ms / 5;
	return (struct membership_options){
		.heartbeat_interval_ms = interval_ms,
		.heartbeat_timeout_ms = settings->heartbeat_timeout_ms,
		.progress_timeout_ms = settings->progress_timeout_ms,
		.reconnect_grace_ms = TR_RECONNECT_GRACE_MS,
		.relays = !settings->no_relay,
	};
}
