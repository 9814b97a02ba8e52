#include "daemon/api/message_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/utf8.h"

/* Returns whether the text is UTF-8 as it came. */
static bool text_check(char *text, bool repair)
{
	bool good = true;
	size_t length = strlen(text);
	for (size_t i = 0; i < length;) {
		size_t bytes = utf8_length((const unsigned char *)text + i, length - i);
		if (bytes == 0) {
			good = false;
			if (!repair)
				return false;
			text[i] = '?';
			bytes = 1;
		}
		i += bytes;
	}
	return good;
}

static const char *walk(const ProtobufCMessage *message, bool repair);

/* One value of a string or message field. */
static const char *walk_value(const ProtobufCFieldDescriptor *field, void *value, bool repair)
{
	if (value == NULL)
		return NULL;
	if (field->type == PROTOBUF_C_TYPE_MESSAGE)
		return walk(value, repair);
	return text_check(value, repair) ? NULL : field->name;
}

/* protobuf-c describes its structs by offsets: pointers at `offset`, counts and cases at `quantifier_offset`. */
static void *walk_pointer(const void *at)
{
	void *pointer;
	memcpy(&pointer, at, sizeof(pointer));
	return pointer;
}

static const char *walk_field(const ProtobufCMessage *message,
    const ProtobufCFieldDescriptor *field, bool repair)
{
	const uint8_t *base = (const uint8_t *)message;
	if (field->label != PROTOBUF_C_LABEL_REPEATED) {
		uint32_t chosen;
		memcpy(&chosen, base + field->quantifier_offset, sizeof(chosen));
		if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) && chosen != field->id)
			return NULL;
		return walk_value(field, walk_pointer(base + field->offset), repair);
	}
	size_t count;
	const char *bad = NULL;
	memcpy(&count, base + field->quantifier_offset, sizeof(count));
	uint8_t *values = walk_pointer(base + field->offset);
	for (size_t i = 0; i < count && (bad == NULL || repair); i++)
		bad = walk_value(field, walk_pointer(values + i * sizeof(void *)), repair);
	return bad;
}

/* Depth: the schemas nest a handful of messages, none of them in itself. */
static const char *walk(const ProtobufCMessage *message, bool repair)
{
	const char *bad = NULL;
	const ProtobufCMessageDescriptor *descriptor = message->descriptor;
	for (unsigned i = 0; i < descriptor->n_fields && (bad == NULL || repair); i++) {
		const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
		if (field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE)
			bad = walk_field(message, field, repair);
	}
	return bad;
}

const char *message_text_bad_field(const ProtobufCMessage *message)
{
	return walk(message, false);
}

void message_text_repair(ProtobufCMessage *message)
{
	(void)walk(message, true);
}
