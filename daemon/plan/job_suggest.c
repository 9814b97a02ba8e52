/* "Did you mean": the key at the least edit distance (Levenshtein, 1966, with swaps of neighbours
 * as one edit). */
#include "daemon/plan/job_options.h"

#include <string.h>

#define COMPARED_MAX 48

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* Both shorter than COMPARED_MAX. */
static unsigned distance(const char *a, const char *b)
{
	unsigned rows[3][COMPARED_MAX + 1] = { 0 };
	unsigned *before = rows[0], *last = rows[1], *now = rows[2];
	size_t n = strlen(b);
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

static const char *last_part(const char *key)
{
	const char *dot = strrchr(key, '.');
	return dot != NULL ? dot + 1 : key;
}

const char *job_option_suggest(const char *key)
{
	if (strlen(key) >= COMPARED_MAX)
		return NULL;
	const char *best = NULL;
	unsigned best_distance = COMPARED_MAX;
	for (const struct job_option *row = job_options(); row->key != NULL; row++) {
		/* The right name in the wrong section is near as well: "model.lr", "steps". */
		unsigned apart = least(distance(key, row->key),
		    1 + distance(last_part(key), last_part(row->key)));
		if (apart < best_distance) {
			best_distance = apart;
			best = row->key;
		}
	}
	size_t length = strlen(last_part(key));
	return best_distance <= (length < 4 ? 1 : length < 8 ? 2 : 3) ? best : NULL;
}
