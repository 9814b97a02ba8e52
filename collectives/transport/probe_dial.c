#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/random.h>

#include "collectives/transport/address.h"
#include "collectives/transport/congestion.h"
#include "collectives/transport/probe.h"
#include "collectives/transport/probe_io.h"
#include "collectives/transport/socket.h"
#include "common/limits.h"
#include "proto/frame.h"

#define LOOK_MS 100 /* at whether we are to stop */

_Static_assert(sizeof(PROBE_GREETING) - 1 == FRAME_GREETING_BYTES, "a listener reads so many");

static tr_status unreachable(const struct probe_io *io, const char *cause)
{
	return tr_error_set(io->error, TR_EUNAVAILABLE, "%s", cause);
}

/* Like every dial of a daemon it is given up after TR_CONN_DIAL_TIMEOUT_MS. */
static tr_status connect_to(struct probe_io *io, const struct sockaddr *sa, socklen_t length)
{
	int cause = 0;
	socklen_t bytes = sizeof(cause);
	uint64_t until_us = io->until_us;
	io->stream.fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (io->stream.fd < 0)
		return unreachable(io, strerror(errno));
	socket_tune(io->stream.fd, sa);
	if (connect(io->stream.fd, sa, length) != 0 && errno != EINPROGRESS)
		return unreachable(io, strerror(errno));
	io->until_us = probe_now_us() + 1000u * TR_CONN_DIAL_TIMEOUT_MS;
	tr_status st = probe_await(io, POLLOUT);
	io->until_us = until_us;
	if (st != TR_OK)
		return unreachable(io, atomic_load(io->stop) ? "this daemon ends" : "no answer");
	if (getsockopt(io->stream.fd, SOL_SOCKET, SO_ERROR, &cause, &bytes) != 0)
		cause = errno;
	return cause == 0 ? TR_OK : unreachable(io, strerror(cause));
}

static void hang_up(struct probe_io *io)
{
	stream_close(&io->stream);
	io->stream = (struct stream){ -1, NULL };
}

/* The first of its addresses that answers. */
static tr_status connect_any(struct probe_io *io, const struct address *address)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
	struct addrinfo *found = NULL;
	if (address->is_unix)
		return unreachable(io, "it listens at a UNIX socket only");
	int rc = getaddrinfo(address->host, address->port, &hints, &found);
	if (rc != 0)
		return unreachable(io, gai_strerror(rc));
	tr_status st = TR_EUNAVAILABLE;
	for (const struct addrinfo *at = found; at != NULL && st != TR_OK; at = at->ai_next) {
		hang_up(io);
		st = connect_to(io, at->ai_addr, at->ai_addrlen);
	}
	freeaddrinfo(found);
	return st;
}

static tr_status shake(struct probe_io *io, struct tls_context *tls, const char *host)
{
	enum tls_step step = TLS_WAITS;
	tr_status st = TR_OK;
	io->stream.tls = tls_create(tls, io->stream.fd, host);
	if (io->stream.tls == NULL)
		return tr_error_set(io->error, TR_ENOMEM, "no memory for TLS");
	while (st == TR_OK && (step = tls_handshake(io->stream.tls)) == TLS_WAITS)
		st = probe_await(io, tls_unsent(io->stream.tls) > 0 ? POLLIN | POLLOUT : POLLIN);
	return st == TR_OK && step == TLS_FAILED ? unreachable(io, tls_error(io->stream.tls)) : st;
}

static tr_status greet(struct probe_io *io, const uint64_t token[2])
{
	struct probe_message answer;
	int unsent_most = TR_PROBE_UNSENT_BYTES;
	congestion_choose(io->stream.fd, NULL);
	(void)setsockopt(io->stream.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_most,
	    sizeof(unsent_most));
	tr_status st = probe_write(io, PROBE_GREETING, FRAME_GREETING_BYTES);
	if (st == TR_OK)
		st = probe_say(io, PROBE_OPEN, token[0], token[1]);
	return st == TR_OK ? probe_expect(io, PROBE_OPENED, &answer) : st;
}

static tr_status measure_trips(const struct probe_io *io, double *round_trip_s)
{
	struct probe_message answer;
	uint64_t from_us = probe_now_us(), least_us = UINT64_MAX;
	tr_status st = TR_OK;
	for (unsigned i = 0; st == TR_OK && i < TR_PROBE_ROUND_TRIPS; i++) {
		uint64_t nonce = 0;
		(void)getrandom(&nonce, sizeof(nonce), GRND_NONBLOCK);
		uint64_t said_us = probe_now_us();
		if (i > 3 && said_us - from_us > TR_PROBE_TRIPS_US)
			break;
		st = probe_say(io, PROBE_ECHO, i, nonce);
		if (st == TR_OK)
			st = probe_expect(io, PROBE_ECHO, &answer);
		/* Else it was said before it was asked for, and tells nothing of the way. */
		if (st == TR_OK && answer.value[1] != nonce)
			st = tr_error_set(io->error, TR_EPROTO,
			    "it said something else than was due");
		uint64_t took_us = probe_now_us() - said_us;
		least_us = took_us < least_us ? took_us : least_us;
	}
	*round_trip_s = 1e-6 * (double)least_us;
	return st;
}

/* All who measure at the same time wait for the same moments: a round trip behind another one's bytes takes far longer than one before. */
static tr_status wait_until(const struct probe_io *io, uint64_t at_us)
{
	for (uint64_t now_us = probe_now_us(); now_us < at_us; now_us = probe_now_us()) {
		if (atomic_load(io->stop))
			return tr_error_set(io->error, TR_EIO, "this daemon ends");
		uint64_t left_ms = (at_us - now_us) / 1000 + 1;
		(void)poll(NULL, 0, left_ms < LOOK_MS ? (int)left_ms : LOOK_MS);
	}
	return TR_OK;
}

static tr_status measure_beside(const struct probe_io *io, uint64_t at_us,
    struct probe_figures *figures, struct probe_message *took)
{
	tr_status st = wait_until(io, at_us);
	if (st == TR_OK)
		st = probe_say(io, PROBE_TAKE_BESIDE, 0, 0);
	if (st == TR_OK)
		st = probe_give(io, TR_PROBE_BESIDE_US, TR_PROBE_BESIDE_BYTES, true);
	if (st == TR_OK)
		st = probe_expect(io, PROBE_TOOK, took);
	if (st == TR_OK)
		st = wait_until(io, at_us + TR_PROBE_BESIDE_US + TR_PROBE_BESIDE_AT_US);
	if (st == TR_OK)
		st = probe_say(io, PROBE_GIVE_BESIDE, TR_PROBE_BESIDE_US, TR_PROBE_BESIDE_BYTES);
	return st == TR_OK ? probe_take(io, true, &figures->back_bytes_per_s) : st;
}

static tr_status measure_alone(const struct probe_io *io, struct probe_figures *figures,
    struct probe_message *took)
{
	uint64_t us = (uint64_t)(1e6 * TR_PROBE_RATE_TRIPS * figures->round_trip_s);
	us = us < TR_PROBE_RATE_US      ? TR_PROBE_RATE_US
	    : us > TR_PROBE_RATE_US_MAX ? TR_PROBE_RATE_US_MAX
	                                : us;
	tr_status st = probe_say(io, PROBE_TAKE, 0, 0);
	if (st == TR_OK)
		st = probe_give(io, us, TR_PROBE_BYTES, false);
	if (st == TR_OK)
		st = probe_expect(io, PROBE_TOOK, took);
	if (st == TR_OK)
		st = probe_say(io, PROBE_GIVE, us, TR_PROBE_BYTES);
	return st == TR_OK ? probe_take(io, false, &figures->back_bytes_per_s) : st;
}

static tr_status measure_rates(const struct probe_io *io, bool beside, uint64_t begun_us,
    struct probe_figures *figures)
{
	struct probe_message took;
	tr_status st = beside ? measure_beside(io, begun_us + TR_PROBE_BESIDE_AT_US, figures, &took)
	                      : measure_alone(io, figures, &took);
	if (st == TR_OK) {
		figures->there_bytes_per_s = (double)took.value[0];
		if (!(figures->there_bytes_per_s > 0) || !(figures->back_bytes_per_s > 0))
			st = tr_error_set(io->error, TR_EIO,
			    "too little came through to tell how fast it is");
	}
	return st;
}

tr_status probe_dial(const struct probe_target *target, const atomic_bool *stop,
    struct probe_figures *figures, struct tr_error *error)
{
	struct tr_error words = { 0 };
	struct address address;
	uint64_t begun_us = probe_now_us();
	struct probe_io io = { .stream = { -1, NULL },
		.stop = stop,
		.until_us = begun_us + 1000u * TR_PROBE_MS,
		.error = &words };
	tr_status st = address_parse(target->address, &address, &words);
	if (st == TR_OK)
		st = connect_any(&io, &address);
	if (st == TR_OK && target->tls != NULL)
		st = shake(&io, target->tls, address.host);
	if (st == TR_OK)
		st = greet(&io, target->token);
	if (st == TR_OK)
		st = measure_trips(&io, &figures->round_trip_s);
	if (st == TR_OK)
		st = measure_rates(&io, target->beside, begun_us, figures);
	hang_up(&io);
	if (st == TR_OK)
		return TR_OK;
	return tr_error_set(error, st, "%s %s: %s",
	    st == TR_EUNAVAILABLE ? "cannot reach" : "measuring the way to", target->address,
	    words.text);
}
