/* What every stand-in for a group (fake_coll.h, mesh_world.h) tells of itself: nothing goes over a wire in it. */
#ifndef TR_TESTS_UNIT_FAKE_COLL_SAME_H
#define TR_TESTS_UNIT_FAKE_COLL_SAME_H

#include "collectives/coll.h"
#include "common/error.h"

/* As in collectives/engine/coll_group.h. */
uint32_t coll_op_deadline_ms(const tr_group *g);
uint32_t coll_op_deadline_ms(const tr_group *g)
{
	(void)g;
	return 0;
}

tr_status tr_stats_get(tr_group *g, struct tr_stats *stats, struct tr_error *error)
{
	(void)g, (void)error;
	*stats = (struct tr_stats){ .size_of = stats->size_of };
	return TR_OK;
}

tr_status tr_links(tr_group *g, struct tr_link *links, size_t max, size_t *count,
    struct tr_error *error)
{
	(void)g, (void)links, (void)max, (void)error;
	*count = 0;
	return TR_OK;
}

tr_status tr_assignment_get(tr_group *g, struct tr_assignment *assignment)
{
	(void)g, (void)assignment;
	return TR_ENOTFOUND;
}

#endif
