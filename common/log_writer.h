/* Log lines written by a thread of their own, for daemons: whoever reads stderr may stop to (Ctrl-S, a pager, a disk that hangs), and nobody who logs waits for that. Lines
 * wait in LOG_WRITER_BYTES of memory; those that find no room are counted, which a line tells when it flows again. Inside common/log.
 */
#ifndef TR_COMMON_LOG_WRITER_H
#define TR_COMMON_LOG_WRITER_H

#include <stdbool.h>
#include <stddef.h>

#define LOG_WRITER_BYTES    (256u << 10)
#define LOG_WRITER_LINE_MAX 8192

/* Writes the line that says how many were left out, with its end, into `line`. */
typedef size_t log_writer_left_out(unsigned long count, char line[LOG_WRITER_LINE_MAX]);

/* Starts the thread. What is waiting when the program ends, or gets SIGSEGV, SIGABRT and the like, is still written, if that takes no longer than a second. */
bool log_writer_start(log_writer_left_out *left_out);
/* False: there is no thread, in this process; who has the line writes it. `line` ends with its '\n'. */
bool log_writer_put(const char *line, size_t bytes);

#endif
