/* What memberd says to a member or a node, near the truth, from a script. Static; each word is packed into WORDS_MAX bytes of the caller's.
 *
 * What an empty script says is right: the first view of a group of two, and so on.
 */
#ifndef TR_TESTS_FUZZ_MEMBERD_WORDS_H
#define TR_TESTS_FUZZ_MEMBERD_WORDS_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "collectives/coll.h"
#include "common/limits.h"
#include "tests/fuzz/script.h"
#include "traind/peer/peer.pb-c.h"
#include "traind/v1/trainer.pb-c.h"

#define WORDS_GROUP    2
#define WORDS_ME       10 /* and one more than that is the other */
#define WORDS_ROWS_MAX 40000
#define WORDS_MAX      ((size_t)3 << 20)

/* How it is. */
struct words_truth {
	uint64_t view, round; /* installed; committed */
	unsigned peers;       /* 1: we are alone */
	bool joins;           /* we come to a group that is there */
	const char *memberd, *me, *me_local, *other, *other_local, *host;
};

static struct words_truth truth;

static size_t words_pack(const Traind__Peer__ToNode *message, uint8_t *to)
{
	size_t bytes = traind__peer__to_node__get_packed_size(message);
	return bytes <= WORDS_MAX ? traind__peer__to_node__pack(message, to) : 0;
}

#define WORDS_SAY(to, kind, KIND, value)                                 \
	do {                                                             \
		Traind__Peer__ToNode word = TRAIND__PEER__TO_NODE__INIT; \
		word.body_case = TRAIND__PEER__TO_NODE__BODY_##KIND;     \
		word.kind = (value);                                     \
		return words_pack(&word, to);                            \
	} while (0)

static char *words_text(const char *text)
{
	return (char *)(uintptr_t)text; /* protobuf-c only reads it */
}

/* Mostly `right`. */
static char *words_about(struct script *script, const char *right)
{
	static char many[5000];
	static const char *const others[] = { "", "127.0.0.1:1", "unix:/nowhere", "[::1]:7000",
		"10.1.2.3:80", "localhost:1", "a.name.of.nobody:7", "127.0.0.1", ":", "%n%s\x1b[2J",
		"unix:", "[127.0.0.1:99999" };
	uint8_t how = script_byte(script);
	if (how < 208)
		return words_text(right);
	if (how < 220)
		return words_text(others[how - 208]);
	memset(many, 'x', sizeof(many) - 1);
	many[how == 255 ? sizeof(many) - 1 : (size_t)(how - 219) * 16] = '\0';
	return many;
}

/* ---- views */

/* `n` of them, ascending: us, the other, and nobody. */
static void words_peers(struct script *script, Traind__Peer__ViewPeer *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		Traind__Peer__ViewPeer *row = &rows[i];
		bool me = i == 0;
		traind__peer__view_peer__init(row);
		row->peer = WORDS_ME + i;
		row->address = words_text("127.0.0.1:1");
		if (i >= 8) /* none that the script says anything of */
			continue;
		row->peer = script_about(script, row->peer);
		row->address = words_about(script, me ? truth.me : i == 1 ? truth.other : "");
		row->host = words_about(script, i < 2 ? truth.host : "");
		row->local_address = words_about(script,
		    me           ? truth.me_local
		        : i == 1 ? truth.other_local
		                 : "");
		uint8_t late = script_byte(script);
		bool joins = (me && truth.joins) || (late & 3) == 3;
		uint64_t next = truth.round + 1;
		row->participate_from = script_about(script, joins ? next : 1);
		row->contribute_from = script_about(script, row->participate_from + joins);
		if ((late & 0x1c) == 0x1c) /* its state comes gradually */
			row->contribute_from = TR_ROUND_LATER;
		row->donor = script_about(script, joins ? (me ? WORDS_ME + 1 : WORDS_ME) : 0);
		row->node_name = words_about(script, "n");
		row->latency_s = (late & 0x60) == 0x60 ? 1e300 : 0;
		row->bandwidth_bytes_per_s = late & 0x80 ? -1e9 : 0;
	}
}

static void words_relayed(struct script *script, Traind__Peer__Relayed *row, size_t number,
    bool waits)
{
	traind__peer__relayed__init(row);
	row->group = WORDS_GROUP;
	row->from = waits ? WORDS_ME + 1 + number : WORDS_ME;
	row->to = waits ? WORDS_ME : WORDS_ME + 1 + number;
	row->address = words_text("127.0.0.1:1");
	if (number >= 8)
		return;
	row->group = script_about(script, row->group);
	row->from = script_about(script, row->from);
	row->to = script_about(script, row->to);
	row->node = script_about(script, 0);
	row->address = words_about(script, "");
	row->token_low = script_about(script, 7);
	row->token_high = script_about(script, 8);
}

static size_t words_count(struct script *script, size_t right)
{
	uint64_t count = script_about(script, right);
	return count <= WORDS_ROWS_MAX ? (size_t)count : WORDS_ROWS_MAX;
}

static void words_ops(struct script *script, Traind__Peer__Resume *resume)
{
	static Traind__Peer__OpHolders op[2], *ops[2] = { &op[0], &op[1] };
	static Traind__Peer__Holder holder[2], *holders[2] = { &holder[0], &holder[1] };
	static uint8_t sealed[2][8], scope[8];
	resume->n_ops = script_about(script, 0) % 3;
	resume->ops = ops;
	for (size_t i = 0; i < resume->n_ops; i++) {
		traind__peer__op_holders__init(&op[i]);
		op[i].tag = (uint32_t)script_about(script, i);
		op[i].segments = (uint32_t)script_about(script, 1);
		op[i].n_holders = 2;
		op[i].holders = holders;
		scope[0] = script_byte(script);
		op[i].scope = (ProtobufCBinaryData){ script_about(script, 0) % 9, scope };
	}
	for (size_t i = 0; i < 2 && resume->n_ops > 0; i++) {
		traind__peer__holder__init(&holder[i]);
		holder[i].peer = script_about(script, WORDS_ME + i);
		sealed[i][0] = script_byte(script);
		holder[i].sealed = (ProtobufCBinaryData){ script_about(script, 1) % 9, sealed[i] };
	}
}

static size_t words_install(struct script *script, uint8_t *to)
{
	static Traind__Peer__ViewPeer rows[WORDS_ROWS_MAX + 1], *peers[WORDS_ROWS_MAX + 1];
	static Traind__Peer__Relayed relays[WORDS_ROWS_MAX + 1], *relayed[WORDS_ROWS_MAX + 1];
	static uint32_t ring[WORDS_ROWS_MAX + 1];
	Traind__Peer__ViewInstall install = TRAIND__PEER__VIEW_INSTALL__INIT;
	Traind__Peer__View view = TRAIND__PEER__VIEW__INIT;
	Traind__Peer__Resume resume = TRAIND__PEER__RESUME__INIT;
	uint64_t contributors[4];
	uint8_t how = script_byte(script), terms = script_byte(script);
	view.group = script_about(script, WORDS_GROUP);
	view.number = script_about(script, truth.view);
	view.n_peers = words_count(script, truth.peers);
	words_peers(script, rows, view.n_peers);
	view.n_relayed = words_count(script, 0);
	for (size_t i = 0; i < view.n_relayed; i++)
		words_relayed(script, &relays[i], i, false);
	view.n_ring = words_count(script, view.n_peers);
	size_t most = view.n_peers > view.n_ring ? view.n_peers : view.n_ring;
	for (size_t i = 0; i <= most || i <= view.n_relayed; i++) {
		peers[i] = &rows[i];
		relayed[i] = &relays[i];
		ring[i] = (uint32_t)i;
	}
	ring[0] = (uint32_t)script_about(script, 0);
	view.peers = peers;
	view.relayed = relayed;
	view.ring = ring;
	view.hub = (uint32_t)script_about(script, 0);
	view.policy = (Traind__Peer__Policy)(terms & 3);
	view.algorithm = (Traind__Peer__Algorithm)(terms >> 2 & 7);
	view.deterministic = terms >> 5 & 1;
	view.segment_bytes = (uint32_t)script_about(script, 64);
	view.op_segments = (uint32_t)script_about(script, 0);
	view.token_low = script_about(script, 1);
	view.token_high = script_about(script, 2);
	view.latency_s = terms & 64 ? 1e300 : 50e-6;
	view.bandwidth_bytes_per_s = terms & 128 ? -0.0 : 1e9;
	view.reason = words_about(script, "");
	resume.base_round = script_about(script, truth.round + 1);
	resume.finish = how & 1;
	resume.abandoned = how & 2;
	resume.restart = how & 4;
	resume.base_attempt = script_about(script, truth.view);
	resume.n_contributors = script_about(script, truth.peers - truth.joins) % 5;
	for (uint64_t i = 0; i < 4; i++)
		contributors[i] = script_about(script, WORDS_ME + i + truth.joins);
	resume.contributors = contributors;
	words_ops(script, &resume);
	install.view = how & 8 ? NULL : &view;
	install.resume = how & 16 ? NULL : &resume;
	install.recorded_round = script_about(script, truth.round);
	install.reserved = script_about(script, 0);
	WORDS_SAY(to, view_install, VIEW_INSTALL, &install);
}

static size_t words_propose(struct script *script, uint8_t *to)
{
	static uint64_t members[WORDS_ROWS_MAX + 1];
	Traind__Peer__ViewPropose propose = TRAIND__PEER__VIEW_PROPOSE__INIT;
	propose.group = script_about(script, WORDS_GROUP);
	propose.number = script_about(script, truth.view + 1);
	propose.n_members = words_count(script, 2);
	for (size_t i = 0; i < propose.n_members; i++)
		members[i] = WORDS_ME + i;
	members[0] = script_about(script, WORDS_ME);
	propose.members = members;
	WORDS_SAY(to, view_propose, VIEW_PROPOSE, &propose);
}

/* ---- others */

static size_t words_welcome(struct script *script, uint8_t *to)
{
	Traind__Peer__Welcome welcome = TRAIND__PEER__WELCOME__INIT;
	welcome.node_id = script_about(script, 5);
	welcome.heartbeat_interval_ms = (uint32_t)script_about(script, 100);
	welcome.heartbeat_timeout_ms = (uint32_t)script_about(script, 1000);
	WORDS_SAY(to, welcome, WELCOME, &welcome);
}

static size_t words_joined(struct script *script, uint8_t *to)
{
	Traind__Peer__GroupJoined joined = TRAIND__PEER__GROUP_JOINED__INIT;
	joined.name = words_about(script, "g");
	joined.group = script_about(script, WORDS_GROUP);
	joined.peer = script_about(script, WORDS_ME);
	WORDS_SAY(to, group_joined, GROUP_JOINED, &joined);
}

static size_t words_recorded(struct script *script, uint8_t *to)
{
	Traind__Peer__RoundsRecorded recorded = TRAIND__PEER__ROUNDS_RECORDED__INIT;
	recorded.group = script_about(script, WORDS_GROUP);
	recorded.round = script_about(script, truth.round);
	recorded.frontier = script_about(script, truth.round);
	WORDS_SAY(to, rounds_recorded, ROUNDS_RECORDED, &recorded);
}

static size_t words_duties(struct script *script, uint8_t *to)
{
	static Traind__Peer__Relayed rows[2][WORDS_ROWS_MAX + 1], *lists[2][WORDS_ROWS_MAX + 1];
	Traind__Peer__RelayDuties duties = TRAIND__PEER__RELAY_DUTIES__INIT;
	size_t counts[2];
	for (unsigned kind = 0; kind < 2; kind++) {
		counts[kind] = words_count(script, 1);
		for (size_t i = 0; i < counts[kind]; i++) {
			words_relayed(script, &rows[kind][i], i, kind == 1);
			lists[kind][i] = &rows[kind][i];
		}
	}
	duties.relays = lists[0];
	duties.n_relays = counts[0];
	duties.waits = lists[1];
	duties.n_waits = counts[1];
	WORDS_SAY(to, relay_duties, RELAY_DUTIES, &duties);
}

static size_t words_end(struct script *script, uint8_t *to)
{
	Traind__Peer__PeerEvicted evicted = TRAIND__PEER__PEER_EVICTED__INIT;
	Traind__Peer__StopWorker stop = TRAIND__PEER__STOP_WORKER__INIT;
	Traind__Peer__GroupOver over = TRAIND__PEER__GROUP_OVER__INIT;
	Traind__Peer__Refused refused = TRAIND__PEER__REFUSED__INIT;
	switch (script_byte(script) % 4) {
	case 0:
		evicted.group = script_about(script, WORDS_GROUP);
		evicted.peer = script_about(script, WORDS_ME);
		evicted.status = (int32_t)script_about(script, 0);
		evicted.reason = words_about(script, "is silent");
		WORDS_SAY(to, peer_evicted, PEER_EVICTED, &evicted);
	case 1:
		stop.job_id = script_about(script, 0);
		stop.peer = script_about(script, WORDS_ME);
		stop.reason = words_about(script, "is cancelled");
		stop.grace_ms = (uint32_t)script_about(script, 0);
		WORDS_SAY(to, stop_worker, STOP_WORKER, &stop);
	case 2:
		over.group = script_about(script, WORDS_GROUP);
		WORDS_SAY(to, group_over, GROUP_OVER, &over);
	default:
		refused.reason = words_about(script, "no room");
		WORDS_SAY(to, refused, REFUSED, &refused);
	}
}

/* ---- for a node with workers */

static size_t words_start(struct script *script, uint8_t *to)
{
	Traind__Peer__StartWorker start = TRAIND__PEER__START_WORKER__INIT;
	Traind__V1__JobSpec spec = TRAIND__V1__JOB_SPEC__INIT;
	Traind__V1__CommandSpec command = TRAIND__V1__COMMAND_SPEC__INIT;
	Traind__V1__TrainSpec train = TRAIND__V1__TRAIN_SPEC__INIT;
	Traind__V1__Mesh mesh = TRAIND__V1__MESH__INIT;
	uint8_t how = script_byte(script);
	char *argv[] = { words_about(script, "/nowhere/program"), words_text("-x") },
	     *env[] = { words_text("A=1"), words_text("none"), words_text("") };
	command.argv = argv;
	command.n_argv = how & 3 ? how & 1 : 2;
	command.env = env;
	command.n_env = how >> 2 & 3;
	command.directory = words_about(script, "");
	mesh.threads = (uint32_t)script_about(script, 0);
	spec.mesh = how & 16 ? &mesh : NULL;
	if (how & 32)
		spec.train = &train;
	else
		spec.command = &command;
	start.job_id = script_about(script, 1);
	start.group = script_about(script, how & 64 ? 0 : WORDS_GROUP);
	start.peer = script_about(script, WORDS_ME);
	start.rank = (uint32_t)script_about(script, 0);
	start.local_rank = (uint32_t)script_about(script, 0);
	start.world_size = (uint32_t)script_about(script, 2);
	start.master_address = words_about(script, "127.0.0.1");
	start.run_id = words_about(script, "1");
	start.spec = how & 128 ? NULL : &spec;
	WORDS_SAY(to, start_worker, START_WORKER, &start);
}

static size_t words_measure(struct script *script, uint8_t *to)
{
	Traind__Peer__MeasureLink measure = TRAIND__PEER__MEASURE_LINK__INIT;
	Traind__V1__JobSpec spec = TRAIND__V1__JOB_SPEC__INIT;
	measure.measurement = script_about(script, 1);
	measure.address = words_about(script, truth.memberd);
	measure.threads = (uint32_t)script_about(script, 1);
	measure.job = script_byte(script) % 2 != 0 ? &spec : NULL;
	WORDS_SAY(to, measure_link, MEASURE_LINK, &measure);
}

static size_t words_log(struct script *script, uint8_t *to, uint8_t kind)
{
	Traind__Peer__LogRequest request = TRAIND__PEER__LOG_REQUEST__INIT;
	Traind__Peer__LogCredit credit = TRAIND__PEER__LOG_CREDIT__INIT;
	Traind__Peer__LogCancel cancel = TRAIND__PEER__LOG_CANCEL__INIT;
	request.stream = credit.stream = cancel.stream = script_about(script, 1);
	if (kind == 0) {
		request.job_id = script_about(script, 1);
		request.peer = script_about(script, WORDS_ME);
		request.follow = script_byte(script) % 2;
		request.tail_bytes = script_about(script, 100);
		request.credit_bytes = script_about(script, 1000);
		WORDS_SAY(to, log_request, LOG_REQUEST, &request);
	}
	credit.bytes = script_about(script, 1000);
	if (kind == 1)
		WORDS_SAY(to, log_credit, LOG_CREDIT, &credit);
	WORDS_SAY(to, log_cancel, LOG_CANCEL, &cancel);
}

/* Of them, and an acknowledgement. */
static size_t words_node(struct script *script, uint8_t *to)
{
	Traind__Peer__HeartbeatAck ack = TRAIND__PEER__HEARTBEAT_ACK__INIT;
	uint8_t kind = script_byte(script) % 6;
	if (kind == 0) {
		ack.sequence = script_about(script, 1);
		WORDS_SAY(to, heartbeat_ack, HEARTBEAT_ACK, &ack);
	}
	if (kind == 1)
		return words_start(script, to);
	return kind == 2 ? words_measure(script, to) : words_log(script, to, kind - 3);
}

#endif
