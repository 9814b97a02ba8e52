/* What TLS takes from outside, the same in each process: OpenSSL's random numbers, which begin anew with each input, and the day. So the same input makes the
 * same handshake, to the byte that it spoils. Static.
 *
 *	chance_start();   // before the first certificate
 *	chance_begin();   // each input
 */
#ifndef TR_TESTS_FUZZ_CHANCE_H
#define TR_TESTS_FUZZ_CHANCE_H

#include <openssl/rand.h>
#include <stdint.h>
#include <time.h>

#define CHANCE_NOW ((time_t)1796000000)

static uint64_t chance = 1;

/* For libcrypto too, which asks whether certificates are valid. */
__attribute__((visibility("default"))) time_t time(time_t *now)
{
	if (now != NULL)
		*now = CHANCE_NOW;
	return CHANCE_NOW;
}

static void chance_begin(void)
{
	chance = UINT64_C(0x9e3779b97f4a7c15);
}

/* Marsaglia's xorshift64. */
static int chance_bytes(unsigned char *out, int count)
{
	for (int i = 0; i < count; i++) {
		chance ^= chance << 13;
		chance ^= chance >> 7;
		chance ^= chance << 17;
		out[i] = (unsigned char)(chance >> 32);
	}
	return 1;
}

static int chance_is_ready(void)
{
	return 1;
}

/* (A provider of OpenSSL 3 for this would be ten times as long.) */
static void chance_start(void)
{
	static const RAND_METHOD method = { .bytes = chance_bytes,
		.pseudorand = chance_bytes,
		.status = chance_is_ready };
	chance_begin();
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
	(void)RAND_set_rand_method(&method);
#pragma GCC diagnostic pop
}

#endif
