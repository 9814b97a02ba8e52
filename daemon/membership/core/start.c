/* What a worker is told when it starts: its place among the others, and the job. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/membership/core/state.h"

/* The first peers of this plan decide who is where; a replacement takes the place of the one whose
 * rank it has. Of who came with mesh.grow nobody was one of them. */
static void place_of(const struct job *job, const struct peer *peer,
    Traind__Peer__StartWorker *start)
{
	uint64_t nodes[TR_GROUP_PEERS_MAX];
	uint32_t count = 0, here = 0;
	for (size_t i = 0; i < job->peers.count; i++) {
		const struct peer *other = job->peers.items[i];
		if (other->group != peer->group || !other->founder)
			continue;
		uint32_t at = 0;
		while (at < count && nodes[at] != other->node)
			at++;
		if (at == count && count < TR_GROUP_PEERS_MAX)
			nodes[count++] = other->node;
		if (other->rank == peer->rank)
			start->node_rank = at;
		here += other->node == peer->node ? 1 : 0;
	}
	start->nodes = count;
	start->local_world_size = here > peer->local_rank ? here : peer->local_rank + 1;
}

void start_worker(struct membership *m, struct job *job, struct peer *peer, uint64_t conn)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__StartWorker start = TRAIND__PEER__START_WORKER__INIT;
	char run_id[32];
	start.job_id = job->id;
	start.group = peer->group;
	start.peer = peer->id;
	start.rank = peer->rank;
	start.local_rank = peer->local_rank;
	start.world_size = state_job_workers(job, peer->group);
	if (start.world_size <= peer->rank)
		start.world_size = peer->rank + 1;
	place_of(job, peer, &start);
	start.master_address = job->master_address;
	start.master_port = job->master_port;
	start.restarts = job->restarts;
	start.submitted_unix_ms = job->submitted_unix_ms;
	(void)snprintf(run_id, sizeof(run_id), "job-%llu", (unsigned long long)job->id);
	start.run_id = run_id;
	start.spec = copy_message(m, &job->spec->base);
	if (start.spec == NULL)
		return;
	/* After all were lost, training goes on from the checkpoint that was the newest. */
	if (job->goes_on_from != NULL && start.spec->train != NULL &&
	    start.spec->train->checkpoint != NULL) {
		char **resume = &start.spec->train->checkpoint->resume;
		char *path = copy_string(m, job->goes_on_from);
		if (path != NULL) {
			if (*resume != protobuf_c_empty_string)
				free(*resume);
			*resume = path;
		}
	}
	message.body_case = TRAIND__PEER__TO_NODE__BODY_START_WORKER;
	message.start_worker = &start;
	action_send(m, conn, &message);
	traind__v1__job_spec__free_unpacked(start.spec, NULL);
}

void start_joined(struct membership *m, struct group *group, struct peer *peer, uint64_t conn)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__GroupJoined joined = TRAIND__PEER__GROUP_JOINED__INIT;
	joined.name = group->founder->name;
	joined.group = group->id;
	joined.peer = peer->id;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_GROUP_JOINED;
	message.group_joined = &joined;
	action_send(m, conn, &message);
	peer->soft.started = true;
}
