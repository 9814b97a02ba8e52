#include "daemon/node/advertise.h"

#include <stdio.h>
#include <string.h>

#include "collectives/transport/address.h"

/* A colon is of an IPv6 address, which may name its interface; of HOST:PORT it is not. */
static bool is_host(const char *host)
{
	char address[TR_ADDRESS_MAX];
	(void)snprintf(address, sizeof(address), "%.*s", (int)strcspn(host, "%"), host);
	return strchr(host, ':') == NULL || address_is_ip(address);
}

tr_status advertise_address(const char *listening, const char *host, char address[TR_ADDRESS_MAX],
    struct tr_error *error)
{
	struct address parsed;
	char text[TR_ADDRESS_MAX];
	tr_status st = address_parse(listening, &parsed, error);
	if (st != TR_OK)
		return st;
	bool everybody = strcmp(parsed.host, "0.0.0.0") == 0 || strcmp(parsed.host, "::") == 0;
	if (host == NULL && everybody)
		return tr_error_set(error, TR_EINVAL,
		    "--listen %s: other nodes cannot dial that; say where they reach this one: "
		    "--advertise HOST",
		    listening);
	bool bare_ipv6 = host != NULL && strchr(host, ':') != NULL && host[0] != '[';
	int length = host == NULL ? snprintf(text, sizeof(text), "%s", listening)
	                          : snprintf(text, sizeof(text), "%s%s%s:%s", bare_ipv6 ? "[" : "",
	                                host, bare_ipv6 ? "]" : "", parsed.port);
	if (length < 0 || (size_t)length >= sizeof(text) ||
	    address_parse(text, &parsed, NULL) != TR_OK || !is_host(parsed.host))
		return tr_error_set(error, TR_EINVAL,
		    "--advertise: found '%.100s', allowed: a host name or an IP address",
		    host == NULL ? listening : host);
	(void)snprintf(address, TR_ADDRESS_MAX, "%s", text);
	return TR_OK;
}
