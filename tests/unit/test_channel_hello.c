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

/* Opens the channel of a traind whose page has these bytes and no more. */
static tr_status open_page(const void *page, size_t bytes, struct tr_error *error)
{
	struct channel_worker *worker = NULL;
	int pair[2], fds[4];
	for (unsigned i = 0; i < 4; i++)
		assert_true((fds[i] = memfd_create("page", MFD_CLOEXEC)) >= 0);
	assert_int_equal(write(fds[0], page, bytes), bytes);
	assert_int_equal(channel_pair(pair, error), TR_OK);
	assert_int_equal(channel_send(pair[0], CHANNEL_HELLO, NULL, 0, NULL, 0, fds, 4), TR_OK);
	tr_status status = channel_worker_open(pair[1], &worker, error);
	for (unsigned i = 0; i < 4; i++)
		(void)close(fds[i]);
	(void)close(pair[0]);
	return status;
}

/* Who was started by a traind of another release reads what is to be done, whatever the rest of its page is like. */
static void another_release_is_named(void **state)
{
	(void)state;
	struct tr_error error = { .text = "" };
	const struct {
		uint64_t magic;
		uint32_t version, unused;
	} first = { CHANNEL_MAGIC, CHANNEL_VERSION - 1, 0 };
	assert_int_equal(open_page(&first, sizeof(first), &error), TR_EPROTO);
	assert_non_null(strstr(error.text, "traind is of another release than this program"));
}

/* That is no other release's. */
static void a_short_page_is_malformed(void **state)
{
	(void)state;
	struct tr_error error = { .text = "" };
	assert_int_equal(open_page("", 0, &error), TR_EPROTO);
	assert_non_null(strstr(error.text, "malformed"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_release_is_named),
		cmocka_unit_test(a_short_page_is_malformed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
