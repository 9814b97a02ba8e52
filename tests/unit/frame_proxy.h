/* A port in front of a host's port that passes frames on whole, and harms those that a test names. All of it is static: a
 * test program includes this once.
 */
#ifndef TR_TESTS_FRAME_PROXY_H
#define TR_TESTS_FRAME_PROXY_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/frame.h"
#include "proto/segment.h"
#include "tests/unit/engine_fixture.h"

#ifndef FP_CONNECTIONS_MAX
#define FP_CONNECTIONS_MAX 64
#endif

/* Under the fixture's lock. */
struct fp_harm {
	unsigned drop_begin; /* connections that end before their StateBegin arrives */
	unsigned cut_state;  /* connections that end in the middle of the state */
	unsigned corrupt;    /* state frames that get a wrong byte */
	unsigned stall;      /* connections that are not read any more once their StateBegin came */
	unsigned
	    swallow; /* connections that are not read any more once their StateBegin came, which is not passed on */
	unsigned begins;  /* seen */
	unsigned named;   /* tensors that they named */
	unsigned states;  /* state frames seen */
	unsigned slow_us; /* each of them takes so long */
	unsigned
	    hold_at; /* nothing passes from the state frame of this number on until a test sets it to 0 */
	unsigned greeted;   /* connections whose first frame was passed on */
	unsigned cut_lanes; /* connections that end instead of passing on their next segment */
	bool deaf;          /* no connection is read any more */
	size_t trickle; /* so many bytes of a connection pass every 20 ms; set before there is one */
};

struct fp_connection {
	int in, out;
	uint8_t *bytes; /* read and not yet passed on */
	size_t held;
	bool greeted, stalled, swallowed, said_hello;
	unsigned state_frames;
};

struct frame_proxy {
	struct fx *fx;
	struct fp_harm harm;
	int port, stop[2];
	char target[TR_ADDRESS_MAX];
	pthread_t thread;
	struct fp_connection connections[FP_CONNECTIONS_MAX];
	unsigned count;
};

static void fp_close(struct fp_connection *c)
{
	if (c->in >= 0) {
		(void)close(c->in);
		(void)close(c->out);
		free(c->bytes);
	}
	c->in = c->out = -1;
	c->bytes = NULL;
}

static struct sockaddr_in fp_address(const char *text)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	const char *colon = strrchr(text, ':');
	address.sin_port = htons((uint16_t)atoi(colon + 1));
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return address;
}

static bool fp_write(int fd, const uint8_t *bytes, size_t count)
{
	while (count > 0) {
		ssize_t n = send(fd, bytes, count, MSG_NOSIGNAL);
		if (n <= 0)
			return false;
		bytes += n;
		count -= (size_t)n;
	}
	return true;
}

static bool fp_is_begin(const uint8_t *payload, size_t bytes, unsigned *named)
{
	Traind__Peer__PeerMessage *message = traind__peer__peer_message__unpack(NULL, bytes,
	    payload);
	bool is = message != NULL &&
	    message->body_case == TRAIND__PEER__PEER_MESSAGE__BODY_STATE_BEGIN;
	if (is)
		*named += (unsigned)message->state_begin->n_tensors;
	if (message != NULL)
		traind__peer__peer_message__free_unpacked(message, NULL);
	return is;
}

/* false: the connection ends here. */
static bool fp_harm_frame(struct frame_proxy *proxy, struct fp_connection *c, uint16_t type,
    uint8_t *payload, size_t bytes)
{
	bool goes_on = true;
	pthread_mutex_lock(&proxy->fx->lock);
	if (type == FRAME_PEER && fp_is_begin(payload, bytes, &proxy->harm.named)) {
		proxy->harm.begins++;
		goes_on = proxy->harm.drop_begin == 0;
		proxy->harm.drop_begin -= !goes_on;
		c->stalled = proxy->harm.stall > 0;
		proxy->harm.stall -= c->stalled;
		c->swallowed = proxy->harm.swallow > 0;
		proxy->harm.swallow -= c->swallowed;
	} else if (type == FRAME_SEGMENT) {
		goes_on = proxy->harm.cut_lanes == 0;
		proxy->harm.cut_lanes -= !goes_on;
	} else if (type == FRAME_STATE) {
		proxy->harm.states++;
		if (proxy->harm.corrupt > 0) {
			proxy->harm.corrupt--;
			payload[bytes - 1] ^= 1;
		}
		goes_on = ++c->state_frames < 3 || proxy->harm.cut_state == 0;
		proxy->harm.cut_state -= !goes_on;
	}
	unsigned slow_us = type == FRAME_STATE ? proxy->harm.slow_us : 0;
	pthread_cond_broadcast(&proxy->fx->changed);
	while (proxy->harm.hold_at > 0 && proxy->harm.states >= proxy->harm.hold_at)
		pthread_cond_wait(&proxy->fx->changed, &proxy->fx->lock);
	pthread_mutex_unlock(&proxy->fx->lock);
	(void)usleep(slow_us);
	return goes_on;
}

/* Passes on what is whole. */
static bool fp_pass(struct frame_proxy *proxy, struct fp_connection *c)
{
	if (!c->greeted && c->held < FRAME_GREETING_BYTES)
		return true;
	size_t at = c->greeted ? 0 : FRAME_GREETING_BYTES;
	c->greeted = true;
	bool fine = fp_write(c->out, c->bytes, at);
	while (fine && !c->swallowed && c->held - at >= FRAME_HEADER_BYTES) {
		struct frame_header header;
		if (frame_header_get(c->bytes + at, &header, NULL) != TR_OK)
			return false;
		size_t whole = FRAME_HEADER_BYTES + header.length;
		if (c->held - at < whole)
			break;
		fine = fp_harm_frame(proxy, c, header.type, c->bytes + at + FRAME_HEADER_BYTES,
		           header.length) &&
		    (c->swallowed || fp_write(c->out, c->bytes + at, whole));
		at += whole;
		if (fine && !c->said_hello) {
			pthread_mutex_lock(&proxy->fx->lock);
			proxy->harm.greeted++;
			pthread_cond_broadcast(&proxy->fx->changed);
			pthread_mutex_unlock(&proxy->fx->lock);
			c->said_hello = true;
		}
	}
	memmove(c->bytes, c->bytes + at, c->held - at);
	c->held -= at;
	return fine;
}

static bool fp_read(struct frame_proxy *proxy, struct fp_connection *c)
{
	const size_t most = TR_FRAME_CONTROL_MAX + FRAME_HEADER_BYTES;
	if (c->bytes == NULL)
		c->bytes = malloc(most);
	ssize_t n = recv(c->in, c->bytes + c->held, most - c->held, 0);
	if (n <= 0)
		return false;
	c->held += (size_t)n;
	return fp_pass(proxy, c);
}

/* What the accepting end says: little, and no test harms it. */
static bool fp_back(const struct fp_connection *c)
{
	uint8_t bytes[4096];
	ssize_t n = recv(c->out, bytes, sizeof(bytes), MSG_DONTWAIT);
	return n > 0 && fp_write(c->in, bytes, (size_t)n);
}

static void fp_accept(struct frame_proxy *proxy)
{
	struct sockaddr_in target = fp_address(proxy->target);
	struct fp_connection *c = &proxy->connections[proxy->count];
	int in = accept(proxy->port, NULL, NULL), out = socket(AF_INET, SOCK_STREAM, 0);
	if (in < 0 || out < 0 || proxy->count == FP_CONNECTIONS_MAX ||
	    connect(out, (struct sockaddr *)&target, sizeof(target)) != 0) {
		(void)close(in);
		(void)close(out);
		return;
	}
	*c = (struct fp_connection){ .in = in, .out = out };
	proxy->count++;
}

static bool fp_trickle_one(struct fp_connection *c, size_t most)
{
	uint8_t bytes[4096];
	ssize_t n = recv(c->in, bytes, most < sizeof(bytes) ? most : sizeof(bytes), MSG_DONTWAIT);
	return n < 0 || (n > 0 && fp_write(c->out, bytes, (size_t)n));
}

static void fp_trickle(struct frame_proxy *proxy, size_t bytes)
{
	(void)usleep(20000);
	for (unsigned i = 0; i < proxy->count; i++)
		if (proxy->connections[i].in >= 0 && !fp_trickle_one(&proxy->connections[i], bytes))
			fp_close(&proxy->connections[i]);
}

static struct fp_harm fp_harm_now(struct frame_proxy *proxy)
{
	pthread_mutex_lock(&proxy->fx->lock);
	struct fp_harm harm = proxy->harm;
	pthread_mutex_unlock(&proxy->fx->lock);
	return harm;
}

static void *fp_run(void *arg)
{
	struct frame_proxy *proxy = arg;
	for (;;) {
		struct fp_harm harm = fp_harm_now(proxy);
		bool reads = !harm.deaf && harm.trickle == 0;
		if (harm.trickle > 0)
			fp_trickle(proxy, harm.trickle);
		struct pollfd polls[2 + 2 * FP_CONNECTIONS_MAX] = {
			{ .fd = proxy->stop[0], .events = POLLIN },
			{ .fd = proxy->port, .events = POLLIN },
		};
		unsigned count = proxy->count;
		for (unsigned i = 0; i < count; i++) {
			const struct fp_connection *c = &proxy->connections[i];
			bool still = c->stalled || c->swallowed || !reads;
			polls[2 + 2 * i] = (struct pollfd){ still ? -1 : c->in, POLLIN, 0 };
			polls[3 + 2 * i] = (struct pollfd){ c->out, POLLIN, 0 };
		}
		if (poll(polls, 2 + 2 * count, harm.trickle > 0 ? 0 : -1) < 0)
			continue;
		if (polls[0].revents != 0)
			return NULL;
		if (polls[1].revents != 0)
			fp_accept(proxy);
		for (unsigned i = 0; i < count; i++) {
			struct fp_connection *c = &proxy->connections[i];
			bool fine = polls[3 + 2 * i].revents == 0 || fp_back(c);
			if (fine && polls[2 + 2 * i].revents != 0)
				fine = fp_read(proxy, c);
			if (!fine)
				fp_close(c);
		}
	}
}

/* From now on views name the proxy's port for the host. */
static inline void fp_start(struct frame_proxy *proxy, struct fx_host *host, struct fp_harm harm)
{
	struct sockaddr_in address = fp_address("127.0.0.1:0");
	socklen_t bytes = sizeof(address);
	*proxy = (struct frame_proxy){ .fx = host->fx, .harm = harm };
	(void)snprintf(proxy->target, sizeof(proxy->target), "%s", host->address);
	proxy->port = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(proxy->port, (struct sockaddr *)&address, bytes), 0);
	assert_int_equal(listen(proxy->port, 16), 0);
	assert_int_equal(getsockname(proxy->port, (struct sockaddr *)&address, &bytes), 0);
	(void)snprintf(host->address, sizeof(host->address), "127.0.0.1:%d",
	    (int)ntohs(address.sin_port));
	assert_int_equal(pipe(proxy->stop), 0);
	assert_int_equal(pthread_create(&proxy->thread, NULL, fp_run, proxy), 0);
}

static inline void fp_stop(struct frame_proxy *proxy)
{
	assert_int_equal(write(proxy->stop[1], "", 1), 1);
	assert_int_equal(pthread_join(proxy->thread, NULL), 0);
	for (unsigned i = 0; i < proxy->count; i++)
		fp_close(&proxy->connections[i]);
	(void)close(proxy->port);
	(void)close(proxy->stop[0]);
	(void)close(proxy->stop[1]);
}

#endif
