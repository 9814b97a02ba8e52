/* What tr_group tells of itself, and is told: part of fake_coll.h, for nobody else. */
#ifndef TR_TESTS_UNIT_FAKE_COLL_TOLD_H
#define TR_TESTS_UNIT_FAKE_COLL_TOLD_H

#include "tests/unit/fake_coll.h"

/* Nobody's state differs here. */
tr_status tr_broadcast(tr_group *g, uint32_t tag, void *data, size_t count, enum tr_dtype dtype,
    unsigned root, struct tr_error *error)
{
	(void)g, (void)tag, (void)data, (void)count, (void)dtype, (void)root, (void)error;
	abort();
}

/* As in collectives/engine/coll_group.h. */
uint32_t coll_op_deadline_ms(const tr_group *g);
uint32_t coll_op_deadline_ms(const tr_group *g)
{
	(void)g;
	return 0;
}

bool coll_is_allocated(const tr_group *g, const void *data, size_t bytes);
bool coll_is_allocated(const tr_group *g, const void *data, size_t bytes)
{
	for (size_t i = 0; i < g->memory_count; i++)
		if (g->memory[i] == data && bytes <= g->memory_bytes[i])
			return true;
	return false;
}

/* Nothing goes over a wire here. */
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

tr_status tr_report(tr_group *g, const struct tr_report *report)
{
	if (!isnan(report->loss) && report->loss != 0) {
		if (g->steps_reported++ == 0)
			g->first_loss = report->loss;
		g->loss = report->loss;
	}
	if (!isnan(report->val_loss) && report->val_loss != 0)
		g->val_loss = report->val_loss;
	if (report->event != NULL) {
		g->events++;
		(void)snprintf(g->event, sizeof(g->event), "%s", report->event);
	}
	if (report->checkpoint != NULL) {
		g->checkpoints++;
		(void)snprintf(g->checkpoint, sizeof(g->checkpoint), "%s", report->checkpoint);
	}
	if (report->sample != NULL)
		(void)snprintf(g->sample, sizeof(g->sample), "%s", report->sample);
	return TR_OK;
}

#endif
