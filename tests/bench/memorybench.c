/* How much memory one op adds to its callers' buffers: every collective, in a row and strided, plain and coded; and with the last member late, those that pass on what is encoded, each way that passes on. Starts a memberd and
 * N processes for each case, prints a line, or a JSON object, and ends with exit code 1 if a case adds more than `--most`. docs/benchmarks.md says what the figures mean.
 *
 *	memorybench --bytes 268435456 --transport tcp --most 32
 *	memorybench --only late --world 4
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/coll.h"
#include "tests/bench/coll_case.h"
#include "tests/bench/coll_memberd.h"
#include "tests/bench/processes.h"

#define OPS     3       /* the peak of all of them */
#define LATE_US 1000000 /* of one */

static const struct collective {
	const char *name;
	enum tr_collective of;
} collectives[] = { { "all-reduce", TR_ALL_REDUCE }, { "reduce-scatter", TR_REDUCE_SCATTER },
	{ "all-gather", TR_ALL_GATHER }, { "broadcast", TR_BROADCAST }, { "send", TR_SEND } };

struct bench {
	struct coll_case c; /* `c.c.world`, address, transport, algorithm, codec */
	const struct collective *collective;
	const char *only; /* a collective's name, or "late"; NULL: all */
	bool strided,
	    late; /* late: the last member submits when what the others have passed on waits for it */
	struct processes *processes;
};

/* Contributor `index`'s part, in place: of a send the first two have one. */
static bool op_of(const struct bench *b, unsigned index, float *data, const struct tr_block *block,
    struct tr_op *op)
{
	bool send = b->collective->of == TR_SEND;
	*op = (struct tr_op)TR_OP_INIT;
	op->collective = b->collective->of;
	op->count = b->c.c.bytes / sizeof(float);
	(void)coll_case_codec(b->c.codec, &op->codec);
	op->output = data;
	op->output_block = b->strided ? block : NULL;
	if (send && index == 0) {
		op->output = NULL;
		op->output_block = NULL;
		op->input = data;
		op->input_block = b->strided ? block : NULL;
		op->root = 1;
	} else if (send) {
		op->collective = TR_RECV;
	}
	return !send || index < 2;
}

static void body(void *arg, unsigned rank)
{
	struct bench b = *(const struct bench *)arg;
	struct tr_error error = { 0 };
	struct measure_memory grown;
	struct tr_round round;
	struct tr_op op;
	b.c.c.rank = rank;
	size_t count = b.c.c.bytes / sizeof(float), cells = count * (b.strided ? 2 : 1);
	const struct tr_block block = { 1, { count }, { 2 } };
	tr_group *group = coll_case_join(&b.c);
	float *data = tr_alloc(group, cells * sizeof(float));
	if (data == NULL)
		processes_die("memorybench", "no memory for the buffers");
	for (size_t i = 0; i < cells; i++)
		data[i] = (float)(i % 13 + rank);
	coll_check(tr_state_ready(group, 0, &error), "ready", &error);
	processes_meet(b.processes);
	measure_memory_begin(&grown);
	for (unsigned i = 0; i < (b.late ? 1 : OPS); i++) {
		coll_check(tr_round_begin(group, &round, &error), "begin", &error);
		if (b.late && round.index == b.c.c.world - 1)
			(void)usleep(LATE_US);
		if (op_of(&b, round.index, data, &block, &op))
			coll_check(tr_submit(group, &op, &error), b.collective->name, &error);
		coll_check(tr_round_commit(group, NULL, &round, &error), "commit", &error);
	}
	b.processes->results[rank].rss_mib = measure_memory_grown_mib(&grown);
	processes_meet(b.processes);
	tr_group_leave(group);
}

/* MiB that the worst process needed; < 0: the case failed. */
static double case_run(struct bench *b)
{
	double worst = -1;
	b->c.number++;
	b->processes = processes_create(b->c.c.world);
	if (b->processes == NULL)
		return -1;
	if (processes_run(b->c.c.world, body, b))
		for (unsigned i = 0; i < b->c.c.world; i++)
			if (b->processes->results[i].rss_mib > worst)
				worst = b->processes->results[i].rss_mib;
	processes_destroy(b->processes);
	return worst;
}

static const char *const codecs[] = { "none", "bf16", "int8", "int4" };

struct output {
	double most;
	bool json, well;
};

static void report(const struct bench *b, double mib, struct output *output)
{
	const char *how = b->strided ? "strided" : "in a row", *when = b->late ? "late" : "";
	if (output->json)
		printf("{\"collective\": \"%s\", \"form\": \"%s\", \"codec\": \"%s\", "
		       "\"algorithm\": \"%s\", \"late\": %s, \"transport\": \"%s\", \"world\": "
		       "%u, \"bytes\": %zu, \"added_mib\": %.1f}\n",
		    b->collective->name, how, b->c.codec, b->c.algorithm,
		    b->late ? "true" : "false", b->c.transport, b->c.c.world, b->c.c.bytes, mib);
	else
		printf("%-14s %-8s %-4s %-12s %-4s %6.1f MiB%s\n", b->collective->name, how,
		    b->c.codec, b->c.algorithm, when, mib,
		    mib < 0                  ? ": failed"
		        : mib > output->most ? ": more than allowed"
		                             : "");
	(void)fflush(stdout);
	output->well = output->well && mib >= 0 && mib <= output->most;
}

/* In each form, from the `first` codec on. */
static void run_forms(struct bench *b, unsigned first, struct output *output)
{
	for (unsigned form = 2 * first; form < 8; form++) {
		b->c.codec = codecs[form / 2];
		b->strided = form % 2 == 1;
		report(b, case_run(b), output);
	}
}

/* Those that pass on what came encoded. */
static void run_late(struct bench *b, struct output *output)
{
	static const struct {
		const struct collective *collective;
		const char *algorithm;
	} ways[] = { { &collectives[2], "ring" }, { &collectives[3], "ring" },
		{ &collectives[3], "direct" } };
	b->late = true;
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		b->collective = ways[i].collective;
		b->c.algorithm = ways[i].algorithm;
		run_forms(b, 1, output);
	}
}

static void run(struct bench *b, struct output *output)
{
	for (size_t o = 0; o < sizeof(collectives) / sizeof(collectives[0]); o++) {
		b->collective = &collectives[o];
		if (b->only == NULL || strcmp(b->only, b->collective->name) == 0)
			run_forms(b, 0, output);
	}
	if (b->only == NULL || strcmp(b->only, "late") == 0)
		run_late(b, output);
}

static bool parse(struct bench *b, struct output *output, int argc, char **argv)
{
	static const struct option options[] = { { "world", 1, NULL, 'w' },
		{ "bytes", 1, NULL, 'b' }, { "transport", 1, NULL, 't' }, { "most", 1, NULL, 'm' },
		{ "only", 1, NULL, 'o' }, { "json", 0, NULL, 'j' }, { 0 } };
	enum tr_transport transport;
	char *end = (char *)"";
	for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1 && *end == '\0';)
		switch (o) {
		case 'w':
			b->c.c.world = (unsigned)strtoul(optarg, &end, 10);
			break;
		case 'b':
			b->c.c.bytes = strtoull(optarg, &end, 10);
			break;
		case 'm':
			output->most = strtod(optarg, &end);
			break;
		case 't':
			b->c.transport = optarg;
			if (!coll_case_transport(optarg, &transport))
				return false;
			break;
		case 'j':
			output->json = true;
			break;
		case 'o':
			b->only = optarg;
			break;
		default:
			return false;
		}
	return *end == '\0' && optind == argc && b->c.c.world >= 2 &&
	    b->c.c.world <= MEASURE_WORLD_MAX && b->c.c.bytes >= sizeof(float) &&
	    b->c.c.bytes % sizeof(float) == 0;
}

int main(int argc, char **argv)
{
	struct bench b = { .c = { .c = { .world = 2, .bytes = (size_t)256 << 20 },
		               .transport = "auto",
		               .algorithm = "auto",
		               .policy = TR_REPLAY } };
	struct output output = { .most = 32, .well = true };
	char beside[512] = "";
	struct coll_memberd memberd;
	ssize_t length = readlink("/proc/self/exe", beside, sizeof(beside) - 16);
	if (length > 0)
		(void)snprintf(strrchr(beside, '/') + 1, 16, "memberd");
	if (!parse(&b, &output, argc, argv)) {
		fputs("usage: memorybench [--world N] [--bytes B] [--transport auto|tcp|shm] "
		      "[--only COLLECTIVE|late] [--most MIB] [--json]\n",
		    stderr);
		return 2;
	}
	if (!coll_memberd_start(&memberd, beside, "error", -1, NULL, NULL))
		return 1;
	b.c.address = memberd.address;
	run(&b, &output);
	coll_memberd_stop(&memberd);
	return output.well ? 0 : 1;
}
