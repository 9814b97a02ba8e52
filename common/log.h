/* Log lines for people: lower case, subsystem, object id, exact cause; or one JSON object a line.
 *
 *	log_info("membership", "node n3 suspected: silent for 2.0 s");
 *
 * A line is written with one write(2) to stderr, by whoever logs it, or behind its back (log_in_background). Any thread. A library never calls exit from here.
 */
#ifndef TR_COMMON_LOG_H
#define TR_COMMON_LOG_H

#include <stdbool.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* Call before the threads start. Default: LOG_INFO, text. */
void log_configure(enum log_level least, bool json);
/* For daemons, which are not to wait for who reads stderr: from now on a thread writes what others log (log_writer.h). False: it cannot be started; all stays as it was. */
bool log_in_background(void);
bool log_level_parse(const char *name, enum log_level *level);
void log_write(enum log_level level, const char *subsystem, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)
#define log_info(...)  log_write(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)

#endif
