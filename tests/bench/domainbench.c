/* One member of a domain that all-reduces over and over, for scripts/bench_nccl.py: f32 sum of BYTES, from the begin of a round to the
 * result in the memory of the device.
 *
 *	domainbench MEMBERSHIP GROUP DOMAINS TRANSPORT BYTES ROUNDS
 *
 * TRANSPORT between domains: auto, tcp. The environment says which backend (tests/system/domain_memory.h). The leader prints a line of
 * JSON: the median of all rounds but the first two, in milliseconds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectives/domain.h"
#include "tests/system/domain_memory.h"

#define WARM_ROUNDS 2

static void must(tr_status st, const struct tr_error *error)
{
	if (st == TR_OK)
		return;
	fprintf(stderr, "domainbench: %s\n", error->text);
	exit(1);
}

static double now_ms(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static tr_group *join(tr_domain *domain, char **argv)
{
	struct tr_join_options options = TR_JOIN_OPTIONS_INIT;
	struct tr_error error = { 0 };
	tr_group *group;
	options.membership = argv[1];
	options.name = argv[2];
	options.size = (unsigned)strtoul(argv[3], NULL, 10);
	options.transport = strcmp(argv[4], "tcp") == 0 ? TR_TRANSPORT_TCP : TR_TRANSPORT_AUTO;
	must(tr_group_join(&options, &group, &error), &error);
	must(tr_state_ready(group, 0, &error), &error);
	must(tr_domain_lead(domain, group, &error), &error);
	return group;
}

int main(int argc, char **argv)
{
	struct tr_domain_options options = TR_DOMAIN_OPTIONS_INIT;
	struct tr_error error = { 0 };
	struct memory memory;
	const char *why = "";
	tr_domain *domain;
	tr_group *group = NULL;
	if (argc != 7) {
		fprintf(stderr,
		    "usage: domainbench MEMBERSHIP GROUP DOMAINS TRANSPORT BYTES ROUNDS\n");
		return 2;
	}
	size_t count = strtoul(argv[5], NULL, 10) / sizeof(float);
	size_t rounds = strtoul(argv[6], NULL, 10) + WARM_ROUNDS;
	if (!memory_domain(&memory, &options, &why)) {
		fprintf(stderr, "domainbench: %s\n", why);
		return 1;
	}
	must(tr_domain_open(&options, &domain, &error), &error);
	bool leads = tr_domain_rank(domain) == 0;
	if (leads)
		group = join(domain, argv);
	float *x = memory_new(&memory, count * sizeof(*x));
	double *times = calloc(rounds, sizeof(*times));
	if (times == NULL)
		return 1;
	for (size_t i = 0; i < count; i++)
		x[i] = (float)(1 + i % 7);
	for (size_t r = 0; r < rounds; r++) {
		struct tr_round round;
		memory_put(&memory, x);
		memory_wait(&memory);
		double start = now_ms();
		must(tr_domain_round_begin(domain, &round, &error), &error);
		must(tr_domain_allreduce(domain, 0, memory_place(&memory, x), count, TR_F32, TR_SUM,
		         &error),
		    &error);
		must(tr_domain_commit(domain, &(struct tr_commit){ .samples = 1 }, &round, &error),
		    &error);
		times[r] = now_ms() - start;
	}
	memory_get(&memory, x);
	float members = x[0]; /* one each */
	qsort(times + WARM_ROUNDS, rounds - WARM_ROUNDS, sizeof(*times), by_value);
	if (leads)
		printf("{\"ms\": %.4f, \"members\": %.0f}\n",
		    times[WARM_ROUNDS + (rounds - WARM_ROUNDS) / 2], (double)members);
	free(times);
	tr_domain_close(domain);
	tr_group_leave(group);
	return 0;
}
