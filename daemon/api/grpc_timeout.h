/* The header grpc-timeout: at most eight digits and a unit (H, M, S, m, u, n). Pure. */
#ifndef TR_DAEMON_API_GRPC_TIMEOUT_H
#define TR_DAEMON_API_GRPC_TIMEOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRPC_TIMEOUT_TEXT_MAX 10 /* bytes, NUL included */

/* Rounds up to whole milliseconds, so that "1n" is no timeout of zero. False: malformed. */
bool grpc_timeout_parse(const char *text, size_t length, uint64_t *timeout_ms);

/* In the finest unit that fits; more than 99999999 hours become that many. */
void grpc_timeout_format(uint64_t timeout_ms, char text[GRPC_TIMEOUT_TEXT_MAX]);

#endif
