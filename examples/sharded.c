/* A sharded optimizer: gradients are reduce-scattered (int8 on the wire, with error feedback), each peer updates its own block of the
 * parameters, and the blocks are all-gathered. The parameters are columns of a larger matrix: strided blocks, which the library
 * gathers and scatters by itself.
 *
 *	./sharded 127.0.0.1:7070 shards 3 60          # three times
 */
#include <collectives/coll.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS    40
#define PITCH   64 /* columns of the whole matrix */
#define COLUMN  10 /* ours begin here */
#define COLUMNS 32
#define COUNT   (ROWS * COLUMNS)

static void check(tr_status status, const struct tr_error *error, const char *what)
{
	if (status == TR_OK || status == TR_ERESTART)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, tr_status_name(status), error->text);
	exit(1);
}

/* Element k of the block, in its own order. */
static float *at(float *matrix, size_t k)
{
	return &matrix[k / COLUMNS * PITCH + k % COLUMNS];
}

static float target(uint64_t peer, size_t k)
{
	return (float)((peer * 7 + k * 3) % 13);
}

struct memory {
	float *weights, *gradients, *mean, *mine, *residual, *residual_next;
};

/* One try of a round. The weights change only after the commit, so the gathered blocks go beside them: another try reads the old ones. */
static tr_status try_round(tr_group *group, struct memory *m, struct tr_round *round)
{
	static const struct tr_block columns = { 2, { ROWS, COLUMNS }, { PITCH, 1 } };
	struct tr_op scatter = TR_OP_INIT, gather = TR_OP_INIT;
	struct tr_error error = { TR_OK, "" };
	size_t first, elements, k;
	tr_status status = tr_round_begin(group, round, &error);
	check(status, &error, "begin");
	if (status != TR_OK)
		return status;
	for (k = 0; k < COUNT; k++)
		*at(m->gradients + COLUMN, k) = *at(m->weights + COLUMN, k) -
		    target(tr_peer_id(group), k);
	scatter.tag = 0;
	scatter.collective = TR_REDUCE_SCATTER;
	scatter.input = m->gradients + COLUMN;
	scatter.input_block = &columns;
	scatter.output = m->mean;
	scatter.count = COUNT;
	scatter.reduce = TR_AVG;
	scatter.codec = TR_CODEC_INT8;
	scatter.residual = m->residual;
	scatter.residual_next = m->residual_next;
	scatter.beta = 1;
	status = tr_submit(group, &scatter, &error);
	if (status == TR_OK)
		status = tr_wait(group, 0, &error);
	check(status, &error, "reduce-scatter");
	if (status != TR_OK)
		return status;

	tr_block_range(COUNT, round->contributors, round->index, &first, &elements);
	for (k = 0; k < elements; k++)
		m->mine[k] = *at(m->weights + COLUMN, first + k) - 0.2f * m->mean[k];
	gather.tag = 1;
	gather.collective = TR_ALL_GATHER;
	gather.input = m->mine;
	gather.output = m->gradients + PITCH * ROWS +
	    COLUMN; /* not over the weights before the commit */
	gather.output_block = &columns;
	gather.count = COUNT;
	status = tr_submit(group, &gather, &error);
	if (status == TR_OK)
		status = tr_round_commit(group, NULL, round, &error);
	check(status, &error, "all-gather");
	return status;
}

int main(int argc, char **argv)
{
	struct tr_join_options options = TR_JOIN_OPTIONS_INIT;
	const size_t matrix = ROWS * PITCH * sizeof(float);
	struct tr_error error;
	struct tr_round round;
	struct memory m;
	double sum = 0;
	float *swap;
	tr_group *group;
	size_t k;
	int rounds;

	if (argc != 5) {
		fprintf(stderr, "usage: sharded MEMBERD GROUP SIZE ROUNDS\n");
		return 2;
	}
	options.membership = argv[1];
	options.name = argv[2];
	options.size = (unsigned)atoi(argv[3]);
	options.policy = TR_REPLAY;
	check(tr_group_join(&options, &group, &error), &error, "join");
	m.weights = tr_alloc(group, matrix);
	m.gradients = tr_alloc(group, 2 * matrix);
	m.mean = tr_alloc(group, COUNT * sizeof(float));
	m.mine = tr_alloc(group, COUNT * sizeof(float));
	m.residual = tr_alloc(group, COUNT * sizeof(float));
	m.residual_next = tr_alloc(group, COUNT * sizeof(float));
	if (m.residual_next == NULL)
		return 1;
	check(tr_state_ready(group, 0, &error), &error, "ready");
	for (rounds = 0; rounds < atoi(argv[4]);) {
		if (try_round(group, &m, &round) != TR_OK)
			continue; /* somebody died: again, with the others */
		for (k = 0; k < COUNT; k++)
			*at(m.weights + COLUMN, k) = *at(m.gradients + PITCH * ROWS + COLUMN, k);
		swap = m.residual;
		m.residual = m.residual_next;
		m.residual_next = swap;
		rounds++;
	}
	for (k = 0; k < COUNT; k++)
		sum += (double)*at(m.weights + COLUMN, k) * (double)(k % 101);
	printf("{\"peer\": %llu, \"contributors\": %u, \"sum\": %.9g, \"first\": %.6g, \"beside\": "
	       "%g}\n",
	    (unsigned long long)tr_peer_id(group), round.contributors, sum,
	    (double)m.weights[COLUMN], (double)m.weights[COLUMN - 1]);
	tr_group_leave(group);
	return 0;
}
