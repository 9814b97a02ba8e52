/* Addresses as people write them (address.h). */
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/un.h>

#include <cmocka.h>

#include "collectives/transport/address.h"

static void formats_ipv6(const char *host, unsigned scope, const char *text)
{
	char got[TR_ADDRESS_MAX];
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6,
		.sin6_port = htons(7070),
		.sin6_scope_id = scope };
	assert_int_equal(inet_pton(AF_INET6, host, &in6.sin6_addr), 1);
	address_format((struct sockaddr *)&in6, sizeof(in6), got);
	assert_string_equal(got, text);
}

static void test_addresses_are_written_as_they_are_read(void **state)
{
	(void)state;
	char got[TR_ADDRESS_MAX];
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(65535) };
	struct sockaddr_un un = { .sun_family = AF_UNIX, .sun_path = "/run/a.sock" };
	assert_int_equal(inet_pton(AF_INET, "10.0.0.7", &in.sin_addr), 1);
	address_format((struct sockaddr *)&in, sizeof(in), got);
	assert_string_equal(got, "10.0.0.7:65535");
	address_format((struct sockaddr *)&un, sizeof(un), got);
	assert_string_equal(got, "unix:/run/a.sock");
	formats_ipv6("::1", 0, "[::1]:7070");
	formats_ipv6("fd00::7", 0, "[fd00::7]:7070");
}

/* Without its interface nobody can dial it. */
static void test_an_address_of_one_link_keeps_its_interface(void **state)
{
	(void)state;
	formats_ipv6("fe80::1", if_nametoindex("lo"), "[fe80::1%lo]:7070");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_addresses_are_written_as_they_are_read),
		cmocka_unit_test(test_an_address_of_one_link_keeps_its_interface),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
