/* The headers and trailers of a gRPC response (PROTOCOL-HTTP2.md, "Responses"), and the status that they or a reset mean. Pure. */
#ifndef TR_DAEMON_API_GRPC_RESPONSE_HEAD_H
#define TR_DAEMON_API_GRPC_RESPONSE_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"
#include "daemon/api/grpc_status.h"

struct grpc_response_head {
	unsigned http_status;
	bool grpc, has_status;
	enum grpc_status status;
	char text[TR_GRPC_STATUS_TEXT_MAX];
};

void grpc_response_head_add(struct grpc_response_head *head, const char *name, size_t name_length,
    const char *value, size_t value_length);

/* How a stream ended that was closed with an HTTP/2 error code. Writes the text too. */
enum grpc_status grpc_response_head_end(const struct grpc_response_head *head, uint32_t reset_code,
    char text[TR_GRPC_STATUS_TEXT_MAX]);

#endif
