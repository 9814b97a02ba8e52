/* TLS 1.3 with certificates on both ends (OpenSSL), on a stream socket that somebody else polls. One place for all that dials or
 * accepts: stream.h joins it with plain sockets. What a certificate proves: docs/protocol.md, "TLS".
 *
 * Records are made and opened in user space: 16 KiB each, gathered into one system call of 64 KiB; kernel TLS is not used. What was
 * encrypted and not sent is kept, so a caller's bytes are free as soon as they were taken. A key is renewed after 2^23 records (RFC 8446, 5.5).
 *
 * A context may be used by any number of threads; a connection by one at a time.
 *
 *	tls_context_load("/etc/traind-tls", &context, &error);
 *	struct tls *tls = tls_create(context, fd, "10.0.0.2");
 *	while ((step = tls_handshake(tls)) == TLS_WAITS) ...poll fd: readable, and writable if tls_unsent(tls) > 0
 */
#ifndef TR_COLLECTIVES_TRANSPORT_TLS_H
#define TR_COLLECTIVES_TRANSPORT_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "common/error.h"

/* First byte of a TLS connection from the end that dials, and of an alert. */
#define TLS_BYTE_HANDSHAKE 0x16
#define TLS_BYTE_ALERT     0x15

struct tls_context;
struct tls;

/* Reads `folder` (tls_folder.h). TR_EINVAL with one line: a file that is missing or broken, a key of another certificate, a certificate of
 * another CA, or one that has expired. */
tr_status tls_context_load(const char *folder, struct tls_context **context, struct tr_error *error);
/* One reference more; NULL gives NULL. */
struct tls_context *tls_context_hold(struct tls_context *context);
void tls_context_release(struct tls_context *context); /* accepts NULL */
/* Whether our own certificate is for the host of "host:port", which others dial. TR_EINVAL: no; the line says how to make one that is. */
tr_status tls_context_check_address(const struct tls_context *context, const char *address,
    struct tr_error *error);
/* For tests: a new key after so many records. */
void tls_context_set_records_per_key(struct tls_context *context, uint64_t records);

/* For a connected socket, which stays the caller's; blocking or not. `host`: what was dialled, for which the other end's certificate must
 * be; NULL: the connection was accepted. NULL: no memory. */
struct tls *tls_create(struct tls_context *context, int fd, const char *host);
void tls_destroy(struct tls *tls); /* accepts NULL */

enum tls_step { TLS_DONE, TLS_WAITS, TLS_FAILED };
/* Goes on with the handshake. TLS_FAILED: tls_error says why. TLS_DONE at the end that dialled does not say yet that the other end took our
 * certificate: the first read tells. */
enum tls_step tls_handshake(struct tls *tls);

/* From now on no bytes are received but those of records that a read asks for: what is behind them is not TLS, or another's. */
void tls_read_no_further(struct tls *tls);

/* As recvmsg and sendmsg: bytes; 0 from a read: the other end has closed; -1 and errno, EPROTO: tls_error says why. A read goes on until
 * all pieces are full or nothing more is there; a write takes what it can encrypt and send. Without pieces: sends what is kept. */
ssize_t tls_read(struct tls *tls, const struct iovec *pieces, int count);
ssize_t tls_write(struct tls *tls, const struct iovec *pieces, int count);
/* Says that nothing more will be sent, as far as the socket takes it. */
void tls_end(struct tls *tls);

/* The last read stopped because its pieces were full: there may be more that no poll tells of. */
bool tls_pending(const struct tls *tls);
size_t tls_unsent(const struct tls *tls); /* encrypted bytes that the socket has not taken */
const char *tls_error(const struct tls *tls);

/* On the wire, handshake included. */
struct tls_counters {
	uint64_t bytes_in, bytes_out, calls;
};
void tls_get_counters(const struct tls *tls, struct tls_counters *counters);

/* For who speaks plainly where TLS is spoken, and the other way around: a fatal alert, "unexpected message", as the whole answer. */
void tls_send_refusal(int fd);
/* Whether these first bytes of an answer are that. */
bool tls_is_refusal(const void *bytes, size_t count);
#define TLS_REFUSED_TEXT "it speaks TLS only: give --tls DIR (TRAIND_TLS, the join option tls)"

#endif
