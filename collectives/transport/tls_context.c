/* What a process has for TLS: its certificate and key, and the CA by which it judges others. */
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "collectives/transport/address.h"
#include "collectives/transport/tls_folder.h"
#include "collectives/transport/tls_internal.h"

/* Of 2^24.5 that RFC 8446 (5.5) allows with AES-GCM. */
#define RECORDS_PER_KEY (1u << 23)

/* grpcio wants "h2"; who offers it beside HTTP/1.1 (curl, a browser) means /healthz. */
static const char *const protocols[] = { TLS_PROTOCOL, "http/1.1", "h2" };

static int choose_protocol(SSL *ssl, const unsigned char **chosen, unsigned char *chosen_length,
    const unsigned char *offered, unsigned int offered_length, void *arg)
{
	(void)ssl;
	(void)arg;
	for (size_t i = 0; i < sizeof(protocols) / sizeof(protocols[0]); i++) {
		size_t length = strlen(protocols[i]);
		for (unsigned at = 0; at < offered_length; at += 1u + offered[at]) {
			if (offered[at] != length || at + 1 + length > offered_length ||
			    memcmp(offered + at + 1, protocols[i], length) != 0)
				continue;
			*chosen = offered + at + 1;
			*chosen_length = offered[at];
			return SSL_TLSEXT_ERR_OK;
		}
	}
	return SSL_TLSEXT_ERR_NOACK; /* the first bytes will tell */
}

static tr_status find(const char *folder, const char *name, char path[PATH_MAX],
    struct tr_error *error)
{
	if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
		return tr_error_set(error, TR_EINVAL, "--tls %.100s: the name is too long", folder);
	if (access(path, R_OK) == 0)
		return TR_OK;
	return tr_error_set(error, TR_EINVAL,
	    "cannot read %s: %s (`trainctl cert NODE` makes such a folder)", path, strerror(errno));
}

static tr_status broken(const char *path, const char *what, struct tr_error *error)
{
	ERR_clear_error();
	return tr_error_set(error, TR_EINVAL, "%s %s", path, what);
}

/* Ours must be one that the others take. */
static tr_status check_own(const struct tls_context *context, const char *path,
    struct tr_error *error)
{
	char words[TLS_ERROR_MAX];
	X509 *own = SSL_CTX_get0_certificate(context->ssl);
	X509_STORE_CTX *check = X509_STORE_CTX_new();
	STACK_OF(X509) *chain = NULL;
	(void)SSL_CTX_get0_chain_certs(context->ssl, &chain);
	if (check == NULL ||
	    X509_STORE_CTX_init(check, SSL_CTX_get_cert_store(context->ssl), own, chain) != 1) {
		X509_STORE_CTX_free(check);
		return tr_error_set(error, TR_ENOMEM, "no memory to check %s", path);
	}
	bool good = X509_verify_cert(check) == 1;
	int cause = X509_STORE_CTX_get_error(check);
	X509_STORE_CTX_free(check);
	if (good)
		return TR_OK;
	tls_words_of_verify(cause, own, NULL, words);
	return tr_error_set(error, TR_EINVAL, "%s: its %s", path, words);
}

static tr_status read_files(struct tls_context *context, const char *folder, struct tr_error *error)
{
	char ca[PATH_MAX], own[PATH_MAX], key[PATH_MAX];
	tr_status st = find(folder, TLS_CA_FILE, ca, error);
	if (st == TR_OK)
		st = find(folder, TLS_CERT_FILE, own, error);
	if (st == TR_OK)
		st = find(folder, TLS_KEY_FILE, key, error);
	if (st != TR_OK)
		return st;
	if (SSL_CTX_load_verify_file(context->ssl, ca) != 1)
		return broken(ca, "holds no certificate in PEM", error);
	if (SSL_CTX_use_certificate_chain_file(context->ssl, own) != 1)
		return broken(own, "holds no certificate in PEM", error);
	if (SSL_CTX_use_PrivateKey_file(context->ssl, key, SSL_FILETYPE_PEM) != 1)
		return broken(key, "holds no private key in PEM that belongs to " TLS_CERT_FILE,
		    error);
	return check_own(context, own, error);
}

static bool set_up(SSL_CTX *ssl)
{
	/* The fastest first (docs/benchmarks.md). Without AES in hardware the dialling end asks for ChaCha20. */
	if (SSL_CTX_set_min_proto_version(ssl, TLS1_3_VERSION) != 1 ||
	    SSL_CTX_set_ciphersuites(ssl,
	        "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256") != 1)
		return false;
	/* Who closes without a farewell breaks no frame: those are whole or dropped. */
	(void)SSL_CTX_set_options(ssl,
	    SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_CIPHER_SERVER_PREFERENCE |
	        SSL_OP_PRIORITIZE_CHACHA | SSL_OP_NO_TICKET);
	(void)SSL_CTX_set_num_tickets(ssl, 0);
	(void)SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
	(void)SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_read_ahead(ssl, 1);
	SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, tls_on_verify);
	SSL_CTX_set_alpn_select_cb(ssl, choose_protocol, NULL);
	SSL_CTX_set_msg_callback(ssl, tls_on_message);
	return true;
}

tr_status tls_context_load(const char *folder, struct tls_context **context, struct tr_error *error)
{
	struct tls_context *made = calloc(1, sizeof(*made));
	if (made == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for TLS");
	made->references = 1;
	made->records_per_key = RECORDS_PER_KEY;
	made->ssl = SSL_CTX_new(TLS_method());
	tr_status st = TR_OK;
	if (made->ssl == NULL || !tls_methods_init(made) || !set_up(made->ssl)) {
		ERR_clear_error();
		st = tr_error_set(error, TR_ENOMEM, "no memory for TLS");
	}
	if (st == TR_OK)
		st = read_files(made, folder, error);
	if (st != TR_OK) {
		tls_context_release(made);
		return st;
	}
	*context = made;
	return TR_OK;
}

struct tls_context *tls_context_hold(struct tls_context *context)
{
	if (context != NULL)
		(void)atomic_fetch_add(&context->references, 1);
	return context;
}

void tls_context_release(struct tls_context *context)
{
	if (context == NULL || atomic_fetch_sub(&context->references, 1) > 1)
		return;
	SSL_CTX_free(context->ssl);
	BIO_meth_free(context->methods);
	free(context);
}

void tls_context_set_records_per_key(struct tls_context *context, uint64_t records)
{
	context->records_per_key = records;
}

tr_status tls_context_check_address(const struct tls_context *context, const char *text,
    struct tr_error *error)
{
	struct address address;
	char name[TLS_NAME_MAX];
	tr_status st = address_parse(text, &address, error);
	if (context == NULL || st != TR_OK || address.is_unix)
		return st;
	X509 *own = SSL_CTX_get0_certificate(context->ssl);
	int good = address_is_ip(address.host) ? X509_check_ip_asc(own, address.host, 0)
	                                       : X509_check_host(own, address.host, 0, 0, NULL);
	if (good == 1)
		return TR_OK;
	tls_name_of(own, name);
	return tr_error_set(error, TR_EINVAL,
	    "others dial this process at %s, for which its certificate (%s) is not: make one with "
	    "`trainctl cert %s --address %s`",
	    address.host, name, name, address.host);
}
