/* The strings of a protobuf message must be UTF-8, or clients in other languages cannot read the message. protobuf-c does not look. */
#ifndef TR_DAEMON_API_MESSAGE_TEXT_H
#define TR_DAEMON_API_MESSAGE_TEXT_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

/* The name of the first field whose text is not UTF-8, in this message or in one inside it; NULL: all are. */
const char *message_text_bad_field(const ProtobufCMessage *message);
/* Replaces each byte that is no UTF-8 by '?', in place: for unpacked messages, whose strings are their own. */
void message_text_repair(ProtobufCMessage *message);

/* False: no more are wanted. */
typedef bool (*message_text_visitor)(const ProtobufCFieldDescriptor *field, char *text);
/* Each text of the message and of those inside it, but of those of the kind `but` (or NULL). Returns the name of the field at which it ended early, or NULL. */
const char *message_text_each(const ProtobufCMessage *message,
    const ProtobufCMessageDescriptor *but, message_text_visitor visit);

#endif
