/* Ops as a program submits them (tr_submit), over real engines: what is refused, memory of input and output apart, and as many ops
 * of a round as there may be.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine_fixture.h"

struct committer {
	tr_group *group;
	pthread_t thread;
	tr_status status;
};

static void *commit_run(void *arg)
{
	struct committer *c = arg;
	struct tr_error error;
	c->status = tr_round_commit(c->group, NULL, NULL, &error);
	return NULL;
}

static void commit_all(struct fx *fx, unsigned n)
{
	struct committer committers[FX_HOSTS_MAX];
	for (unsigned i = 0; i < n; i++) {
		committers[i] = (struct committer){ .group = fx->hosts[i].group };
		assert_int_equal(pthread_create(&committers[i].thread, NULL, commit_run,
		                     &committers[i]),
		    0);
	}
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(pthread_join(committers[i].thread, NULL), 0);
		assert_int_equal(committers[i].status, TR_OK);
	}
}

static void refused(tr_group *group, struct tr_op op, const char *why)
{
	struct tr_error error = { 0 };
	assert_int_equal(tr_submit(group, &op, &error), TR_EINVAL);
	if (strstr(error.text, why) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", error.text, why);
}

/* Before the first round and between two; a round that was committed has no say in it. */
static void ops_outside_of_a_round_are_refused(void **state)
{
	(void)state;
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct tr_error error = { 0 };
	struct tr_round round;
	fx_attach(&fx->hosts[0]);
	tr_group *group = fx->hosts[0].group;
	float *data = tr_alloc(group, 4096);
	struct tr_op op = TR_OP_INIT;
	op.tag = 1;
	op.collective = TR_BROADCAST;
	op.count = 16;
	op.output = data;
	op.scope = (struct tr_scope){ (const uint32_t[]){ 0 }, 1 };
	refused(group, op, "submit: op 1: no round is begun");
	assert_int_equal(tr_state_ready(group, 0, &error), TR_OK);
	fx_found(fx, 1);
	refused(group, op, "submit: op 1: no round is begun");
	for (unsigned i = 1; i <= 2; i++) {
		assert_int_equal(tr_round_begin(group, &round, &error), TR_OK);
		assert_int_equal(round.round, i);
		assert_int_equal(tr_round_begin(group, &round, &error), TR_EINVAL);
		assert_int_equal(tr_submit(group, &op, &error), TR_OK); /* the round goes on */
		assert_int_equal(tr_wait(group, 1, &error), TR_OK);
		commit_all(fx, 1);
		refused(group, op, "submit: op 1: no round is begun");
		assert_int_equal(tr_release(group, 1, &error), TR_EINVAL);
		assert_non_null(strstr(error.text, "no round is begun"));
		assert_int_equal(tr_wait(group, 1, &error), TR_EINVAL);
		assert_int_equal(tr_round_commit(group, NULL, NULL, &error), TR_EINVAL);
		assert_non_null(strstr(error.text, "no round is begun"));
	}
	fx_stop(fx);
}

/* Of contributor 0 of 2: what the engine would find (op_check) only after the call. */
static void values_that_no_op_can_have_are_refused_at_once(void **state)
{
	(void)state;
	void *memory[2];
	struct fx *fx = fx_begin(2, 8192, memory);
	float *data = memory[0];
	static const uint32_t alone[] = { 0 };
	static const struct {
		const char *why;
		enum tr_collective collective;
		enum tr_dtype dtype;
		enum tr_codec codec;
		unsigned root;
		bool scoped, residual, residual_next;
	} wrong[] = {
		{ "codec 2 of dtype 3", .dtype = TR_I32, .codec = TR_CODEC_INT8 },
		{ "codec 1 of dtype 2", .dtype = TR_F64, .codec = TR_CODEC_BF16 },
		{ "codec 2 of dtype 7", .dtype = TR_U8, .codec = TR_CODEC_INT8 },
		{ "codec 6 is unknown", .codec = (enum tr_codec)6 },
		{ "dtype 99", .dtype = (enum tr_dtype)99 },
		{ "contributor 2 of 2", .collective = TR_BROADCAST, .root = 2 },
		{ "contributor 4294967295 of 2", .collective = TR_BROADCAST, .root = UINT32_MAX },
		{ "contributor 1 of 1", .collective = TR_BROADCAST, .root = 1, .scoped = true },
		{ "from and to contributor 0", .collective = TR_SEND },
		{ "from and to contributor 0", .collective = TR_RECV },
		{ "contributor 9 of 2", .collective = TR_SEND, .root = 9 },
		{ "contributor 2 of 2", .collective = TR_RECV, .root = 2 },
		{ "contributor 1 of 1", .collective = TR_SEND, .root = 1, .scoped = true },
		{ "takes both residuals", .codec = TR_CODEC_INT8, .residual = true },
		{ "takes both residuals", .codec = TR_CODEC_INT8, .residual_next = true },
		{ "for sums with a codec", .residual = true, .residual_next = true },
		{ "for sums with a codec", .collective = TR_ALL_GATHER, .codec = TR_CODEC_INT8,
		    .residual = true, .residual_next = true },
	};
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct tr_op op = TR_OP_INIT;
		op.tag = i;
		op.output = data;
		op.count = 16;
		op.collective = wrong[i].collective;
		op.dtype = wrong[i].dtype != 0 ? wrong[i].dtype : TR_F32;
		op.codec = wrong[i].codec;
		op.root = wrong[i].root;
		op.residual = wrong[i].residual ? data + 100 : NULL;
		op.residual_next = wrong[i].residual_next ? data + 200 : NULL;
		if (wrong[i].scoped)
			op.scope = (struct tr_scope){ alone, 1 };
		refused(fx->hosts[0].group, op, wrong[i].why);
	}
	for (unsigned i = 0; i < 2; i++) /* the round is as if they had never been */
		assert_int_equal(tr_allreduce(fx->hosts[i].group, 0, memory[i], 16, TR_F32, TR_SUM,
		                     TR_CONTRIBUTE, NULL),
		    TR_OK);
	commit_all(fx, 2);
	fx_stop(fx);
}

static void an_input_apart_from_the_output_stays_as_it_is(void **state)
{
	(void)state;
	enum { COUNT = 100000 };
	void *memory[3];
	struct fx *fx = fx_begin(3, 2 * COUNT * sizeof(float), memory);
	struct tr_error error;
	for (unsigned i = 0; i < 3; i++) {
		float *input = memory[i];
		struct tr_op op = TR_OP_INIT;
		for (unsigned k = 0; k < COUNT; k++)
			input[k] = (float)(k % 1000 + i);
		op.tag = 5;
		op.input = input;
		op.output = input + COUNT;
		op.count = COUNT;
		assert_int_equal(tr_submit(fx->hosts[i].group, &op, &error), TR_OK);
	}
	commit_all(fx, 3);
	for (unsigned i = 0; i < 3; i++) {
		const float *input = memory[i], *output = input + COUNT;
		for (unsigned k = 0; k < COUNT; k++) {
			assert_true(input[k] == (float)(k % 1000 + i));
			assert_true(output[k] == (float)(3 * (k % 1000) + 3));
		}
	}
	fx_stop(fx);
}

static void memory_of_two_ops_is_told_apart_exactly(void **state)
{
	(void)state;
	void *memory[1];
	struct fx *fx = fx_begin(1, 4096, memory);
	tr_group *group = fx->hosts[0].group;
	float *data = memory[0];
	struct tr_error error;
	struct tr_op op = TR_OP_INIT;
	op.tag = 1;
	op.count = 16;
	op.input = data;
	op.output = data + 8;
	refused(group, op, "input and output share memory");
	op.output = data + 16;
	assert_int_equal(tr_submit(group, &op, &error), TR_OK);
	op.tag = 2;
	op.output = data + 32;
	assert_int_equal(tr_submit(group, &op, &error), TR_OK); /* two may read the same */
	op.tag = 3;
	op.input = data + 40; /* one writes where the other reads */
	op.output = data + 100;
	refused(group, op, "op 3 and op 2 of this round share memory");
	op.input = data + 200;
	op.output = data + 15;
	refused(group, op, "op 3 and op 1 of this round share memory");
	op.output = NULL;
	refused(group, op, "not from tr_alloc");
	op.output = data + 300;
	op.size_of = 4;
	refused(group, op, "size_of");
	op.size_of = sizeof(op);
	op.collective = (enum tr_collective)99;
	refused(group, op, "collective 99");
	commit_all(fx, 1);
	fx_stop(fx);
}

/* The one is written before the commit, from a sum of the input and the other: that sum may have to be made again. */
static void residuals_share_memory_with_nothing_that_is_written(void **state)
{
	(void)state;
	void *memory[1];
	struct fx *fx = fx_begin(1, 8192, memory);
	tr_group *group = fx->hosts[0].group;
	float *data = memory[0];
	struct tr_error error;
	struct tr_op op = TR_OP_INIT;
	op.tag = 1;
	op.count = 16;
	op.codec = TR_CODEC_INT8;
	op.output = data;
	op.residual = op.residual_next = data + 100;
	refused(group, op, "op 1: residual_next and residual share memory");
	op.residual_next = data + 115;
	refused(group, op, "op 1: residual_next and residual share memory");
	op.residual_next = data + 15;
	refused(group, op, "op 1: residual_next and output share memory");
	op.residual_next = data + 200;
	op.residual = data + 8;
	refused(group, op, "op 1: residual and output share memory");
	op.residual = data + 100;
	op.input = data + 50;
	op.residual_next = data + 60;
	refused(group, op, "op 1: residual_next and input share memory");
	op.residual_next = data + 200;
	op.residual = data + 50; /* both are only read */
	assert_int_equal(tr_submit(group, &op, &error), TR_OK);
	op.tag = 2;
	op.output = data + 300;
	refused(group, op, "op 2 and op 1 of this round share memory");
	op.residual_next = data + 400;
	assert_int_equal(tr_submit(group, &op, &error), TR_OK);
	commit_all(fx, 1);
	fx_stop(fx);
}

static void undeclarable(tr_group *group, const char *name, void *data, size_t bytes,
    const char *why)
{
	struct tr_error error = { 0 };
	assert_int_equal(tr_state_add(group, name, data, bytes, &error), TR_EINVAL);
	assert_string_equal(error.text, why);
}

static void state_is_declared_once(void **state)
{
	(void)state;
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct tr_error error;
	fx_attach(&fx->hosts[0]);
	tr_group *group = fx->hosts[0].group;
	float *m = tr_alloc(group, 4096);
	assert_non_null(m);
	assert_int_equal(tr_state_add(group, "a", m + 100, 400, &error), TR_OK);
	undeclarable(group, "", m, 4, "state: a name has 1 to 127 bytes");
	undeclarable(group, NULL, m, 4, "state: a name has 1 to 127 bytes");
	undeclarable(group, "a", m, 4, "state \"a\": there is one of this name");
	undeclarable(group, "b", m + 100, 400, "state \"b\": shares memory with the state \"a\"");
	undeclarable(group, "b", m + 150, 4, "state \"b\": shares memory with the state \"a\"");
	undeclarable(group, "b", m, 404, "state \"b\": shares memory with the state \"a\"");
	undeclarable(group, "b", m + 199, 8, "state \"b\": shares memory with the state \"a\"");
	assert_int_equal(tr_state_add(group, "b", m, 400, &error), TR_OK); /* right before it */
	assert_int_equal(tr_state_add(group, "c", m + 200, 400, &error), TR_OK);
	assert_int_equal(tr_state_ready(group, 0, &error), TR_OK);
	fx_stop(fx);
}

/* From the last to the first, so that each lies before all that there are. */
static void as_much_state_as_there_may_be(void **state)
{
	(void)state;
	enum { EACH = 3, APART = 4 }; /* bytes; one between two pieces is free */
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct tr_op op = TR_OP_INIT;
	struct tr_error error;
	struct tr_round round;
	char name[32], why[128];
	fx_attach(&fx->hosts[0]);
	tr_group *group = fx->hosts[0].group;
	uint8_t *m = tr_alloc(group, TR_STATE_TENSORS_MAX * APART);
	assert_non_null(m);
	assert_int_equal(tr_state_add(group, "empty", m, 0, &error), TR_OK);
	for (unsigned i = TR_STATE_TENSORS_MAX - 1; i > 1; i--) {
		(void)snprintf(name, sizeof(name), "piece %u", i);
		assert_int_equal(tr_state_add(group, name, m + i * APART, EACH, &error), TR_OK);
	}
	for (unsigned i = TR_STATE_TENSORS_MAX - 1; i > 1; i--) {
		(void)snprintf(name, sizeof(name), "piece %u", i);
		(void)snprintf(why, sizeof(why), "state \"%s\": there is one of this name", name);
		undeclarable(group, name, m, 1, why);
		(void)snprintf(why, sizeof(why), "state \"x\": shares memory with the state \"%s\"",
		    name);
		undeclarable(group, "x", m + i * APART + EACH - 1, 1, why);
	}
	assert_int_equal(tr_state_add(group, "piece 1", m + APART, EACH, &error), TR_OK);
	assert_int_equal(tr_state_add(group, "x", m, 1, &error), TR_ELIMIT);
	assert_int_equal(tr_state_ready(group, 0, &error), TR_OK);
	fx_found(fx, 1);
	assert_int_equal(tr_round_begin(group, &round, &error), TR_OK);
	op.dtype = TR_U8;
	op.count = 1;
	for (unsigned i = 1; i < TR_STATE_TENSORS_MAX; i += 97) {
		op.tag = i;
		op.output = m + i * APART + EACH - 1;
		(void)snprintf(why, sizeof(why), "its output is in the state \"piece %u\"", i);
		refused(group, op, why);
		op.output = m + i * APART + EACH;
		assert_int_equal(tr_submit(group, &op, &error), TR_OK);
	}
	commit_all(fx, 1);
	fx_stop(fx);
}

static void a_unit_is_declared_in_one_go(void **state)
{
	(void)state;
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct tr_error error;
	fx_attach(&fx->hosts[0]);
	tr_group *group = fx->hosts[0].group;
	float *m = tr_alloc(group, 4096);
	assert_non_null(m);
	assert_int_equal(tr_state_add_gradual(group, "a", m, 4, 0, &error), TR_OK);
	assert_int_equal(tr_state_add_gradual(group, "b", m + 1, 4, 0, &error), TR_OK);
	assert_int_equal(tr_state_add_gradual(group, "c", m + 2, 4, 7, &error), TR_OK);
	assert_int_equal(tr_state_add_gradual(group, "d", m + 3, 4, 0, &error), TR_EINVAL);
	assert_string_equal(error.text,
	    "state \"d\": unit 0: \"b\" of it was followed by others; declare its pieces one after "
	    "the other");
	assert_int_equal(tr_state_add(group, "d", m + 3, 4, &error), TR_OK); /* of no unit */
	assert_int_equal(tr_state_add_gradual(group, "e", m + 4, 4, 7, &error), TR_EINVAL);
	assert_int_equal(tr_state_add_gradual(group, "e", m + 4, 4, 8, &error), TR_OK);
	assert_int_equal(tr_state_ready(group, 0, &error), TR_OK);
	fx_stop(fx);
}

/* A joiner may be getting it while the results come in. */
static void nothing_is_written_into_declared_state(void **state)
{
	(void)state;
	struct fx *fx = fx_start(1, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct tr_error error;
	struct tr_round round;
	fx_attach(&fx->hosts[0]);
	tr_group *group = fx->hosts[0].group;
	float *m = tr_alloc(group, 4096 * sizeof(float));
	assert_non_null(m);
	/* Out of order; "b" is nothing inside of "a". */
	assert_int_equal(tr_state_add(group, "c", m + 300, 100 * sizeof(float), &error), TR_OK);
	assert_int_equal(tr_state_add(group, "a", m + 100, 100 * sizeof(float), &error), TR_OK);
	assert_int_equal(tr_state_add(group, "b", m + 110, 0, &error), TR_OK);
	assert_int_equal(tr_state_ready(group, 0, &error), TR_OK);
	fx_found(fx, 1);
	assert_int_equal(tr_round_begin(group, &round, &error), TR_OK);
	struct tr_op op = TR_OP_INIT;
	op.tag = 7;
	op.count = 16;
	op.output = m + 199;
	refused(group, op, "op 7: its output is in the state \"a\"");
	op.output = m + 85;
	refused(group, op, "op 7: its output is in the state \"a\"");
	op.output = m + 390;
	refused(group, op, "op 7: its output is in the state \"c\"");
	op.output = m;
	op.codec = TR_CODEC_INT8;
	op.residual = m + 500;
	op.residual_next = m + 350;
	refused(group, op, "op 7: its residual_next is in the state \"c\"");
	op.residual_next = m + 600;
	assert_int_equal(tr_submit(group, &op, &error), TR_OK);
	/* Between the columns, and up to the last element before it. */
	const struct tr_block columns = { 2, { 2, 50 }, { 250, 1 } };
	struct tr_op around = TR_OP_INIT;
	around.tag = 8;
	around.count = 100;
	around.output = m + 50;
	around.output_block = &columns; /* 50..99 and 300..349 */
	refused(group, around, "op 8: its output is in the state \"c\"");
	around.output = m + 200;
	around.output_block = NULL;
	assert_int_equal(tr_submit(group, &around, &error), TR_OK);
	op.tag = 9;
	op.input = m + 300; /* state may be read */
	op.output = m + 700;
	op.residual = op.residual_next = NULL;
	assert_int_equal(tr_submit(group, &op, &error), TR_OK);
	commit_all(fx, 1);
	fx_stop(fx);
}

struct joiner {
	struct fx_host *host;
	pthread_t thread;
	tr_status status;
	char text[512];
};

enum { SCATTERED = 2 << 20 };

static tr_status scatter_round(tr_group *group, const float *input, float *output,
    struct tr_round *round, struct tr_error *error)
{
	size_t first, elements;
	tr_status st = tr_round_begin(group, round, error);
	if (st == TR_OK)
		st = tr_reduce_scatter(group, 0, input, output, SCATTERED, TR_F32, TR_SUM, error);
	if (st == TR_OK && round->receive_state)
		st = tr_state_receive(group, error);
	if (st == TR_OK)
		st = tr_round_commit(group, NULL, NULL, error);
	if (st != TR_OK)
		return st;
	tr_block_range(SCATTERED, round->contributors, round->index, &first, &elements);
	for (size_t i = 0; i < elements; i++)
		if (output[i] != (float)round->contributors)
			return tr_error_set(error, TR_EINTERNAL, "element %zu is %g", i,
			    (double)output[i]);
	return TR_OK;
}

/* Until all contribute. */
static void *joiner_run(void *arg)
{
	struct joiner *j = arg;
	struct tr_error error = { 0 };
	struct tr_round round = { 0 };
	tr_group *group = j->host->group;
	float *output = tr_alloc(group, SCATTERED / 2 * sizeof(float)); /* an arena of its own */
	float *input = tr_alloc(group, SCATTERED * sizeof(float));
	assert_true(output != NULL && input != NULL);
	for (size_t i = 0; i < SCATTERED; i++)
		input[i] = 1;
	while (round.contributors < j->host->fx->count &&
	    (j->status == TR_OK || j->status == TR_ERESTART))
		j->status = scatter_round(group, input, output, &round, &error);
	(void)snprintf(j->text, sizeof(j->text), "%s", error.text);
	return NULL;
}

/* It has no block, so its output need not hold the others'. */
static void a_joiner_takes_part_in_a_reduce_scatter(void **state)
{
	(void)state;
	enum { N = 3 };
	struct fx *fx = fx_start(N, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_AUTO);
	struct joiner joiners[N];
	bool all[FX_HOSTS_MAX] = { true, true, true };
	for (unsigned i = 0; i < N; i++) {
		fx_ready(&fx->hosts[i]);
	}
	fx_found(fx, N - 1);
	for (unsigned i = 0; i < N; i++) {
		joiners[i] = (struct joiner){ .host = &fx->hosts[i] };
		assert_int_equal(pthread_create(&joiners[i].thread, NULL, joiner_run, &joiners[i]),
		    0);
	}
	FX_WAIT(fx, fx->hosts[0].records > 0 && fx->hosts[N - 1].ready);
	fx_change_view(fx, all);
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(pthread_join(joiners[i].thread, NULL), 0);
		if (joiners[i].status != TR_OK)
			fail_msg("peer %u: %s", i, joiners[i].text);
	}
	fx_stop(fx);
}

/* All collectives in one round, on three real engines. */
static void every_collective_in_one_round(void **state)
{
	(void)state;
	enum { N = 3, COUNT = 30000, PIECE = 40000 };
	void *memory[N];
	struct fx *fx = fx_begin(N, 8 * PIECE * sizeof(float), memory);
	struct tr_error error;
	for (unsigned i = 0; i < N; i++) {
		tr_group *group = fx->hosts[i].group;
		float *m = memory[i], *scatter = m, *gather = m + PIECE, *broadcast = m + 2 * PIECE,
		      *pair = m + 3 * PIECE, *coded = m + 4 * PIECE, *residual = m + 5 * PIECE,
		      *next = m + 6 * PIECE, *mine = m + 7 * PIECE;
		size_t first, elements;
		tr_block_range(COUNT, N, i, &first, &elements);
		for (size_t k = 0; k < COUNT; k++) {
			scatter[k] = (float)(k + i);
			coded[k] = (float)(k % 7);
			broadcast[k] = i == 1 ? (float)(k + 5) : -1;
			pair[k] = (float)(k + 100 * i);
		}
		for (size_t k = 0; k < elements; k++)
			gather[first + k] = (float)(first + k);
		assert_int_equal(tr_reduce_scatter(group, 1, scatter, mine, COUNT, TR_F32, TR_SUM,
		                     &error),
		    TR_OK);
		assert_int_equal(tr_allgather(group, 2, NULL, gather, COUNT, TR_F32, &error), TR_OK);
		assert_int_equal(tr_broadcast(group, 3, broadcast, COUNT, TR_F32, 1, &error), TR_OK);
		assert_int_equal(tr_barrier(group, 4, &error), TR_OK);
		if (i == 0)
			assert_int_equal(tr_send(group, 5, pair, COUNT, TR_F32, 2, &error), TR_OK);
		if (i == 2)
			assert_int_equal(tr_recv(group, 5, pair, COUNT, TR_F32, 0, &error), TR_OK);
		struct tr_op op = TR_OP_INIT;
		op.tag = 6;
		op.output = coded;
		op.count = COUNT;
		op.codec = TR_CODEC_INT8;
		op.reduce = TR_AVG;
		op.residual = residual;
		op.residual_next = next;
		op.beta = 1;
		assert_int_equal(tr_submit(group, &op, &error), TR_OK);
	}
	commit_all(fx, N);
	const float *first_coded = (float *)memory[0] + 4 * PIECE;
	for (unsigned i = 0; i < N; i++) {
		const float *m = memory[i], *mine = m + 7 * PIECE;
		size_t first, elements;
		tr_block_range(COUNT, N, i, &first, &elements);
		for (size_t k = 0; k < elements; k++)
			assert_true(mine[k] == (float)(3 * (first + k) + 3));
		for (size_t k = 0; k < COUNT; k++) {
			assert_true(m[PIECE + k] == (float)k);
			assert_true(m[2 * PIECE + k] == (float)(k + 5));
			assert_true(m[3 * PIECE + k] == (float)(k + (i == 1 ? 100 : 0)));
			assert_true(m[4 * PIECE + k] > (float)(k % 7) - 0.06f &&
			    m[4 * PIECE + k] < (float)(k % 7) + 0.06f);
		}
		assert_memory_equal(m + 4 * PIECE, first_coded, COUNT * sizeof(float));
	}
	fx_stop(fx);
}

static void thousands_of_ops_in_one_round(void **state)
{
	(void)state;
	void *memory[2];
	struct fx *fx = fx_begin(2, TR_ROUND_OPS_MAX * sizeof(float), memory);
	struct tr_error error;
	for (unsigned i = 0; i < 2; i++) {
		float *data = memory[i];
		for (uint32_t k = 0; k < TR_ROUND_OPS_MAX; k++) {
			/* All tags, each member in another order. */
			uint32_t tag = (k * (i == 0 ? 1237u : 2711u)) % TR_ROUND_OPS_MAX;
			data[tag] = (float)(tag + i);
			assert_int_equal(tr_allreduce(fx->hosts[i].group, tag, &data[tag], 1,
			                     TR_F32, TR_SUM, TR_CONTRIBUTE, &error),
			    TR_OK);
		}
	}
	assert_int_equal(tr_allreduce(fx->hosts[0].group, TR_ROUND_OPS_MAX, memory[0], 1, TR_F32,
	                     TR_SUM, TR_CONTRIBUTE, &error),
	    TR_ELIMIT);
	commit_all(fx, 2);
	for (unsigned i = 0; i < 2; i++)
		for (uint32_t tag = 0; tag < TR_ROUND_OPS_MAX; tag++)
			assert_true(((float *)memory[i])[tag] == (float)(2 * tag + 1));
	fx_stop(fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ops_outside_of_a_round_are_refused),
		cmocka_unit_test(values_that_no_op_can_have_are_refused_at_once),
		cmocka_unit_test(an_input_apart_from_the_output_stays_as_it_is),
		cmocka_unit_test(memory_of_two_ops_is_told_apart_exactly),
		cmocka_unit_test(residuals_share_memory_with_nothing_that_is_written),
		cmocka_unit_test(state_is_declared_once),
		cmocka_unit_test(as_much_state_as_there_may_be),
		cmocka_unit_test(a_unit_is_declared_in_one_go),
		cmocka_unit_test(nothing_is_written_into_declared_state),
		cmocka_unit_test(a_joiner_takes_part_in_a_reduce_scatter),
		cmocka_unit_test(every_collective_in_one_round),
		cmocka_unit_test(thousands_of_ops_in_one_round),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
