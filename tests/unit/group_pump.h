/* A handful of cores in one process, joined by FIFO links in memory, for unit tests with golden traces. One message is delivered
 * at a time, oldest first; every delivery and decision is one line of `trace`.
 */
#ifndef TR_TESTS_GROUP_PUMP_H
#define TR_TESTS_GROUP_PUMP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/core/group.h"
#include "tests/unit/core_holders.h"
#include "tests/unit/core_message.h"

#ifndef PUMP_MEMBERS
#define PUMP_MEMBERS 8
#define PUMP_TRACE   262144
#endif
#define PUMP_MESSAGES      16384
#define PUMP_SEGMENT_BYTES 16 /* of the first view */

struct pump_member {
	struct group_core *core;
	bool dead;
	struct tr_round begun, decided;
	unsigned begun_count, decided_count, done_count, retries;
	tr_status status, failed, done; /* done: of the newest answer to a WAIT */
	bool refused;                   /* failed, and nobody can have the round */
	char reason[512];
	Traind__Peer__ViewReport *report;
	Traind__Peer__RoundCommit *record; /* the newest */
	unsigned record_count;             /* ever said */
	uint64_t state_send_to, state_ask_from, state_round, link_lost;
	char lost_reason[160]; /* of link_lost */
	unsigned state_sends;
	struct group_wish state_wish; /* of the newest */
};

struct pump {
	unsigned n;
	struct pump_member members[PUMP_MEMBERS];
	size_t first, last;
	size_t trace_length;
	uint64_t now_us; /* of all steps that say no time */
	bool aside;      /* parked segments are kept aside, and nothing waits behind them */
	bool holds; /* what frames are staged in goes back when they are delivered, or dropped */
	bool quiet; /* no trace */
	/* From here on nothing is cleared, as matrices make millions of pumps: up to `last`, or a NUL. */
	char trace[PUMP_TRACE];
	struct core_message *messages[PUMP_MESSAGES]; /* NULL: done */
	struct group_buffer *held[PUMP_MESSAGES];
};

static inline void pump_trace(struct pump *pump, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline void pump_trace(struct pump *pump, const char *format, ...)
{
	va_list arguments;
	if (pump->quiet)
		return;
	va_start(arguments, format);
	int wrote = vsnprintf(pump->trace + pump->trace_length, PUMP_TRACE - pump->trace_length,
	    format, arguments);
	va_end(arguments);
	assert_true(wrote > 0 && pump->trace_length + (size_t)wrote < PUMP_TRACE);
	pump->trace_length += (size_t)wrote;
}

static inline void pump_queue(struct pump *pump, unsigned from, struct group_action *action)
{
	assert_true(pump->last < PUMP_MESSAGES);
	pump->held[pump->last] = NULL;
	if (pump->holds && action->kind == GROUP_DO_SEND_SEGMENT) {
		pump->held[pump->last] = action->buffer;
		action->buffer = NULL;
	}
	pump->messages[pump->last++] = core_message_take(pump->members[from].core, from, action);
}

static inline void pump_done(struct pump *pump, size_t at)
{
	if (pump->held[at] != NULL)
		group_buffer_release(pump->members[pump->messages[at]->from].core, pump->held[at]);
	pump->held[at] = NULL;
	core_message_free(pump->messages[at]);
	pump->messages[at] = NULL;
}

static inline void pump_drop_sends(struct pump *pump, unsigned from, bool all)
{
	for (size_t i = pump->first; i < pump->last; i++)
		if (pump->messages[i] != NULL && pump->messages[i]->from == from &&
		    (all || pump->messages[i]->kind == GROUP_DO_SEND_SEGMENT))
			pump_done(pump, i);
}

static inline void pump_act(struct pump *pump, unsigned who, struct group_actions *actions)
{
	struct pump_member *member = &pump->members[who];

	for (size_t i = 0; i < actions->count; i++) {
		struct group_action *action = &actions->items[i];
		switch (action->kind) {
		case GROUP_DO_SEND_SEGMENT:
		case GROUP_DO_SEND_VOTE:
		case GROUP_DO_SEND_COMMIT:
		case GROUP_DO_SEND_SUBMITTED:
			pump_queue(pump, who, action);
			break;
		case GROUP_DO_DROP_SENDS:
			pump_drop_sends(pump, who, false);
			break;
		case GROUP_DO_BEGAN:
			member->begun = action->round_info;
			member->begun_count++;
			pump_trace(pump, "%u began round %d as %u of %u\n", who + 1,
			    (int)action->round, action->round_info.index,
			    action->round_info.contributors);
			break;
		case GROUP_DO_DECIDED:
			member->decided = action->round_info;
			member->decided_count++;
			member->status = action->status;
			snprintf(member->reason, sizeof(member->reason), "%s", action->text);
			pump_trace(pump, "%u decided round %d: %s\n", who + 1, (int)action->round,
			    tr_status_name(action->status));
			break;
		case GROUP_DO_FAIL:
			member->failed = action->status;
			member->refused = action->refused;
			snprintf(member->reason, sizeof(member->reason), "%s", action->text);
			pump_trace(pump, "%u failed: %s\n", who + 1, tr_status_name(action->status));
			break;
		case GROUP_DO_REPORT:
			if (member->report)
				traind__peer__view_report__free_unpacked(member->report, NULL);
			member->report = action->report;
			action->report = NULL;
			break;
		case GROUP_DO_RECORD:
			if (member->record)
				traind__peer__round_commit__free_unpacked(member->record, NULL);
			member->record = action->record;
			member->record_count++;
			action->record = NULL;
			break;
		case GROUP_DO_STATE_SEND:
			member->state_sends++;
			member->state_wish = action->wish;
			member->state_send_to = action->to;
			member->state_round = action->round;
			pump_trace(pump, "%u sends the state after round %d to %d\n", who + 1,
			    (int)action->round, (int)action->to);
			break;
		case GROUP_DO_STATE_ASK:
			member->state_ask_from = action->to;
			member->state_round = action->round;
			pump_trace(pump, "%u asks %d for the state after round %d\n", who + 1,
			    (int)action->to, (int)action->round);
			break;
		case GROUP_DO_LINK_LOST:
			member->link_lost = action->to;
			snprintf(member->lost_reason, sizeof(member->lost_reason), "%.159s",
			    action->text);
			break;
		case GROUP_DO_OP_DONE:
			member->done_count++;
			member->done = action->status;
			if (action->status != TR_OK)
				snprintf(member->reason, sizeof(member->reason), "%s", action->text);
			break;
		case GROUP_DO_RETRY:
			member->retries++;
			break;
		case GROUP_DO_CONNECT:
		case GROUP_DO_SPREAD: /* only to who asked for it */
			break;
		}
	}
	group_actions_clear(actions);
}

static inline tr_status pump_step(struct pump *pump, unsigned who, const struct group_event *event);

/* Giving back a buffer may have made a step due. */
static inline void pump_due(struct pump *pump, unsigned who)
{
	if (group_core_due(pump->members[who].core) && pump->members[who].failed == TR_OK &&
	    !pump->members[who].dead)
		(void)pump_step(pump, who, &(struct group_event){ .kind = GROUP_TICK });
}

static inline tr_status pump_step(struct pump *pump, unsigned who, const struct group_event *event)
{
	struct group_actions actions = { 0 };
	struct tr_error error = { 0 };
	struct group_event now = *event;
	now.now_us = event->now_us > 0 ? event->now_us : pump->now_us;
	tr_status st = group_core_step(pump->members[who].core, &now, &actions, &error);
	if (st != TR_OK && st != TR_EAGAIN && st != TR_ESTALE)
		snprintf(pump->members[who].reason, sizeof(pump->members[who].reason), "%s",
		    error.text);
	pump_act(pump, who, &actions);
	group_actions_finish(&actions);
	pump_due(pump, who);
	return st;
}

static inline tr_status pump_event(struct pump *pump, unsigned who, enum group_event_kind kind)
{
	return pump_step(pump, who, &(struct group_event){ .kind = kind });
}

static inline tr_status pump_deliver(struct pump *pump, struct core_message *message)
{
	if (pump->members[message->to].dead)
		return TR_ESTALE;
	struct group_event event = core_message_event(message);
	return pump_step(pump, message->to, &event);
}

static inline void pump_trace_message(struct pump *pump, const struct core_message *m, tr_status st)
{
	if (m->kind == GROUP_DO_SEND_SEGMENT)
		pump_trace(pump, "%u>%u %s %u.%u set %02x%s%s\n", m->from + 1, m->to + 1,
		    m->header.kind == SEGMENT_PARTIAL      ? "sum"
		        : m->header.kind == SEGMENT_SEALED ? "result"
		        : m->header.kind == SEGMENT_LACKED ? "answer"
		                                           : "question",
		    m->header.tag, m->header.segment, m->header.contributors[0],
		    st == TR_OK ? "" : " ", st == TR_OK ? "" : tr_status_name(st));
	else
		pump_trace(pump, "%u>%u %s%s%s\n", m->from + 1, m->to + 1,
		    m->kind == GROUP_DO_SEND_VOTE         ? "vote"
		        : m->kind == GROUP_DO_SEND_COMMIT ? "commit"
		                                          : "submitted",
		    st == TR_OK ? "" : " ", st == TR_OK ? "" : tr_status_name(st));
}

/* Is an earlier message of the same link still waiting (parked)? */
static inline bool pump_blocked(const struct pump *pump, size_t at)
{
	const struct core_message *message = pump->messages[at];
	if (pump->aside && message->kind == GROUP_DO_SEND_SEGMENT)
		return false;
	for (size_t i = pump->first; i < at; i++)
		if (pump->messages[i] != NULL && pump->messages[i]->from == message->from &&
		    pump->messages[i]->to == message->to)
			return true;
	return false;
}

/* Delivers at most `most` messages; returns how many it did. */
static inline unsigned pump_some(struct pump *pump, unsigned most)
{
	unsigned done = 0;
	bool moved = true;

	while (moved && done < most) {
		moved = false;
		while (pump->first < pump->last && pump->messages[pump->first] == NULL)
			pump->first++;
		for (size_t i = pump->first; i < pump->last && done < most; i++) {
			struct core_message *message = pump->messages[i];
			if (message == NULL || pump_blocked(pump, i))
				continue;
			char after[2048];
			size_t before = pump->trace_length;
			tr_status st = pump_deliver(pump, message);
			if (st == TR_EAGAIN)
				continue;
			/* The message first, then what came of it. */
			size_t wrote = pump->trace_length - before;
			assert_true(wrote < sizeof(after));
			memcpy(after, pump->trace + before, wrote);
			after[wrote] = '\0';
			pump->trace_length = before;
			pump_trace_message(pump, message, st);
			if (wrote > 0)
				pump_trace(pump, "%s", after);
			unsigned from = message->from;
			pump_done(pump, i);
			pump_due(pump, from);
			done++;
			moved = true;
			break;
		}
	}
	return done;
}

static inline unsigned pump_run(struct pump *pump)
{
	return pump_some(pump, UINT32_MAX);
}

struct pump_view {
	uint64_t number, base_round, base_attempt;
	unsigned count;
	uint64_t peers[PUMP_MEMBERS], participate_from[PUMP_MEMBERS], contribute_from[PUMP_MEMBERS],
	    donor[PUMP_MEMBERS];
	const char *host[PUMP_MEMBERS]; /* NULL: unknown */
	const uint32_t *ring;           /* NULL: as the peers come */
	uint32_t hub;
	bool finish, restart, deterministic;
	Traind__Peer__Policy policy;
	Traind__Peer__Algorithm algorithm;
	uint64_t contributors[PUMP_MEMBERS];
	size_t contributor_count;
	uint32_t segment_bytes, op_segments;
	double latency_s, bandwidth_bytes_per_s; /* 0: not measured */
};

/* Tells every member of the view, from the reports it holds. */
static inline void pump_install(struct pump *pump, const struct pump_view *v)
{
	Traind__Peer__ViewPeer peers[PUMP_MEMBERS], *peer_list[PUMP_MEMBERS];
	uint32_t ring[PUMP_MEMBERS];
	Traind__Peer__View view = TRAIND__PEER__VIEW__INIT;
	Traind__Peer__Resume resume = TRAIND__PEER__RESUME__INIT;
	Traind__Peer__ViewInstall install = TRAIND__PEER__VIEW_INSTALL__INIT;
	struct core_holders holders;

	for (unsigned i = 0; i < v->count; i++) {
		traind__peer__view_peer__init(&peers[i]);
		peers[i].peer = v->peers[i];
		peers[i].participate_from = v->participate_from[i];
		peers[i].contribute_from = v->contribute_from[i];
		peers[i].donor = v->donor[i];
		if (v->host[i])
			peers[i].host = (char *)v->host[i];
		peer_list[i] = &peers[i];
		ring[i] = v->ring ? v->ring[i] : i;
	}
	view.number = v->number;
	view.n_peers = view.n_ring = v->count;
	view.peers = peer_list;
	view.ring = ring;
	view.hub = v->hub;
	view.policy = v->policy;
	view.algorithm = v->algorithm;
	view.deterministic = v->deterministic;
	view.segment_bytes = v->segment_bytes;
	view.op_segments = v->op_segments;
	view.latency_s = v->latency_s;
	view.bandwidth_bytes_per_s = v->bandwidth_bytes_per_s;
	resume.base_round = v->base_round;
	resume.finish = v->finish;
	resume.restart = v->restart;
	resume.base_attempt = v->base_attempt;
	resume.n_contributors = v->contributor_count;
	resume.contributors = (uint64_t *)v->contributors;
	for (unsigned i = 0; v->finish && i < v->count; i++)
		core_holders_add(&holders, &resume, v->peers[i],
		    pump->members[v->peers[i] - 1].report);
	install.view = &view;
	install.resume = &resume;
	for (unsigned i = 0; i < v->count; i++)
		assert_int_equal(pump_step(pump, (unsigned)v->peers[i] - 1,
		                     &(struct group_event){ .kind = GROUP_INSTALL,
		                         .install = &install }),
		    TR_OK);
}

static inline void pump_propose(struct pump *pump, uint64_t number)
{
	Traind__Peer__ViewPropose propose = TRAIND__PEER__VIEW_PROPOSE__INIT;
	propose.number = number;
	for (unsigned i = 0; i < pump->n; i++)
		if (!pump->members[i].dead)
			assert_int_equal(pump_step(pump, i,
			                     &(struct group_event){ .kind = GROUP_PROPOSE,
			                         .propose = &propose }),
			    TR_OK);
}

/* window_bytes: 0: as it is. */
static inline struct pump *pump_create_with(unsigned n, size_t window_bytes)
{
	struct pump *pump = malloc(sizeof(*pump));
	struct group_core_options options = { .group = 1, .window_bytes = window_bytes };
	assert_non_null(pump);
	memset(pump, 0, offsetof(struct pump, trace) + 1);
	pump->n = n;
	for (unsigned i = 0; i < n; i++) {
		options.peer = i + 1;
		assert_int_equal(group_core_create(&options, &pump->members[i].core), TR_OK);
	}
	return pump;
}

static inline struct pump *pump_create(unsigned n)
{
	return pump_create_with(n, 0);
}

/* The first view of members 1..n: all contribute from round 1. */
static inline struct pump_view pump_first_view(const struct pump *pump)
{
	struct pump_view v = { .number = 1,
		.base_round = 1,
		.count = pump->n,
		.segment_bytes = PUMP_SEGMENT_BYTES };
	for (unsigned i = 0; i < pump->n; i++) {
		v.peers[i] = i + 1;
		v.participate_from[i] = v.contribute_from[i] = 1;
	}
	return v;
}

static inline void pump_ready_all(struct pump *pump)
{
	for (unsigned i = 0; i < pump->n; i++)
		assert_int_equal(pump_event(pump, i, GROUP_READY), TR_OK);
}

/* The last of `n` comes in with round `from`, the others hold the state after round 4 and are to begin round 5. To be installed. */
static inline struct pump *pump_with_joiner(unsigned n, uint64_t from, uint64_t donor,
    struct pump_view *view)
{
	struct pump *pump = pump_create(n);
	*view = pump_first_view(pump);
	view->base_round = 5;
	view->participate_from[n - 1] = from;
	view->contribute_from[n - 1] = from + 1;
	view->donor[n - 1] = donor;
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(pump_step(pump, i,
		                     &(struct group_event){ .kind = GROUP_READY,
		                         .round = i < n - 1 ? 4 : 0 }),
		    TR_OK);
	return pump;
}

static inline void pump_kill(struct pump *pump, unsigned who)
{
	pump->members[who].dead = true;
	pump_drop_sends(pump, who, true);
}

static inline tr_status pump_submit(struct pump *pump, unsigned who, uint32_t tag, void *data,
    uint64_t count, enum tr_dtype dtype, enum tr_reduce reduce)
{
	return pump_step(pump, who,
	    &(struct group_event){ .kind = GROUP_SUBMIT,
	        .submit = { .tag = tag,
	            .data = data,
	            .count = count,
	            .dtype = dtype,
	            .reduce = reduce,
	            .contribute = pump->members[who].begun.index <
	                pump->members[who].begun.contributors } });
}

static inline tr_status pump_close(struct pump *pump, unsigned who, uint64_t samples, uint64_t salt)
{
	return pump_step(pump, who,
	    &(struct group_event){ .kind = GROUP_CLOSE,
	        .close = { .samples = samples, .salt = salt } });
}

static inline void pump_destroy(struct pump *pump)
{
	for (size_t i = 0; i < pump->last; i++)
		pump_done(pump, i);
	for (unsigned i = 0; i < pump->n; i++) {
		group_core_destroy(pump->members[i].core);
		if (pump->members[i].report)
			traind__peer__view_report__free_unpacked(pump->members[i].report, NULL);
		if (pump->members[i].record)
			traind__peer__round_commit__free_unpacked(pump->members[i].record, NULL);
	}
	free(pump);
}

#endif
