/* Which points of a kill matrix run. KILL_MATRIX in the environment of the test's caller: "full": each of them; "3/8": the third of eight equal parts, all of which together are each of them, so
 * that processors share a long matrix, or days do; without it points are thinned, the same each time.
 *
 *	if (kill_wanted(++number))
 *		run(point);
 */
#ifndef TR_TESTS_KILL_MATRIX_H
#define TR_TESTS_KILL_MATRIX_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KILL_THIN 307 /* one point of so many, when thinned */

struct kill_parts {
	bool known;
	unsigned part, of; /* of 0: thinned */
};

static inline const struct kill_parts *kill_parts(void)
{
	static struct kill_parts parts;
	const char *matrix = parts.known ? NULL : getenv("KILL_MATRIX");
	char more;

	parts.known = true;
	if (matrix == NULL || matrix[0] == '\0')
		return &parts;
	parts.part = parts.of = 1;
	if (strcmp(matrix, "full") == 0)
		return &parts;
	if (sscanf(matrix, "%u/%u%c", &parts.part, &parts.of, &more) != 2 || parts.part == 0 ||
	    parts.part > parts.of) {
		(void)fprintf(stderr, "KILL_MATRIX: found '%s', allowed: full, or 1/N to N/N\n",
		    matrix);
		exit(2);
	}
	return &parts;
}

static inline bool kill_thinned(void)
{
	return kill_parts()->of == 0;
}

/* `number`: of the point, from 1. */
static inline bool kill_wanted(unsigned number)
{
	const struct kill_parts *parts = kill_parts();

	return parts->of == 0 ? number % KILL_THIN == 0 : number % parts->of == parts->part - 1;
}

/* The same of a case whose points all run where it does, so that no part has to find out how many another one has. `thin`: one of so many.
 * Whatever the dimensions of the matrix, each part has of everything. */
static inline bool kill_wanted_case(unsigned number, unsigned thin)
{
	const struct kill_parts *parts = kill_parts();
	unsigned mixed = (unsigned)((number * UINT64_C(0x9e3779b97f4a7c15)) >> 33);

	return parts->of == 0 ? mixed % thin == 0 : mixed % parts->of == parts->part - 1;
}

#endif
