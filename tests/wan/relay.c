#include "tests/wan/relay.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { AT_UP, AT_PAIR, AT_DOWN, ARRIVED };

uint64_t relay_now_ns(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- the heap ---- */

static bool before(const struct relay_packet *a, const struct relay_packet *b)
{
	return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

/* With its due time and order. */
static void heap_add(struct relay *relay, struct relay_packet *packet)
{
	size_t at = relay->count++;
	for (; at > 0 && before(packet, relay->heap[(at - 1) / 2]); at = (at - 1) / 2)
		relay->heap[at] = relay->heap[(at - 1) / 2];
	relay->heap[at] = packet;
}

static struct relay_packet *heap_take(struct relay *relay)
{
	struct relay_packet *first = relay->heap[0], *last = relay->heap[--relay->count];
	size_t at = 0;
	for (size_t child; (child = 2 * at + 1) < relay->count; at = child) {
		if (child + 1 < relay->count && before(relay->heap[child + 1], relay->heap[child]))
			child++;
		if (!before(relay->heap[child], last))
			break;
		relay->heap[at] = relay->heap[child];
	}
	relay->heap[at] = last;
	return first;
}

/* ---- packets ---- */

static struct relay_packet *packet_get(struct relay *relay)
{
	struct relay_packet *packet = relay->unused;
	if (packet != NULL) {
		relay->unused = packet->next;
		return packet;
	}
	packet = relay->made < RELAY_PACKETS_MAX ? malloc(sizeof(*packet)) : NULL;
	relay->made += packet != NULL;
	return packet;
}

static void packet_put(struct relay *relay, struct relay_packet *packet)
{
	packet->next = relay->unused;
	relay->unused = packet;
}

static bool packet_address(const struct relay *relay, struct relay_packet *packet)
{
	struct iphdr ip;
	in_addr_t first = 0x0a630001; /* 10.99.0.1 */
	if (packet->bytes < sizeof(ip))
		return false;
	memcpy(&ip, packet->data, sizeof(ip));
	uint32_t place = ntohl(ip.daddr) - first;
	if (ip.version != 4 || place >= relay->topology.count || place == packet->from)
		return false;
	packet->to = (uint8_t)place;
	return true;
}

static bool has_port(const struct relay_packet *packet, const uint16_t *ports)
{
	struct iphdr ip;
	struct tcphdr tcp;
	memcpy(&ip, packet->data, sizeof(ip));
	size_t head = ip.ihl * 4u;
	if (ip.protocol != IPPROTO_TCP || packet->bytes < head + sizeof(tcp))
		return false;
	memcpy(&tcp, packet->data + head, sizeof(tcp));
	for (unsigned i = 0; i < TOPOLOGY_PORTS_MAX && ports[i] != 0; i++)
		if (ntohs(tcp.source) == ports[i] || ntohs(tcp.dest) == ports[i])
			return true;
	return false;
}

/* ---- the way ---- */

static struct wire *wire_at(struct relay *relay, const struct relay_packet *packet)
{
	if (packet->passed == AT_UP)
		return &relay->up[packet->from];
	return packet->passed == AT_PAIR ? &relay->pairs[packet->from][packet->to].wire
	                                 : &relay->down[packet->to];
}

/* From wire to wire as long as that takes no time. */
static void go_on(struct relay *relay, struct relay_packet *packet, uint64_t now_ns)
{
	const struct topology_pair *pair = &relay->topology.pairs[packet->from][packet->to];
	while (packet->passed < ARRIVED) {
		if (packet->passed == AT_PAIR && pair->ports[0] != 0 &&
		    has_port(packet, pair->ports)) {
			relay->pairs[packet->from][packet->to].ported++;
			packet_put(relay, packet);
			return;
		}
		if (wire_admit(wire_at(relay, packet), now_ns, packet->bytes, &packet->due_ns) !=
		    WIRE_ARRIVES) {
			packet_put(relay, packet);
			return;
		}
		packet->passed++;
		if (packet->due_ns > now_ns) {
			packet->order = relay->orders++;
			heap_add(relay, packet);
			return;
		}
	}
	(void)!write(relay->devices[packet->to], packet->data, packet->bytes);
	packet_put(relay, packet);
}

void relay_read(struct relay *relay, unsigned site)
{
	uint64_t now_ns = relay_now_ns();
	for (unsigned i = 0; i < RELAY_TURN; i++) {
		uint8_t nowhere[RELAY_MTU];
		struct relay_packet *packet = packet_get(relay);
		ssize_t bytes = read(relay->devices[site], packet != NULL ? packet->data : nowhere,
		    RELAY_MTU);
		if (packet == NULL) {
			relay->overruns += bytes > 0;
		} else if (bytes <= 0) {
			packet_put(relay, packet);
		} else {
			packet->read_ns = now_ns;
			packet->from = (uint8_t)site;
			packet->bytes = (uint16_t)bytes;
			packet->passed = AT_UP;
			if (packet_address(relay, packet)) {
				go_on(relay, packet, now_ns);
			} else {
				relay->strangers++;
				packet_put(relay, packet);
			}
		}
		if (bytes <= 0)
			return;
	}
}

void relay_deliver(struct relay *relay, uint64_t now_ns)
{
	while (relay->count > 0 && relay->heap[0]->due_ns <= now_ns) {
		struct relay_packet *packet = heap_take(relay);
		go_on(relay, packet, packet->due_ns);
	}
}

uint64_t relay_sleep(const struct relay *relay, uint64_t now_ns)
{
	if (relay->count == 0)
		return UINT64_MAX;
	const struct relay_packet *first = relay->heap[0];
	uint64_t late_ns = (first->due_ns - first->read_ns) / RELAY_LATE_DIV;
	uint64_t wake_ns = first->due_ns +
	    (late_ns < RELAY_LATE_NS_MAX ? late_ns : RELAY_LATE_NS_MAX);
	return wake_ns > now_ns ? wake_ns - now_ns : 0;
}

/* ---- changes ---- */

/* What is under way on a line that is cut now. */
static void lose(struct relay *relay, unsigned from, unsigned to)
{
	struct wire *wire = &relay->pairs[from][to].wire;
	size_t kept = 0, before_count = relay->count;
	for (size_t i = 0; i < before_count; i++) {
		struct relay_packet *packet = relay->heap[i];
		if (packet->from == from && packet->to == to) {
			wire->packets[WIRE_SWALLOWED]++;
			packet_put(relay, packet);
		} else {
			relay->heap[kept++] = packet;
		}
	}
	relay->count = 0;
	for (size_t i = 0; i < kept; i++) /* in place: entry i is read before it can be written */
		heap_add(relay, relay->heap[i]);
}

void relay_change(struct relay *relay, const struct topology *topology, uint64_t now_ns)
{
	for (unsigned a = 0; a < topology->count; a++) {
		wire_reshape(&relay->up[a], &topology->sites[a].up, now_ns);
		wire_reshape(&relay->down[a], &topology->sites[a].down, now_ns);
		for (unsigned b = 0; b < topology->count; b++) {
			struct wire *wire = &relay->pairs[a][b].wire;
			bool cut = topology->pairs[a][b].shape.cut && !wire->shape.cut;
			wire_reshape(wire, &topology->pairs[a][b].shape, now_ns);
			if (cut)
				lose(relay, a, b);
		}
	}
	relay->topology = *topology;
}

tr_status relay_init(struct relay *relay, const struct topology *topology, const int *devices,
    uint64_t seed, struct tr_error *error)
{
	memset(relay, 0, sizeof(*relay));
	relay->heap = calloc(RELAY_PACKETS_MAX, sizeof(struct relay_packet *));
	if (relay->heap == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for packets");
	relay->topology = *topology;
	memcpy(relay->devices, devices, sizeof(relay->devices));
	for (unsigned a = 0; a < topology->count; a++) {
		wire_init(&relay->up[a], &topology->sites[a].up, rng_key(seed, a, 1u << 16));
		wire_init(&relay->down[a], &topology->sites[a].down, rng_key(seed, a, 1u << 17));
		for (unsigned b = 0; b < topology->count; b++)
			wire_init(&relay->pairs[a][b].wire, &topology->pairs[a][b].shape,
			    rng_key(seed, a, b));
	}
	return TR_OK;
}

void relay_finish(struct relay *relay)
{
	for (size_t i = 0; i < relay->count; i++)
		free(relay->heap[i]);
	for (struct relay_packet *packet = relay->unused, *next; packet != NULL; packet = next) {
		next = packet->next;
		free(packet);
	}
	free(relay->heap);
	memset(relay, 0, sizeof(*relay));
}

/* ---- what one sees ---- */

static void show_wire(const struct wire *wire, const char *from, const char *to, uint64_t ported,
    FILE *file)
{
	const struct wire_shape *shape = &wire->shape;
	fprintf(file,
	    "%s %s delay=%.3fms jitter=%.3fms rate=%.3fmbit loss=%g%% %s arrived=%" PRIu64
	    " bytes=%" PRIu64 " dropped=%" PRIu64 " lost=%" PRIu64 " swallowed=%" PRIu64 "\n",
	    from, to, (double)shape->delay_ns / 1e6, (double)shape->jitter_ns / 1e6,
	    (double)shape->rate / 1e6, shape->loss * 100,
	    shape->cut             ? "cut"
	        : shape->blackhole ? "blackhole"
	                           : "up",
	    wire->packets[WIRE_ARRIVES], wire->bytes, wire->packets[WIRE_DROPPED],
	    wire->packets[WIRE_LOST], wire->packets[WIRE_SWALLOWED] + ported);
}

void relay_show(const struct relay *relay, FILE *to)
{
	const struct topology_site *sites = relay->topology.sites;
	for (unsigned a = 0; a < relay->topology.count; a++) {
		if (relay->up[a].shape.rate > 0)
			show_wire(&relay->up[a], sites[a].name, "(up)", 0, to);
		if (relay->down[a].shape.rate > 0)
			show_wire(&relay->down[a], sites[a].name, "(down)", 0, to);
	}
	for (unsigned a = 0; a < relay->topology.count; a++)
		for (unsigned b = 0; b < relay->topology.count; b++)
			if (a != b)
				show_wire(&relay->pairs[a][b].wire, sites[a].name, sites[b].name,
				    relay->pairs[a][b].ported, to);
	fprintf(to, "overruns=%" PRIu64 " strangers=%" PRIu64 "\n", relay->overruns,
	    relay->strangers);
}
