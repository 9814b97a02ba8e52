#include "daemon/api/grpc_response_head.h"

#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <string.h>

#include "daemon/api/grpc_percent.h"

static bool head_is(const char *text, size_t length, const char *other)
{
	return length == strlen(other) && memcmp(text, other, length) == 0;
}

/* Three digits at most; anything else is 0. */
static unsigned head_number(const char *text, size_t length)
{
	unsigned value = 0;
	if (length == 0 || length > 3)
		return 0;
	for (size_t i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return 0;
		value = value * 10 + (unsigned)(text[i] - '0');
	}
	return value;
}

static enum grpc_status head_status(const char *text, size_t length)
{
	unsigned value = head_number(text, length);
	if (value == 0 && !head_is(text, length, "0"))
		return GRPC_UNKNOWN;
	return value <= GRPC_UNAUTHENTICATED ? (enum grpc_status)value : GRPC_UNKNOWN;
}

void grpc_response_head_add(struct grpc_response_head *head, const char *name, size_t name_length,
    const char *value, size_t value_length)
{
	static const char type[] = "application/grpc";
	if (head_is(name, name_length, ":status")) {
		head->http_status = head_number(value, value_length);
	} else if (head_is(name, name_length, "content-type")) {
		head->grpc = value_length >= sizeof(type) - 1 &&
		    memcmp(value, type, sizeof(type) - 1) == 0;
	} else if (head_is(name, name_length, "grpc-status")) {
		head->has_status = true;
		head->status = head_status(value, value_length);
	} else if (head_is(name, name_length, "grpc-message")) {
		(void)grpc_percent_decode(value, value_length, head->text, sizeof(head->text));
	}
}

/* grpc.github.io/grpc/core/md_doc_http-grpc-status-mapping.html */
static enum grpc_status head_of_http(unsigned http_status)
{
	switch (http_status) {
	case 400:
		return GRPC_INTERNAL;
	case 401:
		return GRPC_UNAUTHENTICATED;
	case 403:
		return GRPC_PERMISSION_DENIED;
	case 404:
		return GRPC_UNIMPLEMENTED;
	case 429:
	case 502:
	case 503:
	case 504:
		return GRPC_UNAVAILABLE;
	default:
		return GRPC_UNKNOWN;
	}
}

/* PROTOCOL-HTTP2.md, "HTTP2 Transport Mapping", Errors. */
static enum grpc_status head_of_reset(uint32_t code)
{
	switch (code) {
	case NGHTTP2_REFUSED_STREAM:
		return GRPC_UNAVAILABLE;
	case NGHTTP2_CANCEL:
		return GRPC_CANCELLED;
	case NGHTTP2_ENHANCE_YOUR_CALM:
		return GRPC_RESOURCE_EXHAUSTED;
	case NGHTTP2_INADEQUATE_SECURITY:
		return GRPC_PERMISSION_DENIED;
	default:
		return GRPC_INTERNAL;
	}
}

enum grpc_status grpc_response_head_end(const struct grpc_response_head *head, uint32_t reset_code,
    char text[TR_GRPC_STATUS_TEXT_MAX])
{
	if (head->has_status) {
		(void)snprintf(text, TR_GRPC_STATUS_TEXT_MAX, "%s", head->text);
		return head->status;
	}
	if (head->http_status != 0 && head->http_status != 200) {
		(void)snprintf(text, TR_GRPC_STATUS_TEXT_MAX, "the server answered HTTP status %u",
		    head->http_status);
		return head_of_http(head->http_status);
	}
	if (head->http_status == 200 && !head->grpc) {
		(void)snprintf(text, TR_GRPC_STATUS_TEXT_MAX, "the server does not speak gRPC");
		return GRPC_UNKNOWN;
	}
	if (reset_code == NGHTTP2_NO_ERROR) {
		(void)snprintf(text, TR_GRPC_STATUS_TEXT_MAX,
		    "the server ended the call without a status");
		return GRPC_INTERNAL;
	}
	(void)snprintf(text, TR_GRPC_STATUS_TEXT_MAX, "the server reset the call (%s)%s",
	    nghttp2_http2_strerror(reset_code),
	    reset_code == NGHTTP2_REFUSED_STREAM ? "; try again" : "");
	return head_of_reset(reset_code);
}
