#include "client/trainctl/certificate.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "collectives/transport/address.h"
#include "collectives/transport/tls_folder.h"
#include "common/folders.h"

#define NAME_MAX_BYTES 63 /* of a host name's part, and short of what a common name may have */
#define DAY_S          86400L
#define EARLY_S        DAY_S /* valid so long before it is made: clocks differ */

/* A signed certificate and its key. */
struct pair {
	X509 *certificate;
	EVP_PKEY *key;
};

static void pair_finish(struct pair *pair)
{
	X509_free(pair->certificate);
	EVP_PKEY_free(pair->key);
}

static tr_status openssl_failed(const char *what, struct tr_error *error)
{
	char cause[160];
	ERR_error_string_n(ERR_get_error(), cause, sizeof(cause));
	ERR_clear_error();
	return tr_error_set(error, TR_EIO, "%s: %s", what, cause);
}

static tr_status join(char path[PATH_MAX], const char *folder, const char *name,
    struct tr_error *error)
{
	if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
		return tr_error_set(error, TR_EINVAL, "folder name is too long: %.200s", folder);
	return TR_OK;
}

/* ---- files ---- */

static bool put_certificate(FILE *file, const struct pair *pair)
{
	return PEM_write_X509(file, pair->certificate) == 1;
}

static bool put_key(FILE *file, const struct pair *pair)
{
	return PEM_write_PKCS8PrivateKey(file, pair->key, NULL, NULL, 0, NULL, NULL) == 1;
}

/* A new file, on the disk when this returns. */
static tr_status write_new(const char *folder, const char *name, mode_t mode,
    bool (*put)(FILE *file, const struct pair *pair), const struct pair *pair,
    struct tr_error *error)
{
	char path[PATH_MAX];
	tr_status st = join(path, folder, name, error);
	if (st != TR_OK)
		return st;
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	if (fd < 0 && errno == EEXIST)
		return tr_error_set(error, TR_EEXIST, "%s is there already; nothing was changed",
		    path);
	if (fd < 0)
		return tr_error_set(error, TR_EINVAL, "cannot write %s: %s", path, strerror(errno));
	FILE *file = fdopen(fd, "w");
	if (file == NULL)
		return tr_error_set(error, TR_EIO, "cannot write %s: %s", path, strerror(errno));
	bool written = fchmod(fd, mode) == 0 && put(file, pair) && fflush(file) == 0 &&
	    fsync(fd) == 0;
	int cause = errno;
	written = fclose(file) == 0 && written;
	if (written)
		return TR_OK;
	(void)unlink(path);
	return tr_error_set(error, TR_EIO, "cannot write %s: %s", path, strerror(cause));
}

static void remove_file(const char *folder, const char *name)
{
	char path[PATH_MAX];
	if (join(path, folder, name, NULL) == TR_OK)
		(void)unlink(path);
}

static tr_status read_ca(const char *folder, struct pair *ca, struct tr_error *error)
{
	char paths[2][PATH_MAX];
	tr_status st = join(paths[0], folder, TLS_CA_FILE, error);
	if (st == TR_OK)
		st = join(paths[1], folder, TLS_CA_KEY_FILE, error);
	for (int i = 0; i < 2 && st == TR_OK; i++) {
		FILE *file = fopen(paths[i], "re");
		if (file == NULL)
			return tr_error_set(error, TR_ENOTFOUND,
			    "cannot read %s: %s (`trainctl ca init` makes a CA)", paths[i],
			    strerror(errno));
		if (i == 0)
			ca->certificate = PEM_read_X509(file, NULL, NULL, NULL);
		else
			ca->key = PEM_read_PrivateKey(file, NULL, NULL, NULL);
		(void)fclose(file);
		if (i == 0 ? ca->certificate == NULL : ca->key == NULL)
			st = tr_error_set(error, TR_EINVAL, "%s is no %s in PEM", paths[i],
			    i == 0 ? "certificate" : "private key");
	}
	ERR_clear_error();
	if (st == TR_OK && X509_check_private_key(ca->certificate, ca->key) != 1)
		st = tr_error_set(error, TR_EINVAL, "%s does not belong to %s", paths[1], paths[0]);
	if (st == TR_OK && X509_cmp_current_time(X509_get0_notAfter(ca->certificate)) < 0)
		st = tr_error_set(error, TR_EINVAL, "the CA of %s has expired: make a new one",
		    folder);
	ERR_clear_error();
	return st;
}

/* ---- certificates ---- */

static bool set_serial(X509 *certificate)
{
	unsigned char bytes[16];
	if (RAND_bytes(bytes, sizeof(bytes)) != 1)
		return false;
	bytes[0] = (unsigned char)((bytes[0] & 0x7f) | 0x40); /* positive, of full length */
	BIGNUM *number = BN_bin2bn(bytes, sizeof(bytes), NULL);
	bool set = number != NULL &&
	    BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != NULL;
	BN_free(number);
	return set;
}

static bool add_extension(X509 *certificate, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX context;
	X509V3_set_ctx_nodb(&context);
	X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
	X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
	bool added = extension != NULL && X509_add_ext(certificate, extension, -1) == 1;
	X509_EXTENSION_free(extension);
	return added;
}

static bool set_times(X509 *certificate, uint64_t days, const X509 *issuer)
{
	if (X509_gmtime_adj(X509_getm_notBefore(certificate), -EARLY_S) == NULL ||
	    X509_time_adj_ex(X509_getm_notAfter(certificate), (int)days, 0, NULL) == NULL)
		return false;
	const ASN1_TIME *end = issuer != NULL ? X509_get0_notAfter(issuer) : NULL;
	if (end != NULL && ASN1_TIME_compare(X509_get0_notAfter(certificate), end) > 0)
		return X509_set1_notAfter(certificate, end) == 1;
	return true;
}

/* All that both kinds have, unsigned. */
static bool begin(struct pair *pair, const char *name, uint64_t days, const X509 *issuer)
{
	pair->certificate = X509_new();
	pair->key = EVP_EC_gen("P-256");
	if (pair->certificate == NULL || pair->key == NULL)
		return false;
	X509_NAME *subject = X509_get_subject_name(pair->certificate);
	return X509_set_version(pair->certificate, X509_VERSION_3) == 1 &&
	    set_serial(pair->certificate) && set_times(pair->certificate, days, issuer) &&
	    X509_set_pubkey(pair->certificate, pair->key) == 1 &&
	    X509_NAME_add_entry_by_txt(subject, "O", MBSTRING_ASC, (const unsigned char *)"traind",
	        -1, -1, 0) == 1 &&
	    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1,
	        -1, 0) == 1 &&
	    X509_set_issuer_name(pair->certificate,
	        issuer != NULL ? X509_get_subject_name(issuer) : subject) == 1;
}

static bool make_ca(struct pair *ca)
{
	unsigned char bytes[4];
	char name[64];
	if (RAND_bytes(bytes, sizeof(bytes)) != 1)
		return false;
	(void)snprintf(name, sizeof(name), "traind CA %02x%02x%02x%02x", bytes[0], bytes[1],
	    bytes[2], bytes[3]);
	return begin(ca, name, CERTIFICATE_CA_DAYS, NULL) &&
	    add_extension(ca->certificate, ca->certificate, NID_basic_constraints,
	        "critical,CA:TRUE,pathlen:0") &&
	    add_extension(ca->certificate, ca->certificate, NID_key_usage,
	        "critical,keyCertSign,cRLSign") &&
	    add_extension(ca->certificate, ca->certificate, NID_subject_key_identifier, "hash") &&
	    X509_sign(ca->certificate, ca->key, EVP_sha256()) > 0;
}

static bool make_node(const struct pair *ca, const char *node, const char *names, uint64_t days,
    struct pair *made)
{
	return begin(made, node, days, ca->certificate) &&
	    add_extension(made->certificate, ca->certificate, NID_basic_constraints,
	        "critical,CA:FALSE") &&
	    add_extension(made->certificate, ca->certificate, NID_key_usage,
	        "critical,digitalSignature") &&
	    add_extension(made->certificate, ca->certificate, NID_ext_key_usage,
	        "serverAuth,clientAuth") &&
	    add_extension(made->certificate, ca->certificate, NID_subject_key_identifier, "hash") &&
	    add_extension(made->certificate, ca->certificate, NID_authority_key_identifier,
	        "keyid:always") &&
	    add_extension(made->certificate, ca->certificate, NID_subject_alt_name, names) &&
	    X509_sign(made->certificate, ca->key, EVP_sha256()) > 0;
}

/* ---- names ---- */

static bool is_host_name(const char *text)
{
	size_t part = 0, length = strlen(text);
	if (length == 0 || length > 253)
		return false;
	for (size_t i = 0; i <= length; i++) {
		if (i == length || text[i] == '.') {
			if (part == 0 || part > NAME_MAX_BYTES || text[i - 1] == '-')
				return false;
			part = 0;
		} else if (isalnum((unsigned char)text[i]) || text[i] == '_' ||
		    (text[i] == '-' && part > 0)) {
			part++;
		} else {
			return false;
		}
	}
	return true;
}

/* "DNS:n1,DNS:localhost,IP:127.0.0.1,..." */
static tr_status list_names(const char *node, const char *const *addresses, size_t count,
    char *names, size_t size, struct tr_error *error)
{
	if (!is_host_name(node) || strlen(node) > NAME_MAX_BYTES)
		return tr_error_set(error, TR_EINVAL,
		    "NODE: found '%.100s', allowed: 1 to %d letters, digits, '-', '_' and '.', as "
		    "in a host's name",
		    node, NAME_MAX_BYTES);
	if (count > CERTIFICATE_ADDRESSES_MAX)
		return tr_error_set(error, TR_EINVAL,
		    "--address: found %zu of them, allowed: at most %d", count,
		    CERTIFICATE_ADDRESSES_MAX);
	int used = snprintf(names, size, "%s:%s,DNS:localhost,IP:127.0.0.1,IP:::1",
	    address_is_ip(node) ? "IP" : "DNS", node);
	for (size_t i = 0; i < count; i++) {
		bool ip = address_is_ip(addresses[i]);
		if (!ip && !is_host_name(addresses[i]))
			return tr_error_set(error, TR_EINVAL,
			    "--address: found '%.100s', allowed: a host name or an IP address, "
			    "without a port",
			    addresses[i]);
		used += snprintf(names + used, size - (size_t)used, ",%s:%s", ip ? "IP" : "DNS",
		    addresses[i]);
	}
	return TR_OK;
}

static void describe(const char *folder, const X509 *certificate, struct certificate_made *made)
{
	struct tm end = { 0 };
	*made = (struct certificate_made){ .expires = "?" };
	(void)snprintf(made->folder, sizeof(made->folder), "%s", folder);
	if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) == 1)
		(void)strftime(made->expires, sizeof(made->expires), "%Y-%m-%d", &end);
}

/* ---- the two verbs ---- */

tr_status certificate_make_ca(const char *folder, struct certificate_made *made,
    struct tr_error *error)
{
	struct pair ca = { NULL, NULL };
	char path[PATH_MAX];
	if (folders_make(folder, error) != TR_OK)
		return error->status = TR_EINVAL; /* another folder will do */
	tr_status st = join(path, folder, TLS_CA_FILE, error);
	if (st == TR_OK && access(path, F_OK) == 0)
		st = tr_error_set(error, TR_EEXIST,
		    "%s is there already: with another CA all its certificates would be worthless; "
		    "nothing was changed",
		    path);
	if (st != TR_OK)
		return st;
	if (!make_ca(&ca)) {
		st = openssl_failed("cannot make a CA", error);
		goto finish;
	}
	st = write_new(folder, TLS_CA_KEY_FILE, 0600, put_key, &ca, error);
	if (st != TR_OK)
		goto finish;
	st = write_new(folder, TLS_CA_FILE, 0644, put_certificate, &ca, error);
	if (st == TR_OK)
		describe(folder, ca.certificate, made);
	else
		remove_file(folder, TLS_CA_KEY_FILE);
finish:
	pair_finish(&ca);
	return st;
}

/* The three files, in a folder of their own until they are whole. */
static tr_status write_node(const char *ca_folder, const char *folder, const struct pair *ca,
    const struct pair *node, struct tr_error *error)
{
	char beside[PATH_MAX];
	tr_status st = join(beside, ca_folder, ".new-XXXXXX", error);
	if (st != TR_OK)
		return st;
	if (mkdtemp(beside) == NULL)
		return tr_error_set(error, TR_EIO, "cannot make a folder in %s: %s", ca_folder,
		    strerror(errno));
	st = write_new(beside, TLS_KEY_FILE, 0600, put_key, node, error);
	if (st == TR_OK)
		st = write_new(beside, TLS_CERT_FILE, 0644, put_certificate, node, error);
	if (st == TR_OK)
		st = write_new(beside, TLS_CA_FILE, 0644, put_certificate, ca, error);
	if (st == TR_OK && rename(beside, folder) != 0)
		st = tr_error_set(error, TR_EIO, "cannot make folder %s: %s", folder,
		    strerror(errno));
	if (st == TR_OK)
		return TR_OK;
	remove_file(beside, TLS_KEY_FILE);
	remove_file(beside, TLS_CERT_FILE);
	remove_file(beside, TLS_CA_FILE);
	(void)rmdir(beside);
	return st;
}

tr_status certificate_make_node(const char *ca_folder, const char *node,
    const char *const *addresses, size_t count, uint64_t days, struct certificate_made *made,
    struct tr_error *error)
{
	static char names[(CERTIFICATE_ADDRESSES_MAX + 2) * 260];
	struct pair ca = { NULL, NULL }, own = { NULL, NULL };
	char folder[PATH_MAX];
	tr_status st = list_names(node, addresses, count, names, sizeof(names), error);
	if (st == TR_OK)
		st = join(folder, ca_folder, node, error);
	if (st == TR_OK)
		st = read_ca(ca_folder, &ca, error);
	if (st == TR_OK && access(folder, F_OK) == 0)
		st = tr_error_set(error, TR_EEXIST,
		    "%s is there already: remove it first, if node %s is to have a new certificate",
		    folder, node);
	if (st != TR_OK)
		goto finish;
	if (make_node(&ca, node, names, days, &own))
		st = write_node(ca_folder, folder, &ca, &own, error);
	else
		st = openssl_failed("cannot make a certificate", error);
	if (st == TR_OK)
		describe(folder, own.certificate, made);
finish:
	pair_finish(&ca);
	pair_finish(&own);
	return st;
}
