#include "common/log.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "common/json.h"

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

/* One writev(2), so that lines of several threads and processes do not mix. */
static void write_line(const char *text)
{
	struct iovec pieces[] = { { (void *)(uintptr_t)text, strlen(text) }, { "\n", 1 } };
	ssize_t ignored = writev(STDERR_FILENO, pieces, 2);
	(void)ignored;
}

/* Messages quote what peers and workers said; none of it may look like a line of its own. */
static void blank_controls(char *text)
{
	for (; *text != '\0'; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = ' ';
}

void log_write(enum log_level level, const char *subsystem, const char *format, ...)
{
	if (level < least_level)
		return;
	char message[1024], stamp[32], line[1280];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	struct timespec now;
	struct tm utc;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	(void)gmtime_r(&now.tv_sec, &utc);
	size_t used = strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &utc);
	(void)snprintf(stamp + used, sizeof(stamp) - used, ".%03ldZ", now.tv_nsec / 1000000);
	if (as_json) {
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
		if (json_text(&j) != NULL)
			write_line(json_text(&j));
		json_finish(&j);
		return;
	}
	blank_controls(message);
	(void)snprintf(line, sizeof(line), "%s %-5s %s: %s", stamp, level_names[level], subsystem,
	    message);
	write_line(line);
}
