/* Seats, entries and stamps of the commons, by threads and by processes that die in the middle. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/transport/commons.h"

#define BIT(seat) (UINT64_C(1) << (seat))

struct room {
	int fd;
	struct commons_own own[4];
};

static int begin(void **state)
{
	static struct room room;
	struct tr_error error;
	assert_int_equal(commons_create(&room.fd, &error), TR_OK);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(commons_open(room.fd, i, 10 + i, &room.own[i], &error), TR_OK);
	*state = &room;
	return 0;
}

static int end(void **state)
{
	struct room *room = *state;
	for (unsigned i = 0; i < 4; i++)
		commons_close(&room->own[i]);
	(void)close(room->fd);
	return 0;
}

static void show(struct commons_own *own, const struct commons_op *op, const char *text,
    uint64_t readers)
{
	assert_int_equal(0, commons_unread(own, op));
	(void)strcpy(commons_write(own, op, readers), text);
	commons_show(own);
}

static void a_seat_is_its_peers(void **state)
{
	struct room *room = *state;
	struct commons_own other;
	struct tr_error error;
	assert_int_equal(commons_peer(&room->own[0], 2), 12);
	assert_int_equal(commons_peer(&room->own[0], 4), 0);
	assert_int_equal(commons_open(room->fd, COMMONS_SEATS, 1, &other, &error), TR_EPROTO);
	assert_int_equal(commons_open(0, 1, 1, &other, &error), TR_EPROTO); /* no such memory */
}

static void an_entry_is_read_by_its_name_alone(void **state)
{
	struct room *room = *state;
	struct commons_shown shown;
	const struct commons_op op = { 3, 2, 77, 5 };
	const struct commons_op others[] = { { 4, 2, 77, 5 }, { 3, 1, 77, 5 }, { 3, 2, 77, 6 } };
	const struct commons_op differs = { 3, 2, 78, 5 };
	assert_int_equal(commons_look(&room->own[0], 1, &op, &shown), COMMONS_NOT_YET);
	(void)commons_write(&room->own[1], &op, BIT(0));
	assert_int_equal(commons_look(&room->own[0], 1, &op, &shown), COMMONS_NOT_YET);
	commons_show(&room->own[1]);
	assert_int_equal(commons_look(&room->own[0], 1, &op, &shown), COMMONS_SHOWN);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(commons_look(&room->own[0], 1, &others[i], &shown),
		    COMMONS_NOT_YET);
	assert_int_equal(commons_look(&room->own[0], 1, &differs, &shown), COMMONS_ELSEWHERE);
}

static void what_is_passed_is_elsewhere(void **state)
{
	struct room *room = *state;
	struct commons_shown shown;
	const struct commons_op op = { 3, 2, 77, 5 }, next = { 3, 2, 77, 6 };
	commons_pass(&room->own[1], &op);
	assert_int_equal(commons_look(&room->own[0], 1, &op, &shown), COMMONS_ELSEWHERE);
	assert_int_equal(commons_look(&room->own[0], 1, &next, &shown), COMMONS_NOT_YET);
	commons_pass(&room->own[1], &next);
	assert_int_equal(commons_look(&room->own[0], 1, &op, &shown), COMMONS_NOT_YET);
	assert_int_equal(commons_look(&room->own[0], 1, &next, &shown), COMMONS_ELSEWHERE);
}

/* But for what was shown before. */
static void after_its_end_an_attempt_has_no_more_ops(void **state)
{
	struct room *room = *state;
	struct commons_shown shown;
	const struct commons_op op = { 3, 2, 77, 5 }, next = { 3, 2, 77, 6 };
	const struct commons_op again = { 3, 3, 77, 6 }, later = { 4, 2, 77, 6 };
	show(&room->own[1], &op, "five", BIT(0));
	commons_end(&room->own[1], &op);
	assert_int_equal(commons_look(&room->own[0], 1, &op, &shown), COMMONS_SHOWN);
	assert_int_equal(commons_look(&room->own[0], 1, &next, &shown), COMMONS_ELSEWHERE);
	assert_int_equal(commons_look(&room->own[0], 1, &again, &shown), COMMONS_NOT_YET);
	assert_int_equal(commons_look(&room->own[0], 1, &later, &shown), COMMONS_NOT_YET);
	commons_end(&room->own[1], NULL); /* it was not the end */
	assert_int_equal(commons_look(&room->own[0], 1, &next, &shown), COMMONS_NOT_YET);
}

static void an_entry_is_kept_until_all_have_read_it(void **state)
{
	struct room *room = *state;
	struct commons_shown shown;
	struct commons_op op = { 1, 1, 7, 0 }, third = { 1, 1, 7, 2 };
	for (op.tag = 0; op.tag < 2; op.tag++)
		show(&room->own[0], &op, op.tag == 0 ? "zero" : "one", BIT(1) | BIT(2));
	assert_int_not_equal(0, commons_unread(&room->own[0], &third));
	op.tag = 0;
	for (unsigned i = 1; i < 3; i++) {
		assert_int_not_equal(0, commons_unread(&room->own[0], &third));
		assert_int_equal(commons_look(&room->own[i], 0, &op, &shown), COMMONS_SHOWN);
		assert_string_equal(shown.body, "zero");
		commons_read(&room->own[i], 0, &shown);
	}
	show(&room->own[0], &third, "two", BIT(1));
	assert_false(commons_still(&room->own[1], 0, &shown));
	op.tag = 1;
	assert_int_equal(commons_look(&room->own[2], 0, &op, &shown), COMMONS_SHOWN);
	assert_string_equal(shown.body, "one");
}

/* Nobody reads what an attempt that was given up has left, nor need anybody have read it. */
static void another_attempt_waits_for_no_reader(void **state)
{
	struct room *room = *state;
	struct commons_shown before, shown;
	struct commons_op op = { 1, 1, 7, 0 };
	show(&room->own[0], &op, "old", BIT(1));
	assert_int_equal(commons_look(&room->own[1], 0, &op, &before), COMMONS_SHOWN);
	op.tag = 1;
	show(&room->own[0], &op, "old", BIT(1));
	op.attempt = 4;
	op.tag = 0;
	show(&room->own[0], &op, "new", BIT(1));
	assert_false(commons_still(&room->own[1], 0, &before));
	assert_int_equal(commons_look(&room->own[1], 0, &op, &shown), COMMONS_SHOWN);
	assert_string_equal(shown.body, "new");
}

/* It goes on from its stamps: what others have read of the worker before it is nothing that they have read of it. */
static void a_seat_has_another_worker(void **state)
{
	struct room *room = *state;
	struct commons_shown shown;
	struct tr_error error;
	struct commons_op op = { 1, 1, 7, 0 };
	for (op.tag = 0; op.tag < 5; op.tag++) {
		show(&room->own[0], &op, "before", BIT(1));
		assert_int_equal(commons_look(&room->own[1], 0, &op, &shown), COMMONS_SHOWN);
		commons_read(&room->own[1], 0, &shown);
	}
	(void)commons_write(&room->own[0], &op, BIT(1)); /* and dies */
	commons_close(&room->own[0]);
	assert_int_equal(commons_open(room->fd, 0, 20, &room->own[0], &error), TR_OK);
	assert_int_equal(commons_peer(&room->own[1], 0), 20);
	for (op = (struct commons_op){ 2, 2, 7, 0 }; op.tag < 2; op.tag++)
		show(&room->own[0], &op, "after", BIT(1));
	assert_int_not_equal(0, commons_unread(&room->own[0], &op));
	op.tag = 0;
	assert_int_equal(commons_look(&room->own[1], 0, &op, &shown), COMMONS_SHOWN);
	assert_string_equal(shown.body, "after");
	commons_read(&room->own[1], 0, &shown);
	op.tag = 2;
	assert_int_equal(0, commons_unread(&room->own[0], &op));
}

/* ---- by threads ---- */

enum { WORKERS = 3, OPS = 20000, NUMBERS = 50 };

struct worker {
	pthread_t thread;
	struct commons_own *own;
	unsigned self;
	uint64_t wrong, slept;
};

static bool all_shown(struct worker *w, const struct commons_op *op, struct commons_shown *shown)
{
	for (unsigned i = 0; i < WORKERS; i++)
		if (i != w->self && commons_look(w->own, i, op, &shown[i]) != COMMONS_SHOWN)
			return false;
	return true;
}

/* Sleeps as callers do, for ever: a wake-up that is lost would be noticed. */
static void until(struct worker *w, bool room, const struct commons_op *op,
    struct commons_shown *shown)
{
	for (;;) {
		uint32_t bell = commons_drowse(w->own);
		bool is = room ? commons_unread(w->own, op) == 0 : all_shown(w, op, shown);
		if (!is) {
			w->slept++;
			commons_sleep(w->own, bell, 60000);
		}
		commons_rise(w->own);
		if (is)
			return;
	}
}

static void *work(void *arg)
{
	struct worker *w = arg;
	const uint64_t others = (BIT(WORKERS) - 1) & ~BIT(w->self);
	struct commons_op op = { 1, 1, 9, 0 };
	for (; op.tag < OPS; op.tag++) {
		struct commons_shown shown[WORKERS];
		until(w, true, &op, shown);
		uint32_t *body = commons_write(w->own, &op, others);
		for (uint32_t i = 0; i < NUMBERS; i++)
			body[i] = op.tag * 5 + w->self + i;
		commons_show(w->own);
		commons_wake(w->own, others);
		until(w, false, &op, shown);
		for (unsigned k = 0; k < WORKERS; k++) {
			if (k == w->self)
				continue;
			const uint32_t *theirs = shown[k].body;
			for (uint32_t i = 0; i < NUMBERS; i++)
				w->wrong += theirs[i] != op.tag * 5 + k + i;
			w->wrong += !commons_still(w->own, k, &shown[k]);
			commons_read(w->own, k, &shown[k]);
		}
		commons_wake(w->own, others);
	}
	return NULL;
}

static void workers_take_turns(void **state)
{
	struct room *room = *state;
	struct worker workers[WORKERS];
	for (unsigned i = 0; i < WORKERS; i++) {
		workers[i] = (struct worker){ .own = &room->own[i], .self = i };
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (unsigned i = 0; i < WORKERS; i++) {
		assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
		assert_int_equal(workers[i].wrong, 0);
	}
}

/* ---- one that is killed ---- */

enum { BODY = 512, ATTEMPTS = 4 };

/* Shows, and writes over what it has shown, as fast as it can. */
static void write_for_ever(int fd, int said)
{
	struct commons_own own;
	if (commons_open(fd, 0, 30, &own, NULL) != TR_OK || write(said, "x", 1) != 1)
		_exit(1);
	for (uint32_t n = 0;; n++) {
		struct commons_op op = { 1, n % ATTEMPTS, 7, 0 };
		uint32_t *body = commons_write(&own, &op, BIT(1));
		for (uint32_t i = 0; i < BODY; i++)
			body[i] = n + i;
		commons_show(&own);
	}
}

static void read_some(const struct commons_own *own)
{
	uint32_t copy[BODY];
	struct commons_shown shown;
	for (unsigned whole = 0, n = 0; whole < 1000; n++) {
		struct commons_op op = { 1, n % ATTEMPTS, 7, 0 };
		if (commons_look(own, 0, &op, &shown) != COMMONS_SHOWN)
			continue;
		memcpy(copy, shown.body, sizeof(copy));
		if (!commons_still(own, 0, &shown))
			continue;
		whole++;
		assert_int_equal(copy[0] % ATTEMPTS, op.attempt);
		for (uint32_t i = 0; i < BODY; i++)
			assert_int_equal(copy[i], copy[0] + i);
	}
}

static void what_is_read_is_whole_or_known_not_to_be(void **state)
{
	struct room *room = *state;
	int said[2];
	char byte;
	assert_int_equal(pipe(said), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		write_for_ever(room->fd, said[1]);
	assert_int_equal(read(said[0], &byte, 1), 1);
	read_some(&room->own[1]);
	(void)kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	/* The one that follows at its seat, wherever it was. */
	struct commons_shown shown;
	struct commons_op op = { 2, 1, 7, 0 };
	assert_int_equal(commons_open(room->fd, 0, 31, &room->own[3], NULL), TR_OK);
	show(&room->own[3], &op, "after", BIT(1));
	assert_int_equal(commons_look(&room->own[1], 0, &op, &shown), COMMONS_SHOWN);
	assert_string_equal(shown.body, "after");
	(void)close(said[0]);
	(void)close(said[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_seat_is_its_peers, begin, end),
		cmocka_unit_test_setup_teardown(an_entry_is_read_by_its_name_alone, begin, end),
		cmocka_unit_test_setup_teardown(what_is_passed_is_elsewhere, begin, end),
		cmocka_unit_test_setup_teardown(after_its_end_an_attempt_has_no_more_ops, begin,
		    end),
		cmocka_unit_test_setup_teardown(an_entry_is_kept_until_all_have_read_it, begin, end),
		cmocka_unit_test_setup_teardown(another_attempt_waits_for_no_reader, begin, end),
		cmocka_unit_test_setup_teardown(a_seat_has_another_worker, begin, end),
		cmocka_unit_test_setup_teardown(workers_take_turns, begin, end),
		cmocka_unit_test_setup_teardown(what_is_read_is_whole_or_known_not_to_be, begin,
		    end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
