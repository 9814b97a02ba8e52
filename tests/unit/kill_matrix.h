/* Which points of a kill matrix run. KILL_MATRIX in the environment of the test's caller: "full": each of them; "3/8": the third of eight equal parts, all of which together are each of them, so
 * that processors share a long matrix, or days do; without it points are thinned, the same each time.
 *
 *	if (kill_wanted(++number))
 *		run(point);
 */
#ifndef TR_TESTS_KILL_MATRIX_H
#define TR_TESTS_KILL_MATRIX_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KILL_THIN 307 /* one point of so many, when thinned */

/* *part of how many; 0: thinned. */
static inline unsigned kill_parts(unsigned *part)
{
	const char *matrix = getenv("KILL_MATRIX");
	unsigned of;
	char more;

	*part = 1;
	if (matrix == NULL || matrix[0] == '\0')
		return 0;
	if (strcmp(matrix, "full") == 0)
		return 1;
	if (sscanf(matrix, "%u/%u%c", part, &of, &more) != 2 || *part == 0 || *part > of) {
		(void)fprintf(stderr, "KILL_MATRIX: found '%s', allowed: full, or 1/N to N/N\n",
		    matrix);
		exit(2);
	}
	return of;
}

static inline bool kill_thinned(void)
{
	unsigned part;

	return kill_parts(&part) == 0;
}

/* `number`: of the point, from 1. */
static inline bool kill_wanted(unsigned number)
{
	unsigned part, of = kill_parts(&part);

	return of == 0 ? number % KILL_THIN == 0 : number % of == part - 1;
}

#endif
