/* Low-communication training (DiLoCo): each peer fits a logistic model to samples of its own, and only every 50 steps do all average how far they
 * got, and take an outer step together. Policy uniform: when a peer dies, the others merge without it; one that comes later gets the outer
 * parameters from a donor.
 *
 *	./diloco 127.0.0.1:7070 fit 3 5000      # three times; any number of further ones may join
 */
#include <collectives/sync.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 64
#define BATCH 240 /* samples of a step of all peers together */
#define RATE  0.1

static void check(tr_status status, const struct tr_error *error, const char *what)
{
	if (status == TR_OK)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, tr_status_name(status), error->text);
	exit(1);
}

/* Sample `i`, a pure function of its number. Returns which of two kinds it is of: on which side of a plane it lies. */
static int sample(unsigned long long i, double *x)
{
	unsigned long long bits = i * 2654435761u + 12345;
	double side = 0;
	int k;
	for (k = 0; k < WIDTH; k++) {
		bits = bits * 6364136223846793005u + 1442695040888963407u;
		x[k] = (double)(bits >> 40) / (1 << 24) - 0.5;
		side += x[k] * (k % 5 - 2);
	}
	return side > 0;
}

/* A step of gradient descent on this peer's samples of it. Which ones they are the library says, so that no two peers learn from the same one,
 * whoever dies or comes. Returns the sum of the losses before the step. */
static double inner_step(float *w, const tr_sync *sync, const struct tr_sync_now *now)
{
	double x[WIDTH], gradient[WIDTH] = { 0 }, loss = 0;
	uint64_t i;
	int k;
	for (i = 0; i < now->samples; i++) {
		int kind = sample(tr_sync_sample(sync, i), x);
		double z = 0;
		for (k = 0; k < WIDTH; k++)
			z += x[k] * (double)w[k];
		loss += log1p(exp(kind ? -z : z));
		for (k = 0; k < WIDTH; k++)
			gradient[k] += (1 / (1 + exp(-z)) - kind) * x[k];
	}
	for (k = 0; k < WIDTH; k++)
		w[k] -= (float)(RATE * gradient[k] / (double)now->samples);
	return loss;
}

/* FNV-1a of the outer parameters' bits, which are the same on all peers after each merge. */
static unsigned long long digest(const tr_sync *sync)
{
	unsigned long long sum = 14695981039346656037u;
	int k;
	for (k = 0; k < WIDTH; k++) {
		uint32_t bits;
		memcpy(&bits, tr_sync_outer(sync, 0) + k, sizeof(bits));
		sum = (sum ^ bits) * 1099511628211u;
	}
	return sum;
}

/* Until all steps are done, and merged. */
static void train(float *w, tr_sync *sync, struct tr_sync_now *now)
{
	struct tr_error error;
	while (!now->finished) {
		struct tr_sync_work did = { 0 };
		did.tokens = did.samples = (double)now->samples;
		did.sums[0] = inner_step(w, sync, now);
		/* Talks to the others only if it is time for a merge; after one, w is what all begin with. */
		check(tr_sync_step(sync, &did, now, &error), &error, "step");
		if (!now->merged)
			continue;
		printf("{\"step\": %llu, \"contributors\": %u, \"loss\": %.9g}\n",
		    (unsigned long long)now->merged_step, now->contributors,
		    now->sums[0] / now->tokens);
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	static float w[WIDTH]; /* zeros, the same on all peers; a joiner's become the group's */
	struct tr_sync_tensor tensor = { 0 };
	struct tr_join_options join = TR_JOIN_OPTIONS_INIT;
	struct tr_sync_options options = TR_SYNC_OPTIONS_INIT;
	struct tr_sync_now now;
	struct tr_error error;
	tr_group *group;
	tr_sync *sync;

	if (argc != 5) {
		fprintf(stderr, "usage: diloco MEMBERD GROUP SIZE STEPS\n");
		return 2;
	}
	join.membership = argv[1];
	join.name = argv[2];
	join.size = (unsigned)atoi(argv[3]);
	join.policy = TR_UNIFORM;
	check(tr_group_join(&join, &group, &error), &error, "join");

	options.mode = TR_SYNC_DILOCO; /* with the paper's Nesterov momentum */
	options.steps = strtoull(argv[4], NULL, 10);
	options.inner_steps = 50;
	options.batch = BATCH;
	tensor.name = "w";
	tensor.data = w;
	tensor.count = WIDTH;
	check(tr_sync_create(group, &options, &tensor, 1, &sync, &error), &error, "create");
	check(tr_state_ready(group, 0, &error), &error, "ready");
	check(tr_sync_start(sync, &now, &error), &error, "start");
	train(w, sync, &now);
	printf("{\"done\": %llu, \"digest\": \"%016llx\"}\n", (unsigned long long)now.step,
	    digest(sync));
	tr_sync_destroy(sync);
	tr_group_leave(group);
	return 0;
}
