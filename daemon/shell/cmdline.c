#include "daemon/shell/cmdline.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"

static tr_status set_count(const struct cmdline_row *row, const char *text, struct tr_error *error)
{
	char *end;
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || value < row->least ||
	    value > row->most)
		return tr_error_set(error, TR_EINVAL,
		    "--%s: found '%s', allowed: a number from %llu to %llu", row->name, text,
		    (unsigned long long)row->least, (unsigned long long)row->most);
	*(uint64_t *)row->target = value;
	return TR_OK;
}

static tr_status set(const struct cmdline_row *row, const char *text, struct tr_error *error)
{
	switch (row->kind) {
	case CMDLINE_TEXT:
		if (text[0] == '\0')
			return tr_error_set(error, TR_EINVAL, "--%s: found nothing, allowed: %s",
			    row->name, row->metavar);
		*(const char **)row->target = text;
		return TR_OK;
	case CMDLINE_COUNT:
		return set_count(row, text, error);
	case CMDLINE_FLAG:
		*(bool *)row->target = strcmp(text, "true") == 0;
		return TR_OK;
	case CMDLINE_LEVEL:
		if (log_level_parse(text, row->target))
			return TR_OK;
		return tr_error_set(error, TR_EINVAL,
		    "--%s: found '%s', allowed: debug, info, warn, error", row->name, text);
	case CMDLINE_STYLE:
		*(bool *)row->target = strcmp(text, "json") == 0;
		if (strcmp(text, "json") == 0 || strcmp(text, "text") == 0)
			return TR_OK;
		return tr_error_set(error, TR_EINVAL, "--%s: found '%s', allowed: text, json",
		    row->name, text);
	}
	return TR_EINTERNAL;
}

/* The row named by "--name" or "--name=value"; *value is what follows '=', or NULL. */
static const struct cmdline_row *find(const struct cmdline_row *rows, const char *argument,
    const char **value)
{
	const char *equals = strchr(argument, '=');
	size_t length = equals == NULL ? strlen(argument) : (size_t)(equals - argument);
	*value = equals == NULL ? NULL : equals + 1;
	for (; rows->name != NULL; rows++)
		if (length == strlen(rows->name) + 2 && strncmp(argument, "--", 2) == 0 &&
		    strncmp(argument + 2, rows->name, length - 2) == 0)
			return rows;
	return NULL;
}

static tr_status set_fallbacks(const struct cmdline_row *rows, struct tr_error *error)
{
	for (; rows->name != NULL; rows++)
		if (rows->fallback != NULL && set(rows, rows->fallback, error) != TR_OK)
			return TR_EINVAL;
	return TR_OK;
}

tr_status cmdline_parse(const struct cmdline_row *rows, int argc, char **argv,
    enum cmdline_wish *wish, struct tr_error *error)
{
	if (set_fallbacks(rows, error) != TR_OK)
		return TR_EINVAL;
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			*wish = CMDLINE_HELP;
			return TR_OK;
		}
		if (strcmp(argv[i], "--version") == 0) {
			*wish = CMDLINE_VERSION;
			return TR_OK;
		}
		const char *value;
		const struct cmdline_row *row = find(rows, argv[i], &value);
		if (row == NULL)
			return tr_error_set(error, TR_EINVAL, "unknown argument '%s'; see --help",
			    argv[i]);
		if (value == NULL && row->kind == CMDLINE_FLAG)
			value = "true";
		if (value == NULL && ++i == argc)
			return tr_error_set(error, TR_EINVAL, "--%s needs a value: %s", row->name,
			    row->metavar);
		if (value == NULL)
			value = argv[i];
		if (row->kind == CMDLINE_FLAG && strcmp(value, "true") != 0 &&
		    strcmp(value, "false") != 0)
			return tr_error_set(error, TR_EINVAL,
			    "--%s: found '%s', allowed: true, false", row->name, value);
		if (set(row, value, error) != TR_OK)
			return TR_EINVAL;
	}
	*wish = CMDLINE_RUN;
	return TR_OK;
}

void cmdline_help(const struct cmdline_row *rows, const char *usage, FILE *out)
{
	(void)fprintf(out, "%s\n\n", usage);
	for (; rows->name != NULL; rows++) {
		char left[64];
		(void)snprintf(left, sizeof(left), "--%s%s%s", rows->name, rows->metavar ? " " : "",
		    rows->metavar ? rows->metavar : "");
		(void)fprintf(out, "  %-28s %s", left, rows->help);
		if (rows->fallback != NULL)
			(void)fprintf(out, " (default %s)", rows->fallback);
		(void)fputc('\n', out);
	}
	(void)fprintf(out, "  %-28s %s\n  %-28s %s\n", "--help", "this text", "--version",
	    "the version");
}
