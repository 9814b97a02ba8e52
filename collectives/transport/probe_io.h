/* Messages and blocks of a probe on a stream, for a thread that waits for them. Inside collectives/transport/probe*.c only. */
#ifndef TR_COLLECTIVES_TRANSPORT_PROBE_IO_H
#define TR_COLLECTIVES_TRANSPORT_PROBE_IO_H

#include <stdatomic.h>
#include <stdint.h>

#include "collectives/transport/stream.h"
#include "common/error.h"
#include "proto/probe.h"

struct probe_io {
	struct stream stream;
	const atomic_bool *stop;
	uint64_t until_us; /* all of it must be over by then */
	struct tr_error *error;
};

uint64_t probe_now_us(void);

/* Waits until the socket is ready for that (POLLIN, POLLOUT). TR_EIO: the time is over, or we are to stop. */
tr_status probe_await(const struct probe_io *io, short events);
tr_status probe_write(const struct probe_io *io, const void *bytes,
    size_t count); /* and sends all of it */
tr_status probe_read(const struct probe_io *io, void *bytes, size_t count);

tr_status probe_say(const struct probe_io *io, enum probe_kind kind, uint64_t first,
    uint64_t second);
tr_status probe_hear(const struct probe_io *io, struct probe_message *message);
/* TR_EPROTO: it said something else. */
tr_status probe_expect(const struct probe_io *io, enum probe_kind kind,
    struct probe_message *message);

/* Blocks for so long, or so many bytes, or until the rate has settled (probe_rate.h); and what comes of them at the other end. */
tr_status probe_give(const struct probe_io *io, uint64_t most_us, uint64_t most_bytes, bool beside);
tr_status probe_take(const struct probe_io *io, bool beside, double *bytes_per_s);

#endif
