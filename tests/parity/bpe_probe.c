/* The tokenizer without a trainer, for tests/parity/test_bpe.py: reads texts, each after its length in decimal and a newline, and prints the tokens of
 * each in a line.
 *
 *	bpe_probe FOLDER
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/checkpoint/bpe.h"

static void print_tokens(struct bpe *bpe, const char *text, size_t length)
{
	struct bpe_tokens tokens = { NULL, 0, 0 };
	struct tr_error error;
	if (bpe_encode(bpe, text, length, &tokens, &error) != TR_OK) {
		(void)fprintf(stderr, "%s\n", error.text);
		exit(1);
	}
	for (size_t i = 0; i < tokens.count; i++)
		printf("%d ", tokens.tokens[i]);
	printf("\n");
	free(tokens.tokens);
}

int main(int argc, char **argv)
{
	struct bpe *bpe;
	struct tr_error error;
	char line[32];
	if (argc != 2)
		return 2;
	if (bpe_load(argv[1], &bpe, &error) != TR_OK) {
		(void)fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	while (fgets(line, sizeof(line), stdin) != NULL) {
		size_t length = strtoull(line, NULL, 10);
		char *text = malloc(length + 1);
		if (text == NULL || fread(text, 1, length, stdin) != length)
			return 1;
		print_tokens(bpe, text, length);
		free(text);
	}
	bpe_destroy(bpe);
	return 0;
}
