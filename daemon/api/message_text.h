/* The strings of a protobuf message must be UTF-8, or clients in other languages cannot read the message. protobuf-c does not look. */
#ifndef TR_DAEMON_API_MESSAGE_TEXT_H
#define TR_DAEMON_API_MESSAGE_TEXT_H

#include <protobuf-c/protobuf-c.h>

/* The name of the first field whose text is not UTF-8, in this message or in one inside it; NULL: all are. */
const char *message_text_bad_field(const ProtobufCMessage *message);
/* Replaces each byte that is no UTF-8 by '?', in place: for unpacked messages, whose strings are their own. */
void message_text_repair(ProtobufCMessage *message);

#endif
