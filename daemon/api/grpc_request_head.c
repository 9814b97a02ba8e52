#include "daemon/api/grpc_request_head.h"

#include <string.h>

#include "daemon/api/grpc_timeout.h"

struct text {
	const char *bytes;
	size_t length;
};

static bool head_equals(struct text text, const char *other)
{
	return text.length == strlen(other) && memcmp(text.bytes, other, text.length) == 0;
}

static void head_method(struct grpc_request_head *head, struct text value)
{
	head->post = head_equals(value, "POST");
}

static void head_path(struct grpc_request_head *head, struct text value)
{
	/* A NUL cannot be in a valid header; nghttp2 has refused it. */
	head->long_path = value.length >= sizeof(head->path);
	if (!head->long_path) {
		memcpy(head->path, value.bytes, value.length);
		head->path[value.length] = '\0';
	}
}

static void head_te(struct grpc_request_head *head, struct text value)
{
	head->te_trailers = head_equals(value, "trailers");
}

/* "application/grpc", or with "+format" or ";parameters" behind it. */
static void head_content_type(struct grpc_request_head *head, struct text value)
{
	static const char type[] = "application/grpc";
	size_t length = sizeof(type) - 1;
	head->grpc = head->other_format = false;
	if (value.length < length || memcmp(value.bytes, type, length) != 0)
		return;
	struct text rest = { value.bytes + length, value.length - length };
	head->grpc = rest.length == 0 || rest.bytes[0] == '+' || rest.bytes[0] == ';';
	head->other_format = rest.length > 0 && rest.bytes[0] == '+' &&
	    !(rest.length >= 6 && memcmp(rest.bytes, "+proto", 6) == 0);
}

static void head_encoding(struct grpc_request_head *head, struct text value)
{
	head->compressed = !head_equals(value, "identity");
}

static void head_timeout(struct grpc_request_head *head, struct text value)
{
	head->has_timeout = grpc_timeout_parse(value.bytes, value.length, &head->timeout_ms);
	head->bad_timeout = !head->has_timeout;
}

static const struct {
	const char *name;
	void (*take)(struct grpc_request_head *head, struct text value);
} head_fields[] = {
	{ ":method", head_method },
	{ ":path", head_path },
	{ "te", head_te },
	{ "content-type", head_content_type },
	{ "grpc-encoding", head_encoding },
	{ "grpc-timeout", head_timeout },
};

void grpc_request_head_add(struct grpc_request_head *head, const char *name, size_t name_length,
    const char *value, size_t value_length)
{
	for (size_t i = 0; i < sizeof(head_fields) / sizeof(head_fields[0]); i++)
		if (head_equals((struct text){ name, name_length }, head_fields[i].name))
			head_fields[i].take(head, (struct text){ value, value_length });
}

bool grpc_request_head_judge(const struct grpc_request_head *head, size_t bytes,
    struct grpc_refusal *refusal)
{
	const struct {
		bool wrong;
		struct grpc_refusal refusal;
	} rules[] = {
		{ bytes > TR_GRPC_HEADERS_BYTES_MAX,
		    { 200, GRPC_RESOURCE_EXHAUSTED, "the request's headers are too large" } },
		{ !head->post, { 405, GRPC_UNKNOWN, "gRPC calls are POST requests" } },
		{ !head->grpc, { 415, GRPC_UNKNOWN, "the content-type is not application/grpc" } },
		{ head->other_format,
		    { 200, GRPC_UNIMPLEMENTED,
		        "messages are protobuf: send content-type application/grpc" } },
		{ !head->te_trailers,
		    { 200, GRPC_INTERNAL,
		        "the header \"te: trailers\" is missing; a proxy on the way drops "
		        "trailers" } },
		{ head->compressed,
		    { 200, GRPC_UNIMPLEMENTED,
		        "compressed requests are not accepted: send grpc-encoding identity" } },
		{ head->bad_timeout,
		    { 200, GRPC_INTERNAL, "the header grpc-timeout is malformed" } },
		{ head->long_path, { 200, GRPC_UNIMPLEMENTED, "no method has so long a path" } },
	};
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		if (rules[i].wrong) {
			*refusal = rules[i].refusal;
			return false;
		}
	}
	return true;
}
