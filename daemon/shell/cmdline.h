/* Options of a daemon as rows of a table: parsing, --help and --version come from it.
 *
 *	static struct settings s;
 *	static const struct cmdline_row rows[] = {
 *		{ "listen", CMDLINE_TEXT, &s.listen, .metavar = "ADDR", .fallback = "127.0.0.1:0", .help = "..." },
 *		{ "slots", CMDLINE_COUNT, &s.slots, .least = 0, .most = 64, .metavar = "N", .fallback = "1", .help = "..." },
 *		{ 0 },
 *	};
 *	if (cmdline_parse(rows, argc, argv, &wish, &error) != TR_OK) ...
 *
 * Every row's target is set: from the last occurrence on the command line, else from the fallback. Both `--name value` and
 * `--name=value` are read. Texts point into argv or the table.
 */
#ifndef TR_DAEMON_SHELL_CMDLINE_H
#define TR_DAEMON_SHELL_CMDLINE_H

#include <stdint.h>
#include <stdio.h>

#include "common/error.h"

enum cmdline_kind {
	CMDLINE_TEXT,  /* const char * */
	CMDLINE_COUNT, /* uint64_t, from .least to .most */
	CMDLINE_FLAG,  /* bool; takes no value */
	CMDLINE_LEVEL, /* enum log_level */
	CMDLINE_STYLE, /* bool: json (true) or text */
};

struct cmdline_row {
	const char *name; /* without dashes; NULL ends the table */
	enum cmdline_kind kind;
	void *target;
	uint64_t least, most;
	const char *metavar, *fallback, *help; /* fallback NULL: the target keeps its value */
};

enum cmdline_wish { CMDLINE_RUN, CMDLINE_HELP, CMDLINE_VERSION };

/* TR_EINVAL: "--slots: found 'many', allowed: a number from 0 to 64". */
tr_status cmdline_parse(const struct cmdline_row *rows, int argc, char **argv,
    enum cmdline_wish *wish, struct tr_error *error);
void cmdline_help(const struct cmdline_row *rows, const char *usage, FILE *out);

#endif
