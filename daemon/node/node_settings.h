/* What traind can be told on its command line, and the defaults. */
#ifndef TR_DAEMON_NODE_NODE_SETTINGS_H
#define TR_DAEMON_NODE_NODE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/log.h"
#include "daemon/shell/cmdline.h"

struct node_settings {
	const char *memberd, *listen, *advertise, *api_socket, *folder, *name, *trainworker, *tls;
	uint64_t slots, halted_ms;
	bool insecure, json;
	enum log_level level;
};

#define NODE_USAGE "traind: a node of a cluster that trains.\n\nusage: traind [options]"

/* What is not given and has no fallback keeps the value that it has. Rows are valid until the next call. */
const struct cmdline_row *node_settings_rows(struct node_settings *settings);

/* Where trainworker is, if that is not given: beside this program, else as PATH finds it. TR_EINVAL: a path was given that is no
 * program. */
tr_status node_settings_find_trainworker(struct node_settings *settings, struct tr_error *error);

#endif
