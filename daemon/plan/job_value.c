#include "daemon/plan/job_value.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"

const char *job_value_quote(const char *text, char quoted[JOB_VALUE_QUOTED_MAX])
{
	size_t used = 0;
	quoted[used++] = '\'';
	for (; *text != '\0' && used < JOB_VALUE_QUOTED_MAX - 8; text++)
		quoted[used++] = (char)((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
	(void)snprintf(quoted + used, JOB_VALUE_QUOTED_MAX - used, "%s'",
	    *text != '\0' ? "..." : "");
	return quoted;
}

static tr_status refuse(const struct job_option *option, const char *found, struct tr_error *error)
{
	char allowed[160];
	return tr_error_set(error, TR_EINVAL, "%s: found %s, allowed: %s", option->key, found,
	    job_option_allowed(option, allowed, sizeof(allowed)));
}

static tr_status refuse_text(const struct job_option *option, const char *text,
    struct tr_error *error)
{
	char quoted[JOB_VALUE_QUOTED_MAX];
	return refuse(option, text[0] == '\0' ? "nothing" : job_value_quote(text, quoted), error);
}

/* Digits only: strtoull would take "-1" and " 7". "8k" and "1e6" are refused rather than guessed
 * at. */
static bool parse_whole(const char *text, uint64_t *whole)
{
	uint64_t sum = 0;
	if (*text == '\0')
		return false;
	for (; *text != '\0'; text++) {
		if (!isdigit((unsigned char)*text))
			return false;
		if (sum > (UINT64_MAX - 9) / 10)
			return false;
		sum = sum * 10 + (uint64_t)(*text - '0');
	}
	*whole = sum;
	return true;
}

static bool parse_number(const char *text, bool percent, double *number)
{
	if (strspn(text, "+-.0123456789eE") == 0)
		return false; /* "inf", "nan", leading blanks, hexadecimal */
	if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
		return false;
	char *end;
	errno = 0;
	double parsed = strtod(text, &end);
	if (end == text || !isfinite(parsed))
		return false;
	if (percent && strcmp(end, "%") == 0) {
		*number = parsed / 100;
		return true;
	}
	*number = parsed;
	return *end == '\0';
}

tr_status job_value_parse(const struct job_option *option, const char *text,
    struct job_value *value, struct tr_error *error)
{
	struct job_value parsed = { .text = text };
	bool good = true;
	switch (option->kind) {
	case OPTION_UINT:
	case OPTION_UINTS:
		good = parse_whole(text, &parsed.whole);
		break;
	case OPTION_DOUBLE:
	case OPTION_FRACTION:
		good = parse_number(text, option->kind == OPTION_FRACTION, &parsed.number);
		break;
	case OPTION_BOOL:
		parsed.whole = strcmp(text, "true") == 0;
		good = parsed.whole || strcmp(text, "false") == 0;
		break;
	case OPTION_STRING:
	case OPTION_CHOICE:
	case OPTION_PATH:
	case OPTION_PATHS:
		break;
	}
	if (!good)
		return refuse_text(option, text, error);
	*value = parsed;
	return TR_OK;
}

static bool is_choice(const char *choices, const char *text)
{
	size_t length = strlen(text);
	for (const char *at = choices; at != NULL;
	     at = strchr(at, '|'), at = at != NULL ? at + 1 : NULL) {
		if (length > 0 && strncmp(at, text, length) == 0 &&
		    (at[length] == '|' || at[length] == '\0'))
			return true;
	}
	return false;
}

/* Names become parts of paths. */
static bool is_name(const char *text)
{
	if (text[0] == '.' || text[0] == '-')
		return false;
	for (; *text != '\0'; text++) {
		if (!isalnum((unsigned char)*text) && strchr("._-", *text) == NULL)
			return false;
	}
	return true;
}

static tr_status check_text(const struct job_option *option, const char *text,
    struct tr_error *error)
{
	size_t length = strlen(text);
	bool good = true;
	if (option->kind == OPTION_CHOICE)
		good = is_choice(option->allowed, text);
	else if (option->kind == OPTION_STRING)
		good = length >= (size_t)option->least && length <= (size_t)option->most &&
		    (option->allowed == NULL || is_name(text));
	else if (length == 0 &&
	    (option->kind == OPTION_PATHS || option->fallback == NULL ||
	        option->fallback[0] != '\0'))
		good = false;
	else if (length >= TR_JOB_PATH_MAX)
		return tr_error_set(error, TR_EINVAL,
		    "%s: found a path of %zu bytes, allowed: at most %d", option->key, length,
		    TR_JOB_PATH_MAX - 1);
	return good ? TR_OK : refuse_text(option, text, error);
}

tr_status job_value_check(const struct job_option *option, const struct job_value *value,
    struct tr_error *error)
{
	char found[48];
	switch (option->kind) {
	case OPTION_UINT:
	case OPTION_UINTS:
		if ((double)value->whole >= option->least && (double)value->whole <= option->most)
			return TR_OK;
		(void)snprintf(found, sizeof(found), "%llu", (unsigned long long)value->whole);
		return refuse(option, found, error);
	case OPTION_DOUBLE:
	case OPTION_FRACTION:
		if (value->number >= option->least && value->number <= option->most)
			return TR_OK;
		(void)snprintf(found, sizeof(found), "%g", value->number);
		return refuse(option, found, error);
	case OPTION_BOOL:
		return TR_OK;
	default:
		return check_text(option, value->text, error);
	}
}

void *job_value_message(const ProtobufCMessageDescriptor *descriptor)
{
	ProtobufCMessage *message = calloc(1, descriptor->sizeof_message);
	if (message != NULL)
		protobuf_c_message_init(descriptor, message);
	return message;
}

static bool is_own_string(const char *text)
{
	return text != NULL && text != (const char *)protobuf_c_empty_string;
}

static void *member(const ProtobufCMessage *message, unsigned offset)
{
	return (char *)(uintptr_t)message + offset;
}

/* The message-typed field `name` of `message`, made if `make`. NULL: missing, or out of memory. */
static ProtobufCMessage *child(ProtobufCMessage *message, const char *name, bool make)
{
	const ProtobufCFieldDescriptor
	    *field = protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name);
	assert(field != NULL && field->type == PROTOBUF_C_TYPE_MESSAGE);
	ProtobufCMessage **slot = member(message, field->offset);
	if (*slot == NULL && make)
		*slot = job_value_message(field->descriptor);
	return *slot;
}

/* Where a key lives: "mesh.nodes" in spec.mesh, "train.lr" in spec.train.optimizer, "model.width"
 * in spec.train.model. */
static ProtobufCMessage *owner(const Traind__V1__JobSpec *spec, const struct job_option *option,
    bool make, const ProtobufCFieldDescriptor **field)
{
	ProtobufCMessage *message = (ProtobufCMessage *)(uintptr_t)&spec->base;
	const char *dot = strchr(option->key, '.');
	if (dot != NULL) {
		char section[32];
		(void)snprintf(section, sizeof(section), "%.*s", (int)(dot - option->key),
		    option->key);
		bool mesh = strcmp(section, "mesh") == 0;
		if (!mesh)
			message = child(message, "train", make);
		if (message != NULL)
			message = child(message,
			    strcmp(section, "train") == 0 ? "optimizer" : section, make);
	}
	if (message == NULL)
		return NULL;
	*field = protobuf_c_message_descriptor_get_field_by_name(message->descriptor,
	    dot != NULL ? dot + 1 : option->key);
	assert(*field != NULL);
	return message;
}

static tr_status store_text(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
    const char *text)
{
	char *copy = strdup(text);
	if (copy == NULL)
		return TR_ENOMEM;
	if (field->label != PROTOBUF_C_LABEL_REPEATED) {
		char **slot = member(message, field->offset);
		if (is_own_string(*slot))
			free(*slot);
		*slot = copy;
		return TR_OK;
	}
	size_t *count = member(message, field->quantifier_offset);
	char ***list = member(message, field->offset);
	char **grown = realloc(*list, (*count + 1) * sizeof(**list));
	if (grown == NULL) {
		free(copy);
		return TR_ENOMEM;
	}
	*list = grown;
	grown[(*count)++] = copy;
	return TR_OK;
}

static tr_status store_number(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
    uint32_t number)
{
	if (field->label != PROTOBUF_C_LABEL_REPEATED) {
		*(uint32_t *)member(message, field->offset) = number;
		return TR_OK;
	}
	size_t *count = member(message, field->quantifier_offset);
	uint32_t **list = member(message, field->offset);
	uint32_t *grown = realloc(*list, (*count + 1) * sizeof(**list));
	if (grown == NULL)
		return TR_ENOMEM;
	*list = grown;
	grown[(*count)++] = number;
	return TR_OK;
}

tr_status job_value_store(Traind__V1__JobSpec *spec, const struct job_option *option,
    const struct job_value *value, struct tr_error *error)
{
	const ProtobufCFieldDescriptor *field;
	ProtobufCMessage *message = owner(spec, option, true, &field);
	tr_status status = TR_OK;
	if (message == NULL)
		return tr_error_set(error, TR_ENOMEM, "%s: out of memory", option->key);
	switch (field->type) {
	case PROTOBUF_C_TYPE_UINT32:
		status = store_number(message, field, (uint32_t)value->whole);
		break;
	case PROTOBUF_C_TYPE_UINT64:
		*(uint64_t *)member(message, field->offset) = value->whole;
		break;
	case PROTOBUF_C_TYPE_BOOL:
		*(protobuf_c_boolean *)member(message, field->offset) = value->whole != 0;
		break;
	case PROTOBUF_C_TYPE_DOUBLE:
		*(double *)member(message, field->offset) = value->number;
		break;
	case PROTOBUF_C_TYPE_STRING:
		status = store_text(message, field, value->text);
		break;
	default:
		assert(!"a job option has a type that job_value.c does not know");
	}
	return status == TR_OK ? TR_OK
	                       : tr_error_set(error, status, "%s: out of memory", option->key);
}

bool job_value_load(const Traind__V1__JobSpec *spec, const struct job_option *option,
    struct job_value *value)
{
	const ProtobufCFieldDescriptor *field;
	const ProtobufCMessage *message = owner(spec, option, false, &field);
	*value = (struct job_value){ .text = "" };
	if (message == NULL)
		return false;
	if (field->label == PROTOBUF_C_LABEL_REPEATED) {
		value->whole = *(const size_t *)member(message, field->quantifier_offset);
		return value->whole != 0;
	}
	switch (field->type) {
	case PROTOBUF_C_TYPE_UINT32:
		value->whole = *(const uint32_t *)member(message, field->offset);
		return value->whole != 0;
	case PROTOBUF_C_TYPE_UINT64:
		value->whole = *(const uint64_t *)member(message, field->offset);
		return value->whole != 0;
	case PROTOBUF_C_TYPE_BOOL:
		value->whole = *(const protobuf_c_boolean *)member(message, field->offset) != 0;
		return value->whole != 0;
	case PROTOBUF_C_TYPE_DOUBLE:
		value->number = *(const double *)member(message, field->offset);
		return value->number != 0;
	case PROTOBUF_C_TYPE_STRING:
		value->text = *(char *const *)member(message, field->offset);
		if (value->text == NULL)
			value->text = "";
		return value->text[0] != '\0';
	default:
		assert(!"a job option has a type that job_value.c does not know");
	}
	return false;
}

void job_value_clear(Traind__V1__JobSpec *spec, const struct job_option *option)
{
	const ProtobufCFieldDescriptor *field;
	ProtobufCMessage *message = owner(spec, option, false, &field);
	if (message == NULL)
		return;
	if (field->label == PROTOBUF_C_LABEL_REPEATED) {
		size_t *count = member(message, field->quantifier_offset);
		void **list = member(message, field->offset);
		for (size_t i = 0; i < *count && field->type == PROTOBUF_C_TYPE_STRING; i++)
			free(((char **)*list)[i]);
		free(*list);
		*list = NULL;
		*count = 0;
	} else if (field->type == PROTOBUF_C_TYPE_STRING) {
		char **slot = member(message, field->offset);
		if (is_own_string(*slot))
			free(*slot);
		*slot = (char *)(uintptr_t)protobuf_c_empty_string;
	} else {
		struct job_value zero = { .text = "" };
		(void)job_value_store(spec, option, &zero, NULL);
	}
}

const char *job_value_text(const Traind__V1__JobSpec *spec, const struct job_option *option,
    size_t i)
{
	const ProtobufCFieldDescriptor *field;
	const ProtobufCMessage *message = owner(spec, option, false, &field);
	if (message == NULL || field->type != PROTOBUF_C_TYPE_STRING)
		return NULL;
	if (field->label == PROTOBUF_C_LABEL_REPEATED) {
		size_t count = *(const size_t *)member(message, field->quantifier_offset);
		char *const *list = *(char **const *)member(message, field->offset);
		return i < count ? list[i] : NULL;
	}
	const char *text = *(char *const *)member(message, field->offset);
	return i == 0 && text != NULL && text[0] != '\0' ? text : NULL;
}

tr_status job_value_check_list(const Traind__V1__JobSpec *spec, const struct job_option *option,
    struct tr_error *error)
{
	const ProtobufCFieldDescriptor *field;
	const ProtobufCMessage *message = owner(spec, option, false, &field);
	tr_status status = TR_OK;
	if (message == NULL)
		return TR_OK;
	size_t count = *(const size_t *)member(message, field->quantifier_offset);
	const uint32_t *list = *(uint32_t *const *)member(message, field->offset);
	if (count > job_option_list_most(option))
		return tr_error_set(error, TR_EINVAL,
		    "%s: found a list of %zu, allowed: at most %zu", option->key, count,
		    job_option_list_most(option));
	for (size_t i = 0; i < count && status == TR_OK; i++)
		status = job_value_check(option,
		    &(struct job_value){ .whole = list[i], .text = "" }, error);
	return status;
}
