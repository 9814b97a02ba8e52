/* Measures all-reduce through libtraincoll: starts a memberd and N processes for each case and prints one JSON object a
 * case, or a line for people. Comma lists make more cases. docs/benchmarks.md says what the figures mean.
 *
 *	collbench --world 2,4 --bytes 4,65536,67108864 --algo ring,direct --transport tcp --iters 20 --json
 *	collbench --world 4 --bytes 67108864 --algo direct --kill-at 0.5 --json
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/coll_case.h"
#include "tests/bench/coll_kill.h"
#include "tests/bench/coll_memberd.h"

#define CASES_MAX 32

struct bench {
	const char *memberd; /* path */
	size_t worlds[CASES_MAX], bytes[CASES_MAX];
	const char *algorithms[CASES_MAX];
	unsigned world_count, bytes_count, algorithm_count;
	struct coll_case common; /* what all cases share */
	struct coll_kill kill;
	bool json, has_policy;
};

static int usage(FILE *to)
{
	fputs("usage: collbench [OPTION...]\n"
	      "  --world N,...        processes (2)\n"
	      "  --bytes B,...        of the vector (67108864)\n"
	      "  --algo A,...         auto, ring, star, direct, hierarchical, one-shot (auto)\n"
	      "  --transport T        auto, tcp, shm (auto)\n"
	      "  --dtype D            f32, f64, i32, i64, f16, bf16, u8 (f32)\n"
	      "  --codec C            none, bf16, int8, int4, e3m0, int2 (none)\n"
	      "  --policy P           keep, uniform, replay (replay; with --kill-at, --stop-at: "
	      "keep)\n"
	      "  --iters I            timed ops (20)\n"
	      "  --sockets K          TCP connections to each peer (the library's choice)\n"
	      "  --congestion NAME    TCP congestion control (the library's choice)\n"
	      "  --tls DIR            TLS between all, with the files of DIR (`trainctl cert`)\n"
	      "  --sites A,B...       of a laboratory (docs/wanlab.md), in turn; memberd in the "
	      "first\n"
	      "  --kill-at F          SIGKILL for one process when it has sent the fraction F of "
	      "what it sends in an op\n"
	      "  --stop-at F          the same with SIGSTOP\n"
	      "  --victim V           of these: some, or busiest: who sends most, as a star's "
	      "hub (some)\n"
	      "  --each               with --json: the time of each of the first ops, and why the "
	      "algorithm is what it is\n"
	      "  --json               one JSON object a case\n"
	      "  --memberd PATH       (beside this program)\n",
	    to);
	return to == stdout ? 0 : 2;
}

static unsigned parse_sizes(char *list, size_t *values, size_t least, size_t most)
{
	unsigned count = 0;
	for (char *word = strtok(list, ","); word != NULL; word = strtok(NULL, ",")) {
		char *end;
		if (count == CASES_MAX)
			return 0;
		values[count] = strtoull(word, &end, 10);
		if (*end != '\0' || values[count] < least || values[count] > most)
			return 0;
		count++;
	}
	return count;
}

static unsigned parse_algorithms(char *list, const char **values)
{
	enum tr_algorithm known;
	unsigned count = 0;
	for (char *word = strtok(list, ","); word != NULL; word = strtok(NULL, ",")) {
		if (count == CASES_MAX || !coll_case_algorithm(word, &known))
			return 0;
		values[count++] = word;
	}
	return count;
}

static bool parse_fraction(const char *text, double *fraction)
{
	char *end;
	*fraction = strtod(text, &end);
	return *end == '\0' && *fraction > 0 && *fraction < 1;
}

static bool parse_policy(const char *name, enum tr_policy *policy)
{
	static const char *const names[] = { "keep", "uniform", "replay" }; /* enum tr_policy */
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(name, names[i]) == 0) {
			*policy = (enum tr_policy)i;
			return true;
		}
	return false;
}

static bool parse_one(struct bench *bench, int option, char *value)
{
	struct coll_case *common = &bench->common;
	enum tr_transport transport;
	enum tr_codec codec;
	size_t number = 0;
	switch (option) {
	case 'w':
		return (bench->world_count = parse_sizes(value, bench->worlds, 1,
		            MEASURE_WORLD_MAX)) > 0;
	case 'b':
		return (bench->bytes_count = parse_sizes(value, bench->bytes, 1, (size_t)8 << 30)) >
		    0;
	case 'a':
		return (bench->algorithm_count = parse_algorithms(value, bench->algorithms)) > 0;
	case 't':
		common->transport = value;
		return coll_case_transport(value, &transport);
	case 'd':
		return coll_case_dtype(value, &common->c.dtype);
	case 'c':
		common->codec = value;
		return coll_case_codec(value, &codec);
	case 'P':
		bench->has_policy = true;
		return parse_policy(value, &common->policy);
	case 'C':
		common->congestion = value;
		return true;
	case 'T':
		common->tls = value;
		return value[0] != '\0';
	case 'p':
		common->sites = value;
		return value[0] != '\0';
	case 'i':
		if (parse_sizes(value, &number, 1, 1000000) != 1)
			return false;
		common->c.iterations = (unsigned)number;
		return true;
	case 's':
		if (parse_sizes(value, &number, 1, 64) != 1)
			return false;
		common->sockets = (unsigned)number;
		return true;
	case 'k':
	case 'S':
		bench->kill.stop = option == 'S';
		return bench->kill.at == 0 && parse_fraction(value, &bench->kill.at);
	case 'v':
		bench->kill.busiest = strcmp(value, "busiest") == 0;
		return bench->kill.busiest || strcmp(value, "some") == 0;
	case 'e':
		return common->c.each = true;
	case 'j':
		bench->json = true;
		return true;
	case 'm':
		bench->memberd = value;
		return true;
	default:
		return false;
	}
}

/* Their values one by one are right. */
static bool parse_together(const struct bench *bench)
{
	size_t size = measure_dtype_size(bench->common.c.dtype);
	for (unsigned i = 0; i < bench->bytes_count; i++)
		if (bench->bytes[i] % size != 0) {
			fprintf(stderr, "collbench: --bytes %zu: elements of %s have %zu bytes\n",
			    bench->bytes[i], measure_dtype_names[bench->common.c.dtype], size);
			return false;
		}
	return true;
}

static bool parse(struct bench *bench, int argc, char **argv)
{
	static const struct option options[] = { { "world", 1, NULL, 'w' },
		{ "bytes", 1, NULL, 'b' }, { "algo", 1, NULL, 'a' }, { "transport", 1, NULL, 't' },
		{ "dtype", 1, NULL, 'd' }, { "codec", 1, NULL, 'c' }, { "iters", 1, NULL, 'i' },
		{ "sockets", 1, NULL, 's' }, { "congestion", 1, NULL, 'C' },
		{ "kill-at", 1, NULL, 'k' }, { "stop-at", 1, NULL, 'S' },
		{ "victim", 1, NULL, 'v' }, { "json", 0, NULL, 'j' }, { "each", 0, NULL, 'e' },
		{ "tls", 1, NULL, 'T' }, { "sites", 1, NULL, 'p' }, { "policy", 1, NULL, 'P' },
		{ "memberd", 1, NULL, 'm' }, { "help", 0, NULL, 'h' }, { 0 } };
	for (int o, at = 0; (o = getopt_long(argc, argv, "", options, &at)) != -1;) {
		if (o == 'h')
			exit(usage(stdout));
		if (o == '?')
			return false;
		char *value = optarg != NULL ? strdup(optarg) : NULL; /* lists are taken apart */
		bool right = parse_one(bench, o, optarg);
		if (!right)
			fprintf(stderr, "collbench: --%s %s: not allowed%s\n", options[at].name,
			    value != NULL ? value : "",
			    o == 'k' || o == 'S' ? ": one of --kill-at and --stop-at, from 0 to 1"
			                         : "");
		free(value);
		if (!right)
			return false;
	}
	if (optind < argc)
		fprintf(stderr, "collbench: %s: not an option\n", argv[optind]);
	return optind == argc && parse_together(bench);
}

static bool run(const struct bench *bench)
{
	struct coll_memberd memberd;
	bool well = true;
	struct coll_case c = bench->common;
	if (bench->kill.at == 0 &&
	    !coll_memberd_start(&memberd, bench->memberd, "error", -1, bench->common.sites,
	        bench->common.tls))
		return false;
	c.address = memberd.address;
	/* As jobs have it, unless the op is to survive. */
	if (!bench->has_policy)
		c.policy = bench->kill.at > 0 ? TR_KEEP : TR_REPLAY;
	for (unsigned i = 0; i < bench->algorithm_count * bench->world_count * bench->bytes_count;
	     i++) {
		c.number = i;
		c.c.bytes = bench->bytes[i % bench->bytes_count];
		c.c.world = (unsigned)bench->worlds[i / bench->bytes_count % bench->world_count];
		c.algorithm = bench->algorithms[i / bench->bytes_count / bench->world_count];
		well = (bench->kill.at > 0 ? coll_kill_run(&c, &bench->kill, bench->memberd)
		                           : coll_case_run(&c, bench->json)) &&
		    well;
	}
	if (bench->kill.at == 0)
		coll_memberd_stop(&memberd);
	return well;
}

int main(int argc, char **argv)
{
	struct bench bench = { .worlds = { 2 },
		.bytes = { 64u << 20 },
		.algorithms = { "auto" },
		.world_count = 1,
		.bytes_count = 1,
		.algorithm_count = 1,
		.common = { .c = { .iterations = 20 }, .transport = "auto", .codec = "none" } };
	char beside[512] = "";
	ssize_t length = readlink("/proc/self/exe", beside, sizeof(beside) - 16);
	if (length > 0)
		(void)snprintf(strrchr(beside, '/') + 1, 16, "memberd");
	bench.memberd = beside;
	if (!parse(&bench, argc, argv))
		return usage(stderr);
	return run(&bench) ? 0 : 1;
}
