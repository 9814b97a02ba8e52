/* What went wrong, in words that say what to do: OpenSSL's own name its insides. */
#include <ctype.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "collectives/transport/tls_internal.h"

void tls_name_of(const X509 *certificate, char name[TLS_NAME_MAX])
{
	name[0] = '\0';
	if (certificate != NULL)
		(void)X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName,
		    name, TLS_NAME_MAX);
	for (char *at = name; *at != '\0'; at++)
		if (!isalnum((unsigned char)*at) && strchr("-._ ", *at) == NULL)
			*at = '?';
	if (name[0] == '\0')
		(void)snprintf(name, TLS_NAME_MAX, "without a name");
}

static void date_of(const ASN1_TIME *time, char date[16])
{
	struct tm tm = { 0 };
	(void)snprintf(date, 16, "?");
	if (time != NULL && ASN1_TIME_to_tm(time, &tm) == 1)
		(void)strftime(date, 16, "%Y-%m-%d", &tm);
}

void tls_words_of_verify(long cause, const X509 *certificate, const char *host,
    char words[TLS_ERROR_MAX])
{
	char date[16], name[TLS_NAME_MAX];
	tls_name_of(certificate, name);
	switch (cause) {
	case X509_V_ERR_CERT_HAS_EXPIRED:
		date_of(certificate == NULL ? NULL : X509_get0_notAfter(certificate), date);
		(void)snprintf(words, TLS_ERROR_MAX,
		    "certificate (%s) has expired (%s): `trainctl cert` makes another", name, date);
		break;
	case X509_V_ERR_CERT_NOT_YET_VALID:
		date_of(certificate == NULL ? NULL : X509_get0_notBefore(certificate), date);
		(void)snprintf(words, TLS_ERROR_MAX,
		    "certificate (%s) is valid only from %s on: are the clocks right?", name, date);
		break;
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
	case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
	case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
	case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
	case X509_V_ERR_CERT_SIGNATURE_FAILURE:
		(void)snprintf(words, TLS_ERROR_MAX,
		    "certificate (%s) was signed by another CA than ours", name);
		break;
	case X509_V_ERR_HOSTNAME_MISMATCH:
	case X509_V_ERR_IP_ADDRESS_MISMATCH:
		(void)snprintf(words, TLS_ERROR_MAX,
		    "certificate (%s) is not for %.80s, which was dialled (trainctl cert "
		    "--address)",
		    name, host != NULL ? host : "?");
		break;
	default:
		(void)snprintf(words, TLS_ERROR_MAX, "certificate (%s): %s", name,
		    X509_verify_cert_error_string(cause));
		break;
	}
}

/* What the other end said, or what is wrong with its bytes. */
static const char *known(int reason)
{
	static const struct {
		int reason;
		const char *words;
	} rows[] = {
		{ SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE,
		    "it has no certificate: give --tls DIR there" },
		{ SSL_R_SSLV3_ALERT_UNEXPECTED_MESSAGE,
		    "it does not speak TLS: it was started without --tls DIR" },
		{ SSL_R_WRONG_VERSION_NUMBER, "what it says is not TLS" },
		{ SSL_R_HTTP_REQUEST, "what it says is not TLS" },
		{ SSL_R_TLSV1_ALERT_PROTOCOL_VERSION, "it does not speak TLS 1.3" },
		{ SSL_R_UNSUPPORTED_PROTOCOL, "it does not speak TLS 1.3" },
		{ SSL_R_TLSV1_ALERT_UNKNOWN_CA,
		    "it refused our certificate: signed by another CA than its own" },
		{ SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED,
		    "it refused our certificate: it has expired" },
		{ SSL_R_SSLV3_ALERT_BAD_CERTIFICATE,
		    "it refused our certificate: not for the address that was dialled, or not "
		    "valid "
		    "yet" },
		{ SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE,
		    "it refused our certificate: of a kind that it does not take" },
		{ SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN, "it refused our certificate" },
		{ SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED, "it wants a certificate: --tls DIR" },
		{ SSL_R_UNEXPECTED_EOF_WHILE_READING, "closed in the middle of the TLS handshake" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].reason == reason)
			return rows[i].words;
	return NULL;
}

void tls_words_of_failure(const char *unverified, char words[TLS_ERROR_MAX])
{
	unsigned long code = ERR_peek_error();
	int reason = ERR_GET_REASON(code);
	const char *text = ERR_GET_LIB(code) == ERR_LIB_SSL ? known(reason) : NULL;
	if (ERR_GET_LIB(code) == ERR_LIB_SSL && reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
		(void)snprintf(words, TLS_ERROR_MAX, "its %.*s", TLS_ERROR_MAX - 8, unverified);
	} else if (text != NULL) {
		(void)snprintf(words, TLS_ERROR_MAX, "%s", text);
	} else {
		text = ERR_reason_error_string(code);
		(void)snprintf(words, TLS_ERROR_MAX, "TLS: %s",
		    text != NULL ? text : "closed in the middle of the handshake");
	}
	ERR_clear_error();
}
