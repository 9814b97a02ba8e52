/* Virtual time: a heap of events, ties in the order they were made; and the run of one seed. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

#define EVENTS_MAX 3000000u /* a run that needs more goes in circles */

static bool before(const struct sim_event *a, const struct sim_event *b)
{
	return a->time_us < b->time_us || (a->time_us == b->time_us && a->sequence < b->sequence);
}

void sim_at(struct sim *sim, uint64_t time_us, enum sim_event_kind kind, unsigned a, unsigned b,
    uint64_t stamp)
{
	if (sim->heap_count == sim->heap_capacity) {
		sim->heap_capacity = sim->heap_capacity ? 2 * sim->heap_capacity : 1024;
		sim->heap = realloc(sim->heap, sim->heap_capacity * sizeof(sim->heap[0]));
		if (!sim->heap)
			abort();
	}
	struct sim_event event = { time_us > sim->now_us ? time_us : sim->now_us,
		sim->next_sequence++, kind, a, b, stamp };
	size_t at = sim->heap_count++;
	while (at > 0 && before(&event, &sim->heap[(at - 1) / 2])) {
		sim->heap[at] = sim->heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	sim->heap[at] = event;
}

static struct sim_event sim_pop(struct sim *sim)
{
	struct sim_event first = sim->heap[0], last = sim->heap[--sim->heap_count];
	size_t at = 0;

	for (;;) {
		size_t child = 2 * at + 1;
		if (child >= sim->heap_count)
			break;
		if (child + 1 < sim->heap_count && before(&sim->heap[child + 1], &sim->heap[child]))
			child++;
		if (!before(&sim->heap[child], &last))
			break;
		sim->heap[at] = sim->heap[child];
		at = child;
	}
	if (sim->heap_count > 0)
		sim->heap[at] = last;
	return first;
}

#define STREAM_SETUP 2

uint64_t sim_draw(struct sim *sim, uint64_t bound)
{
	return rng_below(sim->key, 1, sim->draws++, bound);
}

/* Most waits are short, some are long. */
uint64_t sim_between(struct sim *sim, uint64_t least, uint64_t most)
{
	uint64_t span = most - least;

	for (uint64_t i = sim_draw(sim, 4); i > 0; i--)
		span /= 4;
	return least + sim_draw(sim, span + 1);
}

bool sim_chance(struct sim *sim, unsigned percent)
{
	return sim_draw(sim, 100) < percent;
}

void sim_trace(struct sim *sim, const char *format, ...)
{
	va_list arguments;

	if (!sim->trace)
		return;
	printf("%10.6f  ", (double)sim->now_us * 1e-6);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
}

void sim_violation(struct sim *sim, const char *format, ...)
{
	va_list arguments;

	if (sim->violations++ > 0)
		return;
	va_start(arguments, format);
	(void)vsnprintf(sim->violation, sizeof(sim->violation), format, arguments);
	va_end(arguments);
	sim->over = true;
	sim_trace(sim, "VIOLATION %s", sim->violation);
}

static void sim_event(struct sim *sim, const struct sim_event *event)
{
	unsigned a = event->a, b = event->b;

	switch (event->kind) {
	case SIM_LINK:
		net_pump(sim, a, b, event->stamp);
		break;
	case SIM_LINK_SEEN:
		node_link_seen(sim, a, b);
		break;
	case SIM_TO_NODE:
		memberd_deliver(sim, a);
		break;
	case SIM_TO_MEMBER:
		memberd_receive(sim, a);
		break;
	case SIM_CONN_LOST:
		if (sim->nodes[a].conn == event->stamp)
			node_conn_lost(sim, a);
		break;
	case SIM_CONN_CLOSED:
		memberd_closed(sim, a, event->stamp);
		break;
	case SIM_CONNECT:
		node_connect(sim, a);
		break;
	case SIM_HEARTBEAT:
		node_heartbeat(sim, a);
		break;
	case SIM_CORE_TICK:
		if (sim->nodes[a].tick_us == event->stamp) {
			sim->nodes[a].tick_us = UINT64_MAX;
			(void)node_step(sim, a, &(struct group_event){ .kind = GROUP_TICK });
		}
		break;
	case SIM_WORKER:
		if (sim->nodes[a].worker.stamp == event->stamp)
			worker_step(sim, a);
		break;
	case SIM_BOARD:
		board_look(sim, a);
		break;
	case SIM_HELD:
		net_offer_held(sim, a);
		break;
	case SIM_FOLLOW:
		node_follow(sim);
		break;
	case SIM_TRANSFER:
		node_transfer_done(sim, a, b);
		break;
	case SIM_STATE_IN:
		node_state_in(sim, a, b, event->stamp != 0);
		break;
	case SIM_MEMBER_TICK:
		if (sim->memberd.stamp == event->stamp)
			memberd_tick(sim);
		break;
	case SIM_MEMBER_APPLY:
		memberd_apply(sim, event->stamp);
		break;
	case SIM_MEMBER_START:
		memberd_start(sim);
		break;
	case SIM_TRANSFER_TOLD:
		node_transfer_told(sim, a, b, event->stamp);
		break;
	case SIM_FAULT:
		fault_fire(sim, a);
		break;
	case SIM_AIM:
		aim_fire(sim, a, b);
		break;
	case SIM_PIECES:
		pieces_event(sim, a, b, event->stamp);
		break;
	}
}

/* Events that happen inside a node; the others are the network's and memberd's. */
static bool sim_is_nodes(enum sim_event_kind kind)
{
	return kind == SIM_LINK_SEEN || kind == SIM_TO_NODE || kind == SIM_CONN_LOST ||
	    kind == SIM_CONNECT || kind == SIM_HEARTBEAT || kind == SIM_CORE_TICK ||
	    kind == SIM_WORKER || kind == SIM_HELD || kind == SIM_BOARD || kind == SIM_TRANSFER ||
	    kind == SIM_TRANSFER_TOLD || kind == SIM_STATE_IN || kind == SIM_PIECES;
}

static bool sim_is_memberds(enum sim_event_kind kind)
{
	return kind == SIM_TO_MEMBER || kind == SIM_CONN_CLOSED || kind == SIM_MEMBER_TICK ||
	    kind == SIM_MEMBER_APPLY;
}

static void sim_dispatch(struct sim *sim, const struct sim_event *event)
{
	/* A link's messages are read by the receiver. */
	unsigned who = event->kind == SIM_LINK ? event->b : event->a;

	if (event->kind == SIM_LINK || sim_is_nodes(event->kind)) {
		const struct sim_node *node = &sim->nodes[who];
		if (!node->alive)
			return;
		if (node->paused_until_us > sim->now_us) {
			sim_at(sim, node->paused_until_us, event->kind, event->a, event->b,
			    event->stamp);
			return;
		}
	}
	if (sim_is_memberds(event->kind) && sim->memberd.stalled_until_us > sim->now_us) {
		sim_at(sim, sim->memberd.stalled_until_us, event->kind, event->a, event->b,
		    event->stamp);
		return;
	}
	sim_event(sim, event);
}

/* Named seeds keep to what workers and links did when the seed found its bug. */
static const struct sim_seed *sim_named(uint64_t seed)
{
	for (size_t i = 0; i < sim_seed_count; i++)
		if (sim_seeds[i].seed == seed)
			return &sim_seeds[i];
	return NULL;
}

void sim_prepare(struct sim *sim, uint64_t seed, bool trace, enum sim_plant plant,
    const struct sim_callers *callers, void *calls)
{
	*sim = (struct sim){ .seed = seed,
		.trace = trace,
		.plant = plant,
		.segment_bytes = 64,
		.callers = callers,
		.calls = calls };
	sim->key = rng_key(seed, 0x73696d, 0);
	sim->mismatch_node = sim->salt_node = -1;
	sim->mismatch_told = sim->mismatch_came = false;
	sim->refused_round = 0;
	sim->policy = (Traind__Peer__Policy)sim_draw(sim, 3);
	sim->algorithm = (Traind__Peer__Algorithm)sim_draw(sim, 3);
	/* Beside the draws, so that older seeds still tell their stories. */
	if (rng_below(sim->key, STREAM_SETUP, 0, 2) == 0)
		sim->algorithm = (Traind__Peer__Algorithm)(3 +
		    rng_below(sim->key, STREAM_SETUP, 1, 3));
	sim->hosts = (unsigned)rng_below(sim->key, STREAM_SETUP, 2, 4);
	sim->window_bytes = rng_below(sim->key, STREAM_SETUP, 3, 2) == 0
	    ? 0
	    : 64 * rng_below(sim->key, STREAM_SETUP, 4, 12);
	sim->boards = seed >= SIM_BOARDS_FROM && seed < SIM_SELDOM_FROM;
	sim->stalls = seed >= SIM_STALLS_FROM && seed < SIM_SELDOM_FROM &&
	    (!sim->boards || seed % 2 == 1);
	sim->pieces = seed >= SIM_PIECES_FROM && !callers;
	sim->crowds = sim->pieces && seed % 4 == 0;
	sim->stalls = sim->stalls || (sim->pieces && seed % 4 == 1);
	sim->recuts = sim->pieces && seed % 4 == 2;
	if (sim->boards) {
		sim->board_entries = 1 + (unsigned)rng_below(sim->key, STREAM_SETUP, 16, 6);
		sim->hosts = 1;
		sim->segment_bytes = 1024;
		if (rng_below(sim->key, STREAM_SETUP, 14, 4) != 0)
			sim->algorithm = TRAIND__PEER__ALGORITHM__ALGORITHM_ONE_SHOT;
	}
	const struct sim_seed *named = sim_named(seed);
	sim->all_ops = (!named || named->had >= 1) && rng_below(sim->key, STREAM_SETUP, 5, 4) != 0;
	sim->halves = (!named || named->had >= 2) && rng_below(sim->key, STREAM_SETUP, 6, 2) == 0;
	sim->waits = (!named || named->had >= 3) && rng_below(sim->key, STREAM_SETUP, 7, 2) == 0;
	sim->early_waits = sim->waits && (!named || named->had >= 4);
	sim->scopes = (!named || named->had >= 5) && sim->all_ops &&
	    rng_below(sim->key, STREAM_SETUP, 12, 3) == 0;
	sim->releases = (!named || named->had >= 6) && sim->all_ops &&
	    rng_below(sim->key, STREAM_SETUP, 13, 3) != 0;
	sim->fulls = (!named || named->had >= 7) && rng_below(sim->key, STREAM_SETUP, 17, 4) == 0;
	sim->declares = !named || named->had >= 8;
	sim->gradual = (!named || named->had >= 9) && rng_below(sim->key, STREAM_SETUP, 18, 3) > 0;
	if (sim->early_waits)
		sim->ahead_bytes = 1 + 256 * rng_below(sim->key, STREAM_SETUP, 8, 16);
	if (sim->boards && rng_below(sim->key, STREAM_SETUP, 15, 2) == 0)
		sim->ahead_bytes = 0;
	bool narrow = (!named || named->had >= 11) && rng_below(sim->key, STREAM_SETUP, 19, 4) == 0;
	sim->outlet_bytes = narrow ? 1 : !named || named->had >= 10 ? 0 : SIZE_MAX;
	sim->tells = named && named->had < 3;
	if (sim->pieces)
		pieces_prepare(sim);
	if (sim->crowds)
		sim->all_ops = sim->scopes = sim->releases = true;
	sim->deterministic = sim_chance(sim, 40);
	sim->founders = 1 + (unsigned)sim_draw(sim, 5);
	if (sim->pieces && sim->founders < 3)
		sim->founders += 2; /* several have the state */
	sim->think_us = sim_between(sim, 1 * MS, 200 * MS);
	sim->delay_us = sim_between(sim, 100, 20 * MS);
	sim->sync_us = sim_between(sim, 100, 30 * MS);
	sim_trace(sim,
	    "seed %lu: policy %d, algorithm %d, %s, %u founders, %u hosts, windows of %zu bytes, "
	    "%zu ahead",
	    (unsigned long)seed, (int)sim->policy, (int)sim->algorithm,
	    sim->deterministic ? "deterministic" : "as it comes", sim->founders, sim->hosts,
	    sim->window_bytes, sim->ahead_bytes);
}

void sim_begin(struct sim *sim)
{
	memberd_start(sim);
	for (unsigned i = 0; i < sim->founders; i++)
		node_start(sim, i);
}

unsigned sim_run(struct sim *sim, uint64_t seed, bool trace, enum sim_plant plant)
{
	const char *story = seeds_story(seed);

	sim_prepare(sim, seed, trace, plant, NULL, NULL);
	fault_plan(sim);
	aim_plan(sim);
	sim_begin(sim);
	(void)sim_finish(sim);
	if (story != NULL && plant == PLANT_NONE && !sim->story_told)
		sim_violation(sim, "its story is not told any more: nobody failed with \"%s\"",
		    story);
	return sim->violations;
}

unsigned sim_finish(struct sim *sim)
{
	while (!sim->over && sim->heap_count > 0) {
		struct sim_event event = sim_pop(sim);
		sim->now_us = event.time_us;
		if (++sim->events > EVENTS_MAX)
			sim_violation(sim, "I3: %u events without an end", EVENTS_MAX);
		sim_dispatch(sim, &event);
		aim_at_memberd(sim);
		if (!sim->over && check_finished(sim))
			break;
	}
	for (unsigned i = 0; i < sim->node_count; i++)
		worker_end(sim, i);
	net_finish(sim);
	for (unsigned i = 0; i < sim->node_count; i++)
		node_finish(sim, i);
	conn_free_all(sim);
	memberd_finish(sim);
	free(sim->heap);
	sim->heap = NULL;
	return sim->violations;
}
