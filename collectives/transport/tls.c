#include "collectives/transport/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "collectives/transport/address.h"
#include "collectives/transport/tls_internal.h"

#define RECORD_BYTES SSL3_RT_MAX_PLAIN_LENGTH
/* Encrypted before it is sent in one system call: little enough to be in cache still. */
#define SEND_BYTES (64u << 10)
/* Smaller pieces share a record. */
#define OWN_RECORD_BYTES 4096u
/* What a peer that never reads can make us keep by asking (answers to key updates). */
#define KEPT_BYTES_MAX (1u << 20)
/* Messages of TLS's own, as new keys are, between two of bytes. OpenSSL goes on with them within one read, and nobody else has a turn. */
#define IDLE_MESSAGES_MAX 1000u

struct tls {
	struct tls_context *context;
	SSL *ssl;
	int fd;
	bool more; /* the last read ended because the pieces were full */
	bool shaken, failed, ended;
	unsigned idle_messages; /* received since the last bytes */
	int broken;             /* the errno that a read has met */
	uint64_t records;       /* sent under the present key */
	struct tls_counters counters;
	uint8_t *out; /* encrypted: [out_begin, out_end) is not sent */
	size_t out_begin, out_end, out_capacity;
	char *host;
	char unverified[TLS_ERROR_MAX], error[TLS_ERROR_MAX];
};

/* ---- between OpenSSL and the socket ---- */

static bool out_room(struct tls *tls, size_t count)
{
	if (tls->out_begin == tls->out_end)
		tls->out_begin = tls->out_end = 0;
	if (tls->out_capacity - tls->out_end >= count)
		return true;
	size_t held = tls->out_end - tls->out_begin, capacity = tls->out_capacity;
	if (held + count > KEPT_BYTES_MAX)
		return false;
	if (capacity - held < count) {
		capacity = capacity == 0 ? 1024 : capacity;
		while (capacity - held < count)
			capacity *= 2;
	}
	uint8_t *out = capacity == tls->out_capacity ? tls->out : malloc(capacity);
	if (out == NULL)
		return false;
	if (held > 0)
		memmove(out, tls->out + tls->out_begin, held);
	if (out != tls->out)
		free(tls->out);
	tls->out = out;
	tls->out_capacity = capacity;
	tls->out_begin = 0;
	tls->out_end = held;
	return true;
}

static int bio_write(BIO *bio, const char *bytes, int count)
{
	struct tls *tls = BIO_get_data(bio);
	BIO_clear_retry_flags(bio);
	if (count <= 0 || !out_room(tls, (size_t)count))
		return -1;
	memcpy(tls->out + tls->out_end, bytes, (size_t)count);
	tls->out_end += (size_t)count;
	return count;
}

/* Sends what is kept. 0: all of it; else an errno. */
static int flush(struct tls *tls)
{
	while (tls->out_begin < tls->out_end) {
		ssize_t n = send(tls->fd, tls->out + tls->out_begin, tls->out_end - tls->out_begin,
		    MSG_NOSIGNAL);
		tls->counters.calls++;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EWOULDBLOCK ? EAGAIN : errno;
		tls->counters.bytes_out += (uint64_t)n;
		tls->out_begin += (size_t)n;
	}
	return 0;
}

static int bio_read(BIO *bio, char *bytes, int count)
{
	struct tls *tls = BIO_get_data(bio);
	ssize_t n;
	BIO_clear_retry_flags(bio);
	/* A socket that blocks does so here: the other end has to have what it is to answer. */
	if (!SSL_is_init_finished(tls->ssl))
		(void)flush(tls);
	if (tls->idle_messages > IDLE_MESSAGES_MAX) {
		tls->failed = true;
		(void)snprintf(tls->error, sizeof(tls->error),
		    "it has new keys ever again and says nothing");
		errno = EPROTO;
		return -1;
	}
	do {
		n = recv(tls->fd, bytes, (size_t)count, 0);
	} while (n < 0 && errno == EINTR);
	tls->counters.calls++;
	if (n > 0)
		tls->counters.bytes_in += (uint64_t)n;
	else if (n == 0)
		tls->ended = true;
	else if (errno == EAGAIN || errno == EWOULDBLOCK)
		BIO_set_retry_read(bio);
	return (int)n;
}

static long bio_ctrl(BIO *bio, int command, long number, void *pointer)
{
	const struct tls *tls = BIO_get_data(bio);
	(void)number;
	(void)pointer;
	if (command == BIO_CTRL_EOF)
		return tls->ended;
	return command == BIO_CTRL_FLUSH;
}

static int bio_create(BIO *bio)
{
	BIO_set_init(bio, 1);
	return 1;
}

bool tls_methods_init(struct tls_context *context)
{
	context->methods = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "traind");
	return context->methods != NULL && BIO_meth_set_write(context->methods, bio_write) == 1 &&
	    BIO_meth_set_read(context->methods, bio_read) == 1 &&
	    BIO_meth_set_ctrl(context->methods, bio_ctrl) == 1 &&
	    BIO_meth_set_create(context->methods, bio_create) == 1;
}

/* ---- life ---- */

int tls_on_verify(int good, X509_STORE_CTX *check)
{
	SSL *ssl = X509_STORE_CTX_get_ex_data(check, SSL_get_ex_data_X509_STORE_CTX_idx());
	struct tls *tls = ssl == NULL ? NULL : SSL_get_app_data(ssl);
	if (!good && tls != NULL)
		tls_words_of_verify(X509_STORE_CTX_get_error(check),
		    X509_STORE_CTX_get0_cert(check), tls->host, tls->unverified);
	return good;
}

void tls_on_message(int sent, int version, int kind, const void *bytes, size_t count, SSL *ssl,
    void *arg)
{
	struct tls *tls = SSL_get_app_data(ssl);
	(void)version;
	(void)bytes;
	(void)count;
	(void)arg;
	if (!sent && kind == SSL3_RT_HANDSHAKE && tls != NULL && tls->shaken)
		tls->idle_messages++;
}

static bool set_host(struct tls *tls, const char *host)
{
	static const unsigned char offer[] = "\x08" TLS_PROTOCOL "\x02h2";
	tls->host = strdup(host);
	if (tls->host == NULL || SSL_set_alpn_protos(tls->ssl, offer, sizeof(offer) - 1) != 0)
		return false;
	SSL_set_connect_state(tls->ssl);
	if (address_is_ip(host))
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls->ssl), host) == 1;
	return SSL_set1_host(tls->ssl, host) == 1 && SSL_set_tlsext_host_name(tls->ssl, host) == 1;
}

struct tls *tls_create(struct tls_context *context, int fd, const char *host)
{
	struct tls *tls = calloc(1, sizeof(*tls));
	if (tls == NULL)
		return NULL;
	tls->context = tls_context_hold(context);
	tls->fd = fd;
	tls->more = true; /* what comes with the handshake's end is not polled for again */
	tls->ssl = SSL_new(context->ssl);
	BIO *bio = tls->ssl == NULL ? NULL : BIO_new(context->methods);
	if (bio == NULL)
		goto failed;
	BIO_set_data(bio, tls);
	(void)SSL_set_app_data(tls->ssl, tls);
	SSL_set_bio(tls->ssl, bio, bio);
	SSL_set_accept_state(tls->ssl);
	if (host == NULL || set_host(tls, host))
		return tls;
failed:
	ERR_clear_error();
	tls_destroy(tls);
	return NULL;
}

void tls_destroy(struct tls *tls)
{
	if (tls == NULL)
		return;
	SSL_free(tls->ssl);
	tls_context_release(tls->context);
	free(tls->out);
	free(tls->host);
	free(tls);
}

static void fail(struct tls *tls)
{
	if (tls->failed)
		return;
	tls->failed = true;
	tls_words_of_failure(tls->unverified, tls->error);
	(void)flush(tls); /* the alert, if it fits: the other end is to know why */
}

enum tls_step tls_handshake(struct tls *tls)
{
	if (tls->failed)
		return TLS_FAILED;
	ERR_clear_error();
	int rc = SSL_do_handshake(tls->ssl);
	int cause = rc == 1 ? SSL_ERROR_NONE : SSL_get_error(tls->ssl, rc);
	if (cause == SSL_ERROR_NONE || cause == SSL_ERROR_WANT_READ) {
		int failed = flush(tls);
		if (cause == SSL_ERROR_NONE && failed == 0) {
			SSL_set_default_read_buffer_len(tls->ssl, TLS_READ_BYTES);
			tls->shaken = true;
			return TLS_DONE;
		}
		if (failed == 0 || failed == EAGAIN)
			return TLS_WAITS;
	}
	int number = errno;
	if (cause == SSL_ERROR_SYSCALL && ERR_peek_error() == 0 && number != 0 && !tls->ended) {
		tls->failed = true;
		(void)snprintf(tls->error, sizeof(tls->error), "%s in the TLS handshake",
		    strerror(number));
		return TLS_FAILED;
	}
	fail(tls);
	return TLS_FAILED;
}

/* ---- reading ---- */

void tls_read_no_further(struct tls *tls)
{
	SSL_set_read_ahead(tls->ssl, 0);
}

/* One piece, as far as there is something; false: there is nothing more now, or ever. */
static bool read_piece(struct tls *tls, const struct iovec *piece, size_t *total, int *cause)
{
	size_t done = 0;
	while (done < piece->iov_len) {
		size_t got = 0;
		ERR_clear_error();
		int rc = SSL_read_ex(tls->ssl, (uint8_t *)piece->iov_base + done,
		    piece->iov_len - done, &got);
		if (rc != 1) {
			*cause = SSL_get_error(tls->ssl, rc);
			return false;
		}
		tls->idle_messages = 0;
		done += got;
		*total += got;
	}
	return true;
}

/* What a read that brought nothing answers. */
static ssize_t read_ended(struct tls *tls, int cause)
{
	if (tls->failed)
		errno = EPROTO;
	else if (cause == SSL_ERROR_WANT_READ)
		errno = EAGAIN;
	else if (cause == SSL_ERROR_ZERO_RETURN)
		return 0;
	else
		errno = tls->broken;
	return -1;
}

ssize_t tls_read(struct tls *tls, const struct iovec *pieces, int count)
{
	size_t total = 0;
	int cause = SSL_ERROR_NONE;
	if (tls->failed || tls->broken != 0)
		return read_ended(tls, cause);
	errno = 0;
	for (int i = 0; i < count; i++)
		if (!read_piece(tls, &pieces[i], &total, &cause))
			break;
	tls->more = total > 0 && cause != SSL_ERROR_WANT_READ;
	if (cause == SSL_ERROR_SYSCALL && ERR_peek_error() == 0 && errno != 0)
		tls->broken = errno;
	else if (cause == SSL_ERROR_SSL || cause == SSL_ERROR_SYSCALL)
		fail(tls);
	/* Answers of OpenSSL's own. If the socket is broken, reading tells. */
	if (tls->out_begin < tls->out_end)
		(void)flush(tls);
	return total > 0 ? (ssize_t)total : read_ended(tls, cause);
}

/* ---- writing ---- */

struct cursor {
	const struct iovec *pieces;
	int count;
	size_t offset; /* into the first piece */
};

/* The next record: where it lies, or gathered in `small`. 0: nothing is left. */
static size_t next_record(struct cursor *at, uint8_t small[RECORD_BYTES], const uint8_t **record)
{
	size_t bytes = 0;
	*record = small;
	while (at->count > 0) {
		const uint8_t *from = (const uint8_t *)at->pieces->iov_base + at->offset;
		size_t left = at->pieces->iov_len - at->offset;
		size_t take = left < RECORD_BYTES - bytes ? left : RECORD_BYTES - bytes;
		if (bytes == 0 && take >= OWN_RECORD_BYTES)
			*record = from;
		else
			memcpy(small + bytes, from, take);
		bytes += take;
		at->offset += take;
		if (take == left) {
			at->pieces++;
			at->count--;
			at->offset = 0;
		}
		if (*record == from || bytes == RECORD_BYTES)
			break;
	}
	return bytes;
}

static bool write_record(struct tls *tls, const uint8_t *record, size_t bytes)
{
	size_t taken = 0;
	ERR_clear_error();
	if (++tls->records > tls->context->records_per_key) {
		tls->records = 1;
		if (SSL_key_update(tls->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1)
			return false;
	}
	return SSL_write_ex(tls->ssl, record, bytes, &taken) == 1 && taken == bytes;
}

/* The socket is broken; if the other end said why before it went away, that is the reason. */
static ssize_t broken(struct tls *tls, int cause)
{
	uint8_t byte;
	size_t got;
	ERR_clear_error();
	int rc = SSL_peek_ex(tls->ssl, &byte, 1, &got);
	if (rc != 1 && SSL_get_error(tls->ssl, rc) == SSL_ERROR_SSL) {
		fail(tls);
		cause = EPROTO;
	}
	ERR_clear_error();
	errno = cause;
	return -1;
}

ssize_t tls_write(struct tls *tls, const struct iovec *pieces, int count)
{
	uint8_t small[RECORD_BYTES];
	struct cursor at = { pieces, count, 0 };
	size_t total = 0, bytes;
	const uint8_t *record;
	errno = EPROTO;
	if (tls->failed)
		return -1;
	int cause = flush(tls);
	while (cause == 0 && (bytes = next_record(&at, small, &record)) > 0) {
		if (!write_record(tls, record, bytes)) {
			fail(tls);
			errno = EPROTO;
			return -1;
		}
		total += bytes;
		if (tls->out_end - tls->out_begin >= SEND_BYTES)
			cause = flush(tls);
	}
	if (cause == 0)
		cause = flush(tls);
	if (cause != 0 && cause != EAGAIN)
		return broken(tls, cause);
	if (total > 0 || cause == 0)
		return (ssize_t)total;
	errno = EAGAIN;
	return -1;
}

void tls_end(struct tls *tls)
{
	if (tls->failed)
		return;
	ERR_clear_error();
	(void)SSL_shutdown(tls->ssl);
	ERR_clear_error();
	(void)flush(tls);
}

/* ---- what is ---- */

bool tls_pending(const struct tls *tls)
{
	return tls->more;
}

size_t tls_unsent(const struct tls *tls)
{
	return tls->out_end - tls->out_begin;
}

const char *tls_error(const struct tls *tls)
{
	return tls->error;
}

void tls_get_counters(const struct tls *tls, struct tls_counters *counters)
{
	*counters = tls->counters;
}

/* ---- who speaks otherwise ---- */

static const uint8_t refusal[] = { TLS_BYTE_ALERT, 3, 3, 0, 2, SSL3_AL_FATAL,
	SSL3_AD_UNEXPECTED_MESSAGE };

void tls_send_refusal(int fd)
{
	(void)send(fd, refusal, sizeof(refusal), MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool tls_is_refusal(const void *bytes, size_t count)
{
	return count >= sizeof(refusal) && memcmp(bytes, refusal, sizeof(refusal)) == 0;
}
