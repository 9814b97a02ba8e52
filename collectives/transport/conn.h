/* A framed TCP connection under uv_poll: non-blocking writev from a queue of borrowed pieces, reads into one
 * growing-to-a-limit buffer, frames handed out whole. Used by memberd, traind and libtraincoll. One loop, one thread.
 *
 * Never act on the connection's memory inside a callback other than through these functions; conn_close may be called
 * anywhere, `closed` then runs exactly once from a later turn of the loop.
 */
#ifndef TR_COLLECTIVES_TRANSPORT_CONN_H
#define TR_COLLECTIVES_TRANSPORT_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "collectives/transport/lane.h"
#include "collectives/transport/stream.h"
#include "common/error.h"
#include "common/limits.h"
#include "proto/frame.h"
#include "proto/relay.h"

struct conn;

struct conn_callbacks {
	/* A whole frame; payload is borrowed until return and 8-byte aligned. TR_OK; TR_EAGAIN: keep it, stop reading until
	 * conn_resume; any other status: the connection is closed with error->text as the reason. */
	tr_status (*frame)(void *arg, struct conn *conn, uint16_t type, const uint8_t *payload,
	    size_t bytes, struct tr_error *error);
	/* Connected (dialled ones only). May be NULL. */
	void (*connected)(void *arg, struct conn *conn);
	/* Exactly once; `reason` in words ("reset by peer", "bad frame: ..."). conn is freed after it returns. */
	void (*closed)(void *arg, struct conn *conn, const char *reason);
	/* The send queue fell below half its limit after conn_send_* had returned TR_ELIMIT, or to what conn_watch_unsent asked
	 * for. May be NULL. */
	void (*drained)(void *arg, struct conn *conn);

	/* All three or none; for a FRAME_SEGMENT whose body is not small, as soon as its head is here. false: it is handed out
	 * through `frame` as any other, from memory that grows with what came. */
	bool (*place)(void *arg, struct conn *conn, const uint8_t *head, size_t body_bytes,
	    struct lane_place *place);
	/* Its body is in `place`. As `frame`; the place is the callee's on return, whatever it answers, except TR_EAGAIN. */
	tr_status (*placed)(void *arg, struct conn *conn, const uint8_t *head, void *place,
	    const void *body, size_t body_bytes, struct tr_error *error);
	/* A place that nothing will fill. */
	void (*unplace)(void *arg, void *place);
};

/* Dials "host:port" (IPv4, IPv6 in brackets, names; resolved off the loop). `connected` or `closed` follows. `tls`: speak TLS to whoever
 * shows a certificate for that host; NULL, and to a UNIX socket: plain. */
tr_status conn_dial(uv_loop_t *loop, const char *address, struct tls_context *tls,
    const struct conn_callbacks *callbacks, void *arg, struct conn **conn, struct tr_error *error);

/* A way around, for two ends that cannot dial each other: the relay at `address`, and what to say there (relay.h). */
struct conn_relay {
	char address[TR_ADDRESS_MAX];
	struct relay_message say;
};
/* As conn_dial, through `relay` (copied; NULL: directly). With `tls` the relay has to show a certificate for its host and, through it,
 * the other end one for the host of `address`. */
tr_status conn_dial_through(uv_loop_t *loop, const char *address, const struct conn_relay *relay,
    struct tls_context *tls, const struct conn_callbacks *callbacks, void *arg, struct conn **conn,
    struct tr_error *error);
/* The other side of it: waits at the relay until somebody calls. `handed`: that connection's socket, on which nothing was read; it is
 * the callee's, which deals with it as with one that it accepted. Then, and when the relay cannot be had, `closed` as always. Neither
 * frames nor anything else goes over this conn. */
typedef void conn_handed_fn(void *arg, int fd);
tr_status conn_wait_at(uv_loop_t *loop, const struct conn_relay *relay, struct tls_context *tls,
    conn_handed_fn *handed, const struct conn_callbacks *callbacks, void *arg, struct conn **conn,
    struct tr_error *error);

/* Takes a connected stream whose greeting has been read; `early` bytes read behind it are copied. On an error the stream stays the
 * caller's. */
tr_status conn_adopt(uv_loop_t *loop, struct stream stream, const void *early, size_t early_bytes,
    const struct conn_callbacks *callbacks, void *arg, struct conn **conn, struct tr_error *error);

/* Copies the payload. TR_ELIMIT: more than TR_CONN_QUEUE_BYTES_MAX unsent. */
tr_status conn_send_copy(struct conn *conn, uint16_t type, const void *payload, size_t bytes);

/* `released` runs exactly once, when the bytes are written or the frame was dropped or the connection closed (lane.h: lane_released_fn). The head
 * (at most 128 bytes) is copied, the body is borrowed until then. */
tr_status conn_send_borrow(struct conn *conn, uint16_t type, const void *head, size_t head_bytes,
    const void *body, size_t body_bytes, lane_released_fn *released, void *arg);

/* Drops unsent borrowed frames; of one that is half written the rest is copied, so that all borrowed memory is free on
 * return (their `released` have run). */
void conn_drop_borrowed(struct conn *conn);

void conn_resume(struct conn *conn); /* offers the parked frame again, then reads on */
void conn_close(struct conn *conn, const char *reason);
/* Closes after the queue is written; `closed` hears this reason, whatever else comes in between. */
void conn_finish(struct conn *conn, const char *reason);
/* Of one that was dialled, in `closed`: no address that its name stands for has answered, so nobody may be there at all; other causes (TLS, a name) say themselves what to do. */
bool conn_found_nobody(const struct conn *conn);
size_t conn_unsent(const struct conn *conn);
/* Once no more than `below` bytes are unsent, `drained` runs, from a turn of the loop. */
void conn_watch_unsent(struct conn *conn, size_t below);
const char *conn_peer_name(const struct conn *conn); /* "127.0.0.1:40312" */
void conn_counters(const struct conn *conn, struct lane_counters *counters);
int conn_socket(const struct conn *conn); /* -1: none, now */
/* How long to dial one address, and how long what was sent may stay unanswered by the other end's kernel (sent again and
 * again, not a sign of life: the way is cut) before the connection is closed with "no answer for 1.2 s". Without this:
 * TR_CONN_DIAL_TIMEOUT_MS and TR_CONN_SILENT_MS. */
void conn_set_patience(struct conn *conn, uint32_t patience_ms);
/* Right after a dial: how long its kernel at each address may take to answer; what follows (TLS, a relay) has its time from then on, as without this. 0: no such limit. */
void conn_set_dial_patience(struct conn *conn, uint32_t patience_ms);

/* For a thread other than the loop's: nothing. Post to the loop first. */

#endif
