/* What a broken memberd, or who plays one, can say to a traind: the real node (daemon/node/node.h) with its link, its engine, its port, its logs and what
 * it measures. The input is the script of what memberd says (memberd_link.h, memberd_words.h), as in fuzz_memberd. No process is started: what memberd
 * wants to run is its own affair, and here it cannot be had; so a worker is a member of the engine for a moment, as one whose program is not there.
 *
 * Whatever it says: the node does not hold more than HELD_MAX meanwhile and ends in time, and afterwards all is as before.
 */
#include <limits.h>

#include "common/log.h"
#include "collectives/transport/probe.h"
#include "daemon/node/devices.h"
#include "daemon/node/node.h"
#include "tests/fuzz/memberd_link.h"
#include "tests/fuzz/held.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SCRIPT_MAX 2000
#define TURNS_MAX  20000

static char folder[] = "/tmp/fuzz_node-XXXXXX";
static uv_loop_t loop;

/* ---- what is not to be had here */

int uv_spawn(uv_loop_t *at, uv_process_t *process, const uv_process_options_t *options)
{
	(void)options;
	(void)uv_idle_init(at, (uv_idle_t *)(void *)process); /* a handle, which is closed */
	return UV_ENOENT;
}

void devices_detect(struct devices *devices)
{
	*devices = (struct devices){ .cores = 2, .memory_bytes = UINT64_C(1) << 30 };
}

tr_status probe_memory(struct probe_figures *figures, struct tr_error *error)
{
	(void)figures;
	return tr_error_set(error, TR_EUNAVAILABLE, "it is not measured here");
}

/* ---- one input */

static void play(struct script script)
{
	const struct node_options options = { .memberd = memberd.address,
		.listen = "127.0.0.1:0",
		.folder = folder,
		.name = "n",
		.trainworker = "/nowhere/trainworker",
		.slots = 2,
		.open_files = 64 };
	struct tr_error error = { 0 };
	struct node *node;
	truth = (struct words_truth){ .view = 1,
		.peers = 2,
		.memberd = memberd.address,
		.me = memberd.me,
		.me_local = "",
		.other = "127.0.0.1:1",
		.other_local = "",
		.host = "" };
	memberd.script = script;
	memberd.told = false;
	one_begin(memberd_turn, held_look);
	if (uv_loop_init(&loop) != 0)
		live_die("no loop");
	one_turns(&loop);
	live_need(node_create(&loop, &options, &node, &error), &error, "a node");
	for (unsigned turns = 0; memberd.script.left > 0; turns++) {
		one_wait(ONE_IDLE_NS);
		if (turns == TURNS_MAX)
			live_die("it does not come back to memberd");
	}
	node_stop(node, "the input is over");
	for (unsigned turns = 0; uv_loop_alive(&loop); turns++) {
		one_wait(ONE_IDLE_NS);
		if (turns == TURNS_MAX)
			live_die("it does not end");
	}
	node_destroy(node);
	if (uv_loop_close(&loop) != 0)
		live_die("its loop does not close");
	memberd_close();
	one_end();
}

static void start(void)
{
	static const uint8_t honest[] = { 0, 0, 0, 0, 0, 15, 15, 15, 15 };
	log_configure(getenv("LIVE_LOG") != NULL ? LOG_DEBUG : LOG_ERROR, false);
	if (mkdtemp(folder) == NULL)
		live_die("no folder");
	memberd_start();
	growth_begin();
	for (unsigned i = 0; i < 4; i++) {
		unsigned long before = memberd.heard[TRAIND__PEER__TO_MEMBER__BODY_HEARTBEAT];
		play((struct script){ honest, sizeof(honest) });
		if (memberd.heard[TRAIND__PEER__TO_MEMBER__BODY_HEARTBEAT] == before)
			live_die("an honest memberd hears no heartbeat");
	}
	growth_start();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script script = { data, size < SCRIPT_MAX ? size : SCRIPT_MAX };
	if (memberd.port == 0)
		start();
	growth_begin();
	play(script);
	growth_check();
	return 0;
}
