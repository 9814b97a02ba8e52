#include "collectives/engine/lifeline.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "collectives/transport/address.h"
#include "collectives/transport/stream.h"
#include "common/limits.h"
#include "proto/frame.h"
#include "traind/peer/peer.pb-c.h"

#define STACK_BYTES    (128u << 10)
#define HELLO_BYTES    128 /* greeting, header and Lifeline */
#define KEEPALIVE_S    10  /* boxes on the way forget connections that nothing is said on */
#define DIAL_TIMEOUT_S 1

struct lifeline {
	pthread_t thread;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t changed;
	bool wanted, stop;
	char address[TR_ADDRESS_MAX];
	uint64_t node_id, incarnation;
	uint32_t call;
	char failed[LIFELINE_WORDS_MAX]; /* not asked for yet */
	/* Do not change. */
	struct tls_context *tls;
	char host[TR_ADDRESS_MAX];
};

static size_t hello_put(const struct lifeline *lifeline, uint8_t hello[HELLO_BYTES])
{
	Traind__Peer__ToMember message = TRAIND__PEER__TO_MEMBER__INIT;
	Traind__Peer__Lifeline body = TRAIND__PEER__LIFELINE__INIT;
	body.node_id = lifeline->node_id;
	body.incarnation = lifeline->incarnation;
	body.call = lifeline->call;
	message.body_case = TRAIND__PEER__TO_MEMBER__BODY_LIFELINE;
	message.lifeline = &body;
	size_t bytes = traind__peer__to_member__pack(&message,
	    hello + FRAME_GREETING_BYTES + FRAME_HEADER_BYTES);
	struct frame_header header = { .length = (uint32_t)bytes, .type = FRAME_TO_MEMBER };
	memcpy(hello, FRAME_GREETING, FRAME_GREETING_BYTES);
	frame_header_put(&header, hello + FRAME_GREETING_BYTES);
	return FRAME_GREETING_BYTES + FRAME_HEADER_BYTES + bytes;
}

/* -1: it cannot be reached. memberd's link finds out the same and dials again; so do we, then. */
static int connect_to(const struct sockaddr *sa, socklen_t length)
{
	int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int on = 1, idle_s = KEEPALIVE_S;
	struct timeval timeout = { .tv_sec = DIAL_TIMEOUT_S };
	if (fd < 0)
		return -1;
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	if (connect(fd, sa, length) == 0)
		return fd;
	(void)close(fd);
	return -1;
}

static int dial(const char *text)
{
	struct address address;
	struct sockaddr_storage sa;
	socklen_t length;
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
	struct addrinfo *found = NULL;
	if (address_parse(text, &address, NULL) != TR_OK)
		return -1;
	if (address.is_unix)
		return address_unix(&address, &sa, &length, NULL) == TR_OK
		    ? connect_to((struct sockaddr *)&sa, length)
		    : -1;
	if (getaddrinfo(address.host, address.port, &hints, &found) != 0)
		return -1;
	int fd = connect_to(found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return fd;
}

static bool speaks_tls(const struct lifeline *lifeline, const char *text)
{
	struct address address;
	return lifeline->tls != NULL && address_parse(text, &address, NULL) == TR_OK &&
	    !address.is_unix;
}

/* Says hello on a new connection, as memberd's own link did; if nobody is there, that link finds out as well. The socket blocks, for DIAL_TIMEOUT_S
 * at most. False: the handshake failed, and `words` says why; it is closed. */
static bool tie(const struct lifeline *lifeline, const char *address, const uint8_t *hello,
    size_t bytes, struct stream *stream, char words[LIFELINE_WORDS_MAX])
{
	*stream = (struct stream){ dial(address), NULL };
	if (stream->fd < 0)
		return true;
	if (!speaks_tls(lifeline, address)) {
		(void)send(stream->fd, hello, bytes, MSG_NOSIGNAL); /* the first bytes: they fit */
		return true;
	}
	stream->tls = tls_create(lifeline->tls, stream->fd, lifeline->host);
	enum tls_step step = stream->tls != NULL ? tls_handshake(stream->tls) : TLS_FAILED;
	if (step == TLS_DONE) {
		(void)stream_write(stream, hello, bytes);
		return true;
	}
	(void)snprintf(words, LIFELINE_WORDS_MAX, "%s",
	    stream->tls == NULL     ? "no memory for TLS"
	        : step == TLS_WAITS ? "no answer in the TLS handshake"
	                            : tls_error(stream->tls));
	stream_close(stream);
	*stream = (struct stream){ -1, NULL };
	return false;
}

static void *lifeline_run(void *arg)
{
	struct lifeline *lifeline = arg;
	struct stream stream = { -1, NULL };
	bool alone = close_range(0, ~0U, CLOSE_RANGE_UNSHARE) == 0, again = false;
	pthread_mutex_lock(&lifeline->lock);
	while (!lifeline->stop) {
		if (!lifeline->wanted || !alone) {
			pthread_cond_wait(&lifeline->changed, &lifeline->lock);
			continue;
		}
		char address[TR_ADDRESS_MAX];
		uint8_t hello[HELLO_BYTES];
		lifeline->wanted = false;
		memcpy(address, lifeline->address, sizeof(address));
		char words[LIFELINE_WORDS_MAX];
		size_t bytes = hello_put(lifeline, hello);
		pthread_mutex_unlock(&lifeline->lock);
		stream_close(&stream);
		bool tied = tie(lifeline, address, hello, bytes, &stream, words);
		pthread_mutex_lock(&lifeline->lock);
		if (tied)
			again = false;
		else if (again)
			memcpy(lifeline->failed, words, sizeof(words));
		again = !tied && !again;
		lifeline->wanted = lifeline->wanted || again;
	}
	pthread_mutex_unlock(&lifeline->lock);
	stream_close(&stream);
	return NULL;
}

/* No handler of the process may run in it: it has none of the files. */
static int start_thread(struct lifeline *lifeline)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	int rc = pthread_attr_init(&attributes);
	if (rc != 0)
		return rc;
	(void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&lifeline->thread, &attributes, lifeline_run, lifeline);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attributes);
	return rc;
}

struct lifeline *lifeline_start(struct tls_context *tls, const char *host)
{
	struct lifeline *lifeline = calloc(1, sizeof(*lifeline));
	if (lifeline == NULL)
		return NULL;
	lifeline->tls = tls_context_hold(tls);
	(void)snprintf(lifeline->host, sizeof(lifeline->host), "%s", host);
	(void)pthread_mutex_init(&lifeline->lock, NULL);
	(void)pthread_cond_init(&lifeline->changed, NULL);
	if (start_thread(lifeline) == 0)
		return lifeline;
	tls_context_release(lifeline->tls);
	free(lifeline);
	return NULL;
}

void lifeline_tie(struct lifeline *lifeline, const char *address, uint64_t node_id,
    uint64_t incarnation, uint32_t call)
{
	if (lifeline == NULL)
		return;
	pthread_mutex_lock(&lifeline->lock);
	(void)snprintf(lifeline->address, sizeof(lifeline->address), "%s", address);
	lifeline->node_id = node_id;
	lifeline->incarnation = incarnation;
	lifeline->call = call;
	lifeline->wanted = true;
	pthread_cond_signal(&lifeline->changed);
	pthread_mutex_unlock(&lifeline->lock);
}

bool lifeline_failed(struct lifeline *lifeline, char words[LIFELINE_WORDS_MAX])
{
	words[0] = '\0';
	if (lifeline == NULL)
		return false;
	pthread_mutex_lock(&lifeline->lock);
	memcpy(words, lifeline->failed, LIFELINE_WORDS_MAX);
	lifeline->failed[0] = '\0';
	pthread_mutex_unlock(&lifeline->lock);
	return words[0] != '\0';
}

void lifeline_end(struct lifeline *lifeline)
{
	if (lifeline == NULL)
		return;
	pthread_mutex_lock(&lifeline->lock);
	lifeline->stop = true;
	pthread_cond_signal(&lifeline->changed);
	pthread_mutex_unlock(&lifeline->lock);
	(void)pthread_join(lifeline->thread, NULL);
	(void)pthread_cond_destroy(&lifeline->changed);
	(void)pthread_mutex_destroy(&lifeline->lock);
	tls_context_release(lifeline->tls);
	free(lifeline);
}
