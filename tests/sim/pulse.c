/* Pulses between engines, by the engine's own arithmetic (collectives/engine/pulse.h): a link passes one each heartbeat while its
 * sender lives and moves and the way is open. Whoever hears nothing for the timeout says so.
 */
#include <stdio.h>

#include "tests/sim/sim.h"

#define SIM_INTERVAL_MS (SIM_HEARTBEAT_US / MS)

static bool passes(const struct sim *sim, unsigned from, const struct sim_link *link)
{
	const struct sim_node *sender = &sim->nodes[from];
	return sender->alive && sender->paused_until_us <= sim->now_us && !link->dead &&
	    link->hold_until_us <= sim->now_us;
}

static void listen(struct sim *sim, unsigned from, unsigned to, uint64_t now_ms, uint64_t late_ms)
{
	struct sim_link *link = &sim->links[from][to];
	char reason[64];

	if (!link->used || sim->nodes[from].peer == 0 || (link->dead && sim->nodes[from].alive))
		return;
	pulse_ear_excuse(&link->ear, late_ms);
	if (passes(sim, from, link)) {
		link->pulses++;
		pulse_ear_promise(&link->ear, now_ms);
	}
	uint64_t silent_ms = pulse_ear_silent_ms(&link->ear, link->pulses, !link->parked, now_ms);
	if (silent_ms < SIM_TIMEOUT_MS)
		return;
	(void)snprintf(reason, sizeof(reason), "silent for %.1f s", (double)silent_ms / 1000.0);
	net_silent(sim, from, to);
	(void)node_step(sim, to,
	    &(struct group_event){ .kind = GROUP_LINK_LOST,
	        .from = sim->nodes[from].peer,
	        .reason = reason });
}

void pulse_look(struct sim *sim, unsigned number)
{
	struct sim_node *node = &sim->nodes[number];
	uint64_t now_ms = 1 + sim->now_us / MS;
	uint64_t late_ms = pulse_clock_look(&node->clock, SIM_INTERVAL_MS, SIM_TIMEOUT_MS, now_ms);

	for (unsigned from = 0; from < sim->node_count && node->alive; from++)
		if (from != number && node->core)
			listen(sim, from, number, now_ms, late_ms);
}
