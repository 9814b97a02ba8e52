/* Sums over processes that find each other by a name, and what the library says of how it did that. Run a memberd, then three of these, on
 * any machines that reach it:
 *
 *	memberd --listen 127.0.0.1:7070 &
 *	for i in 1 2 3; do ./allreduce 127.0.0.1:7070 example 3 & done; wait
 */
#include <collectives/coll.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT 1000

static void check(tr_status status, const struct tr_error *error, const char *what)
{
	if (status == TR_OK)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, tr_status_name(status), error->text);
	exit(1);
}

/* How it went: by which algorithm and why, over which links. */
static void describe(tr_group *group)
{
	static const char *const names[] = { "none", "tcp", "shm" };
	struct tr_link links[16] = { TR_LINK_INIT };
	struct tr_stats stats = TR_STATS_INIT;
	struct tr_op op = TR_OP_INIT;
	struct tr_error error;
	char why[256];
	size_t count, i;

	op.count = COUNT;
	check(tr_explain(group, &op, NULL, why, sizeof(why), &error), &error, "explain");
	check(tr_stats_get(group, &stats, &error), &error, "stats");
	check(tr_links(group, links, 16, &count, &error), &error, "links");
	printf(", \"why\": \"%s\", \"rounds\": %llu, \"links\": [", why,
	    (unsigned long long)stats.rounds);
	for (i = 0; i < count && i < 16; i++)
		printf("%s{\"peer\": %llu, \"transport\": \"%s\", \"sent\": %llu}",
		    i > 0 ? ", " : "", (unsigned long long)links[i].peer, names[links[i].transport],
		    (unsigned long long)links[i].sent_bytes);
	printf("]");
}

int main(int argc, char **argv)
{
	struct tr_join_options options = TR_JOIN_OPTIONS_INIT;
	struct tr_error error;
	struct tr_round round;
	tr_group *group;
	float *x;
	int i, wrong = 0;

	if (argc != 4) {
		fprintf(stderr, "usage: allreduce MEMBERD GROUP SIZE\n");
		return 2;
	}
	options.membership = argv[1];
	options.name = argv[2];
	options.size = (unsigned)atoi(argv[3]);
	options.policy = TR_UNIFORM; /* if one dies, the others redo the sum without it */
	check(tr_group_join(&options, &group, &error), &error, "join");
	x = tr_alloc(group, COUNT * sizeof(*x));
	if (x == NULL)
		return 1;
	check(tr_state_ready(group, 0, &error), &error, "ready");

	check(tr_round_begin(group, &round, &error), &error, "begin");
	for (i = 0; i < COUNT; i++)
		x[i] = (float)i;
	check(tr_allreduce(group, 0, x, COUNT, TR_F32, TR_SUM, TR_CONTRIBUTE, &error), &error,
	    "all-reduce");
	check(tr_round_commit(group, NULL, &round, &error), &error, "commit");

	for (i = 0; i < COUNT; i++)
		wrong += x[i] != (float)i * (float)round.contributors;
	printf("{\"contributors\": %u, \"last\": %g, \"wrong\": %d", round.contributors,
	    (double)x[COUNT - 1], wrong);
	/* Nobody leaves, and is missing from the others' links, before all have looked: an empty round ends when all have closed it. */
	check(tr_round_begin(group, &round, &error), &error, "begin");
	describe(group);
	check(tr_round_commit(group, NULL, &round, &error), &error, "commit");
	printf("}\n");
	tr_group_leave(group);
	return wrong > 0;
}
