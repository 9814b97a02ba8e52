/* Boards (collectives/engine/gather.h) for the kill matrix: each member has one, which others still read when it has died. All of it is
 * static: a test program includes this once.
 */
#ifndef TR_TESTS_KILL_BOARDS_H
#define TR_TESTS_KILL_BOARDS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/engine/gather.h"

#define KILL_BOARDS 8

/* Of members 0 to n - 1, whose peer ids are one more. */
struct kill_boards {
	unsigned n;
	struct board *shown[KILL_BOARDS];
	struct gather gathers[KILL_BOARDS];
	uint64_t gathered; /* events */
};

/* On most there is little room, and not the same everywhere: what does not fit is sent. */
static void kill_boards_start(struct kill_boards *boards, unsigned n, unsigned seed)
{
	boards->n = n;
	for (unsigned i = 0; i < n; i++) {
		boards->shown[i] = aligned_alloc(_Alignof(struct board), sizeof(struct board));
		assert_non_null(boards->shown[i]);
		memset(boards->shown[i], 0, sizeof(struct board));
		unsigned entries = (seed + i) % 5;
		gather_init(&boards->gathers[i], boards->shown[i],
		    entries > 0 ? entries : BOARD_ENTRIES);
	}
}

static void kill_boards_finish(struct kill_boards *boards)
{
	for (unsigned i = 0; i < boards->n; i++)
		free(boards->shown[i]);
	boards->n = 0;
}

/* All that are in the view read each other at once. */
static void kill_boards_enter(struct kill_boards *boards, unsigned who, uint64_t view,
    const uint64_t *ids, unsigned count)
{
	if (boards->n == 0)
		return;
	gather_enter(&boards->gathers[who], view, ids, count, who + 1);
	for (unsigned i = 0; i < count; i++)
		if (ids[i] != who + 1)
			gather_attach(&boards->gathers[who], ids[i], boards->shown[ids[i] - 1]);
}

#endif
