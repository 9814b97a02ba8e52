#include "daemon/node/node_facts.h"

#include <time.h>
#include <unistd.h>

/* What the engine knows of a peer, or NULL. */
static const struct engine_progress *progress_of(const struct node_facts *facts, size_t count,
    uint64_t peer)
{
	for (size_t i = 0; i < count; i++)
		if (facts->progress[i].peer == peer)
			return &facts->progress[i];
	return NULL;
}

static void add_peers(struct node_facts *facts, const struct workers *workers,
    struct engine *engine, Traind__Peer__NodeHello *hello)
{
	size_t known = engine_progress(engine, facts->progress, NODE_PEERS_MAX);
	size_t count = workers_list(workers, facts->here, NODE_PEERS_MAX);
	for (size_t i = 0; i < count; i++) {
		const struct worker_here *here = &facts->here[i];
		const struct engine_progress *progress = progress_of(facts, known, here->peer);
		Traind__Peer__PeerHere *peer = &facts->peers[i];
		traind__peer__peer_here__init(peer);
		peer->job_id = here->job;
		peer->group = here->group;
		peer->peer = here->peer;
		peer->pid = (uint32_t)here->pid;
		if (progress != NULL) {
			peer->view = progress->view;
			peer->committed_round = progress->committed;
			peer->ready = progress->ready;
			peer->gradual = progress->gradual;
		}
		facts->peer_list[i] = peer;
	}
	hello->peers = facts->peer_list;
	hello->n_peers = count;
}

void node_facts_hello(struct node_facts *facts, const struct workers *workers,
    struct engine *engine, Traind__Peer__NodeHello *hello)
{
	static char version[] = TR_VERSION;
	hello->node_id = facts->identity.node_id;
	hello->incarnation = facts->identity.incarnation;
	hello->name = facts->name;
	hello->address = facts->address;
	hello->host = (char *)(uintptr_t)engine_host(engine); /* proto3 strings are not written to */
	hello->local_address = (char *)(uintptr_t)engine_local_address(engine);
	hello->pid = (uint32_t)getpid();
	hello->slots = facts->slots;
	hello->cores = facts->devices.cores;
	hello->memory_bytes = facts->devices.memory_bytes;
	hello->version = version;
	for (size_t i = 0; i < facts->devices.count; i++)
		facts->device_list[i] = facts->devices.names[i];
	hello->devices = facts->device_list;
	hello->n_devices = facts->devices.count;
	add_peers(facts, workers, engine, hello);
}

/* What the worker has computed, in microseconds; 0: it is not there. */
static uint64_t computed_us(const struct node_facts *facts, size_t count, uint64_t peer)
{
	clockid_t clock;
	struct timespec used;
	for (size_t i = 0; i < count; i++)
		if (facts->here[i].peer == peer && facts->here[i].pid > 0 &&
		    clock_getcpuclockid(facts->here[i].pid, &clock) == 0 &&
		    clock_gettime(clock, &used) == 0)
			return (uint64_t)used.tv_sec * 1000000 + (uint64_t)used.tv_nsec / 1000;
	return 0;
}

/* One member's come one after another. */
static void add_links(struct node_facts *facts, size_t count, const struct engine_progress *of,
    Traind__Peer__PeerProgress *row)
{
	size_t from = 0;
	while (from < count &&
	    (facts->links[from].peer != of->peer || facts->links[from].group != of->group))
		from++;
	row->links = &facts->link_list[from];
	for (size_t i = from;
	     i < count && facts->links[i].peer == of->peer && facts->links[i].group == of->group;
	     i++) {
		engine_link_say(&facts->links[i], &facts->link_rows[i]);
		facts->link_list[i] = &facts->link_rows[i];
		row->n_links++;
	}
}

void node_facts_heartbeat(struct node_facts *facts, const struct workers *workers,
    struct engine *engine, Traind__Peer__Heartbeat *heartbeat)
{
	size_t count = engine_progress(engine, facts->progress, NODE_PEERS_MAX);
	size_t links = engine_links(engine, facts->links, NODE_LINKS_MAX);
	size_t here = workers_list(workers, facts->here, NODE_PEERS_MAX);
	for (size_t i = 0; i < count; i++) {
		struct engine_progress *progress = &facts->progress[i];
		Traind__Peer__PeerProgress *row = &facts->rows[i];
		traind__peer__peer_progress__init(row);
		row->group = progress->group;
		row->peer = progress->peer;
		row->round = progress->round;
		row->progress = progress->progress;
		/* Until it is ready it counts nothing; that it reads its data and builds its model shows here. */
		if (!progress->ready)
			row->progress += computed_us(facts, here, progress->peer);
		row->waiting = progress->waiting;
		row->waited_us = progress->waited_us;
		row->waits_for = progress->waits_for;
		row->n_waits_for = progress->waits_for_count;
		add_links(facts, links, progress, row);
		facts->row_list[i] = row;
	}
	heartbeat->peers = facts->row_list;
	heartbeat->n_peers = count;
	heartbeat->bandwidth_bytes_per_s = engine_bandwidth(engine);
}
