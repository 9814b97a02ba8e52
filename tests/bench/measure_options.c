/* The options that every peer's program takes. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/measure.h"

static bool number(const char *text, size_t least, size_t most, size_t *value)
{
	char *end;
	*value = strtoull(text, &end, 10);
	return *end == '\0' && *value >= least && *value <= most;
}

bool measure_options_parse(int argc, char **argv, const char *const *algorithms,
    struct measure_options *options)
{
	static const struct option known[] = { { "world", 1, NULL, 'w' }, { "bytes", 1, NULL, 'b' },
		{ "algo", 1, NULL, 'a' }, { "iters", 1, NULL, 'i' }, { "json", 0, NULL, 'j' },
		{ 0 } };
	size_t world = 2, bytes = 64u << 20, iterations = 20;
	bool well = true;
	options->algorithm = algorithms[0];
	for (int o; (o = getopt_long(argc, argv, "", known, NULL)) != -1;) {
		unsigned a = 0;
		if (o == 'w')
			well = number(optarg, 1, MEASURE_WORLD_MAX, &world) && well;
		else if (o == 'b')
			well = number(optarg, 4, (size_t)8 << 30, &bytes) && well;
		else if (o == 'i')
			well = number(optarg, 1, 1000000, &iterations) && well;
		else if (o == 'a') {
			while (algorithms[a] != NULL && strcmp(algorithms[a], optarg) != 0)
				a++;
			options->algorithm = algorithms[a];
			well = well && algorithms[a] != NULL;
		} else if (o != 'j')
			well = false;
	}
	options->c = (struct measure_case){ .world = (unsigned)world,
		.iterations = (unsigned)iterations,
		.bytes = bytes / 4 * 4 };
	if (well && optind == argc)
		return true;
	fprintf(stderr, "usage: %s --world N --bytes B --iters I [--algo %s", argv[0],
	    algorithms[0]);
	for (unsigned a = 1; algorithms[a] != NULL; a++)
		fprintf(stderr, "|%s", algorithms[a]);
	fprintf(stderr, "]\n");
	return false;
}
