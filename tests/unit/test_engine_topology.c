/* The ring order and the hub that memberd's topology core computes are the ones in use: with five engines, and a view with what it makes of five machines' links (test_membership_topology.c: memberd's views have just that), the TCP
 * connections that exist after some rounds are read back from the process's sockets, and are exactly the ring's edges, and the
 * votes' between the hub and everybody. Likewise for star and direct. Who is at the far end of a socket is what the hello
 * says that came over it.
 */
#include "tests/unit/engine_fixture.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/membership/core/topology.h"
#include "proto/frame.h"

#define PEERS        5
#define COUNT        200000
#define ROUNDS       3
#define ACCEPTED_MAX 256
#define FD_MAX       1024
#define HELLO_MAX    512

/* Two machines of two, and one by itself; the slow one is no hub, and its neighbours are those that are near. */
static const struct topology_peer links[PEERS] = {
	{ .latency_s = 8e-3, .bandwidth_bytes_per_s = 10e6, .host = "a", .may_be_hub = true },
	{ .latency_s = 4e-3, .bandwidth_bytes_per_s = 50e6, .host = "b", .may_be_hub = true },
	{ .latency_s = 30e-3, .bandwidth_bytes_per_s = 2e6, .host = "c", .may_be_hub = true },
	{ .latency_s = 2e-3, .bandwidth_bytes_per_s = 90e6, .host = "a", .may_be_hub = true },
	{ .latency_s = 9e-3, .bandwidth_bytes_per_s = 40e6, .host = "b", .may_be_hub = true },
};
static uint32_t ring_order[PEERS], hub;

/* What came over an accepted socket first. Ports name the socket for as long as it exists. */
struct accepted {
	in_port_t local, remote;
	unsigned from, to;
};

static struct accepted accepted[ACCEPTED_MAX];
static unsigned accepted_count;
static pthread_mutex_t accepted_lock = PTHREAD_MUTEX_INITIALIZER;

static bool ports_of(int fd, in_port_t *local, in_port_t *remote)
{
	struct sockaddr_in here, there;
	socklen_t length = sizeof(here);

	if (getsockname(fd, (struct sockaddr *)&here, &length) != 0 || here.sin_family != AF_INET)
		return false;
	length = sizeof(there);
	if (getpeername(fd, (struct sockaddr *)&there, &length) != 0)
		return false;
	*local = here.sin_port;
	*remote = there.sin_port;
	return true;
}

/* The first frame: a PeerHello. It is only looked at; the engine reads it. */
static Traind__Peer__PeerMessage *hello_of(int fd, const uint8_t *early, size_t early_bytes)
{
	uint8_t bytes[HELLO_MAX];
	struct frame_header header;
	struct pollfd wait = { .fd = fd, .events = POLLIN };

	for (unsigned tries = 0; tries < 10000; tries++) {
		size_t have = early_bytes < sizeof(bytes) ? early_bytes : sizeof(bytes);
		memcpy(bytes, early, have);
		ssize_t more = recv(fd, bytes + have, sizeof(bytes) - have, MSG_PEEK | MSG_DONTWAIT);
		have += more > 0 ? (size_t)more : 0;
		if (have >= FRAME_HEADER_BYTES && frame_header_get(bytes, &header, NULL) == TR_OK &&
		    have >= FRAME_HEADER_BYTES + header.length)
			return traind__peer__peer_message__unpack(NULL, header.length,
			    bytes + FRAME_HEADER_BYTES);
		(void)poll(&wait, 1, 1); /* part of it is there already: no wait for more */
	}
	return NULL;
}

static void on_accepted(struct fx_host *host, struct stream stream, const void *early,
    size_t early_bytes)
{
	Traind__Peer__PeerMessage *message = hello_of(stream.fd, early, early_bytes);
	struct accepted one = { .to = host->index };

	assert_non_null(message);
	assert_int_equal(message->body_case, TRAIND__PEER__PEER_MESSAGE__BODY_HELLO);
	one.from = (unsigned)(message->hello->from - FX_PEER(0));
	assert_int_equal(message->hello->to, FX_PEER(host->index));
	traind__peer__peer_message__free_unpacked(message, NULL);
	assert_true(ports_of(stream.fd, &one.local, &one.remote));
	pthread_mutex_lock(&accepted_lock);
	assert_true(accepted_count < ACCEPTED_MAX);
	accepted[accepted_count++] = one;
	pthread_mutex_unlock(&accepted_lock);
}

/* All established sockets of this process that somebody accepted. */
static void read_edges(bool edges[PEERS][PEERS])
{
	memset(edges, 0, sizeof(bool[PEERS][PEERS]));
	pthread_mutex_lock(&accepted_lock);
	for (int fd = 0; fd < FD_MAX; fd++) {
		in_port_t local, remote;
		struct tcp_info info;
		socklen_t length = sizeof(info);
		if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
		    info.tcpi_state != TCP_ESTABLISHED || !ports_of(fd, &local, &remote))
			continue;
		for (unsigned i = 0; i < accepted_count; i++)
			if (accepted[i].local == local && accepted[i].remote == remote)
				edges[accepted[i].from][accepted[i].to] = true;
	}
	pthread_mutex_unlock(&accepted_lock);
}

struct caller {
	struct fx_host *host;
	pthread_t thread;
	float *data;
	tr_status status;
};

static void *caller_run(void *arg)
{
	struct caller *caller = arg;
	tr_group *group = caller->host->group;
	struct tr_error error;
	struct tr_round round;

	for (unsigned r = 0; r < ROUNDS && caller->status == TR_OK; r++) {
		caller->status = tr_round_begin(group, &round, &error);
		for (size_t e = 0; e < COUNT; e++)
			caller->data[e] = 1;
		if (caller->status == TR_OK)
			caller->status = tr_allreduce(group, 0, caller->data, COUNT, TR_F32, TR_SUM,
			    TR_CONTRIBUTE, &error);
		if (caller->status == TR_OK)
			caller->status = tr_round_commit(group, &(struct tr_commit){ 0 }, &round,
			    &error);
	}
	return NULL;
}

static void edges_in_use(Traind__Peer__Algorithm algorithm, bool edges[PEERS][PEERS])
{
	struct fx *fx = fx_start(PEERS, TRAIND__PEER__POLICY__POLICY_KEEP, algorithm);
	struct caller callers[PEERS];

	accepted_count = 0;
	fx_accepted = on_accepted;
	fx->ring = ring_order;
	fx->hub = hub;
	for (unsigned i = 0; i < PEERS; i++) {
		callers[i] = (struct caller){ .host = &fx->hosts[i] };
		fx_attach(&fx->hosts[i]);
		callers[i].data = tr_alloc(fx->hosts[i].group, COUNT * sizeof(float));
		assert_non_null(callers[i].data);
		assert_int_equal(tr_state_ready(fx->hosts[i].group, 0, NULL), TR_OK);
		assert_int_equal(pthread_create(&callers[i].thread, NULL, caller_run, &callers[i]),
		    0);
	}
	fx_found(fx, PEERS);
	for (unsigned i = 0; i < PEERS; i++) {
		assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
		assert_int_equal(callers[i].status, TR_OK);
		for (size_t e = 0; e < COUNT; e++)
			assert_true(callers[i].data[e] == PEERS);
	}
	read_edges(edges);
	fx_stop(fx);
	fx_accepted = NULL;
}

static void compare(bool edges[PEERS][PEERS], bool ring, bool all)
{
	for (unsigned from = 0; from < PEERS; from++)
		for (unsigned to = 0; to < PEERS; to++) {
			bool wanted = from != to && (from == hub || to == hub || all);
			for (unsigned place = 0; ring && place < PEERS; place++)
				wanted = wanted ||
				    (ring_order[place] == from &&
				        ring_order[(place + 1) % PEERS] == to);
			if (edges[from][to] != wanted)
				fail_msg("%s edge %u -> %u", wanted ? "no" : "an unwanted", from,
				    to);
		}
}

static void ring_edges(void **state)
{
	bool edges[PEERS][PEERS];
	(void)state;
	edges_in_use(TRAIND__PEER__ALGORITHM__ALGORITHM_RING, edges);
	compare(edges, true, false);
}

static void star_edges(void **state)
{
	bool edges[PEERS][PEERS];
	(void)state;
	edges_in_use(TRAIND__PEER__ALGORITHM__ALGORITHM_STAR, edges);
	compare(edges, false, false);
}

static void direct_edges(void **state)
{
	bool edges[PEERS][PEERS];
	(void)state;
	edges_in_use(TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT, edges);
	compare(edges, false, true);
}

/* Neither is what a group has of which nothing is known. */
static int compute(void **state)
{
	bool ascending = true;
	(void)state;
	topology_ring(links, PEERS, ring_order);
	hub = topology_hub(links, PEERS);
	for (unsigned place = 0; place < PEERS; place++)
		ascending = ascending && ring_order[place] == place;
	return ascending || hub == 0 ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ring_edges),
		cmocka_unit_test(star_edges),
		cmocka_unit_test(direct_edges),
	};
	return cmocka_run_group_tests(tests, compute, NULL);
}
