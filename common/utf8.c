#include "common/utf8.h"

#include <stdbool.h>

size_t utf8_length(const unsigned char *s, size_t left)
{
	if (s[0] < 0x80)
		return 1;
	size_t need = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
	if (s[0] < 0xc2 || s[0] > 0xf4 || left < need)
		return 0;
	for (size_t i = 1; i < need; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
	bool surrogate = s[0] == 0xed && s[1] > 0x9f;
	bool beyond = s[0] == 0xf4 && s[1] > 0x8f;
	return overlong || surrogate || beyond ? 0 : need;
}

size_t utf8_bad_length(const unsigned char *s, size_t left)
{
	size_t need = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2, have = 2;
	unsigned least = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
	unsigned most = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
	if (s[0] < 0xc2 || s[0] > 0xf4 || left < 2 || s[1] < least || s[1] > most)
		return 1;
	while (have < need && have < left && (s[have] & 0xc0) == 0x80)
		have++;
	return have;
}

size_t utf8_begun(const unsigned char *s, size_t length)
{
	for (size_t n = 1; n <= 3 && n <= length; n++) {
		unsigned char c = s[length - n];
		size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
		if ((c & 0xc0) != 0x80)
			return need > n ? n : 0;
	}
	return 0;
}
