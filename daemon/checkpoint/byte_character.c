#include "daemon/checkpoint/byte_character.h"

#include <stdbool.h>

static bool is_seen(unsigned byte)
{
	return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

/* Unseen bytes are 0 to 32, 127 to 160 and 173; in this order they are U+0100, U+0101... */
static unsigned code_of(unsigned byte)
{
	if (is_seen(byte))
		return byte;
	return 256 + (byte <= 32 ? byte : byte <= 160 ? byte - 127 + 33 : 67);
}

static unsigned byte_of(unsigned code)
{
	if (code < 256)
		return is_seen(code) ? code : 256;
	unsigned nth = code - 256;
	return nth < 33 ? nth : nth < 67 ? nth - 33 + 127 : nth == 67 ? 173 : 256;
}

void byte_character(unsigned char byte, char text[3])
{
	unsigned code = code_of(byte);
	text[0] = (char)(code < 0x80 ? code : 0xc0 | code >> 6);
	text[1] = (char)(code < 0x80 ? 0 : 0x80 | (code & 0x3f));
	text[2] = '\0';
}

size_t byte_of_character(const char *text, size_t left, unsigned char *byte)
{
	const unsigned char *at = (const unsigned char *)text;
	size_t length = at[0] < 0x80 ? 1 : 2;
	if (length == 2 && (left < 2 || (at[0] & 0xe0) != 0xc0 || (at[1] & 0xc0) != 0x80))
		return 0;
	unsigned code = length == 1 ? at[0] : (at[0] & 0x1fu) << 6 | (at[1] & 0x3fu);
	unsigned found = byte_of(code);
	if (found > 255)
		return 0;
	*byte = (unsigned char)found;
	return length;
}
