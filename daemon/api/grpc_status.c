#include "daemon/api/grpc_status.h"

#include <stddef.h>

static const char *const status_names[] = {
	"OK",
	"CANCELLED",
	"UNKNOWN",
	"INVALID_ARGUMENT",
	"DEADLINE_EXCEEDED",
	"NOT_FOUND",
	"ALREADY_EXISTS",
	"PERMISSION_DENIED",
	"RESOURCE_EXHAUSTED",
	"FAILED_PRECONDITION",
	"ABORTED",
	"OUT_OF_RANGE",
	"UNIMPLEMENTED",
	"INTERNAL",
	"UNAVAILABLE",
	"DATA_LOSS",
	"UNAUTHENTICATED",
};

enum grpc_status grpc_status_of(tr_status status)
{
	switch (status) {
	case TR_OK:
		return GRPC_OK;
	case TR_EINVAL:
	case TR_EMISMATCH:
	case TR_EPROTO:
		return GRPC_INVALID_ARGUMENT;
	case TR_EPEERLOST:
	case TR_EAGAIN:
	case TR_EUNAVAILABLE:
		return GRPC_UNAVAILABLE;
	case TR_ENOMEM:
	case TR_ELIMIT:
		return GRPC_RESOURCE_EXHAUSTED;
	case TR_ETIMEDOUT:
		return GRPC_DEADLINE_EXCEEDED;
	case TR_EDIGEST:
		return GRPC_DATA_LOSS;
	case TR_ENOTFOUND:
		return GRPC_NOT_FOUND;
	case TR_EEXIST:
		return GRPC_ALREADY_EXISTS;
	case TR_ECANCELLED:
		return GRPC_CANCELLED;
	case TR_ESTALE:
	case TR_EEVICTED:
	case TR_ERESTART:
		return GRPC_ABORTED;
	case TR_EREFUSED:
		return GRPC_FAILED_PRECONDITION;
	case TR_EIO:
	case TR_EINTERNAL:
		return GRPC_INTERNAL;
	}
	return GRPC_UNKNOWN;
}

const char *grpc_status_name(enum grpc_status status)
{
	size_t count = sizeof(status_names) / sizeof(status_names[0]);
	return (size_t)status < count ? status_names[status] : "UNKNOWN";
}
