#include "daemon/membership/core/exit_words.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/utf8.h"

#define HOW_MAX   80
#define LINES_MAX 160 /* bytes */
#define BETWEEN   " | "
#define CUT       "..."

struct line {
	const char *text;
	size_t length;
};

static bool from_outside(int32_t signal_number)
{
	static const int signals[] = { SIGKILL, SIGTERM, SIGINT, SIGHUP, SIGQUIT };
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		if (signal_number == signals[i])
			return true;
	return false;
}

static bool space(char c)
{
	return (unsigned char)c <= ' ';
}

static struct line trimmed(struct line line)
{
	while (line.length > 0 && space(line.text[line.length - 1]))
		line.length--;
	while (line.length > 0 && space(line.text[0]))
		line.text++, line.length--;
	return line;
}

/* The last line before `*end`, which moves to its start. A progress bar goes back to the start of its line with \r. */
static struct line last_line(const char *text, size_t *end)
{
	size_t start = *end;
	while (start > 0 && text[start - 1] != '\n' && text[start - 1] != '\r')
		start--;
	struct line line = { text + start, *end - start };
	*end = start > 0 ? start - 1 : 0;
	return trimmed(line);
}

/* Lines of our own log begin with a time and a level (common/log.h). An error goes without them; the others tell of what went well. */
static bool meaningful(struct line *line)
{
	static const char form[] = "0000-00-00T00:00:00.000Z ";
	static const char *const levels[] = { "error ", "warn  ", "info  ", "debug " };
	const size_t stamp = sizeof(form) - 1, level = strlen(levels[0]);
	if (line->length <= stamp + level)
		return line->length > 0;
	for (size_t i = 0; i < stamp; i++) {
		char c = line->text[i];
		if (c != form[i] && (form[i] != '0' || c < '0' || c > '9'))
			return true;
	}
	for (size_t i = 1; i < sizeof(levels) / sizeof(levels[0]); i++)
		if (strncmp(line->text + stamp, levels[i], level) == 0)
			return false;
	if (strncmp(line->text + stamp, levels[0], level) == 0)
		*line = trimmed(
		    (struct line){ line->text + stamp + level, line->length - stamp - level });
	return line->length > 0;
}

/* As much of the line's start as fits, up to the end of a word if one ends in its second half. */
static size_t cut(struct line line, size_t most)
{
	size_t length = 0, word = 0;
	while (length < line.length) {
		size_t bytes = utf8_length((const unsigned char *)line.text + length,
		    line.length - length);
		if (length + (bytes > 0 ? bytes : 1) > most)
			break;
		if (space(line.text[length]))
			word = length;
		length += bytes > 0 ? bytes : 1;
	}
	if (length < line.length && space(line.text[length]))
		word = length;
	return word > length / 2 ? word : length;
}

/* Puts the line before those that are at `*start` of the buffer's end. False: it does not fit. */
static bool put_before(char lines[LINES_MAX], size_t *start, struct line line)
{
	bool first = *start == LINES_MAX, whole = true;
	size_t between = first ? 0 : strlen(BETWEEN);
	if (line.length + between > *start) {
		if (!first)
			return false;
		line.length = cut(line, LINES_MAX - strlen(CUT));
		whole = false;
	}
	const char *after = !first ? BETWEEN : whole ? "" : CUT;
	*start -= strlen(after);
	memcpy(lines + *start, after, strlen(after));
	*start -= line.length;
	memcpy(lines + *start, line.text, line.length);
	return true;
}

void exit_words(const Traind__Peer__WorkerExited *exited, char *text, size_t size)
{
	char how[HOW_MAX], lines[LINES_MAX];
	size_t start = LINES_MAX, end = strlen(exited->last_lines);
	if (exited->reason[0] != '\0')
		(void)snprintf(how, sizeof(how), "%.*s", HOW_MAX - 1, exited->reason);
	else if (exited->signal != 0)
		(void)snprintf(how, sizeof(how), "killed by signal %d", exited->signal);
	else
		(void)snprintf(how, sizeof(how), "exit code %d", exited->exit_code);
	while (end > 0 && !from_outside(exited->signal)) {
		struct line line = last_line(exited->last_lines, &end);
		if (meaningful(&line) && !put_before(lines, &start, line))
			break;
	}
	for (size_t i = start; i < LINES_MAX; i++)
		if ((unsigned char)lines[i] < ' ' || lines[i] == 0x7f)
			lines[i] = ' ';
	(void)snprintf(text, size, "%s%s%.*s", how, start < LINES_MAX ? ": " : "",
	    (int)(LINES_MAX - start), lines + start);
}
