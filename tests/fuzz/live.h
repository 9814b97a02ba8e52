/* A live engine for fuzzers of what a peer can send: engine `victim` hosts peer 10 of two groups. In LIVE_ATTACKED the
 * input speaks for all other peers; in LIVE_HONEST there is one other, behind the engine `good`, and whatever the input did
 * in the other group, or as a forger in this one (it knows all but the token), their next round completes with the right sum.
 *
 * All runs in the fuzzer's thread: engine_create's thread is not started (uv_thread_create is interposed), live_turn runs the
 * loops instead; so an input decides in which order things happen. After each input the attacked member is removed and
 * growth_check looks whether everything is as before: the engine's handles, the descriptors and the shared memory of the
 * process, and its heap, which may not grow over all inputs by more than GROWTH_HEAP_MAX.
 *
 * Static: a fuzzer includes this once.
 */
#ifndef TR_TESTS_FUZZ_LIVE_H
#define TR_TESTS_FUZZ_LIVE_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/engine/channel_worker.h"
#include "collectives/engine/engine_internal.h"
#include "collectives/transport/listener.h"
#include "common/log.h"
#include "tests/fuzz/growth.h"
#include "tests/fuzz/live_worker.h"

#define LIVE_HONEST UINT64_C(0x6e6f74796f757273)
/* The groups' tokens: one that no input may have, one that all have. */
#define LIVE_HONEST_TOKEN                                                  \
	{                                                                  \
		UINT64_C(0x9b05688c2b3e6c1f), UINT64_C(0x510e527fade682d1) \
	}
#define LIVE_ATTACKED_TOKEN \
	{                   \
		1, 2        \
	}
#define LIVE_ATTACKED   2
#define LIVE_ME         10
#define LIVE_PATIENCE_S 20

struct live_peer { /* of a view */
	uint64_t peer, participate_from, contribute_from, donor;
	const char *address, *local_address; /* NULL: none */
};

struct live {
	struct engine *victim, *good;
	uv_loop_t net;
	struct listener *victim_port, *good_port;
	struct live_worker honest[2];
	uint64_t round; /* of the honest group */
	unsigned handles;
};

static struct live live;
static bool live_no_thread;
static struct tls_context *live_tls; /* of both engines; NULL: they speak plainly */

/* ---- the loops, in our thread */

int uv_thread_create(uv_thread_t *thread, uv_thread_cb entry, void *arg)
{
	int (*real)(uv_thread_t *, uv_thread_cb, void *);
	if (live_no_thread)
		return 0;
	*(void **)&real = dlsym(RTLD_NEXT, "uv_thread_create");
	return real(thread, entry, arg);
}

static void live_turn(void)
{
	(void)uv_run(&live.net, UV_RUN_NOWAIT);
	(void)uv_run(&live.victim->loop, UV_RUN_NOWAIT);
}

/* Until what was sent has come: a new connection is accepted, greeted, and handed to the engine in turns of its own. */
static void live_turns(void)
{
	for (unsigned i = 0; i < 4; i++)
		live_turn();
}

static void live_turn_all(void)
{
	live_turn();
	(void)uv_run(&live.good->loop, UV_RUN_NOWAIT);
}

/* ---- memberd's part */

static void live_to_member(void *arg, const Traind__Peer__ToMember *message)
{
	(void)arg;
	(void)message;
}

static void live_worker_gone(void *arg, uint64_t group, uint64_t peer,
    const Traind__Peer__LastWords *words)
{
	(void)arg;
	(void)group;
	(void)peer;
	(void)words;
}

static void live_propose(struct engine *engine, uint64_t group, uint64_t number)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__ViewPropose propose = TRAIND__PEER__VIEW_PROPOSE__INIT;
	uint64_t me = LIVE_ME;
	propose.group = group;
	propose.number = number;
	propose.members = &me;
	propose.n_members = 1;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_VIEW_PROPOSE;
	message.view_propose = &propose;
	engine_to_node(engine, &message);
}

#define LIVE_PEERS_MAX 8

struct live_view {
	uint64_t group, number, base_round;
	const struct live_peer *peers;
	unsigned count;
	uint32_t hub, algorithm, segment_bytes;
	bool started; /* base_round had begun: it starts again */
};

static const uint64_t *live_token(uint64_t group)
{
	static const uint64_t honest[2] = LIVE_HONEST_TOKEN, attacked[2] = LIVE_ATTACKED_TOKEN;
	return group == LIVE_HONEST ? honest : attacked;
}

static void live_install(struct engine *engine, const struct live_view *is)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__ViewInstall install = TRAIND__PEER__VIEW_INSTALL__INIT;
	Traind__Peer__View view = TRAIND__PEER__VIEW__INIT;
	Traind__Peer__Resume resume = TRAIND__PEER__RESUME__INIT;
	Traind__Peer__ViewPeer rows[LIVE_PEERS_MAX], *peers[LIVE_PEERS_MAX];
	uint64_t contributors[LIVE_PEERS_MAX];
	uint32_t ring[LIVE_PEERS_MAX];
	char name[] = "host", none[] = "";
	for (unsigned i = 0; i < is->count; i++) {
		traind__peer__view_peer__init(&rows[i]);
		rows[i].peer = is->peers[i].peer;
		rows[i].address = (char *)(uintptr_t)is->peers[i].address;
		rows[i].local_address = is->peers[i].local_address == NULL
		    ? none
		    : (char *)(uintptr_t)is->peers[i].local_address;
		if (is->peers[i].local_address != NULL)
			rows[i].host = (char *)(uintptr_t)engine_host(engine);
		rows[i].node_name = name;
		rows[i].participate_from = is->peers[i].participate_from;
		rows[i].contribute_from = is->peers[i].contribute_from;
		rows[i].donor = is->peers[i].donor;
		peers[i] = &rows[i];
		ring[i] = i;
		if (is->peers[i].contribute_from <= is->base_round)
			contributors[resume.n_contributors++] = is->peers[i].peer;
	}
	view.group = is->group;
	view.number = is->number;
	view.n_peers = view.n_ring = is->count;
	view.peers = peers;
	view.ring = ring;
	view.hub = is->hub;
	view.algorithm = is->algorithm;
	view.segment_bytes = is->segment_bytes;
	view.token_low = live_token(is->group)[0];
	view.token_high = live_token(is->group)[1];
	view.latency_s = 50e-6;
	view.bandwidth_bytes_per_s = 1e9;
	resume.base_round = is->base_round;
	resume.base_attempt = is->number;
	resume.contributors = contributors;
	resume.abandoned = is->started;
	install.view = &view;
	install.resume = &resume;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_VIEW_INSTALL;
	message.view_install = &install;
	engine_to_node(engine, &message);
}

/* ---- the honest group */

static void live_until_answered(const char *what)
{
	uint64_t until = uv_hrtime() + LIVE_PATIENCE_S * UINT64_C(1000000000);
	bool both;
	do {
		live_turn_all();
		both = live_answered(&live.honest[0]);
		both = live_answered(&live.honest[1]) && both;
		if (uv_hrtime() > until)
			live_die(what);
	} while (!both);
	for (unsigned i = 0; i < 2; i++)
		live_need(live.honest[i].answer.status,
		    &(struct tr_error){ .text = "an honest call failed" }, what);
}

static void live_honest_round(void)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__RoundsRecorded recorded = TRAIND__PEER__ROUNDS_RECORDED__INIT;
	for (unsigned i = 0; i < 2; i++)
		live_call(&live.honest[i], (struct channel_submission){ .call = CHANNEL_BEGIN });
	live_until_answered("the honest group's begin");
	live.round = live.honest[0].answer.round.round;
	for (unsigned i = 0; i < 2; i++) {
		for (unsigned e = 0; e < LIVE_COUNT; e++)
			live.honest[i].data[e] = (float)((i + live.round + e) % 512);
		live_submit(&live.honest[i],
		    (struct channel_submission){ .count = LIVE_COUNT,
		        .dtype = TR_F32,
		        .reduce = TR_SUM });
		live_call(&live.honest[i],
		    (struct channel_submission){ .call = CHANNEL_COMMIT, .commit.samples = 1 });
	}
	live_until_answered("the honest group's round");
	for (unsigned i = 0; i < 2; i++)
		for (unsigned e = 0; e < LIVE_COUNT; e++)
			if (live.honest[i].data[e] !=
			    (float)((live.round + e) % 512) + (float)((1 + live.round + e) % 512))
				live_die("the honest group's sum is wrong");
	message.body_case = TRAIND__PEER__TO_NODE__BODY_ROUNDS_RECORDED;
	message.rounds_recorded = &recorded;
	recorded.group = LIVE_HONEST;
	recorded.round = recorded.frontier = live.round;
	engine_to_node(live.victim, &message);
	engine_to_node(live.good, &message);
	live_turn_all();
}

/* ---- what may not grow */

static void count_handle(uv_handle_t *handle, void *arg)
{
	(void)handle;
	++*(unsigned *)arg;
}

static unsigned live_handles(void)
{
	unsigned count = 0;
	uv_walk(&live.victim->loop, count_handle, &count);
	uv_walk(&live.good->loop, count_handle, &count);
	uv_walk(&live.net, count_handle, &count);
	return count;
}

/* ---- one input */

static void live_on_accepted(void *arg, enum listener_protocol protocol, struct stream stream,
    const void *early, size_t early_bytes)
{
	if (protocol == LISTENER_FRAMES)
		engine_accept(arg, stream, early, early_bytes);
	else
		stream_close(&stream);
}

static void live_engine(struct engine **engine, struct listener **port)
{
	static const struct engine_callbacks callbacks = { .to_member = live_to_member,
		.worker_gone = live_worker_gone };
	struct tr_error error = { 0 };
	live_no_thread = true;
	live_need(engine_create(&callbacks, NULL, engine, &error), &error, "an engine");
	live_no_thread = false;
	live_need(engine_set_links(*engine, &(struct engine_links){ .sockets = 1, .tls = live_tls },
	              &error),
	    &error, "links");
	live_need(listener_start(&live.net, "127.0.0.1:0", false, live_tls, live_on_accepted,
	              *engine, port, &error),
	    &error, "a port");
}

static void live_start(bool near)
{
	log_configure(getenv("LIVE_LOG") != NULL ? LOG_DEBUG : LOG_ERROR, false);
	if (uv_loop_init(&live.net) != 0)
		live_die("no loop");
	live_engine(&live.victim, &live.victim_port);
	live_engine(&live.good, &live.good_port);
	const struct live_peer peers[] = {
		{ LIVE_ME, 1, 1, 0, listener_address(live.victim_port),
		    near ? engine_local_address(live.victim) : NULL },
		{ LIVE_ME + 1, 1, 1, 0, listener_address(live.good_port),
		    near ? engine_local_address(live.good) : NULL },
	};
	struct engine *engines[] = { live.victim, live.good };
	for (unsigned i = 0; i < 2; i++) {
		live_worker_start(engines[i], LIVE_HONEST, LIVE_ME + i, &live.honest[i]);
		live_call(&live.honest[i], (struct channel_submission){ .call = CHANNEL_READY });
	}
	live_until_answered("the honest group's workers");
	for (unsigned i = 0; i < 2; i++)
		live_install(engines[i],
		    &(struct live_view){ .group = LIVE_HONEST,
		        .number = 1,
		        .base_round = 1,
		        .peers = peers,
		        .count = 2 });
	for (unsigned i = 0; i < 8; i++)
		live_honest_round();
	live.handles = live_handles();
	growth_start();
}

/* `sweep` closes what the input's side still has; it is called until the engine has let go of all of it. */
static void live_end(struct live_worker *attacked, void (*sweep)(void))
{
	uint64_t until = uv_hrtime() + LIVE_PATIENCE_S * UINT64_C(1000000000);
	if (live.victim->members == NULL)
		live_die("all members are gone");
	engine_remove(live.victim, LIVE_ATTACKED, LIVE_ME, "the input is over");
	channel_worker_close(attacked->channel);
	do {
		sweep();
		live_turn_all();
		if (uv_hrtime() > until) {
			(void)fprintf(stderr, "live: %u handles, %u before; strangers %u\n",
			    live_handles(), live.handles, live.victim->strangers.count);
			live_die("the engine holds on to what a closed connection left");
		}
	} while (live_handles() != live.handles);
	live_honest_round();
}

#endif
