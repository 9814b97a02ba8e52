#include "client/trainctl/print.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *print_state(Traind__V1__JobState state)
{
	switch (state) {
	case TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED:
		return "queued";
	case TRAIND__V1__JOB_STATE__JOB_STATE_STARTING:
		return "starting";
	case TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING:
		return "running";
	case TRAIND__V1__JOB_STATE__JOB_STATE_DONE:
		return "done";
	case TRAIND__V1__JOB_STATE__JOB_STATE_FAILED:
		return "failed";
	case TRAIND__V1__JOB_STATE__JOB_STATE_CANCELLED:
		return "cancelled";
	default:
		return "unknown";
	}
}

bool print_is_known(Traind__V1__JobState state)
{
	return strcmp(print_state(state), "unknown") != 0;
}

bool print_is_over(Traind__V1__JobState state)
{
	return state == TRAIND__V1__JOB_STATE__JOB_STATE_DONE ||
	    state == TRAIND__V1__JOB_STATE__JOB_STATE_FAILED ||
	    state == TRAIND__V1__JOB_STATE__JOB_STATE_CANCELLED;
}

const char *print_loss(double loss, char text[PRINT_FIGURE_MAX])
{
	(void)snprintf(text, PRINT_FIGURE_MAX, isnan(loss) ? "-" : "%.3f", loss);
	return text;
}

const char *print_rate(double tokens_per_s, char text[PRINT_FIGURE_MAX])
{
	if (!(tokens_per_s > 0))
		(void)snprintf(text, PRINT_FIGURE_MAX, "-");
	else if (tokens_per_s >= 999950)
		(void)snprintf(text, PRINT_FIGURE_MAX, "%.2fM", tokens_per_s / 1e6);
	else if (tokens_per_s >= 1000)
		(void)snprintf(text, PRINT_FIGURE_MAX, "%.1fk", tokens_per_s / 1e3);
	else
		(void)snprintf(text, PRINT_FIGURE_MAX, "%.0f", tokens_per_s);
	return text;
}

const char *print_part(double part, double whole, char text[PRINT_FIGURE_MAX])
{
	if (!(part > 0 && whole > 0))
		(void)snprintf(text, PRINT_FIGURE_MAX, "-");
	else if (whole >= 9.95 * part)
		(void)snprintf(text, PRINT_FIGURE_MAX, "1/%.0f", whole / part);
	else
		(void)snprintf(text, PRINT_FIGURE_MAX, "%.2f", part / whole);
	return text;
}

const char *print_latency(double seconds, char text[PRINT_FIGURE_MAX])
{
	if (!(seconds > 0))
		(void)snprintf(text, PRINT_FIGURE_MAX, "-");
	else if (seconds < 0.001)
		(void)snprintf(text, PRINT_FIGURE_MAX, "%.0f us", seconds * 1e6);
	else
		(void)snprintf(text, PRINT_FIGURE_MAX, seconds < 0.01 ? "%.1f ms" : "%.0f ms",
		    seconds * 1e3);
	return text;
}

const char *print_duration(double seconds, char text[PRINT_FIGURE_MAX])
{
	if (!(seconds >= 0) || seconds > 1e9) {
		(void)snprintf(text, PRINT_FIGURE_MAX, "-");
		return text;
	}
	unsigned long whole = (unsigned long)(seconds + 0.5);
	if (whole >= 3600)
		(void)snprintf(text, PRINT_FIGURE_MAX, "%lu:%02lu:%02lu", whole / 3600,
		    whole / 60 % 60, whole % 60);
	else
		(void)snprintf(text, PRINT_FIGURE_MAX, "%lu:%02lu", whole / 60, whole % 60);
	return text;
}

const char *print_clock(uint64_t unix_ms, char text[PRINT_FIGURE_MAX])
{
	time_t seconds = (time_t)(unix_ms / 1000);
	struct tm local;
	if (unix_ms == 0 || localtime_r(&seconds, &local) == NULL ||
	    strftime(text, PRINT_FIGURE_MAX, "%H:%M:%S", &local) == 0)
		(void)snprintf(text, PRINT_FIGURE_MAX, "--:--:--");
	return text;
}

const char *print_bytes(uint64_t bytes, char text[PRINT_FIGURE_MAX])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double amount = (double)bytes;
	size_t unit = 0;
	for (; amount >= 1024 && unit < 6; unit++)
		amount /= 1024;
	(void)snprintf(text, PRINT_FIGURE_MAX, unit == 0 ? "%.0f %s" : "%.1f %s", amount,
	    units[unit]);
	return text;
}

double print_seconds_of(const Traind__V1__Job *job)
{
	struct timespec now;
	uint64_t end = job->ended_unix_ms;
	if (job->started_unix_ms == 0)
		return 0;
	if (end == 0) {
		(void)clock_gettime(CLOCK_REALTIME, &now);
		end = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
	}
	return end > job->started_unix_ms ? (double)(end - job->started_unix_ms) / 1e3 : 0;
}

/* Those of Latin-1 are two bytes in UTF-8: c2 80 to c2 9f. */
void print_tame(char *text, bool lines)
{
	for (unsigned char *at = (unsigned char *)text; *at != '\0'; at++) {
		bool of_latin = at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0;
		if (lines && (*at == '\n' || *at == '\t'))
			continue;
		if (of_latin)
			*at++ = '?';
		if (of_latin || *at < ' ' || *at == 0x7f)
			*at = '?';
	}
}

void print_cell(struct print_table *table, const char *format, ...)
{
	if (table->cells == table->capacity) {
		size_t capacity = table->capacity * 2 + 64;
		char **grown = realloc(table->text, capacity * sizeof(*grown));
		if (grown == NULL)
			return;
		table->text = grown;
		table->capacity = capacity;
	}
	va_list args;
	va_start(args, format);
	if (vasprintf(&table->text[table->cells], format, args) < 0)
		table->text[table->cells] = NULL;
	va_end(args);
	table->cells++;
}

/* Characters, as a terminal counts them nearly always. */
static size_t width_of(const char *text)
{
	size_t width = 0;
	for (; text != NULL && *text != '\0'; text++)
		width += ((unsigned char)*text & 0xc0) != 0x80;
	return width;
}

void print_table_out(struct print_table *table, bool color)
{
	size_t *widths = calloc(table->columns + 1, sizeof(*widths));
	for (size_t i = 0; widths != NULL && i < table->cells; i++) {
		size_t width = width_of(table->text[i]);
		if (width > widths[i % table->columns])
			widths[i % table->columns] = width;
	}
	for (size_t i = 0; i < table->cells; i++) {
		const char *text = table->text[i] != NULL ? table->text[i] : "";
		size_t column = i % table->columns;
		bool head = i < table->columns, last = column + 1 == table->columns;
		size_t width = width_of(text);
		int pad = last || widths == NULL || widths[column] < width
		    ? 0
		    : (int)(widths[column] - width);
		(void)printf("%s%s%s%*s%s", head && color ? "\033[1m" : "", text,
		    head && color ? "\033[0m" : "", pad, "", last ? "\n" : "  ");
	}
	for (size_t i = 0; i < table->cells; i++)
		free(table->text[i]);
	free(table->text);
	free(widths);
	*table = (struct print_table){ .columns = table->columns };
}

void print_json_text(struct json *json)
{
	(void)puts(json_text(json) != NULL ? json_text(json) : "null");
	json_finish(json);
}
