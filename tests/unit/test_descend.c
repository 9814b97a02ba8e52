/* Descendants of a process (descend.h). */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/node/descend.h"

static pid_t begin_child(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody */
		for (;;)
			(void)pause();
	}
	assert_true(pid > 0);
	return pid;
}

static void test_all_but_those_that_are_spared(void **state)
{
	(void)state;
	pid_t one = begin_child(), other = begin_child();
	struct descend which = { .root = getpid(), .spare = &other, .spares = 1 };
	siginfo_t ended;
	assert_int_equal(descend_signal(&which, SIGKILL), 1);
	assert_int_equal(waitid(P_PID, (id_t)one, &ended, WEXITED | WNOWAIT), 0);
	assert_int_equal(descend_signal(&which, SIGKILL), 0);
	descend_reap(&which);
	assert_int_equal(waitpid(one, NULL, WNOHANG), -1);
	assert_int_equal(waitpid(other, NULL, WNOHANG), 0);
	which.spares = 0;
	assert_int_equal(descend_signal(&which, SIGKILL), 1);
	assert_int_equal(waitpid(other, NULL, 0), other);
}

/* 0 would say that all are gone, and a worker's slot be given out beside its orphans. `few`: that many more can be opened. */
static void without_descriptors(rlim_t few)
{
	pid_t pid = begin_child();
	struct descend which = { .root = getpid() };
	struct rlimit before, none;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	int next = dup(STDERR_FILENO);
	assert_int_equal(close(next), 0);
	none = (struct rlimit){ (rlim_t)next + few, before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	size_t left = descend_signal(&which, SIGKILL);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(left, 1);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	assert_int_equal(descend_signal(&which, SIGKILL), 1);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(descend_signal(&which, SIGKILL), 0);
}

static void test_without_descriptors_some_are_left(void **state)
{
	(void)state;
	without_descriptors(0);
	without_descriptors(1); /* /proc itself */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_but_those_that_are_spared),
		cmocka_unit_test(test_without_descriptors_some_are_left),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
