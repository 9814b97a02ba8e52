/* For tests of scopes: groups that have begun their first round, by an algorithm. */
#ifndef TR_TESTS_GROUP_SCOPES_H
#define TR_TESTS_GROUP_SCOPES_H

#include "tests/unit/group_pump.h"

static inline struct pump_view first_view(struct pump *pump, enum tr_algorithm algorithm,
    bool deterministic)
{
	struct pump_view view = pump_first_view(pump);
	view.algorithm = (Traind__Peer__Algorithm)algorithm;
	view.deterministic = deterministic;
	return view;
}

static inline void begin_all(struct pump *pump)
{
	for (unsigned i = 0; i < pump->n; i++)
		if (!pump->members[i].dead)
			assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
}

static inline struct pump *begun(unsigned n, enum tr_algorithm algorithm, bool deterministic)
{
	struct pump *pump = pump_create(n);
	struct pump_view view = first_view(pump, algorithm, deterministic);
	pump_ready_all(pump);
	pump_install(pump, &view);
	begin_all(pump);
	return pump;
}

static inline void all_committed(const struct pump *pump)
{
	for (unsigned i = 0; i < pump->n; i++)
		if (!pump->members[i].dead && pump->members[i].status != TR_OK)
			fail_msg("%u: %s: %s", i + 1, tr_status_name(pump->members[i].status),
			    pump->members[i].reason);
}

#endif
