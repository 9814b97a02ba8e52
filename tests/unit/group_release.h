/* Ops whose memory callers take back in the middle of a round: what their tests share. */
#ifndef TR_TESTS_GROUP_RELEASE_H
#define TR_TESTS_GROUP_RELEASE_H

#include "tests/unit/group_pump.h"

#include "collectives/core/release.h"
#include "collectives/core/scope.h"

#define COUNT    12
#define STEPS    8
#define SCRIBBLE 0x5a5a5a5a5a5a5a5a

static int64_t memory[PUMP_MEMBERS][STEPS][COUNT];

/* Contributors of a scope. */
struct set {
	uint32_t members[PUMP_MEMBERS], count;
};

static inline tr_status submit(struct pump *pump, unsigned who, uint32_t tag, void *data,
    enum tr_collective collective, unsigned root, struct set set)
{
	return pump_step(pump, who,
	    &(struct group_event){ .kind = GROUP_SUBMIT,
	        .submit = { .tag = tag,
	            .collective = collective,
	            .data = collective == TR_SEND ? NULL : data,
	            .input = collective == TR_SEND ? data : NULL,
	            .count = COUNT,
	            .dtype = TR_I64,
	            .reduce = TR_SUM,
	            .root = root,
	            .contribute = true,
	            .scope = { set.members, set.count } } });
}

static inline tr_status wait_for(struct pump *pump, unsigned who, uint32_t tag)
{
	return pump_step(pump, who, &(struct group_event){ .kind = GROUP_WAIT, .tag = tag });
}

static inline tr_status release(struct pump *pump, unsigned who, uint32_t tag)
{
	return pump_step(pump, who, &(struct group_event){ .kind = GROUP_RELEASE, .tag = tag });
}

static inline struct pump_view first_view(struct pump *pump, int algorithm)
{
	struct pump_view view = pump_first_view(pump);
	view.algorithm = (Traind__Peer__Algorithm)algorithm;
	return view;
}

static inline struct pump *begun(unsigned n, int algorithm)
{
	struct pump *pump = pump_create(n);
	struct pump_view view = first_view(pump, algorithm);
	pump_ready_all(pump);
	pump_install(pump, &view);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
	return pump;
}

static inline void scribble(unsigned who, unsigned step)
{
	for (size_t k = 0; k < COUNT; k++)
		memory[who][step][k] = SCRIBBLE;
}

#endif
