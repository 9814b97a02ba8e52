/* Callers that wait for a result before they commit: what they were given to read, and who closed the round without the op. */
#include "tests/unit/engine_fixture.h"

#include "collectives/engine/engine_internal.h"

#define KEEP    TRAIND__PEER__POLICY__POLICY_KEEP
#define UNIFORM TRAIND__PEER__POLICY__POLICY_UNIFORM
#define REPLAY  TRAIND__PEER__POLICY__POLICY_REPLAY
#define AUTO    TRAIND__PEER__ALGORITHM__ALGORITHM_AUTO

/* A peer's caller. Below `data` everything is under fx->lock. */
struct reader {
	struct fx_host *host;
	void (*play)(struct reader *reader);
	pthread_t thread;
	float *data; /* op i is element 16 i */
	unsigned submits;
	unsigned deadline_ms;
	bool may_wait, may_go;
	bool ready, late, has_read, done; /* late: a wait timed out */
	float seen, committed;
	tr_status status;
	struct tr_error error;
};

static void say(struct reader *reader, bool *what)
{
	pthread_mutex_lock(&reader->host->fx->lock);
	*what = true;
	pthread_cond_broadcast(&reader->host->fx->changed);
	pthread_mutex_unlock(&reader->host->fx->lock);
}

static void hear(struct reader *reader, const bool *what)
{
	pthread_mutex_lock(&reader->host->fx->lock);
	while (!*what)
		pthread_cond_wait(&reader->host->fx->changed, &reader->host->fx->lock);
	pthread_mutex_unlock(&reader->host->fx->lock);
}

static void *reader_run(void *arg)
{
	struct reader *reader = arg;
	reader->play(reader);
	say(reader, &reader->done);
	return NULL;
}

static void reader_start(struct reader *reader, struct fx_host *host)
{
	reader->host = host;
	fx_attach(host);
	host->group->op_deadline_ms = reader->deadline_ms;
	reader->data = tr_alloc(host->group, 4096);
	assert_non_null(reader->data);
	assert_int_equal(tr_state_ready(host->group, 0, NULL), TR_OK);
	assert_int_equal(pthread_create(&reader->thread, NULL, reader_run, reader), 0);
}

/* ---- what was read */

static tr_status wait_and_read(struct reader *reader)
{
	tr_status st = tr_wait(reader->host->group, 0, &reader->error);
	while (st == TR_ETIMEDOUT) {
		say(reader, &reader->late);
		st = tr_wait(reader->host->group, 0, &reader->error);
	}
	reader->seen = reader->data[0];
	say(reader, &reader->has_read);
	return st;
}

/* All-reduces of ones; the first one's result is read before the commit, and is the samples. */
static tr_status read_round(struct reader *reader)
{
	tr_group *group = reader->host->group;
	struct tr_round round;
	tr_status st;
	do
		st = tr_round_begin(group, &round, &reader->error);
	while (st == TR_ETIMEDOUT);
	for (unsigned op = 0; st == TR_OK && op < reader->submits; op++) {
		reader->data[16 * op] = 1;
		st = tr_allreduce(group, op, &reader->data[16 * op], 1, TR_F32, TR_SUM,
		    TR_CONTRIBUTE, &reader->error);
	}
	say(reader, &reader->ready);
	hear(reader, &reader->may_wait);
	if (st == TR_OK)
		st = wait_and_read(reader);
	if (st != TR_OK)
		return st;
	hear(reader, &reader->may_go);
	struct tr_commit commit = { .samples = (uint64_t)reader->seen };
	do
		st = tr_round_commit(group, &commit, &round, &reader->error);
	while (st == TR_ETIMEDOUT);
	return st;
}

static void play_reads(struct reader *reader)
{
	do
		reader->status = read_round(reader);
	while (reader->status == TR_ERESTART);
	reader->committed = reader->data[0];
}

static void may(struct fx *fx, bool *what)
{
	pthread_mutex_lock(&fx->lock);
	*what = true;
	pthread_cond_broadcast(&fx->changed);
	pthread_mutex_unlock(&fx->lock);
}

static void commits_what_it_read(struct reader *reader, float result)
{
	assert_int_equal(pthread_join(reader->thread, NULL), 0);
	if (reader->status != TR_OK)
		fail_msg("host %u: %s", reader->host->index, reader->error.text);
	assert_true(reader->committed == result);
	assert_true(reader->seen == result);
}

static void host_ends(struct fx *fx, struct reader *reader)
{
	fx_host_stop(reader->host);
	may(fx, &reader->may_wait);
	may(fx, &reader->may_go);
	assert_int_equal(pthread_join(reader->thread, NULL), 0);
}

/* 0 has read 3 from op 0 and says so at commit; then 2 dies without op 1, of which the others can only make 2. */
static void samples_are_of_the_result(void **state)
{
	static const Traind__Peer__Policy policies[] = { UNIFORM, KEEP, REPLAY };
	(void)state;
	for (unsigned p = 0; p < 3; p++) {
		struct fx *fx = fx_start(3, policies[p], AUTO);
		bool survivors[FX_HOSTS_MAX] = { true, true, false };
		struct reader readers[3] = { 0 };
		for (unsigned i = 0; i < 3; i++) {
			readers[i] = (struct reader){ .play = play_reads,
				.submits = i == 2 ? 1 : 2,
				.may_wait = i == 0,
				.may_go = i == 0 };
			reader_start(&readers[i], &fx->hosts[i]);
		}
		fx_found(fx, 3);
		FX_WAIT(fx, readers[0].has_read && readers[1].ready && readers[2].ready);
		assert_true(readers[0].seen == 3);
		host_ends(fx, &readers[2]);
		fx_change_view(fx, survivors);
		may(fx, &readers[1].may_wait);
		may(fx, &readers[1].may_go);
		/* What is sealed is kept with `keep`. */
		for (unsigned i = 0; i < 2; i++)
			commits_what_it_read(&readers[i], policies[p] == KEEP ? 3 : 2);
		fx_stop(fx);
	}
}

static void propose(struct fx *fx, const bool *members)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__ViewPropose propose = TRAIND__PEER__VIEW_PROPOSE__INIT;
	uint64_t ids[FX_HOSTS_MAX];
	propose.group = fx->group;
	propose.number = ++fx->view;
	propose.members = ids;
	for (unsigned i = 0; i < fx->count; i++)
		if (members[i])
			ids[propose.n_members++] = FX_PEER(i);
	message.body_case = TRAIND__PEER__TO_NODE__BODY_VIEW_PROPOSE;
	message.view_propose = &propose;
	fx_tell(fx, members, &message);
	for (unsigned i = 0; i < fx->count; i++)
		if (members[i])
			FX_WAIT(fx,
			    fx->hosts[i].report != NULL &&
			        fx->hosts[i].report->proposal == fx->view);
}

/* No survivor has read anything, so op 0 is redone. Before 3 is in the view it has no result, whatever was in place. */
static void a_redone_op_is_waited_for(void **state)
{
	struct fx *fx = fx_start(4, UNIFORM, AUTO);
	bool survivors[FX_HOSTS_MAX] = { true, true, false, true };
	bool quick[FX_HOSTS_MAX] = { true, true }, slow[FX_HOSTS_MAX] = { [3] = true };
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	struct reader readers[4] = { 0 };
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		readers[i] = (struct reader){ .play = play_reads,
			.submits = i == 2 ? 1 : 2,
			.may_wait = i == 2,
			.deadline_ms = i == 1 ? 300 : 0 };
		reader_start(&readers[i], &fx->hosts[i]);
	}
	fx_found(fx, 4);
	for (unsigned i = 0; i < 4; i++)
		FX_WAIT(fx, readers[i].ready);
	FX_WAIT(fx, readers[2].has_read);
	host_ends(fx, &readers[2]);
	propose(fx, survivors);
	fx_install(fx, survivors, quick);
	assert_false(fx->last->resume->restart);
	may(fx, &readers[1].may_wait);
	FX_WAIT(fx, readers[1].late || readers[1].has_read);
	assert_false(readers[1].has_read);
	message.body_case = TRAIND__PEER__TO_NODE__BODY_VIEW_INSTALL;
	message.view_install = fx->last;
	fx_tell(fx, slow, &message);
	for (unsigned i = 0; i < 4; i++) {
		may(fx, &readers[i].may_wait);
		may(fx, &readers[i].may_go);
	}
	for (unsigned i = 0; i < 4; i++)
		if (survivors[i])
			commits_what_it_read(&readers[i], 3);
	fx_stop(fx);
}

/* ---- 0 waits for op 5, 1 has closed the round without it */

enum { SUMS, BROADCASTS, RECEIVES, WAITS_KINDS };
static int kind;

static void play_waits(struct reader *reader)
{
	tr_group *group = reader->host->group;
	struct tr_round round;
	reader->status = tr_round_begin(group, &round, &reader->error);
	if (reader->host->index == 0) {
		if (kind == SUMS)
			(void)tr_allreduce(group, 5, reader->data, 1, TR_F32, TR_SUM, TR_CONTRIBUTE,
			    NULL);
		else if (kind == BROADCASTS)
			(void)tr_broadcast(group, 5, reader->data, 1, TR_F32, 1, NULL);
		else
			(void)tr_recv(group, 5, reader->data, 1, TR_F32, 1, NULL);
		reader->status = tr_wait(group, 5, &reader->error);
	} else {
		reader->status = tr_round_commit(group, NULL, &round, &reader->error);
	}
}

static void who_waits_for_an_op_of_nobody_is_told(void **state)
{
	(void)state;
	for (kind = 0; kind < WAITS_KINDS; kind++)
		for (unsigned near = 0; near < 2; near++) {
			struct fx *fx = fx_start(2, REPLAY, TRAIND__PEER__ALGORITHM__ALGORITHM_STAR);
			struct reader readers[2] = { { .play = play_waits },
				{ .play = play_waits } };
			fx->near = near;
			for (unsigned i = 0; i < 2; i++)
				reader_start(&readers[i], &fx->hosts[i]);
			fx_found(fx, 2);
			for (unsigned i = 0; i < 2; i++) {
				FX_WAIT(fx, readers[i].done);
				assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
				assert_int_equal(readers[i].status, TR_EMISMATCH);
				assert_non_null(strstr(readers[i].error.text, "10"));
				assert_non_null(strstr(readers[i].error.text, "11"));
			}
			fx_stop(fx);
		}
}

/* ---- a caller that is never idle */

#define BUSY_OPS 4000 /* of a round: some milliseconds */

/* It makes the engine's turns itself, whose thread is parked: timers and sockets have theirs, however its calls follow one another. */
static void a_busy_caller_lets_the_loop_run(void **state)
{
	(void)state;
	struct fx *fx = fx_start(1, KEEP, AUTO);
	struct engine *engine = fx->hosts[0].engine;
	struct tr_round round;
	fx->driving = true;
	fx_attach(&fx->hosts[0]);
	tr_group *group = fx->hosts[0].group;
	float *data = tr_alloc(group, BUSY_OPS * sizeof(*data));
	assert_non_null(data);
	assert_int_equal(tr_state_ready(group, 0, NULL), TR_OK);
	fx_found(fx, 1);
	for (unsigned first = 0; first < 4; first++) {
		const struct tr_commit commit = { .samples = 1 };
		assert_int_equal(tr_round_begin(group, &round, NULL), TR_OK);
		pthread_mutex_lock(&engine->turn);
		uint64_t looped_ns = engine->looped_ns;
		engine->looks = first;
		pthread_mutex_unlock(&engine->turn);
		for (uint32_t tag = 0; tag < BUSY_OPS; tag++) {
			struct tr_error error = { 0 };
			if (tr_allreduce(group, tag, data + tag, 1, TR_F32, TR_SUM, TR_CONTRIBUTE,
			        &error) != TR_OK ||
			    tr_wait(group, tag, &error) != TR_OK)
				fail_msg("op %u: %s", tag, error.text);
		}
		assert_true(engine->looped_ns != looped_ns);
		assert_int_equal(tr_round_commit(group, &commit, &round, NULL), TR_OK);
	}
	fx_stop(fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(samples_are_of_the_result),
		cmocka_unit_test(a_redone_op_is_waited_for),
		cmocka_unit_test(who_waits_for_an_op_of_nobody_is_told),
		cmocka_unit_test(a_busy_caller_lets_the_loop_run),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
