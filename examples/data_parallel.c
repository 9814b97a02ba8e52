/* Data-parallel gradient descent on a least-squares problem, among peers that come and go. Policy replay: when a peer dies, the round is
 * computed again by those that are left, from the same batch; one that comes later gets the parameters from a donor.
 *
 *	./data_parallel 127.0.0.1:7070 fit 3 200      # three times; any number of further ones may join
 */
#include <collectives/coll.h>
#include <stdio.h>
#include <stdlib.h>

#define WIDTH 16
#define BATCH 240

/* What a joiner must have to go on: declared with tr_state_add, changed only after a commit. */
struct model {
	double weight[WIDTH];
};

static void check(tr_status status, const struct tr_error *error, const char *what)
{
	if (status == TR_OK)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, tr_status_name(status), error->text);
	exit(1);
}

/* Sample `i`, a pure function of its number: whoever computes it gets the same. */
static void sample(unsigned long long i, double *x, double *y)
{
	unsigned long long bits = i * 2654435761u + 12345;
	int k;
	*y = 0;
	for (k = 0; k < WIDTH; k++) {
		bits = bits * 6364136223846793005u + 1442695040888963407u;
		x[k] = (double)(bits >> 40) / (1 << 24) - 0.5;
		*y += x[k] * (k + 1);
	}
}

/* Sums of this contributor's part of the round's batch: WIDTH gradients, then the loss. */
static void gradient(const struct model *model, const struct tr_round *round, double *sums)
{
	unsigned first = round->index * BATCH / round->contributors;
	unsigned end = (round->index + 1) * BATCH / round->contributors, i;
	int k;
	for (k = 0; k <= WIDTH; k++)
		sums[k] = 0;
	for (i = first; i < end; i++) {
		double x[WIDTH], y, error;
		sample(round->round * BATCH + i, x, &y);
		for (error = -y, k = 0; k < WIDTH; k++)
			error += x[k] * model->weight[k];
		for (k = 0; k < WIDTH; k++)
			sums[k] += error * x[k];
		sums[WIDTH] += error * error;
	}
}

/* One round, however often it has to begin again. Returns its number. */
static unsigned long long step(tr_group *group, struct model *model, double *sums, double *loss)
{
	struct tr_error error;
	struct tr_round round;
	struct tr_commit commit = { .samples = BATCH };
	tr_status status;
	int k, contributes;
	do {
		check(tr_round_begin(group, &round, &error), &error, "begin");
		contributes = round.index < round.contributors;
		if (contributes)
			gradient(model, &round, sums);
		status = tr_allreduce(group, 0, sums, WIDTH + 1, TR_F64, TR_SUM,
		    contributes ? TR_CONTRIBUTE : 0, &error);
		if (status == TR_OK && round.receive_state) /* we have just come */
			status = tr_state_receive(group, &error);
		if (status == TR_OK)
			status = tr_round_commit(group, &commit, &round, &error);
	} while (status == TR_ERESTART);
	check(status, &error, "round");
	for (k = 0; k < WIDTH; k++) /* only now, and on every peer the same bits */
		model->weight[k] -= 4 * sums[k] / BATCH;
	*loss = sums[WIDTH] / BATCH;
	return round.round;
}

int main(int argc, char **argv)
{
	struct tr_join_options options = TR_JOIN_OPTIONS_INIT;
	struct tr_error error;
	struct model *model;
	unsigned long long round, last;
	double *sums, loss;
	tr_group *group;
	int k;

	if (argc != 5) {
		fprintf(stderr, "usage: data_parallel MEMBERD GROUP SIZE ROUNDS\n");
		return 2;
	}
	options.membership = argv[1];
	options.name = argv[2];
	options.size = (unsigned)atoi(argv[3]);
	options.policy = TR_REPLAY;
	last = strtoull(argv[4], NULL, 10);
	check(tr_group_join(&options, &group, &error), &error, "join");
	model = tr_alloc(group, sizeof(*model));
	sums = tr_alloc(group, (WIDTH + 1) * sizeof(*sums));
	if (model == NULL || sums == NULL)
		return 1;
	check(tr_state_add(group, "model", model, sizeof(*model), &error), &error, "state");
	check(tr_state_ready(group, 0, &error), &error, "ready");
	do {
		round = step(group, model, sums, &loss);
	} while (round < last);
	printf("{\"rounds\": %llu, \"loss\": %.9g, \"weights\": [", round, loss);
	for (k = 0; k < WIDTH; k++)
		printf("%s%.17g", k > 0 ? ", " : "", model->weight[k]);
	printf("]}\n");
	tr_group_leave(group);
	return 0;
}
