/* Reading JSON piece by piece from a buffer: for headers and manifests whose keys are known. No allocation, no recursion
 * deeper than JSON_READ_DEPTH_MAX; bytes are not trusted. RFC 8259, except that numbers are whole and not negative where one is asked for.
 *
 *	struct json_reader r;
 *	char key[32];
 *	json_read_init(&r, text, length);
 *	for (json_read_object(&r); json_read_key(&r, key, sizeof(key));)
 *		if (strcmp(key, "step") == 0) json_read_uint(&r, &step); else json_read_skip(&r);
 *	if (!json_read_end(&r)) ...            // something above failed
 *
 * After a failure every call fails.
 */
#ifndef TR_COMMON_JSON_READ_H
#define TR_COMMON_JSON_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_READ_DEPTH_MAX 16

struct json_reader {
	const char *at, *end;
	unsigned depth;
	bool first; /* of the innermost open object or array */
	bool failed;
};

void json_read_init(struct json_reader *reader, const char *text, size_t length);
bool json_read_object(struct json_reader *reader);
bool json_read_array(struct json_reader *reader);
/* The next key of the open object; false at its end, or on failure. A key longer than `bytes` - 1 is a failure. */
bool json_read_key(struct json_reader *reader, char *key, size_t bytes);
/* True if another item of the open array follows. */
bool json_read_item(struct json_reader *reader);
bool json_read_string(struct json_reader *reader, char *text, size_t bytes);
bool json_read_uint(struct json_reader *reader, uint64_t *value);
bool json_read_double(struct json_reader *reader, double *value); /* null: NaN */
bool json_read_skip(struct json_reader *reader);                  /* any value */
/* Any value: where it stands in the text, without blanks around it. */
bool json_read_value(struct json_reader *reader, const char **text, size_t *length);
/* Nothing but blanks is left, and nothing failed. */
bool json_read_end(struct json_reader *reader);

#endif
