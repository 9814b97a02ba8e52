#include "common/log.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/json.h"
#include "common/log_writer.h"

/* Of a line of text, without its end. */
#define LINE_MAX_TEXT 1280

static enum log_level least_level = LOG_INFO;
static bool as_json;

static const char *const level_names[] = { "debug", "info", "warn", "error" };

void log_configure(enum log_level least, bool json)
{
	least_level = least;
	as_json = json;
}

bool log_level_parse(const char *name, enum log_level *level)
{
	for (unsigned i = 0; i < sizeof(level_names) / sizeof(level_names[0]); i++) {
		if (strcmp(name, level_names[i]) == 0) {
			*level = (enum log_level)i;
			return true;
		}
	}
	return false;
}

/* One write(2), so that lines of several threads and processes do not mix. */
static void write_line(const char *line, size_t bytes)
{
	if (log_writer_put(line, bytes))
		return;
	ssize_t ignored = write(STDERR_FILENO, line, bytes);
	(void)ignored;
}

/* Messages quote what peers and workers said; none of it may look like a line of its own. */
static void blank_controls(char *text)
{
	for (; *text != '\0'; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = ' ';
}

static size_t json_line(const char *stamp, enum log_level level, const char *subsystem,
    const char *message, char line[LOG_WRITER_LINE_MAX])
{
	struct json j = { 0 };
	json_object(&j);
	json_key(&j, "time");
	json_string(&j, stamp);
	json_key(&j, "level");
	json_string(&j, level_names[level]);
	json_key(&j, "subsystem");
	json_string(&j, subsystem);
	json_key(&j, "message");
	json_string(&j, message);
	json_end(&j);
	const char *text = json_text(&j);
	size_t bytes = text != NULL ? strlen(text) : 0;
	if (bytes + 1 > LOG_WRITER_LINE_MAX)
		bytes = 0;
	if (bytes > 0) {
		memcpy(line, text, bytes);
		line[bytes++] = '\n';
	}
	json_finish(&j);
	return bytes;
}

/* With its end; 0: there is no memory for it. */
static size_t make_line(enum log_level level, const char *subsystem, char *message,
    char line[LOG_WRITER_LINE_MAX])
{
	char stamp[32];
	struct timespec now;
	struct tm utc;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	(void)gmtime_r(&now.tv_sec, &utc);
	size_t used = strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &utc);
	(void)snprintf(stamp + used, sizeof(stamp) - used, ".%03ldZ", now.tv_nsec / 1000000);
	if (as_json)
		return json_line(stamp, level, subsystem, message, line);
	blank_controls(message);
	(void)snprintf(line, LINE_MAX_TEXT, "%s %-5s %s: %s", stamp, level_names[level], subsystem,
	    message);
	size_t bytes = strlen(line);
	line[bytes++] = '\n';
	return bytes;
}

void log_write(enum log_level level, const char *subsystem, const char *format, ...)
{
	if (level < least_level)
		return;
	char message[1024], line[LOG_WRITER_LINE_MAX];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	size_t bytes = make_line(level, subsystem, message, line);
	if (bytes > 0)
		write_line(line, bytes);
}

static size_t left_out(unsigned long count, char line[LOG_WRITER_LINE_MAX])
{
	char message[128];
	(void)snprintf(message, sizeof(message),
	    "%lu lines were left out here: nobody took what was written to stderr", count);
	return make_line(LOG_WARN, "log", message, line);
}

bool log_in_background(void)
{
	return log_writer_start(left_out);
}
