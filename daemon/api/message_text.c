#include "daemon/api/message_text.h"

#include <stdint.h>
#include <string.h>

#include "common/utf8.h"

static bool is_good(const ProtobufCFieldDescriptor *field, char *text)
{
	(void)field;
	size_t length = strlen(text), bytes = 1;
	for (size_t i = 0; i < length && bytes > 0; i += bytes)
		bytes = utf8_length((const unsigned char *)text + i, length - i);
	return bytes > 0;
}

static bool repair(const ProtobufCFieldDescriptor *field, char *text)
{
	(void)field;
	size_t length = strlen(text);
	for (size_t i = 0, bytes; i < length; i += bytes) {
		bytes = utf8_length((const unsigned char *)text + i, length - i);
		if (bytes == 0)
			text[i] = '?';
		bytes += bytes == 0;
	}
	return true;
}

struct walk {
	const ProtobufCMessageDescriptor *but;
	message_text_visitor visit;
};

/* One value of a string or message field. */
static const char *walk_value(const struct walk *walk, const ProtobufCFieldDescriptor *field,
    void *value)
{
	if (value == NULL)
		return NULL;
	if (field->type == PROTOBUF_C_TYPE_MESSAGE)
		return message_text_each(value, walk->but, walk->visit);
	return walk->visit(field, value) ? NULL : field->name;
}

/* protobuf-c describes its structs by offsets: pointers at `offset`, counts and cases at `quantifier_offset`. */
static void *walk_pointer(const void *at)
{
	void *pointer;
	memcpy(&pointer, at, sizeof(pointer));
	return pointer;
}

static const char *walk_field(const struct walk *walk, const ProtobufCMessage *message,
    const ProtobufCFieldDescriptor *field)
{
	const uint8_t *base = (const uint8_t *)message;
	if (field->label != PROTOBUF_C_LABEL_REPEATED) {
		uint32_t chosen;
		memcpy(&chosen, base + field->quantifier_offset, sizeof(chosen));
		if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) && chosen != field->id)
			return NULL;
		return walk_value(walk, field, walk_pointer(base + field->offset));
	}
	size_t count;
	const char *ended = NULL;
	memcpy(&count, base + field->quantifier_offset, sizeof(count));
	uint8_t *values = walk_pointer(base + field->offset);
	for (size_t i = 0; i < count && ended == NULL; i++)
		ended = walk_value(walk, field, walk_pointer(values + i * sizeof(void *)));
	return ended;
}

/* Depth: the schemas nest a handful of messages, none of them in itself. */
const char *message_text_each(const ProtobufCMessage *message,
    const ProtobufCMessageDescriptor *but, message_text_visitor visit)
{
	const struct walk walk = { but, visit };
	const char *ended = NULL;
	const ProtobufCMessageDescriptor *descriptor = message->descriptor;
	for (unsigned i = 0; descriptor != but && i < descriptor->n_fields && ended == NULL; i++) {
		const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
		if (field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE)
			ended = walk_field(&walk, message, field);
	}
	return ended;
}

const char *message_text_bad_field(const ProtobufCMessage *message)
{
	return message_text_each(message, NULL, is_good);
}

void message_text_repair(ProtobufCMessage *message)
{
	(void)message_text_each(message, NULL, repair);
}
