/* Shared by tls.c (connections), tls_context.c and tls_words.c; for nobody else. */
#ifndef TR_COLLECTIVES_TRANSPORT_TLS_INTERNAL_H
#define TR_COLLECTIVES_TRANSPORT_TLS_INTERNAL_H

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <stdatomic.h>

#include "collectives/transport/tls.h"

#define TLS_PROTOCOL  "traind/1" /* ALPN of our own frames */
#define TLS_NAME_MAX  72         /* a certificate's common name */
#define TLS_ERROR_MAX 240

/* Of ciphertext, in one system call: once the handshake is over, so that strangers do not make us hold as much. */
#define TLS_READ_BYTES (128u << 10)

struct tls_context {
	SSL_CTX *ssl;
	BIO_METHOD *methods;
	atomic_uint references;
	uint64_t records_per_key;
};

/* Where OpenSSL's bytes come from and go to. */
bool tls_methods_init(struct tls_context *context);

/* The common name, with nothing in it that could break a log line. */
void tls_name_of(const X509 *certificate, char name[TLS_NAME_MAX]);
/* Why a certificate was not taken: X509_V_ERR_*. */
void tls_words_of_verify(long cause, const X509 *certificate, const char *host,
    char words[TLS_ERROR_MAX]);
/* Why a handshake or a connection failed, from OpenSSL's queue of errors, which is empty then. `unverified`: why the other end's certificate
 * was not taken, if it was not. */
void tls_words_of_failure(const char *unverified, char words[TLS_ERROR_MAX]);
/* OpenSSL asks it of each certificate: keeps why one is not taken, for afterwards it is gone. */
int tls_on_verify(int good, X509_STORE_CTX *check);
/* OpenSSL says it of each message of its own: those that bring nothing are counted. */
void tls_on_message(int sent, int version, int kind, const void *bytes, size_t count, SSL *ssl,
    void *arg);

#endif
