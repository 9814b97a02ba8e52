/* Runs a fuzz target once over each file named on the command line: replays a corpus without libFuzzer. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
	FILE *file = fopen(path, "rb");
	if (file == NULL) {
		perror(path);
		return 1;
	}
	(void)fseek(file, 0, SEEK_END);
	long size = ftell(file);
	rewind(file);
	/* Exactly as large as the input, so that the sanitizer sees one byte too many. */
	uint8_t *data = size < 0 ? NULL : malloc((size_t)size);
	size_t got = data == NULL ? 0 : fread(data, 1, (size_t)size, file);
	(void)fclose(file);
	if (data == NULL || got != (size_t)size) {
		(void)fprintf(stderr, "%s: cannot read\n", path);
		free(data);
		return 1;
	}
	(void)LLVMFuzzerTestOneInput(data, (size_t)size);
	free(data);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		(void)fprintf(stderr, "usage: %s FILE...\n", argv[0]);
		return 2;
	}
	for (int i = 1; i < argc; i++) {
		(void)fprintf(stderr, "replay %s\n", argv[i]);
		if (replay(argv[i]) != 0)
			return 1;
	}
	return 0;
}
