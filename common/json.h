/* Writing JSON into a growing buffer; commas are placed by the writer. No parsing here.
 *
 *	struct json j = {0};
 *	json_object(&j); json_key(&j, "id"); json_string(&j, id); json_end(&j);
 *	puts(json_text(&j)); json_finish(&j);
 *
 * After an allocation failure every call is a no-op and json_text() returns NULL.
 */
#ifndef TR_COMMON_JSON_H
#define TR_COMMON_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_DEPTH_MAX 32

struct json {
	char *text;
	size_t length, capacity;
	unsigned depth;
	char closers[JSON_DEPTH_MAX];
	bool comma, failed;
};

void json_object(struct json *json);
void json_array(struct json *json);
void json_end(struct json *json); /* closes the innermost object or array */
void json_key(struct json *json, const char *key);
void json_key_uint(struct json *json, const char *key, uint64_t value); /* both */
void json_key_bool(struct json *json, const char *key, bool value);
void json_string(struct json *json, const char *value); /* NULL writes null; bad UTF-8 is replaced */
void json_stringn(struct json *json, const char *value, size_t length);
void json_uint(struct json *json, uint64_t value);
void json_int(struct json *json, int64_t value);
void json_double(struct json *json, double value); /* NaN and infinity are written as null */
void json_bool(struct json *json, bool value);
void json_null(struct json *json);
const char *json_text(const struct json *json);
void json_finish(struct json *json);

#endif
