/* The tokenizer beside what tests/parity/test_bpe.py compares: files on a disk that fails, whose end is not where reading ended, and long texts. */
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
#include "daemon/checkpoint/byte_character.h"

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

/* Each byte is a token, and "ab" is one more. */
static void write_tokenizer(const char *folder)
{
	char path[64], character[3];
	(void)snprintf(path, sizeof(path), "%s/vocab.json", folder);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	(void)fputs("{\"ab\":256", file);
	for (int byte = 0; byte < 256; byte++) {
		byte_character((unsigned char)byte, character);
		(void)fprintf(file, ",\"%s%s\":%d", byte == '"' || byte == '\\' ? "\\" : "",
		    character, byte);
	}
	(void)fputs("}", file);
	assert_int_equal(fclose(file), 0);
	(void)snprintf(path, sizeof(path), "%s/merges.txt", folder);
	file = fopen(path, "w");
	assert_non_null(file);
	(void)fputs("a b\n", file);
	assert_int_equal(fclose(file), 0);
}

/* A text may be longer than a word may be: here with a smaller bound. */
static void test_a_text_may_be_long_if_its_words_are_not(void **state)
{
	(void)state;
	char folder[] = "/tmp/test_bpe_XXXXXX", command[64], text[4096];
	struct bpe *bpe;
	struct bpe_tokens tokens = { NULL, 0, 0 };
	struct tr_error error;
	assert_non_null(mkdtemp(folder));
	write_tokenizer(folder);
	if (bpe_load(folder, &bpe, &error) != TR_OK)
		fail_msg("%s", error.text);
	bpe->word_max = 8;
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = "ab cdef "[i % 8];
	assert_int_equal(bpe_encode(bpe, text, sizeof(text), &tokens, &error), TR_OK);
	assert_int_equal(tokens.count, sizeof(text) - sizeof(text) / 8);
	memset(text + 800, 'x', 9);
	tokens.count = 0;
	assert_int_equal(bpe_encode(bpe, text, sizeof(text), &tokens, &error), TR_ELIMIT);
	assert_non_null(strstr(error.text, "is too long: at most 8"));
	free(tokens.tokens);
	bpe_destroy(bpe);
	(void)snprintf(command, sizeof(command), "rm -r %s", folder);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_was_not_read_is_no_end),
		cmocka_unit_test(test_a_text_may_be_long_if_its_words_are_not),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
