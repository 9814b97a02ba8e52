/* Files of a tokenizer on a disk that fails: what was not read is not taken for the end. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/checkpoint/bpe_inside.h"

static const int
    *answers; /* errno of each of the next reads, -1: end of file, 0: three bytes; NULL: as it is */

/* The linker takes this instead of the C library's. */
ssize_t read(int fd, void *to, size_t bytes)
{
	if (answers == NULL)
		return (ssize_t)syscall(SYS_read, fd, to, bytes);
	int answer = *answers++;
	if (answer == 0)
		return (ssize_t)syscall(SYS_read, fd, to, bytes < 3 ? bytes : 3);
	errno = answer;
	return answer < 0 ? 0 : -1;
}

static tr_status read_with(const char *folder, const int *wanted, char **text,
    struct tr_error *error)
{
	size_t length = 0;
	answers = wanted;
	tr_status status = bpe_read_file(folder, "merges.txt", text, &length, error);
	answers = NULL;
	assert_true(status != TR_OK || length == 6);
	return status;
}

static void test_what_was_not_read_is_no_end(void **state)
{
	(void)state;
	static const int good[] = { 0, EINTR, EINTR, 0 }, broken[] = { 0, EIO }, cut[] = { 0, -1 };
	char folder[] = "/tmp/test_bpe_read_XXXXXX", path[64], *text = NULL;
	struct tr_error error;
	assert_non_null(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/merges.txt", folder);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	(void)fputs("a b\nc ", file);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(read_with(folder, good, &text, &error), TR_OK);
	assert_string_equal(text, "a b\nc ");
	free(text);
	assert_int_equal(read_with(folder, broken, &text, &error), TR_EIO);
	assert_non_null(strstr(error.text, "merges.txt: cannot read: Input/output error"));
	assert_int_equal(read_with(folder, cut, &text, &error), TR_EIO);
	assert_non_null(strstr(error.text, "merges.txt: cannot read: it became shorter"));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_was_not_read_is_no_end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
