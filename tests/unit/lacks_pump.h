/* What tests of who lacks an op share: members in memory, some of which wait (collectives/core/lack.c). */
#ifndef TR_TESTS_UNIT_LACKS_PUMP_H
#define TR_TESTS_UNIT_LACKS_PUMP_H

#include "tests/unit/group_pump.h"

#define COUNT   8
#define STEP_MS 50
#define REPLAY  TRAIND__PEER__POLICY__POLICY_REPLAY
#define RING    TRAIND__PEER__ALGORITHM__ALGORITHM_RING
#define STAR    TRAIND__PEER__ALGORITHM__ALGORITHM_STAR

static int32_t memory[PUMP_MEMBERS][3][COUNT];

static inline struct pump *founded(unsigned n, Traind__Peer__Algorithm algorithm, unsigned hub)
{
	struct pump *pump = pump_create(n);
	struct pump_view view = pump_first_view(pump);
	view.algorithm = algorithm;
	view.policy = REPLAY;
	view.hub = hub;
	pump->now_us = 1000000;
	pump->aside = true;
	pump_ready_all(pump);
	pump_install(pump, &view);
	return pump;
}

static inline struct pump *begun(unsigned n, Traind__Peer__Algorithm algorithm, unsigned hub)
{
	struct pump *pump = founded(n, algorithm, hub);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(pump_event(pump, i, GROUP_BEGIN), TR_OK);
	return pump;
}

static inline void submit(struct pump *pump, unsigned who, uint32_t tag)
{
	assert_int_equal(pump_submit(pump, who, tag, memory[who][tag], COUNT, TR_I32, TR_SUM),
	    TR_OK);
}

static inline void wait_for(struct pump *pump, unsigned who, uint32_t tag)
{
	assert_int_equal(pump_step(pump, who,
	                     &(struct group_event){ .kind = GROUP_WAIT, .tag = tag }),
	    TR_OK);
}

static inline void submit_and_wait(struct pump *pump, unsigned who)
{
	submit(pump, who, 0);
	wait_for(pump, who, 0);
}

static inline void step(struct pump *pump)
{
	pump->now_us += STEP_MS * 1000;
	for (unsigned i = 0; i < pump->n; i++)
		if (!pump->members[i].dead)
			pump_event(pump, i, GROUP_TICK);
	pump_run(pump);
}

static inline void pass(struct pump *pump, unsigned ms)
{
	pump_run(pump);
	for (unsigned at = 0; at < ms; at += STEP_MS)
		step(pump);
}

/* Members that `who` says have not submitted it, as bits. */
static inline unsigned named(const struct pump *pump, unsigned who)
{
	struct group_core_progress progress;
	unsigned bits = 0;

	group_core_progress(pump->members[who].core, true, &progress);
	for (size_t i = 0; i < progress.lack_count; i++)
		bits |= 1u << (progress.waits_for[i] - 1);
	return bits;
}

/* Frames of the kind on their way, after what was there before. */
static inline unsigned sent(const struct pump *pump, size_t before, enum segment_kind kind)
{
	unsigned count = 0;

	for (size_t i = before; i < pump->last; i++)
		count += pump->messages[i] && pump->messages[i]->kind == GROUP_DO_SEND_SEGMENT &&
		    pump->messages[i]->header.kind == kind;
	return count;
}

/* Nor was anything that a core sent refused by another one, which costs a connection. */
static inline void none_failed(const struct pump *pump)
{
	assert_null(strstr(pump->trace, tr_status_name(TR_EPROTO)));
	for (unsigned i = 0; i < pump->n; i++)
		assert_int_equal(pump->members[i].failed, 0);
}

static inline struct segment_header frame(unsigned from, enum segment_kind kind, unsigned question)
{
	return (struct segment_header){ .view = 1,
		.round = 1,
		.attempt = 1,
		.tag = 0,
		.segment = from,
		.signature = { .count = COUNT, .dtype = TR_I32, .reduce = TR_SUM },
		.kind = (uint8_t)kind,
		.encoding = (uint8_t)question };
}

static inline tr_status offer(struct pump *pump, unsigned from, unsigned to,
    struct segment_header header)
{
	struct group_event event = { .kind = GROUP_SEGMENT, .from = from + 1 };
	event.segment.header = &header;
	event.segment.payload = "";
	return pump_step(pump, to, &event);
}

#endif
