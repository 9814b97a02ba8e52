/* Ops in turn, which the callers of one engine's members make among themselves: what they get, that the engine sees none of it, and that everything that can go wrong ends as it does with the engine. */
#include "tests/unit/engine_in_turn.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/kernels/reduce.h"

#define COUNT   1003
#define WORKERS 3

/* ---- what they get ---- */

struct caller {
	pthread_t thread;
	struct fx_host *host;
	void *memory;
	const struct tr_op *op; /* memory excepted */
	bool apart;             /* the input lies apart */
	struct tr_error error;
	tr_status status;
	uint64_t engine_ops; /* that the engine was told of */
};

static void fill(const struct caller *c, uint8_t *to, size_t bytes)
{
	unsigned self = c->host->index;
	for (size_t i = 0; c->op->dtype == TR_F32 && i < bytes / 4; i++)
		((float *)(void *)to)[i] = 0.1f * (float)(i % 37 + 1) + 1e-3f * (float)self;
	for (size_t i = 0; c->op->dtype == TR_F64 && i < bytes / 8; i++)
		((double *)(void *)to)[i] = 0.1 * (double)(i % 37 + 1) + 1e-3 * self;
	for (size_t i = 0; c->op->dtype != TR_F32 && c->op->dtype != TR_F64 && i < bytes; i++)
		to[i] = (uint8_t)(i * 7 + 3 * self) & 0x3f;
}

static void *make(void *arg)
{
	struct caller *c = arg;
	struct tr_op op = *c->op;
	size_t bytes = op.count * reduce_element_bytes(op.dtype);
	uint8_t *output = c->memory, *input = output + bytes + 64 - bytes % 64;
	size_t first, own;
	tr_block_range(op.count, op.scope.count, c->host->index, &first, &own);
	uint64_t before = atomic_load(&channel_worker_control(c->host->group->channel)->submitted);
	fill(c, input, bytes);
	memset(output, 0, bytes);
	op.output = output;
	op.input = c->apart ? input : NULL;
	if (op.collective == TR_ALL_GATHER && c->apart)
		op.input = input + first * reduce_element_bytes(op.dtype);
	if (!c->apart)
		memcpy(output, input, bytes);
	if (c->apart && op.collective == TR_REDUCE_SCATTER)
		op.output = output + first * reduce_element_bytes(op.dtype);
	c->status = tr_submit(c->host->group, &op, &c->error);
	if (c->status == TR_OK)
		c->status = tr_wait(c->host->group, op.tag, &c->error);
	if (c->status == TR_OK)
		c->status = tr_wait(c->host->group, op.tag, &c->error); /* as often as it likes */
	c->engine_ops = atomic_load(&channel_worker_control(c->host->group->channel)->submitted) -
	    before;
	return NULL;
}

static void release_all(struct fx *fx, unsigned count, uint32_t tag)
{
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(tr_release(fx->hosts[i].group, tag, NULL), TR_OK);
}

static void make_all(struct fx *fx, struct caller *callers, unsigned count, const struct tr_op *op,
    bool apart, void **memory)
{
	for (unsigned i = 0; i < count; i++) {
		callers[i] = (struct caller){ .host = &fx->hosts[i],
			.memory = memory[i],
			.op = op,
			.apart = apart };
		assert_int_equal(pthread_create(&callers[i].thread, NULL, make, &callers[i]), 0);
	}
	for (unsigned i = 0; i < count; i++) {
		assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
		if (callers[i].status != TR_OK)
			fail_msg("%u: %s", i, callers[i].error.text);
	}
}

/* What member `self` is to have of it, in its place among the elements of the whole. */
static void expect(const struct tr_op *op, unsigned self, void **memory, unsigned members,
    uint8_t *expected, size_t *first, size_t *count)
{
	size_t element = reduce_element_bytes(op->dtype), bytes = op->count * element;
	const void *inputs[WORKERS];
	*first = 0;
	*count = op->count;
	if (op->collective == TR_REDUCE_SCATTER)
		tr_block_range(op->count, members, self, first, count);
	for (unsigned i = 0; i < members; i++) {
		size_t begin, own;
		inputs[i] = (uint8_t *)memory[i] + bytes + 64 - bytes % 64;
		tr_block_range(op->count, members, i, &begin, &own);
		if (op->collective == TR_ALL_GATHER)
			memcpy(expected + begin * element,
			    (const uint8_t *)inputs[i] + begin * element, own * element);
	}
	if (op->collective == TR_ALL_GATHER)
		return;
	reduce_combine_many(op->dtype, op->reduce, expected, inputs, members, op->count);
	if (op->reduce == TR_AVG)
		reduce_divide(op->dtype, expected, op->count, members);
}

static void the_results_are_those_of_the_members_in_order(void **state)
{
	(void)state;
	static const enum tr_collective collectives[] = { TR_ALL_REDUCE, TR_REDUCE_SCATTER,
		TR_ALL_GATHER };
	static const size_t counts[] = { 0, 1, 2, COUNT, 70000 };
	const size_t most = 70000 * sizeof(double);
	void *memory[WORKERS];
	struct caller callers[WORKERS];
	uint8_t *expected = malloc(most);
	struct fx *fx = fx_common(WORKERS, 0, TRAIND__PEER__POLICY__POLICY_REPLAY, 2 * most + 128,
	    memory);
	struct tr_op op = op_in_turn(0, NULL, 0, WORKERS);
	assert_non_null(expected);
	for (unsigned n = 0; n < 3 * 5 * 7 * 2; n++, op.tag++) {
		bool apart = n % 2 != 0;
		op.collective = collectives[n / 2 % 3];
		op.count = counts[n / 6 % 5];
		op.dtype = (enum tr_dtype)(TR_F32 + n / 30 % 7);
		op.reduce = (enum tr_reduce)(TR_SUM + (n + n / 7) % 5);
		make_all(fx, callers, WORKERS, &op, apart, memory);
		for (unsigned i = 0; i < WORKERS; i++) {
			size_t first, count, element = reduce_element_bytes(op.dtype);
			bool rounded = op.collective != TR_ALL_GATHER && op.reduce == TR_AVG &&
			    reduce_is_wide(op.dtype);
			expect(&op, i, memory, WORKERS, expected, &first, &count);
			if (rounded) { /* once, by the engine */
				assert_true(callers[i].engine_ops > 1);
				continue;
			}
			assert_memory_equal((uint8_t *)memory[i] + first * element,
			    expected + first * element, count * element);
			assert_int_equal(callers[i].engine_ops, n == 0); /* that there are such */
		}
		release_all(fx, WORKERS, op.tag);
	}
	free(expected);
	fx_stop(fx);
}

/* The bits that the engine gives in a group whose bits depend on nothing. */
static void what_is_too_large_goes_to_the_engine(void **state)
{
	(void)state;
	const size_t count = COMMONS_BODY_MAX / 2 / sizeof(float) + 1;
	void *memory[WORKERS];
	struct caller callers[WORKERS];
	struct fx *fx = fx_common(WORKERS, 0, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    2 * count * sizeof(float) + 256, memory);
	struct tr_op op = op_in_turn(3, NULL, count, WORKERS);
	op.reduce = TR_MAX;
	make_all(fx, callers, WORKERS, &op, false, memory);
	for (unsigned i = 0; i < WORKERS; i++) {
		assert_true(callers[i].engine_ops > 1);
		assert_memory_equal(memory[i], memory[0], count * sizeof(float));
	}
	release_all(fx, WORKERS, op.tag++);
	op.count = count - 1; /* which does not */
	make_all(fx, callers, WORKERS, &op, false, memory);
	for (unsigned i = 0; i < WORKERS; i++)
		assert_int_equal(callers[i].engine_ops, 1); /* told of scopes */
	fx_stop(fx);
}

static void who_is_elsewhere_is_reached_by_the_engine(void **state)
{
	(void)state;
	void *memory[WORKERS];
	struct caller callers[WORKERS];
	struct fx *fx = fx_common(WORKERS, 1, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    2 * COUNT * sizeof(float) + 256, memory);
	struct tr_op op = op_in_turn(3, NULL, COUNT, WORKERS);
	op.reduce = TR_MIN;
	make_all(fx, callers, WORKERS, &op, false, memory);
	for (unsigned i = 0; i < WORKERS; i++)
		assert_memory_equal(memory[i], memory[0], COUNT * sizeof(float));
	release_all(fx, WORKERS, op.tag++);
	op.scope.count = 2; /* who share an engine */
	make_all(fx, callers, 2, &op, false, memory);
	assert_memory_equal(memory[1], memory[0], COUNT * sizeof(float));
	assert_int_equal(callers[0].engine_ops, 1);
	fx_stop(fx);
}

/* NaNs too, wherever their memory lies. */
static void all_have_the_same_bits(void **state)
{
	(void)state;
	void *memory[2];
	struct tr_error error = { 0 };
	struct fx *fx = fx_common(2, 0, TRAIND__PEER__POLICY__POLICY_REPLAY, 8192, memory);
	float *data[2] = { (float *)memory[0] + 3, (float *)memory[1] + 8 };
	for (unsigned i = 0; i < 2; i++) {
		for (unsigned k = 0; k < COUNT; k++) {
			uint32_t sign = i == 0 && k % 3 == 0 ? 0x80000000u : 0;
			uint32_t bits = 0x7fc00000u | (k * 2 + i) | sign;
			memcpy(&data[i][k], &bits, sizeof(bits));
		}
		const struct tr_op op = op_in_turn(1, data[i], COUNT, 2);
		fx->hosts[i]
		    .group->turn.told = true; /* no engine is asked: one thread does for both */
		assert_int_equal(tr_submit(fx->hosts[i].group, &op, &error), TR_OK);
	}
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(tr_wait(fx->hosts[i].group, 1, &error), TR_OK);
	assert_memory_equal(data[0], data[1], COUNT * sizeof(float));
	fx_stop(fx);
}

/* ---- what is asked of the caller ---- */

static void an_op_in_turn_is_waited_for_before_the_next(void **state)
{
	(void)state;
	void *memory[2];
	struct tr_error error = { 0 };
	const struct tr_block row = { 1, { 4 }, { 2 } };
	struct fx *fx = fx_common(2, 0, TRAIND__PEER__POLICY__POLICY_REPLAY, 4096, memory);
	tr_group *group = fx->hosts[0].group;
	struct tr_op op = op_in_turn(1, memory[0], 4, 0);
	assert_int_equal(tr_submit(group, &op, &error), TR_EINVAL);
	assert_string_equal(error.text, "op 1: only contiguous ops in a scope have TR_IN_TURN");
	op = op_in_turn(1, memory[0], 4, 2);
	op.output_block = &row;
	assert_int_equal(tr_submit(group, &op, &error), TR_EINVAL);
	op.output_block = NULL;
	assert_int_equal(tr_submit(group, &op, &error), TR_OK);
	op = op_in_turn(2, (float *)memory[0] + 8, 4, 2);
	assert_int_equal(tr_submit(group, &op, &error), TR_EINVAL);
	assert_string_equal(error.text,
	    "op 2 has TR_IN_TURN, and op 1, which has it too, was not waited for");
	op.flags &= ~(unsigned)TR_IN_TURN; /* any other may be under way meanwhile */
	assert_int_equal(tr_submit(group, &op, &error), TR_OK);
	assert_int_equal(tr_release(group, 1, &error), TR_EINVAL);
	assert_string_equal(error.text, "release: op 1 was not waited for");
	assert_int_equal(tr_wait_for(group, 1, 30, &error), TR_ETIMEDOUT);
	assert_string_equal(error.text, "wait of round 1 waited 30 ms for peer 11 (of this node)");
	assert_int_equal(tr_wait_for(group, 1, 0, &error), TR_ETIMEDOUT);
	fx_stop(fx);
}

static void *commit(void *arg)
{
	struct caller *c = arg;
	struct tr_round round;
	struct tr_op op = *c->op;
	op.output = c->memory;
	c->status = tr_submit(c->host->group, &op, &c->error);
	if (c->status == TR_OK)
		c->status = tr_round_commit(c->host->group, NULL, &round, &c->error);
	return NULL;
}

static void a_commit_waits_for_it_and_counts_it(void **state)
{
	(void)state;
	void *memory[2];
	struct caller callers[2];
	struct tr_error error = { 0 };
	struct fx *fx = fx_common(2, 0, TRAIND__PEER__POLICY__POLICY_REPLAY, 4096, memory);
	const struct tr_op op = op_in_turn(1, NULL, 9, 2);
	for (unsigned i = 0; i < 2; i++) {
		for (unsigned k = 0; k < 9; k++)
			((float *)memory[i])[k] = (float)(k + i);
		callers[i] = (struct caller){ .host = &fx->hosts[i],
			.memory = memory[i],
			.op = &op };
		assert_int_equal(pthread_create(&callers[i].thread, NULL, commit, &callers[i]), 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		struct tr_stats stats = TR_STATS_INIT;
		assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
		assert_int_equal(callers[i].status, TR_OK);
		for (unsigned k = 0; k < 9; k++)
			assert_true(((float *)memory[i])[k] == (float)(2 * k + 1));
		assert_int_equal(tr_stats_get(fx->hosts[i].group, &stats, &error), TR_OK);
		assert_int_equal(stats.ops[TR_ALL_REDUCE], 1);
		assert_int_equal(stats.op_bytes[TR_ALL_REDUCE], 36);
	}
	fx_stop(fx);
}

/* ---- what can go wrong ---- */

static void *make_other(void *arg)
{
	struct caller *c = arg;
	struct tr_op op = *c->op;
	op.output = c->memory;
	c->status = tr_submit(c->host->group, &op, &c->error);
	if (c->status == TR_OK ||
	    c->status == TR_ERESTART) /* what ended it is said by the next call */
		c->status = tr_wait(c->host->group, op.tag, &c->error);
	return NULL;
}

static unsigned failed(const struct fx *fx, unsigned count)
{
	unsigned failed = 0;
	for (unsigned i = 0; i < count; i++)
		failed += fx->hosts[i].failed != TR_OK;
	return failed;
}

/* Three, of whom the last says something else. */
static void differ(const struct tr_op *op, const struct tr_op *other)
{
	void *memory[WORKERS];
	struct caller callers[WORKERS];
	struct fx *fx = fx_common(WORKERS, 0, TRAIND__PEER__POLICY__POLICY_REPLAY,
	    COMMONS_BODY_MAX + 4096, memory);
	for (unsigned i = 0; i < WORKERS; i++) {
		callers[i] = (struct caller){ .host = &fx->hosts[i],
			.memory = memory[i],
			.op = i == WORKERS - 1 ? other : op };
		assert_int_equal(pthread_create(&callers[i].thread, NULL, make_other, &callers[i]),
		    0);
	}
	/* Whoever finds it out first says so; memberd then ends the others. */
	FX_WAIT(fx, failed(fx, WORKERS) >= 2);
	for (unsigned i = 0; i < WORKERS; i++)
		engine_remove(fx->hosts[0].engine, fx->group, FX_PEER(i), "the group is over");
	unsigned mismatches = 0;
	for (unsigned i = 0; i < WORKERS; i++) {
		assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
		bool named = callers[i].status == TR_EMISMATCH &&
		    strstr(callers[i].error.text, "op 5") != NULL;
		if (!named && callers[i].status != TR_ECANCELLED)
			fail_msg("%u: %s: %s", i, tr_status_name(callers[i].status),
			    callers[i].error.text);
		mismatches += named;
	}
	assert_true(mismatches >= 2);
	fx_stop(fx);
}

static void who_says_something_else_is_named_by_the_engines(void **state)
{
	(void)state;
	const struct tr_op op = op_in_turn(5, NULL, 10, WORKERS);
	struct tr_op other = op;
	other.count = 11;
	differ(&op, &other);
	other.count = COMMONS_BODY_MAX / sizeof(float); /* which goes to the engine at once */
	differ(&op, &other);
	other = op;
	other.reduce = TR_MAX;
	differ(&op, &other);
	other = op;
	other.codec = TR_CODEC_BF16;
	differ(&op, &other);
}

static tr_status sum(tr_group *group, uint32_t tag, float *data, unsigned members,
    struct tr_error *error)
{
	const struct tr_op op = op_in_turn(tag, data, COUNT, members);
	tr_status st = tr_submit(group, &op, error);
	return st == TR_OK ? tr_wait(group, tag, error) : st;
}

/* Sums for ever, by itself: the worker's process. */
static void child(int fd, int said, unsigned stop_at)
{
	tr_group *group;
	struct tr_error error;
	struct tr_round round;
	if (coll_group_open(fd, &group, &error) != TR_OK)
		_exit(1);
	float *data = tr_alloc(group, 2 * COUNT * sizeof(float));
	if (data == NULL || tr_state_ready(group, 0, &error) != TR_OK ||
	    tr_round_begin(group, &round, &error) != TR_OK)
		_exit(2);
	for (uint32_t tag = 0; tag < stop_at; tag++)
		if (sum(group, tag, data + tag % 2 * COUNT, 2, &error) != TR_OK ||
		    (tag > 0 && tr_release(group, tag - 1, &error) != TR_OK))
			_exit(3);
	if (write(said, "x", 1) != 1)
		_exit(4);
	for (;;)
		(void)pause();
}

struct survivor {
	pthread_t thread;
	struct fx_host *host;
	float *data;
	struct tr_error error;
	tr_status first, then;
	bool again; /* under fx->lock */
};

/* Until the other is lost; then, alone, the same round. */
static void *survive(void *arg)
{
	struct survivor *s = arg;
	struct tr_round round;
	tr_group *group = s->host->group;
	for (uint32_t tag = 0; s->first == TR_OK; tag++) {
		s->first = sum(group, tag, s->data + tag % 2 * COUNT, 2, &s->error);
		if (s->first == TR_OK && tag > 0)
			s->first = tr_release(group, tag - 1, &s->error);
	}
	pthread_mutex_lock(&s->host->fx->lock);
	s->again = true;
	pthread_cond_broadcast(&s->host->fx->changed);
	pthread_mutex_unlock(&s->host->fx->lock);
	s->then = tr_round_begin(group, &round, &s->error);
	for (unsigned k = 0; k < COUNT; k++)
		s->data[k] = (float)k;
	if (s->then == TR_OK)
		s->then = sum(group, 0, s->data, 1, &s->error);
	if (s->then == TR_OK)
		s->then = tr_round_commit(group, NULL, &round, &s->error);
	return NULL;
}

static void a_worker_is_killed(Traind__Peer__Policy policy, unsigned at)
{
	int ends[2], said[2];
	char byte;
	struct tr_round round;
	assert_int_equal(channel_pair(ends, NULL), TR_OK);
	assert_int_equal(pipe(said), 0);
	pid_t pid = fork(); /* before there are threads */
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)close(ends[0]);
		child(ends[1], said[1], at);
	}
	(void)close(ends[1]);
	struct fx *fx = fx_start(1, policy, TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct survivor survivor = { .host = &fx->hosts[0] };
	const bool rest[FX_HOSTS_MAX] = { true };
	fx_share(fx, 1, &fx->hosts[0]);
	fx_add_worker(&fx->hosts[1], ends[0]);
	fx_ready(&fx->hosts[0]);
	survivor.data = tr_alloc(fx->hosts[0].group, 2 * COUNT * sizeof(float));
	assert_non_null(survivor.data);
	fx_found(fx, 2);
	assert_int_equal(tr_round_begin(fx->hosts[0].group, &round, NULL), TR_OK);
	assert_int_equal(pthread_create(&survivor.thread, NULL, survive, &survivor), 0);
	assert_int_equal(read(said[0], &byte, 1), 1);
	(void)kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	FX_WAIT(fx, fx->hosts[1].gone);
	fx_change_view(fx, rest);
	/* Whose first op in turn came too late for its report to say so asks for another view. */
	FX_WAIT(fx, survivor.again || fx->hosts[0].link_lost > 0);
	if (!survivor.again)
		fx_change_view(fx, rest);
	assert_int_equal(pthread_join(survivor.thread, NULL), 0);
	if (survivor.first != TR_ERESTART || survivor.then != TR_OK)
		fail_msg("%s, %s: %s", tr_status_name(survivor.first),
		    tr_status_name(survivor.then), survivor.error.text);
	for (unsigned k = 0; k < COUNT; k++)
		assert_true(survivor.data[k] == (float)k);
	(void)close(said[0]);
	(void)close(said[1]);
	fx_stop(fx);
}

/* Whatever the policy: what they use are scopes. */
static void who_waits_for_one_that_was_killed_begins_again(void **state)
{
	(void)state;
	for (unsigned at = 0; at < 4; at++) {
		a_worker_is_killed(TRAIND__PEER__POLICY__POLICY_REPLAY, at);
		a_worker_is_killed(TRAIND__PEER__POLICY__POLICY_KEEP, at);
		a_worker_is_killed(TRAIND__PEER__POLICY__POLICY_UNIFORM, at);
	}
}

static void *sum_once(void *arg)
{
	struct survivor *s = arg;
	s->first = sum(s->host->group, 1, s->data, 2, &s->error);
	return NULL;
}

/* Views in which nobody is lost disturb it as little as any op. */
static void a_view_comes_in_the_middle(void **state)
{
	(void)state;
	void *memory[2];
	struct fx *fx = fx_common(2, 0, TRAIND__PEER__POLICY__POLICY_REPLAY, COUNT * sizeof(float),
	    memory);
	const bool both[FX_HOSTS_MAX] = { true, true };
	struct survivor first = { .host = &fx->hosts[0], .data = memory[0] };
	struct survivor second = { .host = &fx->hosts[1], .data = memory[1] };
	assert_int_equal(pthread_create(&first.thread, NULL, sum_once, &first), 0);
	fx_change_view(fx, both);
	(void)usleep(20000);
	fx_change_view(fx, both);
	assert_int_equal(pthread_create(&second.thread, NULL, sum_once, &second), 0);
	assert_int_equal(pthread_join(first.thread, NULL), 0);
	assert_int_equal(pthread_join(second.thread, NULL), 0);
	assert_int_equal(first.first, TR_OK);
	assert_int_equal(second.first, TR_OK);
	fx_stop(fx);
}

/* So memberd finds one that stands still. */
static void heartbeats_say_who_is_waited_for(void **state)
{
	(void)state;
	void *memory[2];
	struct engine_progress rows[2];
	struct fx *fx = fx_common(2, 0, TRAIND__PEER__POLICY__POLICY_REPLAY, COUNT * sizeof(float),
	    memory);
	struct survivor first = { .host = &fx->hosts[0], .data = memory[0] };
	bool seen = false;
	assert_int_equal(pthread_create(&first.thread, NULL, sum_once, &first), 0);
	for (unsigned n = 0; !seen && n < 10000; n++) {
		(void)usleep(1000);
		size_t count = engine_progress(fx->hosts[0].engine, rows, 2);
		for (size_t i = 0; i < count; i++)
			seen = seen ||
			    (rows[i].peer == FX_PEER(0) && rows[i].waiting &&
			        rows[i].waits_for_count == 1 && rows[i].waits_for[0] == FX_PEER(1));
	}
	assert_true(seen);
	fx->hosts[1].group->turn.told = true;
	assert_int_equal(sum(fx->hosts[1].group, 1, memory[1], 2, NULL), TR_OK);
	assert_int_equal(pthread_join(first.thread, NULL), 0);
	assert_int_equal(first.first, TR_OK);
	assert_true(engine_progress(fx->hosts[0].engine, rows, 2) == 2);
	for (unsigned i = 0; i < 2; i++)
		assert_false(rows[i].waits_for_count == 1 && rows[i].waits_for[0] == FX_PEER(1));
	fx_stop(fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_results_are_those_of_the_members_in_order),
		cmocka_unit_test(what_is_too_large_goes_to_the_engine),
		cmocka_unit_test(who_is_elsewhere_is_reached_by_the_engine),
		cmocka_unit_test(all_have_the_same_bits),
		cmocka_unit_test(an_op_in_turn_is_waited_for_before_the_next),
		cmocka_unit_test(a_commit_waits_for_it_and_counts_it),
		cmocka_unit_test(who_says_something_else_is_named_by_the_engines),
		cmocka_unit_test(who_waits_for_one_that_was_killed_begins_again),
		cmocka_unit_test(a_view_comes_in_the_middle),
		cmocka_unit_test(heartbeats_say_who_is_waited_for),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
