/* Which points of a kill matrix run. KILL_MATRIX in the environment of the test's caller: "full": each of them; "corners": of each case the kills after 0, 50 and 99 % of its deliveries;
 * "3/8", "corners:3/8": the third of eight equal parts, all of which together are each of them, so that processors share a long matrix, or days do; without it points are thinned, the
 * same each time.
 *
 *	if (kill_wanted(++number, after, all))
 *		run(point);
 */
#ifndef TR_TESTS_KILL_MATRIX_H
#define TR_TESTS_KILL_MATRIX_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KILL_THIN    307 /* one point of so many, when thinned */
#define KILL_CORNERS "corners"

struct kill_parts {
	bool known, corners;
	unsigned part, of; /* of 0: thinned */
};

static inline const struct kill_parts *kill_parts(void)
{
	static struct kill_parts parts;
	const char *matrix = parts.known ? NULL : getenv("KILL_MATRIX"), *share = matrix;
	char more;

	parts.known = true;
	if (matrix == NULL || matrix[0] == '\0')
		return &parts;
	parts.part = parts.of = 1;
	parts.corners = strncmp(matrix, KILL_CORNERS, sizeof(KILL_CORNERS) - 1) == 0;
	if (strcmp(matrix, "full") == 0 || strcmp(matrix, KILL_CORNERS) == 0)
		return &parts;
	if (parts.corners)
		share += sizeof(KILL_CORNERS) - 1 + (share[sizeof(KILL_CORNERS) - 1] == ':');
	if (sscanf(share, "%u/%u%c", &parts.part, &parts.of, &more) != 2 || parts.part == 0 ||
	    parts.part > parts.of) {
		(void)fprintf(stderr,
		    "KILL_MATRIX: found '%s', allowed: full, corners, 1/N to N/N, corners:1/N to "
		    "corners:N/N\n",
		    matrix);
		exit(2);
	}
	return &parts;
}

static inline bool kill_thinned(void)
{
	return kill_parts()->of == 0;
}

/* Is this the kill after 0, 50 or 99 % of a case's deliveries? */
static inline bool kill_corner(unsigned after, unsigned all)
{
	return after == 0 || after == all / 2 || after == (unsigned)(all * UINT64_C(99) / 100);
}

/* `number`: of the point, from 1: the kill after so many of all deliveries of its case. */
static inline bool kill_wanted(unsigned number, unsigned after, unsigned all)
{
	const struct kill_parts *parts = kill_parts();

	if (parts->corners && !kill_corner(after, all))
		return false;
	return parts->of == 0 ? number % KILL_THIN == 0 : number % parts->of == parts->part - 1;
}

/* The same of a case whose points run where it does, so that no part has to find out how many another one has. `thin`: one of so many.
 * Whatever the dimensions of the matrix, each part has of everything. */
static inline bool kill_wanted_case(unsigned number, unsigned thin)
{
	const struct kill_parts *parts = kill_parts();
	unsigned mixed = (unsigned)((number * UINT64_C(0x9e3779b97f4a7c15)) >> 33);

	return parts->of == 0 ? mixed % thin == 0 : mixed % parts->of == parts->part - 1;
}

/* A point of such a case. */
static inline bool kill_wanted_of_case(unsigned number, unsigned thin, unsigned after, unsigned all)
{
	const struct kill_parts *parts = kill_parts();

	return parts->of == 0 ? number % thin == 0 : !parts->corners || kill_corner(after, all);
}

#endif
