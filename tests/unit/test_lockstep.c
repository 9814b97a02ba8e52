/* Members of a lockstep are processes: none goes on before the others have come as often, all get the leader's word, and nobody waits for who has left or died. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/lockstep.h"

enum { MEMBERS = 3, MEETS = 300 };

struct seen {
	_Atomic unsigned at[MEMBERS]; /* how often each has come */
	_Atomic unsigned early;       /* so often one went on before another had */
	_Atomic unsigned other_words;
};

static struct seen *seen;
static int page;

static void member(unsigned self, unsigned members, void (*run)(struct lockstep *l, unsigned self))
{
	struct lockstep *l;
	if (lockstep_open(page, self, members, &l, NULL) != TR_OK)
		_exit(2);
	run(l, self);
	_exit(0);
}

static pid_t start(unsigned self, unsigned members, void (*run)(struct lockstep *l, unsigned self))
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		member(self, members, run);
	return pid;
}

static void ended(pid_t pid, int how)
{
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, how);
}

static int setup(void **state)
{
	(void)state;
	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	page = lockstep_create();
	return seen != MAP_FAILED && page >= 0 ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return close(page) == 0 && munmap(seen, sizeof(*seen)) == 0 ? 0 : -1;
}

/* Pairs 0 and 1 meet, all agree; words change, and are another one's with each but member 0. */
static void go(struct lockstep *l, unsigned self)
{
	for (unsigned i = 1; i <= MEETS; i++) {
		atomic_store(&seen->at[self], i);
		if (self < 2) {
			lockstep_meet(l, 0, 2);
			if (atomic_load(&seen->at[1 - self]) < i)
				atomic_fetch_add(&seen->early, 1);
		}
		bool word = i % 3 == 0;
		if (lockstep_agree(l, self == 0 ? word : !word) != word)
			atomic_fetch_add(&seen->other_words, 1);
		for (unsigned k = 0; k < MEMBERS; k++)
			if (atomic_load(&seen->at[k]) < i)
				atomic_fetch_add(&seen->early, 1);
	}
	lockstep_close(l);
}

static void all_take_the_same_steps(void **state)
{
	pid_t pids[MEMBERS];
	(void)state;
	for (unsigned i = 0; i < MEMBERS; i++)
		pids[i] = start(i, MEMBERS, go);
	for (unsigned i = 0; i < MEMBERS; i++)
		ended(pids[i], 0);
	assert_int_equal(seen->early, 0);
	assert_int_equal(seen->other_words, 0);
}

/* Once; then it leaves. */
static void leave(struct lockstep *l, unsigned self)
{
	(void)self;
	lockstep_meet(l, 0, MEMBERS);
	lockstep_close(l);
}

static void stay(struct lockstep *l, unsigned self)
{
	for (unsigned i = 0; i < 10; i++)
		lockstep_meet(l, 0, MEMBERS);
	atomic_store(&seen->at[self], 10);
	lockstep_close(l);
}

static void who_has_left_is_waited_for_no_more(void **state)
{
	(void)state;
	pid_t leader = start(0, MEMBERS, leave), one = start(1, MEMBERS, stay),
	      two = start(2, MEMBERS, stay);
	ended(leader, 0);
	ended(one, 0);
	ended(two, 0);
	assert_int_equal(seen->at[1] + seen->at[2], 20);
}

static void die(struct lockstep *l, unsigned self)
{
	(void)self;
	lockstep_meet(l, 0, MEMBERS);
	(void)raise(SIGKILL);
}

/* The leader is killed: after LOCKSTEP_PATIENCE_MS the others go on by their own words. */
static void alone(struct lockstep *l, unsigned self)
{
	lockstep_meet(l, 0, MEMBERS);
	bool own = self == 1;
	if (lockstep_agree(l, own) != own)
		atomic_fetch_add(&seen->other_words, 1);
	atomic_store(&seen->at[self], 1);
	lockstep_close(l);
}

static void who_has_died_is_waited_for_once(void **state)
{
	(void)state;
	pid_t leader = start(0, MEMBERS, die), one = start(1, MEMBERS, alone),
	      two = start(2, MEMBERS, alone);
	ended(leader, SIGKILL);
	ended(one, 0);
	ended(two, 0);
	assert_int_equal(seen->at[1] + seen->at[2], 2);
	assert_int_equal(seen->other_words, 0);
}

static void of_one_and_of_none(void **state)
{
	struct lockstep *l = NULL;
	struct tr_error error;
	(void)state;
	lockstep_meet(NULL, 0, 2);
	assert_true(lockstep_agree(NULL, true));
	assert_int_equal(lockstep_open(page, 3, 3, &l, &error), TR_EINVAL);
	assert_int_equal(lockstep_open(STDIN_FILENO, 0, 1, &l, &error), TR_EINVAL);
	assert_int_equal(lockstep_open(page, 0, 1, &l, &error), TR_OK);
	lockstep_meet(l, 0, 4);
	assert_false(lockstep_agree(l, false));
	assert_true(lockstep_agree(l, true));
	lockstep_close(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(all_take_the_same_steps, setup, teardown),
		cmocka_unit_test_setup_teardown(who_has_left_is_waited_for_no_more, setup, teardown),
		cmocka_unit_test_setup_teardown(who_has_died_is_waited_for_once, setup, teardown),
		cmocka_unit_test_setup_teardown(of_one_and_of_none, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
