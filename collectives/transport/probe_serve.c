#include <netinet/in.h>
#include <netinet/tcp.h>

#include "collectives/transport/congestion.h"
#include "collectives/transport/probe.h"
#include "collectives/transport/probe_io.h"
#include "common/limits.h"

/* As long for a token that is nearly right. */
static bool same_token(const uint64_t a[2], const uint64_t b[2])
{
	return ((a[0] ^ b[0]) | (a[1] ^ b[1])) == 0;
}

static tr_status open_door(const struct probe_io *io, const uint64_t token[2])
{
	struct probe_message message;
	tr_status st = probe_expect(io, PROBE_OPEN, &message);
	if (st != TR_OK)
		return st;
	if (same_token(message.value, token))
		return probe_say(io, PROBE_OPENED, 0, 0);
	(void)probe_say(io, PROBE_REFUSED, 0, 0);
	return tr_error_set(io->error, TR_EREFUSED, "its token is not ours");
}

static uint64_t at_most(uint64_t value, uint64_t most)
{
	return value < most ? value : most;
}

static tr_status answer(const struct probe_io *io, const struct probe_message *asked)
{
	double bytes_per_s = 0;
	bool beside = asked->kind == PROBE_TAKE_BESIDE || asked->kind == PROBE_GIVE_BESIDE;
	tr_status st;
	switch (asked->kind) {
	case PROBE_ECHO:
		return probe_say(io, PROBE_ECHO, asked->value[0], asked->value[1]);
	case PROBE_TAKE:
	case PROBE_TAKE_BESIDE:
		st = probe_take(io, beside, &bytes_per_s);
		return st == TR_OK ? probe_say(io, PROBE_TOOK, (uint64_t)bytes_per_s, 0) : st;
	case PROBE_GIVE:
	case PROBE_GIVE_BESIDE:
		return probe_give(io, at_most(asked->value[0], TR_PROBE_RATE_US_MAX),
		    at_most(asked->value[1], beside ? TR_PROBE_BESIDE_BYTES : TR_PROBE_BYTES),
		    beside);
	default:
		return tr_error_set(io->error, TR_EPROTO, "it said something that is no question");
	}
}

tr_status probe_serve(struct stream stream, const uint64_t token[2], const atomic_bool *stop,
    struct tr_error *error)
{
	int unsent_most = TR_PROBE_UNSENT_BYTES;
	struct probe_io io = { stream, stop, probe_now_us() + 1000u * TR_PROBE_MS, error };
	congestion_choose(stream.fd, NULL);
	(void)setsockopt(stream.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_most,
	    sizeof(unsent_most));
	tr_status st = open_door(&io, token);
	bool refused = st == TR_EREFUSED;
	while (st == TR_OK) {
		struct probe_message asked;
		st = probe_hear(&io, &asked);
		if (st == TR_OK)
			st = answer(&io, &asked);
	}
	stream_close(&stream);
	return refused ? TR_EREFUSED
	               : TR_OK; /* who dialled has closed it, or says what went wrong */
}
