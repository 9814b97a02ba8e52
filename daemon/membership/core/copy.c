#include <stdlib.h>
#include <string.h>

#include "daemon/membership/core/state.h"

void *copy_message(struct membership *m, const ProtobufCMessage *message)
{
	size_t bytes = protobuf_c_message_get_packed_size(message);
	uint8_t *packed = malloc(bytes > 0 ? bytes : 1);
	void *copy = NULL;
	if (packed != NULL) {
		protobuf_c_message_pack(message, packed);
		copy = protobuf_c_message_unpack(message->descriptor, NULL, bytes, packed);
		free(packed);
	}
	if (copy == NULL)
		m->oom = true;
	return copy;
}

char *copy_string(struct membership *m, const char *text)
{
	char *copy = strdup(text);
	if (copy == NULL)
		m->oom = true;
	return copy;
}

void copy_text(char *to, size_t size, const char *from)
{
	size_t length = strnlen(from, size);
	if (length >= size) {
		length = size - 1;
		while (length > 0 && ((unsigned char)from[length] & 0xc0u) == 0x80u)
			length--;
	}
	memcpy(to, from, length);
	to[length] = '\0';
}

void copy_number(struct membership *m, uint64_t **array, size_t *count, uint64_t value)
{
	uint64_t *grown = realloc(*array, (*count + 1) * sizeof(**array));
	if (grown == NULL) {
		m->oom = true;
		return;
	}
	grown[(*count)++] = value;
	*array = grown;
}
