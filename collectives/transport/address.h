/* Addresses as people write them: "127.0.0.1:7070", "[::1]:7070", "node3:7070", "unix:/run/traind.sock". */
#ifndef TR_COLLECTIVES_TRANSPORT_ADDRESS_H
#define TR_COLLECTIVES_TRANSPORT_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "common/error.h"
#include "common/limits.h"

struct address {
	bool is_unix;
	char host[TR_ADDRESS_MAX]; /* without brackets; the path of a UNIX socket */
	char port[8];
};

/* TR_EINVAL with what is wrong and what an address looks like. */
tr_status address_parse(const char *text, struct address *address, struct tr_error *error);

/* "127.0.0.1:7070", "[::1]:7070", "unix:/path"; always terminated. */
void address_format(const struct sockaddr *sa, socklen_t length, char text[TR_ADDRESS_MAX]);

/* In figures, "10.0.0.7" or "fd00::7" without brackets: a certificate has it as an address, not as a name that looks alike. */
bool address_is_ip(const char *host);

/* 127.0.0.0/8, ::1, and UNIX sockets. */
bool address_is_loopback(const struct sockaddr *sa);
/* Loopback, and ranges that only a local network uses (RFC 1918, link-local, unique-local). */
bool address_is_local(const struct sockaddr *sa);

/* For who dials `text` without TLS. TR_EREFUSED: it is not loopback, nor `insecure`; the line says what to write. A name
 * that does not resolve counts as a stranger's. */
tr_status address_check_plain(const char *text, bool insecure, struct tr_error *error);
/* The same of an address that another one has told us, and nobody is asked what its name stands for: a name but localhost is a stranger's. */
tr_status address_check_told(const char *text, bool insecure, struct tr_error *error);
/* That line. */
tr_status address_refuse_plain(const char *text, struct tr_error *error);

/* Fills a UNIX socket address. TR_EINVAL: the path is too long. */
tr_status address_unix(const struct address *address, struct sockaddr_storage *sa,
    socklen_t *length, struct tr_error *error);

#endif
