/* Engines of one host exchange by shared memory: rounds, deaths (a process that is killed among them), views, refusals. */
#include "tests/unit/engine_caller.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned started;

static struct fx *start_near(unsigned peers, Traind__Peer__Policy policy,
    Traind__Peer__Algorithm algorithm)
{
	struct fx *fx = fx_start(peers, policy, algorithm);
	fx->near = true;
	fx->driving = fx->driving || (started++ & 1) != 0;
	return fx;
}

/* Connections of the loopback that this process has. */
static unsigned tcp_connections(void)
{
	unsigned count = 0;
	for (int fd = 3; fd < 1024; fd++) {
		struct sockaddr_storage sa;
		socklen_t length = sizeof(sa);
		count += getpeername(fd, (struct sockaddr *)&sa, &length) == 0 &&
		    (sa.ss_family == AF_INET || sa.ss_family == AF_INET6);
	}
	return count;
}

static void run_rounds(Traind__Peer__Algorithm algorithm, unsigned peers)
{
	struct fx *fx = start_near(peers, TRAIND__PEER__POLICY__POLICY_KEEP, algorithm);
	struct caller callers[FX_HOSTS_MAX];
	for (unsigned i = 0; i < peers; i++)
		caller_start(&callers[i], &fx->hosts[i], 5, i == 0 ? 5 : 0);
	fx_found(fx, peers);
	FX_WAIT(fx, callers[0].paused);
	assert_int_equal(tcp_connections(), 0);
	caller_resume(&callers[0]);
	callers_succeed(callers, peers);
	fx_stop(fx);
}

static void rounds_of_every_algorithm(void **state)
{
	(void)state;
	for (int driven = 0; driven < 2; driven++) {
		run_rounds(TRAIND__PEER__ALGORITHM__ALGORITHM_RING, 3);
		run_rounds(TRAIND__PEER__ALGORITHM__ALGORITHM_STAR, 4);
		run_rounds(TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT, 4);
		run_rounds(TRAIND__PEER__ALGORITHM__ALGORITHM_ONE_SHOT, 3);
		run_rounds(TRAIND__PEER__ALGORITHM__ALGORITHM_AUTO, 2);
	}
}

static void member_ends_in_mid_op(void **state)
{
	(void)state;
	for (int algorithm = TRAIND__PEER__ALGORITHM__ALGORITHM_RING;
	     algorithm <= TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT; algorithm++, started++)
		for (int policy = TRAIND__PEER__POLICY__POLICY_KEEP;
		     policy <= TRAIND__PEER__POLICY__POLICY_REPLAY; policy++)
			fx_stop(callers_survive_one(start_near(4, (Traind__Peer__Policy)policy,
			    (Traind__Peer__Algorithm)algorithm)));
}

/* ---- what the caller writes after the end is seen by nobody ---- */

static void ended_memory_is_private(void **state)
{
	(void)state;
	struct fx *fx = start_near(1, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct tr_error error;
	struct tr_round round;
	fx_attach(&fx->hosts[0]);
	float *data = tr_alloc(fx->hosts[0].group, 4096);
	data[0] = 1;
	assert_int_equal(tr_state_ready(fx->hosts[0].group, 0, &error), TR_OK);
	/* As a peer sees it: by what this process has mapped of the same file. */
	char line[512], path[512] = "";
	unsigned long from, to;
	FILE *maps = fopen("/proc/self/maps", "re");
	while (fgets(line, sizeof(line), maps) != NULL)
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && strstr(line, "traind-tensors") &&
		    (uintptr_t)data >= from && (uintptr_t)data < to)
			(void)snprintf(path, sizeof(path), "%s", strchr(line, '/'));
	(void)fclose(maps);
	assert_string_not_equal(path, "");
	engine_remove(fx->hosts[0].engine, FX_GROUP, FX_PEER(0), "evicted by the test");
	assert_int_equal(tr_round_begin(fx->hosts[0].group, &round, &error), TR_ECANCELLED);
	data[0] = 2;
	unsigned seen = 0;
	DIR *fds = opendir("/proc/self/fd");
	for (const struct dirent *entry = readdir(fds); entry != NULL; entry = readdir(fds)) {
		char link[300], target[300];
		(void)snprintf(link, sizeof(link), "/proc/self/fd/%s", entry->d_name);
		ssize_t n = readlink(link, target, sizeof(target) - 1);
		float value = 0;
		if (n <= 0)
			continue;
		target[n] = '\0';
		if (strstr(target, "traind-tensors") == NULL)
			continue;
		int own = open(link,
		    O_RDONLY | O_CLOEXEC); /* the engine may close its own meanwhile */
		if (own < 0)
			continue;
		assert_int_equal(pread(own, &value, sizeof(value), 0), sizeof(value));
		(void)close(own);
		assert_true(value == 1);
		seen++;
	}
	(void)closedir(fds);
	assert_true(seen > 0);
	assert_true(data[0] == 2);
	fx_stop(fx);
}

/* ---- refusals ---- */

#define NOBODY "traind-nobody-listens-here"

/* Its UNIX socket is not there: the peers talk TCP, and say once why. */
static void unreachable_memory_falls_back(void **state)
{
	(void)state;
	struct fx *fx = start_near(2, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct caller callers[2];
	fx->hosts[1].local_address = NOBODY;
	for (unsigned i = 0; i < 2; i++)
		caller_start(&callers[i], &fx->hosts[i], 3, 0);
	fx_found(fx, 2);
	for (unsigned i = 0; i < 2; i++) {
		caller_join(&callers[i]);
		assert_int_equal(callers[i].status, TR_OK);
	}
	assert_true(tcp_connections() > 0);
	fx_stop(fx);
}

/* `other`: of the second engine. */
static void demand(const char *local_address, const struct engine_links *other, const char *cause)
{
	struct fx *fx = start_near(2, TRAIND__PEER__POLICY__POLICY_KEEP,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_RING);
	struct caller callers[2];
	const struct engine_links shm = { .transport = TR_TRANSPORT_SHM };
	bool one[FX_HOSTS_MAX] = { false, true };
	fx->hosts[1].local_address = local_address;
	assert_int_equal(engine_set_links(fx->hosts[0].engine, &shm, NULL), TR_OK);
	assert_int_equal(engine_set_links(fx->hosts[1].engine, other, NULL), TR_OK);
	for (unsigned i = 0; i < 2; i++)
		caller_start(&callers[i], &fx->hosts[i], 1, 0);
	fx_found(fx, 2);
	caller_join(&callers[0]);
	assert_int_equal(callers[0].status, TR_EUNAVAILABLE);
	assert_non_null(strstr(callers[0].text, "transport shm: no shared memory with peer 11"));
	assert_non_null(strstr(callers[0].text, cause));
	FX_WAIT(fx, fx->hosts[0].failed == TR_EUNAVAILABLE);
	fx_change_view(fx, one);
	caller_join(&callers[1]);
	assert_int_equal(callers[1].status, TR_OK);
	fx_stop(fx);
}

static void demanded_memory_fails_with_the_cause(void **state)
{
	(void)state;
	const struct engine_links any = { .transport = TR_TRANSPORT_AUTO },
	                          tcp = { .transport = TR_TRANSPORT_TCP };
	demand(NOBODY, &any, "refused");
	demand(NULL, &tcp, "it was told to share none");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rounds_of_every_algorithm),
		cmocka_unit_test(member_ends_in_mid_op),
		cmocka_unit_test(ended_memory_is_private),
		cmocka_unit_test(unreachable_memory_falls_back),
		cmocka_unit_test(demanded_memory_fails_with_the_cause),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
