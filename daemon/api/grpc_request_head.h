/* The headers of a gRPC request (PROTOCOL-HTTP2.md, "Requests"): collected one by one, judged when all are there. Pure. */
#ifndef TR_DAEMON_API_GRPC_REQUEST_HEAD_H
#define TR_DAEMON_API_GRPC_REQUEST_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"
#include "daemon/api/grpc_status.h"

struct grpc_request_head {
	char path[TR_GRPC_PATH_MAX];
	uint64_t timeout_ms; /* if has_timeout */
	bool has_timeout, bad_timeout, long_path;
	bool post, te_trailers, grpc, other_format, compressed;
};

struct grpc_refusal {
	unsigned http_status; /* 200: a gRPC answer */
	enum grpc_status status;
	const char *text; /* static */
};

void grpc_request_head_add(struct grpc_request_head *head, const char *name, size_t name_length,
    const char *value, size_t value_length);
/* False: answer with the refusal. `bytes` is the size of the header list. */
bool grpc_request_head_judge(const struct grpc_request_head *head, size_t bytes,
    struct grpc_refusal *refusal);

#endif
