/* The engine's end of the channel (channel.h). Every number that the worker writes is checked here before anybody uses
 * it. Engine thread only, except channel_host_create and channel_host_progress.
 */
#ifndef TR_COLLECTIVES_ENGINE_CHANNEL_HOST_H
#define TR_COLLECTIVES_ENGINE_CHANNEL_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/engine/channel.h"
#include "common/error.h"
#include "traind/peer/peer.pb-c.h"

struct channel_host {
	int socket, own_bell, worker_bell, question_bell;
	unsigned seat; /* the worker's, in the commons */
	struct channel_control *control;
	size_t control_bytes;
	uint64_t heard;                 /* messages taken from the socket */
	uint64_t taken, answered, told; /* ours: what stands in the page is for the worker */
	struct channel_arena {
		uint8_t *base;
		size_t bytes;
		int fd; /* to show it to peers of this host, read-only; -1: it cannot be */
	} * arenas;
	unsigned arena_count;
	struct channel_tensor {
		char name[TR_STATE_NAME_MAX];
		uint8_t *data;
		uint64_t bytes;
		uint32_t gradual; /* 1 + its unit; 0: it is not */
	} * tensors;
	unsigned tensor_count;
	bool gradual;  /* some state may come gradually */
	bool declared; /* no state may be added: others count on tensor_count */
	bool more;     /* the last read left whole messages: submissions behind them have to wait */
	bool ended;
	struct channel_extra extra; /* of the submission taken last, if that is extended */
	struct channel_inbox inbox;
};

/* A worker's seat in the commons. */
struct channel_seat {
	int commons; /* borrowed; -1: it has none */
	unsigned seat;
};

/* Makes the control page and the doorbells and sends them. Takes fd, also on an error. */
tr_status channel_host_create(const Traind__Peer__StartWorker *start, unsigned threads, int fd,
    const struct channel_seat *seat, struct channel_host **host, struct tr_error *error);
void channel_host_destroy(struct channel_host *host);

/* Reads the socket. Calls `report` for each report; it returns false when no more can be taken now (the message is then
 * offered again by the next call). TR_OK; TR_EAGAIN: `report` said so; TR_EUNAVAILABLE: the worker is gone; TR_EPROTO, TR_ENOMEM:
 * the worker broke the rules, or cannot be served. */
typedef bool channel_report_fn(void *arg, const void *packed, size_t bytes);
tr_status channel_host_read(struct channel_host *host, channel_report_fn *report, void *arg,
    struct tr_error *error);

/* The socket holds nothing that was sent before the submissions that are there now. */
bool channel_host_heard_all(const struct channel_host *host);

/* Submissions ever put, as the worker says. */
uint64_t channel_host_submitted(const struct channel_host *host);
/* The next submission, copied and checked for what needs no other knowledge. TR_EAGAIN: none; TR_EPROTO. */
tr_status channel_host_take(struct channel_host *host, struct channel_submission *submission,
    struct tr_error *error);
/* The engine's address of worker memory; NULL: out of bounds or misaligned. */
void *channel_host_memory(const struct channel_host *host, uint32_t arena, uint64_t offset,
    uint64_t bytes, size_t alignment);

/* TR_EPROTO: the worker does not take its answers. */
tr_status channel_host_answer(struct channel_host *host, const struct channel_answer *answer,
    bool wake); /* false: the caller is looking */
/* A question that was not answered yet, copied. False: there is none. */
bool channel_host_question(struct channel_host *host, struct channel_question *question);
/* Answers it; the first told->count of `links`, which has room for all, go with it. */
void channel_host_tell(struct channel_host *host, const struct channel_told *told,
    const struct tr_link *links);
void channel_host_abandoned(struct channel_host *host); /* what tr_progress tells */
/* All calls from now on end with this. */
void channel_host_end(struct channel_host *host, tr_status status, const char *reason);

/* Any thread, as long as the host lives. */
uint64_t channel_host_progress(const struct channel_host *host);
uint64_t channel_host_waited_us(const struct channel_host *host); /* all calls of the worker */
uint64_t channel_host_lacks(
    const struct channel_host *host); /* for whom it waits in the commons; 0: nobody */
/* Adds what it made there. */
void channel_host_common(const struct channel_host *host, struct tr_stats *stats);

#endif
