#include "collectives/transport/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define UNIX_PREFIX "unix:"

static tr_status bad_address(const char *text, const char *cause, struct tr_error *error)
{
	return tr_error_set(error, TR_EINVAL,
	    "address \"%.100s\": %s; write HOST:PORT, [IPV6]:PORT or unix:/PATH", text, cause);
}

static bool port_valid(const char *port)
{
	char *end;
	if (port[0] < '0' || port[0] > '9' || strlen(port) > 5)
		return false;
	unsigned long value = strtoul(port, &end, 10);
	return *end == '\0' && value <= 65535;
}

static tr_status parse_unix(const char *text, struct address *address, struct tr_error *error)
{
	const char *path = text + strlen(UNIX_PREFIX);
	if (path[0] == '\0' || strlen(path) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		return bad_address(text, "the path is empty or longer than a UNIX socket allows",
		    error);
	*address = (struct address){ .is_unix = true };
	(void)snprintf(address->host, sizeof(address->host), "%s", path);
	return TR_OK;
}

tr_status address_parse(const char *text, struct address *address, struct tr_error *error)
{
	if (text == NULL || text[0] == '\0')
		return bad_address("", "it is empty", error);
	if (strlen(text) >= TR_ADDRESS_MAX)
		return bad_address(text, "it is too long", error);
	if (strncmp(text, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0)
		return parse_unix(text, address, error);
	const char *colon = strrchr(text, ':');
	if (colon == NULL)
		return bad_address(text, "the port is missing", error);
	if (!port_valid(colon + 1))
		return bad_address(text, "the port is not a number from 0 to 65535", error);
	const char *host = text;
	size_t length = (size_t)(colon - text);
	if (text[0] == '[') {
		if (length < 3 || colon[-1] != ']')
			return bad_address(text, "the bracket is not closed before the port", error);
		host++;
		length -= 2;
	} else if (memchr(text, ':', length) != NULL) {
		return bad_address(text, "an IPv6 address needs brackets", error);
	}
	if (length == 0)
		return bad_address(text, "the host is missing", error);
	*address = (struct address){ .is_unix = false };
	memcpy(address->host, host, length);
	(void)snprintf(address->port, sizeof(address->port), "%s", colon + 1);
	return TR_OK;
}

tr_status address_unix(const struct address *address, struct sockaddr_storage *sa,
    socklen_t *length, struct tr_error *error)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	size_t bytes = strlen(address->host);
	if (!address->is_unix || bytes >= sizeof(un.sun_path))
		return bad_address(address->host, "not a path that a UNIX socket allows", error);
	memcpy(un.sun_path, address->host, bytes);
	memset(sa, 0, sizeof(*sa));
	memcpy(sa, &un, sizeof(un));
	*length = sizeof(un);
	return TR_OK;
}

void address_format(const struct sockaddr *sa, socklen_t length, char text[TR_ADDRESS_MAX])
{
	char host[INET6_ADDRSTRLEN + IF_NAMESIZE] = "?", port[8] = "0";
	if (sa->sa_family == AF_INET || sa->sa_family == AF_INET6) {
		/* With its interface, if it is of one link only: "fe80::1%eth0". */
		(void)getnameinfo(sa, length, host, sizeof(host), port, sizeof(port),
		    NI_NUMERICHOST | NI_NUMERICSERV);
		(void)snprintf(text, TR_ADDRESS_MAX, sa->sa_family == AF_INET ? "%s:%s" : "[%s]:%s",
		    host, port);
	} else {
		struct sockaddr_un un = { 0 };
		memcpy(&un, sa, length < sizeof(un) ? length : sizeof(un));
		(void)snprintf(text, TR_ADDRESS_MAX, UNIX_PREFIX "%.*s",
		    (int)sizeof(un.sun_path) - 1, un.sun_path);
	}
}

/* The IPv4 address in `sa`, mapped ones included. */
static bool ipv4_of(const struct sockaddr *sa, uint32_t *address)
{
	if (sa->sa_family == AF_INET) {
		struct sockaddr_in in;
		memcpy(&in, sa, sizeof(in));
		*address = ntohl(in.sin_addr.s_addr);
		return true;
	}
	struct sockaddr_in6 in6;
	if (sa->sa_family != AF_INET6)
		return false;
	memcpy(&in6, sa, sizeof(in6));
	if (!IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr))
		return false;
	uint32_t last;
	memcpy(&last, in6.sin6_addr.s6_addr + 12, sizeof(last));
	*address = ntohl(last);
	return true;
}

static bool ipv6_of(const struct sockaddr *sa, struct in6_addr *address)
{
	struct sockaddr_in6 in6;
	if (sa->sa_family != AF_INET6)
		return false;
	memcpy(&in6, sa, sizeof(in6));
	*address = in6.sin6_addr;
	return true;
}

bool address_is_ip(const char *host)
{
	unsigned char bytes[sizeof(struct in6_addr)];
	return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

bool address_is_loopback(const struct sockaddr *sa)
{
	uint32_t v4;
	struct in6_addr v6;
	if (sa->sa_family == AF_UNIX)
		return true;
	if (ipv4_of(sa, &v4))
		return v4 >> 24 == 127;
	return ipv6_of(sa, &v6) && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool address_is_local(const struct sockaddr *sa)
{
	uint32_t v4;
	struct in6_addr v6;
	if (address_is_loopback(sa))
		return true;
	if (ipv4_of(sa, &v4))
		return v4 >> 24 == 10 || v4 >> 20 == (172u << 4 | 1) ||
		    v4 >> 16 == (192u << 8 | 168) || v4 >> 16 == (169u << 8 | 254);
	return ipv6_of(sa, &v6) && (IN6_IS_ADDR_LINKLOCAL(&v6) || (v6.s6_addr[0] & 0xfe) == 0xfc);
}

tr_status address_refuse_plain(const char *text, struct tr_error *error)
{
	return tr_error_set(error, TR_EREFUSED,
	    "address %s is not a loopback address: give --tls DIR (`tls` in a program's options; "
	    "`trainctl ca init` and `trainctl cert` make it), or allow it without TLS (--insecure; "
	    "`insecure`) if the network can be trusted",
	    text);
}

/* `flags`: AI_NUMERICHOST: as it stands there. */
static bool resolves_to_loopback(const struct address *address, int flags)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags };
	struct addrinfo *found;
	if (getaddrinfo(address->host, address->port, &hints, &found) != 0)
		return false;
	bool all = true;
	for (const struct addrinfo *info = found; info != NULL; info = info->ai_next)
		all = all && address_is_loopback(info->ai_addr);
	freeaddrinfo(found);
	return all;
}

tr_status address_check_plain(const char *text, bool insecure, struct tr_error *error)
{
	struct address address;
	tr_status st = address_parse(text, &address, error);
	if (st != TR_OK || insecure || address.is_unix || resolves_to_loopback(&address, 0))
		return st;
	return address_refuse_plain(text, error);
}

tr_status address_check_told(const char *text, bool insecure, struct tr_error *error)
{
	struct address address;
	tr_status st = address_parse(text, &address, error);
	if (st != TR_OK || insecure || address.is_unix || strcmp(address.host, "localhost") == 0 ||
	    resolves_to_loopback(&address, AI_NUMERICHOST))
		return st;
	return address_refuse_plain(text, error);
}
