/* What tr_group tells of itself, and is told: part of fake_coll.h, for nobody else. */
#ifndef TR_TESTS_UNIT_FAKE_COLL_TOLD_H
#define TR_TESTS_UNIT_FAKE_COLL_TOLD_H

#include "tests/unit/fake_coll.h"
#include "tests/unit/fake_coll_same.h"

/* Nobody's state differs here. */
tr_status tr_broadcast(tr_group *g, uint32_t tag, void *data, size_t count, enum tr_dtype dtype,
    unsigned root, struct tr_error *error)
{
	(void)g, (void)tag, (void)data, (void)count, (void)dtype, (void)root, (void)error;
	abort();
}

bool coll_is_allocated(const tr_group *g, const void *data, size_t bytes);
bool coll_is_allocated(const tr_group *g, const void *data, size_t bytes)
{
	for (size_t i = 0; i < g->memory_count; i++)
		if (g->memory[i] == data && bytes <= g->memory_bytes[i])
			return true;
	return false;
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
