/* What memberd can be told on its command line, and the defaults. */
#ifndef TR_DAEMON_MEMBERSHIP_SERVER_MEMBERD_SETTINGS_H
#define TR_DAEMON_MEMBERSHIP_SERVER_MEMBERD_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/log.h"
#include "daemon/membership/core/membership.h"
#include "daemon/shell/cmdline.h"

struct memberd_settings {
	const char *listen, *folder;
	const char *tls;
	bool insecure, no_relay, json;
	enum log_level level;
	uint64_t heartbeat_timeout_ms, progress_timeout_ms;
};

#define MEMBERD_USAGE "memberd: the peer-membership service of traind.\n\nusage: memberd [options]"

/* .folder keeps the value that it has if --dir is not given. Rows are valid until the next call. */
const struct cmdline_row *memberd_settings_rows(struct memberd_settings *settings);
struct membership_options memberd_settings_core(const struct memberd_settings *settings);

#endif
