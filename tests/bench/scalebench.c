/* What one op and one view change cost in messages and bytes as the group grows: counted on the very cores that ship, joined in memory, for as
 * many members as a view may have, and by formula beyond (docs/benchmarks.md, "Scale"). Prints a line a case, or JSON.
 *
 *	scalebench [--bytes B] [--json]
 *
 * Where the algorithm is hierarchical the members are on hosts of HOST_PEERS (eight of them on two); else each is on one of its own.
 * Counted rows must be what the formulas say, or it ends with an error: of messages exactly, of bytes within FORMULA_PART, which headers are.
 * What memberd sends is the size of the very message, for any number of members, with the op that goes on in it. Times are formulas for
 * the given links: of an op two or more ways and what the busiest member sends, of a view change three ways and memberd's bytes.
 */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/group.h"
#include "common/limits.h"
#include "tests/unit/core_message.h"

#define LATENCY_S         50e-6  /* one way, of a local network */
#define BANDWIDTH_BS      1.25e9 /* 10 Gbit/s */
#define HOST_LATENCY_S    5e-6   /* of a host's shared memory: collectives/core/select.c */
#define HOST_BANDWIDTH_BS 6e9
#define HOST_PEERS        8
#define FORMULA_PART      0.03
#define FORMULA_FROM      (1u << 20) /* bytes of an op: of smaller ones headers are more */

struct member {
	struct group_core *core;
	bool decided;
	uint64_t sent, sent_far; /* far: to other hosts */
	Traind__Peer__ViewReport *report;
	float *data;
};

struct counts {
	uint64_t segments;
	uint64_t most_sent, most_far,
	    host_far;            /* of one member; between hosts, of one member, of one host */
	uint64_t control, words; /* votes and commits; that somebody has submitted an op */
	uint64_t reports, report_bytes, install_bytes;
};

/* On its way. A segment's payload is not copied: it is its sender's until it has come. */
struct flight {
	struct flight *next;
	struct core_message *message;
	struct group_buffer *buffer; /* of the sender's core, or NULL */
};

struct world {
	unsigned n, host_peers;
	struct member *members;
	struct flight *first, **last;
	struct counts counts;
};

static void die(const char *what)
{
	fprintf(stderr, "scalebench: %s\n", what);
	exit(1);
}

static void *get(size_t count, size_t size)
{
	void *memory = calloc(count, size);
	if (memory == NULL)
		die("out of memory");
	return memory;
}

/* ---- messages ---- */

static void put_segment(struct world *world, unsigned from, struct flight *flight,
    const struct group_action *action)
{
	unsigned to = (unsigned)action->to - 1;
	size_t bytes = action->payload_bytes + SEGMENT_HEADER_BYTES;
	flight->message = get(1, sizeof(*flight->message));
	*flight->message = (struct core_message){ .from = from,
		.to = to,
		.kind = action->kind,
		.header = action->header,
		.payload = (void *)(uintptr_t)action->payload,
		.payload_bytes = action->payload_bytes };
	flight->buffer = action->buffer;
	world->counts.segments++;
	world->members[from].sent += bytes;
	if (from / world->host_peers != to / world->host_peers)
		world->members[from].sent_far += bytes;
}

static void put(struct world *world, unsigned from, struct group_action *action)
{
	struct flight *flight = get(1, sizeof(*flight));
	if (action->kind == GROUP_DO_SEND_SEGMENT) {
		put_segment(world, from, flight, action);
	} else {
		flight->message = core_message_take(world->members[from].core, from, action);
		if (action->kind == GROUP_DO_SEND_SUBMITTED)
			world->counts.words++;
		else
			world->counts.control++;
	}
	*world->last = flight;
	world->last = &flight->next;
}

static void flight_free(struct world *world, struct flight *flight)
{
	if (flight->message->kind == GROUP_DO_SEND_SEGMENT)
		flight->message->payload = NULL;
	if (flight->buffer != NULL)
		group_buffer_release(world->members[flight->message->from].core, flight->buffer);
	core_message_free(flight->message);
	free(flight);
}

static void act(struct world *world, unsigned who, struct group_actions *actions)
{
	struct member *member = &world->members[who];
	for (size_t i = 0; i < actions->count; i++) {
		struct group_action *action = &actions->items[i];
		switch (action->kind) {
		case GROUP_DO_SEND_SEGMENT:
		case GROUP_DO_SEND_VOTE:
		case GROUP_DO_SEND_COMMIT:
		case GROUP_DO_SEND_SUBMITTED:
			put(world, who, action);
			break;
		case GROUP_DO_DECIDED:
			member->decided = action->status == TR_OK;
			break;
		case GROUP_DO_REPORT:
			member->report = action->report;
			action->report = NULL;
			world->counts.reports++;
			world->counts.report_bytes += traind__peer__view_report__get_packed_size(
			    member->report);
			break;
		case GROUP_DO_FAIL:
			die(action->text);
			break;
		default:
			break;
		}
	}
	group_actions_clear(actions);
}

static tr_status step(struct world *world, unsigned who, const struct group_event *event)
{
	struct group_actions actions = { 0 };
	struct tr_error error = { 0 };
	tr_status st = group_core_step(world->members[who].core, event, &actions, &error);
	if (st != TR_OK && st != TR_ESTALE)
		die(error.text[0] != '\0' ? error.text : tr_status_text(st));
	act(world, who, &actions);
	group_actions_finish(&actions);
	return st;
}

/* Delivers at most `most` messages, oldest first. */
static void pump(struct world *world, uint64_t most)
{
	for (uint64_t i = 0; i < most && world->first != NULL; i++) {
		struct flight *flight = world->first;
		struct group_event event = core_message_event(flight->message);
		world->first = flight->next;
		if (world->first == NULL)
			world->last = &world->first;
		(void)step(world, flight->message->to, &event);
		flight_free(world, flight);
	}
}

/* ---- views ---- */

static unsigned host_peers_of(unsigned n, enum tr_algorithm algorithm)
{
	if (algorithm != TR_HIERARCHICAL)
		return 1;
	return n > HOST_PEERS ? HOST_PEERS : n / 2;
}

/* As an engine names it (collectives/transport/host.h). */
static char *host_name(unsigned host)
{
	static char names[4096][64];
	(void)snprintf(names[host], sizeof(names[host]), "6ba7b810-9dad-11d1-80b4-%012u/4026531840",
	    host);
	return names[host];
}

static void fill_view(Traind__Peer__View *view, Traind__Peer__ViewPeer *peers,
    Traind__Peer__ViewPeer **list, uint32_t *ring, unsigned n, enum tr_algorithm algorithm)
{
	unsigned host_peers = host_peers_of(n, algorithm);
	traind__peer__view__init(view);
	for (unsigned i = 0; i < n; i++) {
		traind__peer__view_peer__init(&peers[i]);
		peers[i].peer = i + 1;
		peers[i].address = (char *)"10.11.12.13:40000";
		peers[i].node_name = (char *)"node-with-a-name";
		peers[i].participate_from = peers[i].contribute_from = 1;
		if (host_peers > 1) {
			peers[i].host = host_name(i / host_peers);
			peers[i].local_address = (char *)"traind-12345-0123456789ab";
		}
		list[i] = &peers[i];
		ring[i] = i;
	}
	view->group = view->number = 1;
	view->n_peers = view->n_ring = n;
	view->peers = list;
	view->ring = ring;
	view->algorithm = (Traind__Peer__Algorithm)algorithm;
	view->latency_s = LATENCY_S;
	view->bandwidth_bytes_per_s = BANDWIDTH_BS;
	view->segment_bytes = TR_SEGMENT_BYTES;
}

static void install(struct world *world, enum tr_algorithm algorithm)
{
	Traind__Peer__View view;
	Traind__Peer__Resume resume = TRAIND__PEER__RESUME__INIT;
	Traind__Peer__ViewInstall message = TRAIND__PEER__VIEW_INSTALL__INIT;
	Traind__Peer__ViewPeer *peers = get(world->n, sizeof(*peers)),
	                       **list = get(world->n, sizeof(Traind__Peer__ViewPeer *));
	uint32_t *ring = get(world->n, sizeof(*ring));
	fill_view(&view, peers, list, ring, world->n, algorithm);
	resume.base_round = 1;
	message.view = &view;
	message.resume = &resume;
	for (unsigned i = 0; i < world->n; i++)
		(void)step(world, i,
		    &(struct group_event){ .kind = GROUP_INSTALL, .install = &message });
	free(peers);
	free(list);
	free(ring);
}

/* What memberd sends to n members when a view is installed in the middle of an op of so many segments. */
static uint64_t install_bytes(unsigned n, enum tr_algorithm algorithm, uint64_t segments)
{
	Traind__Peer__View view;
	Traind__Peer__Resume resume = TRAIND__PEER__RESUME__INIT;
	Traind__Peer__OpHolders op = TRAIND__PEER__OP_HOLDERS__INIT, *ops = &op;
	Traind__Peer__ViewInstall message = TRAIND__PEER__VIEW_INSTALL__INIT;
	Traind__Peer__ViewPeer *peers = get(n, sizeof(*peers)),
	                       **list = get(n, sizeof(Traind__Peer__ViewPeer *));
	Traind__Peer__Holder *rows = get(n, sizeof(*rows)),
	                     **holders = get(n, sizeof(Traind__Peer__Holder *));
	uint64_t *contributors = get(n, sizeof(*contributors));
	uint32_t *ring = get(n, sizeof(*ring));
	uint8_t *sealed = get((segments + 7) / 8, 1);
	fill_view(&view, peers, list, ring, n, algorithm);
	for (unsigned i = 0; i < n; i++) {
		traind__peer__holder__init(&rows[i]);
		rows[i].peer = contributors[i] = i + 1;
		rows[i].sealed = (ProtobufCBinaryData){ (segments + 7) / 8, sealed };
		holders[i] = &rows[i];
	}
	op.tag = 1;
	op.segments = (uint32_t)segments;
	op.holders = holders;
	op.n_holders = resume.n_contributors = n;
	resume.base_round = resume.base_attempt = 1;
	resume.finish = true;
	resume.contributors = contributors;
	resume.ops = &ops;
	resume.n_ops = 1;
	message.view = &view;
	message.resume = &resume;
	uint64_t bytes = n * traind__peer__view_install__get_packed_size(&message);
	void *all[] = { peers, list, rows, holders, contributors, ring, sealed };
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		free(all[i]);
	return bytes;
}

/* Everybody freezes in the middle of the op: what memberd gets. */
static void freeze(struct world *world)
{
	Traind__Peer__ViewPropose propose = TRAIND__PEER__VIEW_PROPOSE__INIT;
	propose.group = 1;
	propose.number = 2;
	for (unsigned i = 0; i < world->n; i++)
		(void)step(world, i,
		    &(struct group_event){ .kind = GROUP_PROPOSE, .propose = &propose });
}

/* ---- one case ---- */

static void world_start(struct world *world, unsigned n, size_t bytes, enum tr_algorithm algorithm)
{
	*world = (struct world){ .n = n,
		.host_peers = host_peers_of(n, algorithm),
		.members = get(n, sizeof(struct member)) };
	world->last = &world->first;
	for (unsigned i = 0; i < n; i++) {
		struct member *member = &world->members[i];
		struct group_core_options options = { .group = 1, .peer = i + 1 };
		if (group_core_create(&options, &member->core) != TR_OK)
			die("out of memory");
		member->data = get(1, bytes);
		(void)step(world, i, &(struct group_event){ .kind = GROUP_READY });
	}
	install(world, algorithm);
	for (unsigned i = 0; i < n; i++)
		(void)step(world, i, &(struct group_event){ .kind = GROUP_BEGIN });
	for (unsigned i = 0; i < n; i++) {
		struct group_event event = { .kind = GROUP_SUBMIT };
		event.submit.tag = 1;
		event.submit.data = world->members[i].data;
		event.submit.count = bytes / sizeof(float);
		event.submit.dtype = TR_F32;
		event.submit.reduce = TR_SUM;
		event.submit.contribute = true;
		(void)step(world, i, &event);
		(void)step(world, i, &(struct group_event){ .kind = GROUP_CLOSE });
	}
}

static void world_finish(struct world *world)
{
	while (world->first != NULL) {
		struct flight *next = world->first->next;
		flight_free(world, world->first);
		world->first = next;
	}
	for (unsigned i = 0; i < world->n; i++) {
		group_core_destroy(world->members[i].core);
		if (world->members[i].report != NULL)
			traind__peer__view_report__free_unpacked(world->members[i].report, NULL);
		free(world->members[i].data);
	}
	free(world->members);
}

static void more(uint64_t *most, uint64_t value)
{
	if (value > *most)
		*most = value;
}

static struct counts measure(unsigned n, size_t bytes, enum tr_algorithm algorithm)
{
	struct world world;
	uint64_t host = 0;
	world_start(&world, n, bytes, algorithm);
	pump(&world, UINT64_MAX);
	for (unsigned i = 0; i < n; i++) {
		const struct member *member = &world.members[i];
		if (!member->decided)
			die("a member did not commit");
		more(&world.counts.most_sent, member->sent);
		more(&world.counts.most_far, member->sent_far);
		host = i % world.host_peers > 0 ? host + member->sent_far : member->sent_far;
		more(&world.counts.host_far, host);
	}
	struct counts whole = world.counts;
	world_finish(&world);
	world_start(&world, n, bytes, algorithm);
	pump(&world, whole.segments / 2);
	freeze(&world);
	whole.reports = world.counts.reports;
	whole.report_bytes = world.counts.report_bytes;
	world_finish(&world);
	return whole;
}

/* ---- formulas: docs/benchmarks.md, "Scale" ---- */

static uint64_t messages_of(unsigned n, uint64_t s, enum tr_algorithm algorithm)
{
	return algorithm == TR_ONE_SHOT ? n * (n - 1) * s : 2 * (n - 1) * s;
}

/* What the busiest member of a hierarchical op sends, in segments: `far` between hosts, `near` inside its own; `host`: what all of its
 * host together send to others. R hosts of m. Segment k's owner is member k mod n, and on another host member k mod m leads it. */
struct segments_sent {
	double far, near, host;
};

static struct segments_sent hierarchical_of(unsigned n, uint64_t s)
{
	unsigned m = host_peers_of(n, TR_HIERARCHICAL), hosts = n / m;
	uint64_t own = (s + n - 1) / n, led = (s + m - 1) / m;
	uint64_t of_host = s / n * m + (s % n < m ? s % n : m);
	double owns = (double)own, leads = (double)(led - own), hosts_own = (double)of_host;
	return (struct segments_sent){ .far = owns * (hosts - 1) + leads,
		.near = owns * (m - 1) + leads * (m - 1) + (double)s - owns - leads,
		.host = hosts_own * (hosts - 1) + (double)s - hosts_own };
}

static double most_sent_of(unsigned n, double s, double bytes, enum tr_algorithm algorithm)
{
	double m = n;
	if (algorithm == TR_STAR || algorithm == TR_ONE_SHOT)
		return (m - 1) * bytes;
	if (algorithm == TR_HIERARCHICAL) {
		struct segments_sent of = hierarchical_of(n, (uint64_t)s);
		return (of.far + of.near) * bytes / s;
	}
	if (algorithm == TR_DIRECT && s < m)
		return bytes * (m - 1) / m + bytes * (m - 1) / s;
	return 2 * bytes * (m - 1) / m;
}

/* What is sent inside a host while links between hosts are busy counts as if it were not. */
static double op_s(unsigned n, const struct counts *c, enum tr_algorithm algorithm)
{
	double ways = algorithm == TR_RING ? 2 * (n - 1) : algorithm == TR_ONE_SHOT ? 1 : 2;
	if (algorithm == TR_HIERARCHICAL)
		return ways * (LATENCY_S + HOST_LATENCY_S) + (double)c->most_far / BANDWIDTH_BS +
		    (double)(c->most_sent - c->most_far) / HOST_BANDWIDTH_BS;
	return ways * LATENCY_S + (double)c->most_sent / BANDWIDTH_BS;
}

static bool is_about(uint64_t counted, double formula)
{
	return fabs((double)counted - formula) <= FORMULA_PART * formula;
}

static void check_formulas(unsigned n, size_t bytes, uint64_t s, enum tr_algorithm algorithm,
    const struct counts *c)
{
	struct segments_sent of = hierarchical_of(n, s);
	double segment = (double)bytes / (double)s;
	if (c->segments != messages_of(n, s, algorithm))
		die("an op has other messages than the formula says");
	if (c->control != 2 * (n - 1))
		die("a commit has other messages than the formula says");
	if (bytes < FORMULA_FROM)
		return;
	if (!is_about(c->most_sent, most_sent_of(n, (double)s, (double)bytes, algorithm)))
		die("a member sends other bytes than the formula says");
	if (algorithm == TR_HIERARCHICAL &&
	    (!is_about(c->most_far, of.far * segment) || !is_about(c->host_far, of.host * segment)))
		die("other bytes go between hosts than the formula says");
}

static void print(unsigned n, size_t bytes, const char *name, enum tr_algorithm algorithm,
    const struct counts *c, bool counted, bool json)
{
	char words[24] = "null"; /* they depend on who submits when: counted, or not known */
	if (counted)
		(void)snprintf(words, sizeof(words), "%" PRIu64, c->words);
	double view_s = 3 * LATENCY_S + (double)(c->report_bytes + c->install_bytes) / BANDWIDTH_BS;
	printf(json ? "{\"peers\": %u, \"bytes\": %zu, \"algo\": \"%s\", \"counted\": %s, "
	              "\"segments\": %" PRIu64 ", \"most_sent\": %" PRIu64
	              ", \"most_far\": %" PRIu64 ", \"host_far\": %" PRIu64
	              ", \"control\": %" PRIu64 ", \"words\": %s, \"report_bytes\": %" PRIu64
	              ", \"install_bytes\": %" PRIu64 ", \"op_s\": %.6g, \"view_s\": %.6g}\n"
	            : "%5u peers %9zu B %-12s counted: %-5s %8" PRIu64
	              " segments, at most %11" PRIu64 " B a peer (%10" PRIu64
	              " between hosts, %11" PRIu64 " of a host); commit %5" PRIu64
	              " messages, words of ops %6s; view change: memberd gets %7" PRIu64
	              " B, sends %11" PRIu64 " B; op %.3g s, view change %.3g s\n",
	    n, bytes, name, counted ? "true" : "false", c->segments, c->most_sent, c->most_far,
	    c->host_far, c->control, words, c->report_bytes, c->install_bytes,
	    op_s(n, c, algorithm), view_s);
	(void)fflush(stdout);
}

static struct counts say_counted(unsigned n, size_t bytes, const char *name,
    enum tr_algorithm algorithm, bool json)
{
	struct counts c = measure(n, bytes, algorithm);
	uint64_t s = c.segments / messages_of(n, 1, algorithm);
	check_formulas(n, bytes, s, algorithm, &c);
	c.install_bytes = install_bytes(n, algorithm, s);
	print(n, bytes, name, algorithm, &c, true, json);
	return c;
}

/* By the formulas, from what was counted of `m` members. */
static void say_beyond(unsigned n, size_t bytes, const char *name, enum tr_algorithm algorithm,
    const struct counts *of, unsigned m, bool json)
{
	uint64_t s = of->segments / messages_of(m, 1, algorithm);
	double segment = (double)bytes / (double)s;
	struct segments_sent sent = hierarchical_of(n, s);
	struct counts c = { .segments = messages_of(n, s, algorithm),
		.most_sent = (uint64_t)most_sent_of(n, (double)s, (double)bytes, algorithm),
		.control = 2 * (n - 1),
		.report_bytes = of->report_bytes * n / m,
		.install_bytes = install_bytes(n, algorithm, s) };
	c.most_far = c.host_far = c.most_sent;
	if (algorithm == TR_HIERARCHICAL) {
		c.most_far = (uint64_t)(sent.far * segment);
		c.host_far = (uint64_t)(sent.host * segment);
	}
	print(n, bytes, name, algorithm, &c, false, json);
}

int main(int argc, char **argv)
{
	static const unsigned sizes[] = { 8, 64, TR_GROUP_PEERS_MAX }, beyond[] = { 512, 4096 };
	static struct counts counts; /* of the largest group that was counted */
	static const struct {
		const char *name;
		enum tr_algorithm algorithm;
	} rows[] = { { "ring", TR_RING }, { "star", TR_STAR }, { "direct", TR_DIRECT },
		{ "hierarchical", TR_HIERARCHICAL }, { "one-shot", TR_ONE_SHOT } };
	size_t bytes = 1 << 20;
	bool json = false;
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0) {
			json = true;
		} else if (strcmp(argv[i], "--bytes") == 0 && i + 1 < argc) {
			bytes = strtoull(argv[++i], NULL, 10) & ~(size_t)3;
		} else {
			fprintf(stderr, "usage: scalebench [--bytes B] [--json]\n");
			return 2;
		}
	}
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		unsigned most = 0;
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			counts = say_counted(most = sizes[i], bytes, rows[k].name,
			    rows[k].algorithm, json);
		for (size_t i = 0; most > 0 && i < sizeof(beyond) / sizeof(beyond[0]); i++)
			say_beyond(beyond[i], bytes, rows[k].name, rows[k].algorithm, &counts, most,
			    json);
	}
	return 0;
}
