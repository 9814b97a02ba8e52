#include "daemon/api/api_message.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/limits.h"
#include "daemon/api/message_text.h"
#include "proto/unpack.h"

ProtobufCMessage *api_message_read(struct grpc_call *call,
    const ProtobufCMessageDescriptor *descriptor, const uint8_t *request, size_t bytes)
{
	char text[256];
	struct unpack_budget budget;
	ProtobufCMessage *message = protobuf_c_message_unpack(descriptor,
	    unpack_budget(&budget, bytes), bytes, request);
	if (message == NULL) {
		(void)snprintf(text, sizeof(text),
		    "the request is no valid %s; make the client from proto/", descriptor->name);
		grpc_call_end(call, GRPC_INVALID_ARGUMENT, text);
		return NULL;
	}
	const char *bad = message_text_bad_field(message);
	if (bad == NULL)
		return message;
	protobuf_c_message_free_unpacked(message, NULL);
	(void)snprintf(text, sizeof(text),
	    "%s: found bytes that are not UTF-8, allowed: UTF-8 text", bad);
	grpc_call_end(call, GRPC_INVALID_ARGUMENT, text);
	return NULL;
}

tr_status api_message_send(struct grpc_call *call, const ProtobufCMessage *message)
{
	size_t bytes = protobuf_c_message_get_packed_size(message);
	if (bytes > TR_GRPC_MESSAGE_MAX)
		return TR_ELIMIT;
	uint8_t *packed = malloc(bytes + 1);
	if (packed == NULL)
		return TR_ENOMEM;
	(void)protobuf_c_message_pack(message, packed);
	tr_status status = grpc_call_send(call, packed, bytes);
	free(packed);
	return status;
}

void api_message_answer(struct grpc_call *call, const ProtobufCMessage *message)
{
	tr_status status = api_message_send(call, message);
	if (status == TR_OK || status == TR_EAGAIN)
		grpc_call_end(call, GRPC_OK, NULL);
	else if (status == TR_ELIMIT)
		grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED,
		    "the answer is longer than 4 MiB, the limit");
	else
		grpc_call_end(call, grpc_status_of(status), tr_status_text(status));
}
