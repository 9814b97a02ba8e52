/* protobuf messages in and out of calls. */
#ifndef TR_DAEMON_API_API_MESSAGE_H
#define TR_DAEMON_API_API_MESSAGE_H

#include <protobuf-c/protobuf-c.h>

#include "daemon/api/grpc_server.h"

/* The request; free with protobuf_c_message_free_unpacked(message, NULL). NULL: it is malformed, and the call was ended with
 * INVALID_ARGUMENT. */
ProtobufCMessage *api_message_read(struct grpc_call *call,
    const ProtobufCMessageDescriptor *descriptor, const uint8_t *request, size_t bytes);
/* As grpc_call_send. TR_ELIMIT: longer than TR_GRPC_MESSAGE_MAX, and not sent. */
tr_status api_message_send(struct grpc_call *call, const ProtobufCMessage *message);
/* Sends and ends the call: with OK, or with what went wrong. */
void api_message_answer(struct grpc_call *call, const ProtobufCMessage *message);

#endif
