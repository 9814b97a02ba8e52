/* What a worker makes of the first message that its traind sends. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collectives/engine/channel_worker.h"

/* Who was started by a traind of another release reads what is to be done, whatever the rest of its page is like. */
static void another_release_is_named(void **state)
{
	(void)state;
	struct tr_error error = { .text = "" };
	int pair[2];
	struct channel_worker *worker = NULL;
	const struct {
		uint64_t magic;
		uint32_t version, unused;
	} first = { CHANNEL_MAGIC, CHANNEL_VERSION - 1, 0 };
	int fds[4];
	for (unsigned i = 0; i < 4; i++)
		assert_true((fds[i] = memfd_create("other", MFD_CLOEXEC)) >= 0);
	assert_int_equal(write(fds[0], &first, sizeof(first)), sizeof(first));
	assert_int_equal(channel_pair(pair, &error), TR_OK);
	assert_int_equal(channel_send(pair[0], CHANNEL_HELLO, NULL, 0, NULL, 0, fds, 4), TR_OK);
	assert_int_equal(channel_worker_open(pair[1], &worker, &error), TR_EPROTO);
	assert_non_null(strstr(error.text, "traind is of another release than this program"));
	for (unsigned i = 0; i < 4; i++)
		(void)close(fds[i]);
	(void)close(pair[0]);
}

/* Of the same release, and no page: that is no other release's. */
static void a_short_page_is_malformed(void **state)
{
	(void)state;
	struct tr_error error = { .text = "" };
	int pair[2], fds[4];
	struct channel_worker *worker = NULL;
	for (unsigned i = 0; i < 4; i++)
		assert_true((fds[i] = memfd_create("short", MFD_CLOEXEC)) >= 0);
	assert_int_equal(channel_pair(pair, &error), TR_OK);
	assert_int_equal(channel_send(pair[0], CHANNEL_HELLO, NULL, 0, NULL, 0, fds, 4), TR_OK);
	assert_int_equal(channel_worker_open(pair[1], &worker, &error), TR_EPROTO);
	assert_non_null(strstr(error.text, "malformed"));
	for (unsigned i = 0; i < 4; i++)
		(void)close(fds[i]);
	(void)close(pair[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_release_is_named),
		cmocka_unit_test(a_short_page_is_malformed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
