/* The floor: an all-reduce as a ring over TCP in plain C, without fault tolerance, agreement, checks or names. What it takes
 * is the price of the bytes on this machine; what a library takes beyond it is the library's.
 *
 * One process a rank, one thread a process, one connection to the right and one from the left, non-blocking, poll when
 * neither moves. Reduce-scatter and all-gather are one stream: the first chunk is the rank's own, and what follows is what
 * came from the left, reduced or final. So a piece goes on as soon as it has come, not when its chunk is whole.
 * (Patarasuk and Yuan 2009, Bandwidth optimal all-reduce algorithms.)
 *
 *	bare_ring --world 4 --bytes 67108864 --iters 20
 *
 * With `--algo bytes` nothing is added: what would be added to is overwritten in the piece and forgotten. The 2 (n - 1) S bytes
 * that any all-reduce of n processes sends, and the two copies of the kernel's, are all that is left: no all-reduce over these
 * sockets takes less.
 *
 * PIECE_BYTES: the best of 64 KiB to 1 MiB at 64 MiB, n = 2, 4, 8 on two cores with 1 MiB of L2, by CPU time (512 KiB and 1 MiB
 * were alike, 256 KiB took a tenth more at n = 4 and 8). Socket buffers are the system's: 256 KiB and 1 MiB gained nothing.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/bench/measure.h"
#include "tests/bench/peers/add.h"
#include "tests/bench/processes.h"

#define PIECE_BYTES (512u << 10)

struct ring {
	struct processes *processes;
	struct measure_case c;
	int to[MEASURE_WORLD_MAX],
	    from[MEASURE_WORLD_MAX]; /* of each rank: to its right, from its left */
	unsigned rank;
	float *piece;
	bool adds;
};

/* Where byte `at` of the stream of chunks first, first - 1, ... lies. */
struct place {
	char *data;
	size_t left; /* bytes to the chunk's end */
};

static size_t chunk_at(const struct ring *ring, unsigned chunk)
{
	return ring->c.bytes / sizeof(float) * chunk / ring->c.world * sizeof(float);
}

/* A position in the stream. */
struct cursor {
	unsigned chunk, chunks_done;
	size_t offset; /* in the chunk */
};

static struct place place_of(const struct ring *ring, const struct cursor *cursor, void *data)
{
	size_t start = chunk_at(ring, cursor->chunk), end = chunk_at(ring, cursor->chunk + 1);
	return (struct place){ (char *)data + start + cursor->offset, end - start - cursor->offset };
}

static void advance(const struct ring *ring, struct cursor *cursor, size_t bytes)
{
	cursor->offset += bytes;
	while (cursor->chunks_done < 2 * (ring->c.world - 1) &&
	    cursor->offset == chunk_at(ring, cursor->chunk + 1) - chunk_at(ring, cursor->chunk)) {
		cursor->chunk = (cursor->chunk + ring->c.world - 1) % ring->c.world;
		cursor->chunks_done++;
		cursor->offset = 0;
	}
}

static void die(const char *what)
{
	perror(what);
	_exit(1);
}

static bool send_some(const struct ring *ring, struct cursor *out, void *data, size_t *ready)
{
	struct place place = place_of(ring, out, data);
	size_t bytes = place.left < *ready ? place.left : *ready;
	ssize_t n = bytes > 0 ? send(ring->to[ring->rank], place.data,
	                            bytes < PIECE_BYTES ? bytes : PIECE_BYTES, MSG_NOSIGNAL)
	                      : 0;
	if (n < 0 && errno != EAGAIN)
		die("bare_ring: send");
	if (n <= 0)
		return false;
	*ready -= (size_t)n;
	advance(ring, out, (size_t)n);
	return true;
}

/* `odd`: bytes of a float whose rest has not come; they stay in the piece. */
static bool receive_some(const struct ring *ring, struct cursor *in, void *data, size_t *odd,
    size_t *ready)
{
	struct place place = place_of(ring, in, data);
	bool final = in->chunks_done >= ring->c.world - 1;
	size_t bytes = place.left < PIECE_BYTES ? place.left : PIECE_BYTES;
	char *to = final ? place.data : (char *)ring->piece;
	ssize_t n = recv(ring->from[ring->rank], to + (final ? 0 : *odd),
	    bytes - (final ? 0 : *odd), 0);
	if (n < 0 && errno == EAGAIN)
		return false;
	if (n <= 0)
		die("bare_ring: receive");
	size_t whole = (size_t)n;
	if (!final) {
		size_t have = *odd + (size_t)n;
		whole = have / sizeof(float) * sizeof(float);
		if (ring->adds)
			add((float *)(void *)place.data, ring->piece, whole / sizeof(float));
		*odd = have - whole;
		memmove(ring->piece, (char *)ring->piece + whole, *odd);
	}
	advance(ring, in, whole);
	*ready += whole;
	return true;
}

static void all_reduce(void *arg, unsigned slot, void *data, size_t bytes)
{
	const struct ring *ring = arg;
	unsigned world = ring->c.world, last = 2 * (world - 1);
	struct cursor out = { .chunk = ring->rank },
	              in = { .chunk = (ring->rank + world - 1) % world };
	size_t odd = 0;
	(void)slot;
	(void)bytes;
	if (world == 1)
		return;
	size_t ready = chunk_at(ring, ring->rank + 1) - chunk_at(ring, ring->rank);
	advance(ring, &out, 0); /* chunks may be empty */
	advance(ring, &in, 0);
	while (out.chunks_done < last || in.chunks_done < last) {
		bool sent = out.chunks_done < last && send_some(ring, &out, data, &ready);
		bool received = in.chunks_done < last &&
		    receive_some(ring, &in, data, &odd, &ready);
		if (sent || received)
			continue;
		struct pollfd sockets[2] = { { .fd = ring->from[ring->rank],
			                         .events = in.chunks_done < last ? POLLIN : 0 },
			{ .fd = ring->to[ring->rank],
			    .events = out.chunks_done < last && ready > 0 ? POLLOUT : 0 } };
		(void)poll(sockets, 2, -1);
	}
}

static void *memory(void *arg, size_t bytes)
{
	(void)arg;
	return measure_memory_get(bytes);
}

static void meet(void *arg)
{
	processes_meet(((const struct ring *)arg)->processes);
}

static void body(void *arg, unsigned rank)
{
	struct ring *ring = arg;
	ring->rank = ring->c.rank = rank;
	ring->piece = aligned_alloc(64, PIECE_BYTES);
	for (unsigned i = 0; i < ring->c.world; i++)
		if (i != rank) {
			(void)close(ring->to[i]);
			(void)close(ring->from[i]);
		}
	struct measure_calls calls = { .arg = ring,
		.memory = memory,
		.meet = meet,
		.op = all_reduce };
	measure_run(&ring->c, &calls, &ring->processes->results[rank]);
	/* Nobody closes while another still looks at its sockets. */
	processes_meet(ring->processes);
}

static void set(int fd, int level, int option, int value)
{
	if (setsockopt(fd, level, option, &value, sizeof(value)) != 0)
		perror("bare_ring: socket option");
}

static int make_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		die("bare_ring: socket");
	/* Not everybody may choose cubic; reno is allowed everywhere and as good on loopback. What it became is printed. */
	if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) != 0)
		(void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	return fd;
}

/* A connection over loopback, both ends here, for processes to come. */
static void connect_pair(int *one, int *other)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	int listener = make_socket();
	*one = make_socket();
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
	    listen(listener, 1) != 0 ||
	    getsockname(listener, (struct sockaddr *)&address, &length) != 0 ||
	    connect(*one, (struct sockaddr *)&address, sizeof(address)) != 0)
		die("bare_ring: connect");
	*other = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (*other < 0)
		die("bare_ring: accept");
	(void)close(listener);
	set(*other, IPPROTO_TCP, TCP_NODELAY, 1);
	int on = 1;
	(void)ioctl(*one, FIONBIO, &on);
}

int main(int argc, char **argv)
{
	static const char *const algorithms[] = { "ring", "bytes", NULL };
	static struct ring ring;
	struct measure_options options;
	if (!measure_options_parse(argc, argv, algorithms, &options))
		return 2;
	ring.c = options.c;
	ring.adds = strcmp(options.algorithm, "bytes") != 0;
	ring.c.no_sums = !ring.adds;
	ring.processes = processes_create(ring.c.world);
	if (ring.processes == NULL)
		die("bare_ring");
	for (unsigned i = 0; i < ring.c.world; i++)
		connect_pair(&ring.to[i], &ring.from[(i + 1) % ring.c.world]);
	if (!processes_run(ring.c.world, body, &ring))
		return 1;
	measure_print(ring.adds
	        ? "\"peer\": \"bare ring\", \"algo\": \"ring\", \"transport\": \"tcp\""
	        : "\"peer\": \"bare bytes\", \"algo\": \"bytes\", \"transport\": \"tcp\"",
	    &ring.c, ring.processes->results);
	processes_destroy(ring.processes);
	return 0;
}
