/* Percent-encoding of the trailer grpc-message: bytes outside of 0x20..0x7e, and '%', become %XX. Pure. */
#ifndef TR_DAEMON_API_GRPC_PERCENT_H
#define TR_DAEMON_API_GRPC_PERCENT_H

#include <stddef.h>

/* Writes at most `capacity` bytes, NUL included, cutting before an escape or a UTF-8 sequence that does not fit whole. Returns the
 * length. */
size_t grpc_percent_encode(const char *text, char *out, size_t capacity);

/* As the protocol asks, a bad escape is kept as it stands. A NUL byte becomes '?'. Returns the length. */
size_t grpc_percent_decode(const char *text, size_t length, char *out, size_t capacity);

#endif
