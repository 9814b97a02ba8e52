/* Questions about a member and what its engine tells, both ends of the channel together. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/channel_ends.h"

struct asker {
	struct channel_worker *worker;
	struct channel_question question;
	struct channel_told told;
	struct tr_link links[TR_GROUP_PEERS_MAX];
	tr_status status;
	struct tr_error error;
};

static void *ask(void *arg)
{
	struct asker *asker = arg;
	asker->status = channel_worker_ask(asker->worker, &asker->question, &asker->told,
	    asker->links, &asker->error);
	return NULL;
}

static void await_question(struct ends *ends, struct channel_question *question)
{
	struct pollfd wait = { .fd = ends->host->own_bell, .events = POLLIN };
	while (!channel_host_question(ends->host, question))
		assert_int_equal(poll(&wait, 1, 60000), 1);
}

/* The worker copies no more than there is room for, whatever the page says. */
static void questions_are_answered(void **state)
{
	struct ends *ends = *state;
	static struct asker asker;
	static struct tr_link links[TR_GROUP_PEERS_MAX];
	struct channel_told told = { .count = TR_GROUP_PEERS_MAX };
	struct channel_question question;
	pthread_t thread;
	assert_false(channel_host_question(ends->host, &question));
	for (unsigned round = 0; round < 3; round++) {
		asker = (struct asker){ .worker = ends->worker,
			.question = { .kind = CHANNEL_LINKS, .count = round } };
		assert_int_equal(pthread_create(&thread, NULL, ask, &asker), 0);
		await_question(ends, &question);
		assert_int_equal(question.kind, CHANNEL_LINKS);
		assert_int_equal(question.count, round);
		assert_false(channel_host_question(ends->host, &question)); /* only once */
		for (unsigned i = 0; i < TR_GROUP_PEERS_MAX; i++)
			links[i].peer = round + i;
		told.count = round == 0 ? 3 : TR_GROUP_PEERS_MAX;
		if (round == 2) { /* an engine that is out of its mind */
			struct channel_control *control = ends->host->control;
			control->of_question.count = UINT32_MAX;
			memset(control->of_question.text, 'x', sizeof(control->of_question.text));
			control->of_question.status = TR_EINTERNAL;
			atomic_store(&control->told, ends->host->told);
			uint64_t one = 1;
			assert_int_equal(write(ends->host->question_bell, &one, sizeof(one)),
			    sizeof(one));
		} else {
			channel_host_tell(ends->host, &told, links);
		}
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_int_equal(asker.status, round == 2 ? TR_EINTERNAL : TR_OK);
		assert_int_equal(asker.told.count, round == 0 ? 3 : TR_GROUP_PEERS_MAX);
		assert_int_equal(asker.links[2].peer, round == 2 ? 3 : round + 2);
	}
	assert_int_equal(strlen(asker.error.text), TR_ERROR_TEXT_MAX - 1);
}

/* The question has come; nothing is told yet. */
static pthread_t ask_for_stats(struct ends *ends, struct asker *asker)
{
	struct channel_question question;
	pthread_t thread;
	*asker = (struct asker){ .worker = ends->worker, .question = { .kind = CHANNEL_STATS } };
	assert_int_equal(pthread_create(&thread, NULL, ask, asker), 0);
	await_question(ends, &question);
	return thread;
}

static void a_question_ends_with_the_member(void **state)
{
	struct ends *ends = *state;
	static struct asker asker;
	pthread_t thread = ask_for_stats(ends, &asker);
	channel_host_end(ends->host, TR_EEVICTED, "it was too slow");
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(asker.status, TR_EEVICTED);
	assert_string_equal(asker.error.text, "it was too slow");
}

static void a_question_ends_with_the_engine(void **state)
{
	struct ends *ends = *state;
	static struct asker asker;
	pthread_t thread = ask_for_stats(ends, &asker);
	channel_host_destroy(ends->host);
	ends->host = NULL;
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(asker.status, TR_EUNAVAILABLE);
	assert_string_equal(asker.error.text, "traind is gone");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_ENDS(questions_are_answered),
		WITH_ENDS(a_question_ends_with_the_member),
		WITH_ENDS(a_question_ends_with_the_engine),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
