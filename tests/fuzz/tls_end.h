/* The input's end of TLS, which dials or accepts on a socket of its own: OpenSSL makes right records, and the input spoils them on their way: cut, twice,
 * out of order, with a bit that is another, or with something of its own between them. With a certificate of the cluster's, of another CA, or none.
 * Bytes that are 0 spoil nothing. Static.
 */
#ifndef TR_TESTS_FUZZ_TLS_END_H
#define TR_TESTS_FUZZ_TLS_END_H

#include <ftw.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/trainctl/certificate.h"
#include "collectives/transport/tls_internal.h"
#include "tests/fuzz/die.h"
#include "tests/fuzz/script.h"

#define TLS_END_FLIGHT_MAX (64u << 10)

enum tls_end_who { TLS_END_OURS, TLS_END_STRANGER, TLS_END_NOBODY, TLS_END_OLD, TLS_END_WHOS };

struct tls_end {
	int fd;   /* -1: none */
	SSL *ssl; /* NULL: it speaks plainly */
};

static struct tls_context *tls_end_victims;           /* for the code under test */
static SSL_CTX *tls_end_contexts[TLS_END_WHOS];       /* the input's */
static struct tls_context *tls_end_held[TLS_END_OLD]; /* that they are of */

static int tls_end_remove(const char *path, const struct stat *status, int flag, struct FTW *at)
{
	(void)status;
	(void)flag;
	(void)at;
	return remove(path);
}

static struct tls_context *tls_end_context(const char *folder, const char *node)
{
	struct tls_context *context = NULL;
	struct certificate_made made;
	struct tr_error error = { 0 };
	live_need(certificate_make_node(folder, node, NULL, 0, 1, &made, &error), &error,
	    "a certificate");
	live_need(tls_context_load(made.folder, &context, &error), &error, "a certificate");
	return context;
}

static void tls_end_start(void)
{
	struct tr_error error = { 0 };
	struct certificate_made made;
	char folders[2][32] = { "/tmp/fuzz-tls-XXXXXX", "/tmp/fuzz-tls-XXXXXX" };
	for (unsigned i = 0; i < 2; i++) {
		if (mkdtemp(folders[i]) == NULL)
			live_die("no folder");
		live_need(certificate_make_ca(folders[i], &made, &error), &error, "a CA");
	}
	tls_end_victims = tls_end_context(folders[0], "victim");
	tls_end_held[TLS_END_OURS] = tls_end_context(folders[0], "input");
	tls_end_held[TLS_END_STRANGER] = tls_end_context(folders[1], "input");
	for (unsigned i = 0; i < 2; i++)
		(void)nftw(folders[i], tls_end_remove, 8, FTW_DEPTH | FTW_PHYS);
	tls_end_contexts[TLS_END_OURS] = tls_end_held[TLS_END_OURS]->ssl;
	tls_end_contexts[TLS_END_STRANGER] = tls_end_held[TLS_END_STRANGER]->ssl;
	tls_end_contexts[TLS_END_NOBODY] = SSL_CTX_new(TLS_method());
	tls_end_contexts[TLS_END_OLD] = SSL_CTX_new(TLS_method());
	(void)SSL_CTX_set_max_proto_version(tls_end_contexts[TLS_END_OLD], TLS1_2_VERSION);
	for (unsigned i = 0; i < TLS_END_WHOS; i++)
		SSL_CTX_set_verify(tls_end_contexts[i], SSL_VERIFY_NONE, NULL);
}

static void tls_end_open(struct tls_end *end, int fd, bool accepts, enum tls_end_who who)
{
	static const unsigned char offer[] = "\x08" TLS_PROTOCOL "\x02h2";
	end->fd = fd;
	end->ssl = SSL_new(tls_end_contexts[who]);
	SSL_set_bio(end->ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
	if (accepts) {
		SSL_set_accept_state(end->ssl);
		return;
	}
	SSL_set_connect_state(end->ssl);
	(void)SSL_set_alpn_protos(end->ssl, offer, sizeof(offer) - 1);
}

static void tls_end_close(struct tls_end *end)
{
	struct linger now = { .l_onoff = 1 }; /* none is left in TIME_WAIT */
	if (end->fd >= 0) {
		(void)setsockopt(end->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		(void)close(end->fd);
	}
	SSL_free(end->ssl);
	ERR_clear_error();
	*end = (struct tls_end){ .fd = -1 };
}

static void tls_end_put(const struct tls_end *end, const void *bytes, size_t count)
{
	if (end->fd >= 0 && count > 0)
		(void)send(end->fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* A head of a record with something behind it, right or not. */
static size_t tls_end_record(struct script *script, uint8_t out[5 + 255])
{
	size_t bytes = script_byte(script), says = script_about(script, bytes);
	out[0] = (uint8_t)script_about(script, SSL3_RT_APPLICATION_DATA);
	out[1] = (uint8_t)script_about(script, 3);
	out[2] = (uint8_t)script_about(script, 3);
	out[3] = (uint8_t)(says >> 8);
	out[4] = (uint8_t)says;
	for (size_t i = 0; i < bytes; i++)
		out[5 + i] = script_byte(script);
	return 5 + bytes;
}

/* What one flight of it becomes. */
static void tls_end_spoil(const struct tls_end *end, struct script *script, uint8_t *flight,
    size_t bytes)
{
	uint8_t how = script_byte(script), record[5 + 255];
	size_t at = how < 128 ? 0 : script_about(script, script_byte(script) * 4u) % bytes;
	if (how < 128) {
		tls_end_put(end, flight, bytes);
	} else if (how < 160) {
		flight[at] ^= (uint8_t)(1u << (how & 7));
		tls_end_put(end, flight, bytes);
	} else if (how < 176) {
		flight[at] = script_byte(script);
		tls_end_put(end, flight, bytes);
	} else if (how < 192) {
		tls_end_put(end, flight, at);
	} else if (how < 208) {
		tls_end_put(end, flight, bytes);
		tls_end_put(end, flight, bytes);
	} else if (how < 224) {
		tls_end_put(end, flight + at, bytes - at);
		tls_end_put(end, flight, at);
	} else if (how < 248) {
		tls_end_put(end, flight, at);
		tls_end_put(end, record, tls_end_record(script, record));
		tls_end_put(end, flight + at, bytes - at);
	}
}

/* What its TLS has to say goes out. */
static void tls_end_flush(const struct tls_end *end, struct script *script)
{
	static uint8_t flight[TLS_END_FLIGHT_MAX];
	for (int n; end->ssl != NULL &&
	     (n = BIO_read(SSL_get_wbio(end->ssl), flight, sizeof(flight))) > 0;)
		tls_end_spoil(end, script, flight, (size_t)n);
	ERR_clear_error();
}

/* Goes on with the handshake and reads what is there: how many bytes of it came to `out`. */
static size_t tls_end_turn(const struct tls_end *end, struct script *script, uint8_t *out,
    size_t room)
{
	static uint8_t came[TLS_END_FLIGHT_MAX];
	size_t got = 0;
	ssize_t n = end->fd < 0
	    ? -1
	    : recv(end->fd, came, end->ssl == NULL && room < sizeof(came) ? room : sizeof(came),
	          MSG_DONTWAIT);
	if (end->ssl == NULL) {
		memcpy(out, came, n > 0 ? (size_t)n : 0);
		return n > 0 ? (size_t)n : 0;
	}
	if (n > 0)
		(void)BIO_write(SSL_get_rbio(end->ssl), came, (int)n);
	if (SSL_is_init_finished(end->ssl) || SSL_do_handshake(end->ssl) == 1)
		for (size_t more = 0;
		     got < room && SSL_read_ex(end->ssl, out + got, room - got, &more) == 1;)
			got += more;
	tls_end_flush(end, script);
	return got;
}

/* Inside, or plainly where no handshake is over. */
static void tls_end_say(const struct tls_end *end, struct script *script, const void *bytes,
    size_t count)
{
	size_t taken;
	if (count == 0)
		return;
	if (end->ssl == NULL || !SSL_is_init_finished(end->ssl)) {
		tls_end_put(end, bytes, count);
		return;
	}
	(void)SSL_write_ex(end->ssl, bytes, count, &taken);
	tls_end_flush(end, script);
}

/* New keys so many times, each with a wish for new ones of ours, or not. */
static void tls_end_new_keys(const struct tls_end *end, struct script *script)
{
	unsigned times = script_byte(script), wish = script_byte(script) % 2;
	if (end->ssl == NULL || !SSL_is_init_finished(end->ssl))
		return;
	for (unsigned i = 0; i <= times; i++) {
		(void)SSL_key_update(end->ssl,
		    wish == 0 ? SSL_KEY_UPDATE_REQUESTED : SSL_KEY_UPDATE_NOT_REQUESTED);
		(void)SSL_do_handshake(end->ssl);
	}
	tls_end_flush(end, script);
}

static void tls_end_farewell(const struct tls_end *end, struct script *script)
{
	if (end->ssl == NULL)
		return;
	(void)SSL_shutdown(end->ssl);
	tls_end_flush(end, script);
}

#endif
