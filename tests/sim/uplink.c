/* The engine's side of memberd: connects, greets, joins, tells, hears. What must arrive is said again after a reconnect. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

#define STREAM_LINKS  4
#define RECORDS_AGAIN 5 /* heartbeats: those that did not get into the log */

static void uplink_send(struct sim *sim, unsigned number, Traind__Peer__ToMember *message)
{
	if (sim->nodes[number].conn != 0)
		memberd_send(sim, number, message);
}

void uplink_report(struct sim *sim, unsigned number, struct group_action *action)
{
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;

	sim_trace(sim, "n%u reports to proposal %lu: view %lu, committed %lu, begun %lu.%lu%s%s",
	    number, (unsigned long)action->report->proposal, (unsigned long)action->report->view,
	    (unsigned long)action->report->committed_round,
	    (unsigned long)action->report->begun_round, (unsigned long)action->report->attempt,
	    action->report->closed ? ", closed" : "", action->report->voted ? ", voted" : "");
	action->report->read = action->report->read && sim->plant != PLANT_UNREAD;
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_VIEW_REPORT;
	message.view_report = action->report;
	uplink_send(sim, number, &message);
}

void uplink_link_lost(struct sim *sim, unsigned number, const struct group_action *action)
{
	struct sim_node *node = &sim->nodes[number];
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	Traind__Peer__LinkLost lost = TRAIND__PEER__LINK_LOST__INIT;

	lost.group = node->group;
	lost.view = node->view;
	lost.peer = node->peer;
	lost.lost = action->to;
	lost.reason = (char *)action->text;
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_LINK_LOST;
	message.link_lost = &lost;
	sim_trace(sim, "n%u says in view %lu that its link with peer %lu broke", number,
	    (unsigned long)node->view, (unsigned long)action->to);
	uplink_send(sim, number, &message);
}

static void uplink_say_records(struct sim *sim, unsigned number, size_t from, size_t most)
{
	struct sim_node *node = &sim->nodes[number];
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	Traind__Peer__RoundCommits rounds = TRAIND__PEER__ROUND_COMMITS__INIT;

	if (from >= node->record_count)
		return;
	rounds.group = node->group;
	rounds.peer = node->peer;
	rounds.n_rounds = node->record_count - from < most ? node->record_count - from : most;
	rounds.rounds = node->records + from;
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_ROUND_COMMITS;
	message.round_commits = &rounds;
	uplink_send(sim, number, &message);
}

void uplink_record(struct sim *sim, unsigned number, struct group_action *action)
{
	struct sim_node *node = &sim->nodes[number];

	check_record(sim, action->record);
	if (node->record_count == node->record_capacity) {
		node->record_capacity = node->record_capacity ? 2 * node->record_capacity : 16;
		node->records = realloc(node->records,
		    node->record_capacity * sizeof(node->records[0]));
		if (!node->records)
			abort();
	}
	node->records[node->record_count++] = action->record;
	action->record = NULL;
	uplink_say_records(sim, number, node->record_count - 1, 1);
}

void uplink_forget_records(struct sim *sim, unsigned number, uint64_t round)
{
	struct sim_node *node = &sim->nodes[number];
	size_t kept = 0;

	for (size_t i = 0; i < node->record_count; i++) {
		if (node->records[i]->round > round)
			node->records[kept++] = node->records[i];
		else
			traind__peer__round_commit__free_unpacked(node->records[i], NULL);
	}
	node->record_count = kept;
}

static void uplink_recorded(struct sim *sim, unsigned number,
    const Traind__Peer__RoundsRecorded *recorded)
{
	struct group_event event = { .kind = GROUP_RECORDED, .round = recorded->frontier };

	uplink_forget_records(sim, number, recorded->round);
	if (sim->nodes[number].core)
		(void)node_step(sim, number, &event);
}

static void uplink_say_failed(struct sim *sim, unsigned number)
{
	struct sim_node *node = &sim->nodes[number];
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	Traind__Peer__PeerFailed failed = TRAIND__PEER__PEER_FAILED__INIT;

	failed.group = node->group;
	failed.peer = node->peer;
	failed.status = node->failure;
	failed.reason = node->failure_text;
	failed.refused_round = node->refused_round;
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_PEER_FAILED;
	message.peer_failed = &failed;
	uplink_send(sim, number, &message);
}

void uplink_fail(struct sim *sim, unsigned number, const struct group_action *action)
{
	struct sim_node *node = &sim->nodes[number];

	node->failed = true;
	node->failure = action->status;
	node->refused_round = action->refused ? action->round : 0;
	(void)snprintf(node->failure_text, sizeof(node->failure_text), "%s", action->text);
	const char *story = seeds_story(sim->seed);
	if (story != NULL && strstr(action->text, story) != NULL)
		sim->story_told = true;
	sim_trace(sim, "n%u fails: %s", number, action->text);
	check_failed(sim, number);
	if (pieces_gave_up(sim, number)) { /* it comes again, as another one */
		sim->way.ended++;
		sim_at(sim, sim->now_us + sim_between(sim, 1 * MS, 300 * MS), SIM_FOLLOW, 0, 0, 0);
	}
	uplink_say_failed(sim, number);
}

void node_connect(struct sim *sim, unsigned number)
{
	struct sim_node *node = &sim->nodes[number];
	char name[16], address[32];

	if (node->conn != 0)
		return;
	node->conn = node->hold_until_us > sim->now_us ? 0 : memberd_accept(sim, number);
	if (node->conn == 0) {
		sim_at(sim, sim->now_us + 50 * MS + sim_between(sim, 0, 950 * MS), SIM_CONNECT,
		    number, 0, 0);
		return;
	}
	if (node->joining && node->peer == 0) {
		node_crash(sim, number, false, "its wish to join may be lost");
		return;
	}
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	Traind__Peer__NodeHello hello = TRAIND__PEER__NODE_HELLO__INIT;
	Traind__Peer__PeerHere here = TRAIND__PEER__PEER_HERE__INIT, *heres[1] = { &here };
	(void)snprintf(name, sizeof(name), "n%u", number);
	(void)snprintf(address, sizeof(address), "127.0.0.1:%u", 9000 + number);
	hello.node_id = node->id;
	hello.incarnation = node->incarnation;
	hello.name = name;
	hello.address = address;
	hello.pid = 100 + number;
	hello.version = (char *)"sim";
	if (node->peer != 0) {
		here.group = node->group;
		here.peer = node->peer;
		here.view = node->view;
		here.committed_round = node->worker.applied;
		here.ready = true;
		here.pid = hello.pid;
		hello.peers = heres;
		hello.n_peers = 1;
	}
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_HELLO;
	message.hello = &hello;
	uplink_send(sim, number, &message);
}

void node_conn_lost(struct sim *sim, unsigned number)
{
	sim->nodes[number].conn = 0;
	sim_at(sim, sim->now_us + 50 * MS + sim_between(sim, 0, 100 * MS), SIM_CONNECT, number, 0,
	    0);
}

void node_heartbeat(struct sim *sim, unsigned number)
{
	struct sim_node *node = &sim->nodes[number];
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	Traind__Peer__Heartbeat heartbeat = TRAIND__PEER__HEARTBEAT__INIT;
	Traind__Peer__PeerProgress progress = TRAIND__PEER__PEER_PROGRESS__INIT,
	                           *list[1] = { &progress };
	struct group_core_progress facts;

	sim_at(sim, sim->now_us + SIM_HEARTBEAT_US, SIM_HEARTBEAT, number, 0, 0);
	pulse_look(sim, number);
	if (node->id == 0 || node->conn == 0)
		return;
	plant_heartbeat(sim, number);
	if (node->core) {
		group_core_progress(node->core, false, &facts);
		progress.group = node->group;
		progress.peer = node->peer;
		progress.round = facts.round;
		progress.progress = ++node->progress;
		progress.waiting = facts.waiting;
		progress.waits_for = facts.waits_for;
		progress.n_waits_for = facts.waits_for_count;
		heartbeat.peers = list;
		heartbeat.n_peers = 1;
	}
	if (sim->fulls && node->progress % RECORDS_AGAIN == 0)
		uplink_say_records(sim, number, 0, TR_RECORDS_BATCH); /* as notices.c does */
	/* Links are unequal in half of the seeds; nothing is measured in the others. */
	if (rng_below(sim->key, STREAM_LINKS, 0, 2) == 0) {
		uint64_t of = number + 1;
		heartbeat.rtt_s = 1e-4 * (double)rng_below(sim->key, STREAM_LINKS, 2 * of, 100);
		heartbeat.bandwidth_bytes_per_s = 1e7 *
		    (double)rng_below(sim->key, STREAM_LINKS, 2 * of + 1, 8);
	}
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_HEARTBEAT;
	message.heartbeat = &heartbeat;
	uplink_send(sim, number, &message);
}

static void uplink_join(struct sim *sim, unsigned number)
{
	struct sim_node *node = &sim->nodes[number];
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	Traind__Peer__JoinGroup join = TRAIND__PEER__JOIN_GROUP__INIT;

	if (node->joining)
		return;
	node->joining = true;
	join.name = (char *)"sim";
	join.size = sim->founders;
	join.policy = sim->policy;
	join.deterministic = sim->deterministic;
	join.algorithm = sim->algorithm;
	join.segment_bytes = sim->segment_bytes;
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_JOIN_GROUP;
	message.join_group = &join;
	uplink_send(sim, number, &message);
}

static void uplink_joined(struct sim *sim, unsigned number, const Traind__Peer__GroupJoined *joined)
{
	struct sim_node *node = &sim->nodes[number];
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	Traind__Peer__PeerReady ready = TRAIND__PEER__PEER_READY__INIT;

	if (sim->group == 0)
		sim->group = joined->group;
	if (joined->group != sim->group) {
		node_crash(sim, number, false, "its group has ended, this is another one");
		return;
	}
	if (!node->core) {
		struct group_core_options options = { .group = joined->group,
			.peer = joined->peer,
			.window_bytes = sim->window_bytes,
			.outlet_bytes = sim->outlet_bytes,
			.ahead_bytes = plant_ahead(sim, number),
			.lent = { board_lent_intact, node },
			.spreads = sim->boards };
		node->group = joined->group;
		node->peer = joined->peer;
		sim_trace(sim, "n%u is peer %lu", number, (unsigned long)node->peer);
		if (group_core_create(&options, &node->core) != TR_OK)
			abort();
		board_start(sim, number);
		if (sim->pieces)
			pieces_start(sim, number);
		worker_start(sim, number);
	}
	ready.group = node->group;
	ready.peer = node->peer;
	ready.state_signature = (char *)"chain";
	ready.gradual = sim->gradual && !sim->callers;
	ready.left = node->left.there;
	ready.left_round = node->left.round;
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_PEER_READY;
	message.peer_ready = &ready;
	uplink_send(sim, number, &message);
}

/* The view, with the hosts that the seed wants. */
struct hosted_view {
	Traind__Peer__View view;
	Traind__Peer__ViewPeer peers[SIM_NODES_MAX], *list[SIM_NODES_MAX];
	char hosts[SIM_NODES_MAX][16];
};

static void uplink_hosts(struct sim *sim, const Traind__Peer__View *from, struct hosted_view *to)
{
	to->view = *from;
	to->view.peers = to->list;
	for (size_t i = 0; i < from->n_peers && i < SIM_NODES_MAX; i++) {
		unsigned node = node_of_peer(sim, from->peers[i]->peer);
		to->peers[i] = *from->peers[i];
		to->list[i] = &to->peers[i];
		(void)snprintf(to->hosts[i], sizeof(to->hosts[i]), "h%u",
		    sim->hosts > 0 ? node % sim->hosts : 0);
		if (sim->hosts > 0)
			to->peers[i].host = to->hosts[i];
		if (sim->boards)
			to->peers[i].local_address = to->hosts[i];
	}
}

/* A founder that nobody gives a state has it from its first view on: it may have to pass it on before its worker is told that the round
 * has begun. */
static void uplink_founds(struct sim *sim, unsigned number, const Traind__Peer__View *view)
{
	struct sim_node *node = &sim->nodes[number];

	for (size_t i = 0; i < view->n_peers; i++)
		if (view->peers[i]->peer == node->peer && view->peers[i]->donor == 0 &&
		    node->view == 0 && !node->worker.holds) {
			node->worker.holds = true;
			node->worker.applied = view->peers[i]->participate_from - 1;
		}
}

static void uplink_installed(struct sim *sim, unsigned number,
    const Traind__Peer__ViewInstall *install)
{
	struct sim_node *node = &sim->nodes[number];
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	Traind__Peer__ViewInstalled installed = TRAIND__PEER__VIEW_INSTALLED__INIT;
	Traind__Peer__ViewInstall copy = *install;
	struct hosted_view hosted;

	uplink_hosts(sim, install->view, &hosted);
	copy.view = &hosted.view;
	if (sim->plant == PLANT_ARRIVAL)
		hosted.view.deterministic = false;
	if (sim->plant == PLANT_STALE_VIEW && node->view > 1 && number == 0) {
		hosted.view.number = node->view - 1;
		node->view = 0; /* the engine forgets to look */
		check_view(sim, number, hosted.view.number);
	}
	uplink_founds(sim, number, copy.view);
	if (hosted.view.number > node->gather.view)
		board_enter(sim, number, &hosted.view);
	pieces_view(sim, number, copy.view);
	tr_status st = node_step(sim, number,
	    &(struct group_event){ .kind = GROUP_INSTALL, .install = &copy });
	sim_trace(sim, "n%u gets view %lu of %zu peers, round %lu %s: %s", number,
	    (unsigned long)hosted.view.number, hosted.view.n_peers,
	    (unsigned long)install->resume->base_round,
	    install->resume->finish ? "goes on" : "begins", tr_status_name(st));
	if (st != TR_OK)
		return;
	node_view_changed(sim, number, copy.view);
	pieces_installed(sim, number);
	installed.group = node->group;
	installed.peer = node->peer;
	installed.view = node->view;
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_VIEW_INSTALLED;
	message.view_installed = &installed;
	uplink_send(sim, number, &message);
}

void node_message(struct sim *sim, unsigned number, const Traind__Peer__ToNode *message)
{
	struct sim_node *node = &sim->nodes[number];
	struct group_event event = { .kind = GROUP_PROPOSE };

	switch (message->body_case) {
	case TRAIND__PEER__TO_NODE__BODY_WELCOME:
		node->id = message->welcome->node_id;
		if (node->failed)
			uplink_say_failed(sim, number); /* memberd may have been away */
		uplink_say_records(sim, number, 0, SIZE_MAX);
		uplink_join(sim, number);
		event.kind = GROUP_MEMBERD_BACK;
		(void)node_step(sim, number, &event);
		break;
	case TRAIND__PEER__TO_NODE__BODY_GROUP_JOINED:
		uplink_joined(sim, number, message->group_joined);
		break;
	case TRAIND__PEER__TO_NODE__BODY_VIEW_PROPOSE:
		event.propose = message->view_propose;
		(void)node_step(sim, number, &event);
		break;
	case TRAIND__PEER__TO_NODE__BODY_VIEW_INSTALL:
		uplink_installed(sim, number, message->view_install);
		break;
	case TRAIND__PEER__TO_NODE__BODY_ROUNDS_RECORDED:
		uplink_recorded(sim, number, message->rounds_recorded);
		break;
	case TRAIND__PEER__TO_NODE__BODY_PEER_EVICTED:
		node_crash(sim, number, false, message->peer_evicted->reason);
		break;
	case TRAIND__PEER__TO_NODE__BODY_REFUSED:
		sim_trace(sim, "n%u is refused: %s", number, message->refused->reason);
		break;
	default:
		break;
	}
}
