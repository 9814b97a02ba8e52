#include "common/json_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void json_read_init(struct json_reader *r, const char *text, size_t length)
{
	*r = (struct json_reader){ .at = text, .end = text + length };
}

static bool fail(struct json_reader *r)
{
	r->failed = true;
	return false;
}

static void skip_blanks(struct json_reader *r)
{
	while (
	    r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
		r->at++;
}

static bool looking_at(struct json_reader *r, char c)
{
	skip_blanks(r);
	return !r->failed && r->at < r->end && *r->at == c;
}

static bool take(struct json_reader *r, char c)
{
	if (!looking_at(r, c))
		return fail(r);
	r->at++;
	return true;
}

static bool open_with(struct json_reader *r, char c)
{
	if (r->depth == JSON_READ_DEPTH_MAX || !take(r, c))
		return fail(r);
	r->depth++;
	r->first = true;
	return true;
}

bool json_read_object(struct json_reader *r)
{
	return open_with(r, '{');
}

bool json_read_array(struct json_reader *r)
{
	return open_with(r, '[');
}

/* Past a comma to the next member; false at the closer, which is taken. */
static bool another(struct json_reader *r, char closer)
{
	if (r->failed || r->depth == 0)
		return fail(r);
	if (looking_at(r, closer)) {
		r->at++;
		r->depth--;
		r->first = false;
		return false;
	}
	if (!r->first && !take(r, ','))
		return false;
	r->first = false;
	return true;
}

bool json_read_item(struct json_reader *r)
{
	return another(r, ']');
}

bool json_read_key(struct json_reader *r, char *key, size_t bytes)
{
	return another(r, '}') && json_read_string(r, key, bytes) && take(r, ':');
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The four digits after \u; -1: there are none. */
static int hex_code(struct json_reader *r)
{
	int code = 0;
	if (r->end - r->at < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		int digit = hex_digit(*r->at++);
		if (digit < 0)
			return -1;
		code = code * 16 + digit;
	}
	return code;
}

/* As UTF-8; how many bytes. */
static size_t encode(unsigned code, char to[4])
{
	size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
	static const unsigned char first[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
	for (size_t i = length; i-- > 1; code >>= 6)
		to[i] = (char)(0x80 | (code & 0x3f));
	to[0] = (char)(first[length] | code);
	return length;
}

/* What an escape stands for: how many bytes; 0: it is none, or NUL, or half of a surrogate pair. */
static size_t unescape(struct json_reader *r, char to[4])
{
	static const char from[] = "\"\\/bfnrt", plain[] = "\"\\/\b\f\n\r\t";
	if (r->at == r->end)
		return 0;
	char c = *r->at++;
	const char *found = c != '\0' ? strchr(from, c) : NULL;
	if (found != NULL) {
		to[0] = plain[found - from];
		return 1;
	}
	int code = c == 'u' ? hex_code(r) : -1;
	if (code >= 0xd800 && code < 0xdc00 && r->end - r->at >= 6 && r->at[0] == '\\' &&
	    r->at[1] == 'u') {
		r->at += 2;
		int low = hex_code(r);
		code = low >= 0xdc00 && low < 0xe000
		    ? 0x10000 + (code - 0xd800) * 0x400 + low - 0xdc00
		    : -1;
	}
	return code <= 0 || (code >= 0xd800 && code < 0xe000) ? 0 : encode((unsigned)code, to);
}

bool json_read_string(struct json_reader *r, char *text, size_t bytes)
{
	size_t used = 0;
	if (!take(r, '"'))
		return false;
	while (r->at < r->end && *r->at != '"') {
		char piece[4] = { *r->at++ };
		size_t length = piece[0] == '\\' ? unescape(r, piece) : 1;
		bool control = piece[0] >= 0 && piece[0] < 0x20 && piece[0] != '\n' &&
		    piece[0] != '\t';
		if (length == 0 || control || used + length >= bytes)
			return fail(r);
		memcpy(text + used, piece, length);
		used += length;
	}
	text[used] = '\0';
	return take(r, '"');
}

bool json_read_uint(struct json_reader *r, uint64_t *value)
{
	uint64_t number = 0;
	skip_blanks(r);
	if (r->failed || r->at == r->end || *r->at < '0' || *r->at > '9')
		return fail(r);
	while (r->at < r->end && *r->at >= '0' && *r->at <= '9') {
		unsigned digit = (unsigned)(*r->at++ - '0');
		if (number > (UINT64_MAX - digit) / 10)
			return fail(r);
		number = number * 10 + digit;
	}
	if (r->at < r->end && (*r->at == '.' || *r->at == 'e' || *r->at == 'E'))
		return fail(r);
	*value = number;
	return true;
}

bool json_read_double(struct json_reader *r, double *value)
{
	char text[64], *end;
	size_t length = 0;
	skip_blanks(r);
	while (r->at < r->end && strchr("+-.0123456789aeEflnru", *r->at) != NULL &&
	    *r->at != '\0' && length + 1 < sizeof(text))
		text[length++] = *r->at++;
	text[length] = '\0';
	if (r->failed || length == 0)
		return fail(r);
	if (strcmp(text, "null") == 0) {
		*value = (double)NAN;
		return true;
	}
	if (text[0] != '-' && (text[0] < '0' || text[0] > '9'))
		return fail(r);
	*value = strtod(text, &end);
	return *end == '\0' ? true : fail(r);
}

static bool skip_string(struct json_reader *r)
{
	if (!take(r, '"'))
		return false;
	while (r->at < r->end && *r->at != '"') {
		if (*r->at++ == '\\') {
			if (r->at == r->end)
				return fail(r);
			r->at++;
		}
	}
	return take(r, '"');
}

/* true, false, null or a number: checked only as far as needed to find its end. */
static bool skip_plain(struct json_reader *r)
{
	const char *start = r->at;
	while (r->at < r->end && strchr("+-.0123456789aeflnrstuE", *r->at) != NULL && *r->at != '\0')
		r->at++;
	return r->at > start ? true : fail(r);
}

bool json_read_skip(struct json_reader *r)
{
	unsigned outer = r->depth;
	char closers[JSON_READ_DEPTH_MAX + 1];
	do {
		if (r->depth > outer) {
			/* Inside something opened below: its next member, or its end. */
			char closer = closers[r->depth];
			if (!another(r, closer)) {
				if (r->failed)
					return false;
				continue;
			}
			if (closer == '}' && (!skip_string(r) || !take(r, ':')))
				return false;
		}
		if (looking_at(r, '{') || looking_at(r, '[')) {
			char opener = *r->at;
			if (!open_with(r, opener))
				return false;
			closers[r->depth] = opener == '{' ? '}' : ']';
		} else if (looking_at(r, '"') ? !skip_string(r) : !skip_plain(r)) {
			return false;
		}
	} while (r->depth > outer);
	return !r->failed;
}

bool json_read_value(struct json_reader *r, const char **text, size_t *length)
{
	skip_blanks(r);
	const char *start = r->at;
	if (!json_read_skip(r))
		return false;
	*text = start;
	*length = (size_t)(r->at - start);
	return true;
}

bool json_read_end(struct json_reader *r)
{
	skip_blanks(r);
	return !r->failed && r->depth == 0 && r->at == r->end;
}
