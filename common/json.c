#include "common/json.h"

#include <assert.h>
#include <math.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"

static void append(struct json *json, const char *text, size_t length)
{
	if (json->failed)
		return;
	if (json->length + length + 1 > json->capacity) {
		size_t capacity = (json->length + length + 1) * 2;
		char *grown = realloc(json->text, capacity);
		if (grown == NULL) {
			json->failed = true;
			return;
		}
		json->text = grown;
		json->capacity = capacity;
	}
	memcpy(json->text + json->length, text, length);
	json->length += length;
	json->text[json->length] = '\0';
}

static void value_begins(struct json *json)
{
	if (json->comma)
		append(json, ",", 1);
	json->comma = true;
}

static void open_with(struct json *json, const char *opener, char closer)
{
	assert(json->depth < JSON_DEPTH_MAX);
	value_begins(json);
	append(json, opener, 1);
	json->closers[json->depth++] = closer;
	json->comma = false;
}

void json_object(struct json *json)
{
	open_with(json, "{", '}');
}

void json_array(struct json *json)
{
	open_with(json, "[", ']');
}

void json_end(struct json *json)
{
	assert(json->depth > 0);
	append(json, &json->closers[--json->depth], 1);
	json->comma = true;
}

static void quoted(struct json *json, const char *value, size_t length)
{
	append(json, "\"", 1);
	for (size_t i = 0; i < length;) {
		unsigned char c = (unsigned char)value[i];
		size_t run = utf8_length((const unsigned char *)value + i, length - i);
		char escape[8];
		if (run == 0) {
			append(json, "\xef\xbf\xbd", 3);
			run = 1;
		} else if (c == '"' || c == '\\') {
			escape[0] = '\\';
			escape[1] = (char)c;
			append(json, escape, 2);
		} else if (c == '\n') {
			append(json, "\\n", 2);
		} else if (c < 0x20 || c == 0x7f) {
			(void)snprintf(escape, sizeof(escape), "\\u%04x", c);
			append(json, escape, 6);
		} else {
			append(json, value + i, run);
		}
		i += run;
	}
	append(json, "\"", 1);
}

void json_key(struct json *json, const char *key)
{
	value_begins(json);
	quoted(json, key, strlen(key));
	append(json, ":", 1);
	json->comma = false;
}

void json_stringn(struct json *json, const char *value, size_t length)
{
	value_begins(json);
	quoted(json, value, length);
}

void json_string(struct json *json, const char *value)
{
	if (value == NULL)
		json_null(json);
	else
		json_stringn(json, value, strlen(value));
}

static void plain(struct json *json, const char *text)
{
	value_begins(json);
	append(json, text, strlen(text));
}

void json_uint(struct json *json, uint64_t value)
{
	char text[32];
	(void)snprintf(text, sizeof(text), "%" PRIu64, value);
	plain(json, text);
}

void json_int(struct json *json, int64_t value)
{
	char text[32];
	(void)snprintf(text, sizeof(text), "%" PRId64, value);
	plain(json, text);
}

void json_double(struct json *json, double value)
{
	char text[40];
	if (!isfinite(value)) {
		json_null(json);
		return;
	}
	/* As many digits as it takes to read the same number again. */
	for (int digits = 9; digits <= 17; digits += digits < 15 ? 6 : 1) {
		(void)snprintf(text, sizeof(text), "%.*g", digits, value);
		if (strtod(text, NULL) == value)
			break;
	}
	plain(json, text);
}

void json_bool(struct json *json, bool value)
{
	plain(json, value ? "true" : "false");
}

void json_null(struct json *json)
{
	plain(json, "null");
}

const char *json_text(const struct json *json)
{
	return json->failed ? NULL : json->text;
}

void json_finish(struct json *json)
{
	free(json->text);
	memset(json, 0, sizeof(*json));
}

void json_key_uint(struct json *json, const char *key, uint64_t value)
{
	json_key(json, key);
	json_uint(json, value);
}

void json_key_bool(struct json *json, const char *key, bool value)
{
	json_key(json, key);
	json_bool(json, value);
}
