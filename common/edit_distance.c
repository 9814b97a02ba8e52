#include "common/edit_distance.h"

#include <string.h>

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

unsigned tr_edit_distance(const char *a, const char *b)
{
	unsigned rows[3][TR_EDIT_WORD_MAX + 1] = { 0 };
	unsigned *before = rows[0], *last = rows[1], *now = rows[2];
	size_t n = strlen(b);
	if (strlen(a) > TR_EDIT_WORD_MAX || n > TR_EDIT_WORD_MAX)
		return TR_EDIT_WORD_MAX + 1;
	for (size_t j = 0; j <= n; j++)
		last[j] = (unsigned)j;
	for (size_t i = 1; a[i - 1] != '\0'; i++) {
		now[0] = (unsigned)i;
		for (size_t j = 1; j <= n; j++) {
			unsigned change = last[j - 1] + (a[i - 1] != b[j - 1]);
			now[j] = least(change, least(last[j], now[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				now[j] = least(now[j], before[j - 2] + 1);
		}
		unsigned *free_row = before;
		before = last;
		last = now;
		now = free_row;
	}
	return last[n];
}

unsigned tr_edits_of_a_slip(size_t length)
{
	return length < 4 ? 1 : length < 8 ? 2 : 3;
}
