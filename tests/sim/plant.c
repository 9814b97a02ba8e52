/* Bugs planted on purpose, one an invariant: each must be caught within some seeds (`--plant NAME`). */
#include <string.h>

#include "collectives/core/member.h"
#include "collectives/kernels/reduce.h"
#include "tests/sim/sim.h"

static const char *const plant_names[PLANT_COUNT] = {
	[PLANT_NONE] = "none",
	[PLANT_CORRUPT] = "corrupt",
	[PLANT_TWICE] = "twice",
	[PLANT_FORGET] = "forget",
	[PLANT_HIDE] = "hide",
	[PLANT_ARRIVAL] = "arrival",
	[PLANT_APPLY] = "apply",
	[PLANT_STALE_VIEW] = "stale-view",
	[PLANT_LATE_STATE] = "late-state",
	[PLANT_LANDING] = "landing",
	[PLANT_FLAP] = "flap",
	[PLANT_UNREAD] = "unread",
	[PLANT_DEAF] = "deaf",
	[PLANT_RUSH] = "rush",
	[PLANT_UNCOUNTED] = "uncounted",
	[PLANT_REUSED] = "reused",
	[PLANT_SPOILT] = "spoilt",
};

enum sim_plant plant_parse(const char *name)
{
	unsigned plant = 0;

	while (plant < PLANT_COUNT && strcmp(name, plant_names[plant]) != 0)
		plant++;
	return (enum sim_plant)plant;
}

const char *plant_name(enum sim_plant plant)
{
	return plant_names[plant];
}

/* A sum arrives in which everybody is twice. */
void plant_message(struct sim *sim, unsigned to, struct sim_message *message)
{
	(void)to;
	if (sim->plant != PLANT_TWICE || message->kind != SIM_SEGMENT ||
	    message->header.kind != SEGMENT_PARTIAL || message->header.signature.reduce != TR_SUM)
		return;
	void *payload = (void *)message->payload; /* our copy */
	reduce_combine((enum tr_dtype)message->header.signature.dtype, TR_SUM, payload, payload,
	    payload, message->header.elements);
}

void plant_heartbeat(struct sim *sim, unsigned number)
{
	struct sim_node *node = &sim->nodes[number];

	if (sim->plant != PLANT_FLAP || number != 0 || !node->core)
		return;
	for (unsigned i = 1; i < sim->node_count; i++)
		if (sim->nodes[i].alive && sim->nodes[i].view == node->view)
			uplink_link_lost(sim, number,
			    &(struct group_action){ .to = sim->nodes[i].peer, .text = "planted" });
}

void plant_step(struct sim *sim, unsigned number, const struct group_event *event)
{
	struct released *released = &sim->nodes[number].core->released;

	if (sim->plant == PLANT_REUSED && event->kind == GROUP_INSTALL)
		tag_set_clear(&released->tags);
	for (size_t i = 0;
	     sim->plant == PLANT_UNCOUNTED && number == 0 && i < released->party_count; i++)
		released->parties[i].sum = released->parties[i].results = 0;
}

size_t plant_ahead(const struct sim *sim, unsigned number)
{
	return sim->plant == PLANT_RUSH && number == 0 ? 100 * sim->ahead_bytes : sim->ahead_bytes;
}

bool plant_forgets(struct sim *sim, const struct sim_message *message)
{
	if (sim->plant == PLANT_DEAF && message->kind == SIM_SUBMITTED)
		return true;
	if (sim->plant != PLANT_FORGET || sim->planted || message->kind != SIM_SEGMENT ||
	    sim->faults_done < sim->fault_count)
		return false;
	sim->planted = true;
	return true;
}
