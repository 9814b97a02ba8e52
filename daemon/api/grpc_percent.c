#include "daemon/api/grpc_percent.h"

#include <stdbool.h>
#include <stdint.h>

static const char percent_digits[] = "0123456789ABCDEF";

static bool percent_plain(unsigned char c)
{
	return c >= 0x20 && c <= 0x7e && c != '%';
}

static bool percent_continues(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

/* Bytes of the character at text: a lead byte with its continuation bytes, else one. */
static size_t percent_character(const char *text)
{
	size_t bytes = 1;
	if (((unsigned char)text[0] & 0xc0) == 0xc0)
		while (bytes < 4 && percent_continues(text[bytes]))
			bytes++;
	return bytes;
}

size_t grpc_percent_encode(const char *text, char *out, size_t capacity)
{
	size_t used = 0;
	if (capacity == 0)
		return 0;
	while (*text != '\0') {
		size_t bytes = percent_character(text);
		size_t needed = percent_plain((unsigned char)*text) ? 1 : 3 * bytes;
		if (used + needed >= capacity)
			break;
		for (size_t i = 0; i < bytes; i++) {
			unsigned char c = (unsigned char)text[i];
			if (percent_plain(c)) {
				out[used++] = (char)c;
				continue;
			}
			out[used++] = '%';
			out[used++] = percent_digits[c >> 4];
			out[used++] = percent_digits[c & 15];
		}
		text += bytes;
	}
	out[used] = '\0';
	return used;
}

static int percent_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

size_t grpc_percent_decode(const char *text, size_t length, char *out, size_t capacity)
{
	size_t used = 0;
	if (capacity == 0)
		return 0;
	for (size_t i = 0; i < length && used + 1 < capacity; i++) {
		char c = text[i];
		if (c == '%' && i + 2 < length && percent_value(text[i + 1]) >= 0 &&
		    percent_value(text[i + 2]) >= 0) {
			c = (char)(percent_value(text[i + 1]) << 4 | percent_value(text[i + 2]));
			i += 2;
		}
		out[used++] = c == '\0' ? '?' : c;
	}
	out[used] = '\0';
	return used;
}
