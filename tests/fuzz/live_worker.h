/* A worker as coll.c's, but that nothing waits: its calls go into an engine that the fuzzer turns. Static. */
#ifndef TR_TESTS_FUZZ_LIVE_WORKER_H
#define TR_TESTS_FUZZ_LIVE_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/engine/channel_worker.h"
#include "collectives/engine/engine.h"
#include "tests/fuzz/die.h"

#define LIVE_COUNT 1024 /* floats of its memory */

struct live_worker {
	struct channel_worker *channel;
	float *data;
	uint64_t calls, taken;
	struct channel_answer answer;
};

static void live_worker_start(struct engine *engine, uint64_t group, uint64_t peer,
    struct live_worker *worker)
{
	Traind__Peer__StartWorker start = TRAIND__PEER__START_WORKER__INIT;
	struct tr_error error = { 0 };
	int ends[2];
	*worker = (struct live_worker){ 0 };
	start.job_id = 3;
	start.group = group;
	start.peer = peer;
	live_need(channel_pair(ends, &error), &error, "a channel");
	live_need(engine_add_worker(engine, &start, 1, ends[0], &error), &error, "a worker");
	live_need(channel_worker_open(ends[1], &worker->channel, &error), &error, "its channel");
	worker->data = channel_worker_alloc(worker->channel, LIVE_COUNT * sizeof(float));
	if (worker->data == NULL)
		live_die("no memory for an op");
}

/* Its answer comes in a later turn. */
static void live_call(struct live_worker *worker, struct channel_submission s)
{
	if (s.call != CHANNEL_SUBMIT)
		s.id = ++worker->calls;
	(void)channel_worker_submit(worker->channel, &s, NULL, NULL);
}

static void live_submit(struct live_worker *worker, struct channel_submission s)
{
	s.call = CHANNEL_SUBMIT;
	s.contribute = 1;
	(void)channel_worker_locate(worker->channel, worker->data, 1, &s.arena, &s.offset);
	live_call(worker, s);
}

/* Has the newest call its answer? */
static bool live_answered(struct live_worker *worker)
{
	struct channel_control *control = (struct channel_control *)(uintptr_t)
	    channel_worker_control(worker->channel);
	while (worker->taken != atomic_load(&control->answered)) {
		worker->answer = control->answers[worker->taken++ % TR_CHANNEL_ANSWERS];
		atomic_store(&control->answers_taken, worker->taken);
	}
	return worker->answer.id == worker->calls;
}

#endif
