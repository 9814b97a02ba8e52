/* Sums over processes that find each other by a name. Run a memberd, then three of these, on any machines that reach it:
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
	printf("{\"contributors\": %u, \"last\": %g, \"wrong\": %d}\n", round.contributors,
	    (double)x[COUNT - 1], wrong);
	tr_group_leave(group);
	return wrong > 0;
}
