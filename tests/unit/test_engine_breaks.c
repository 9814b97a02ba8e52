/* Connections break at any moment, one, several or all of a link at once, also before the first frame of a view has come: each round ends
 * with the sum of those who contributed, or a link is said to be lost and the next view goes on. Nobody waits for ever.
 */
#include "tests/unit/engine_caller.h"
#include "tests/unit/tls_files.h"

#define SOCKETS   4
#define ROUNDS    24
#define BREAKS_MS 6 /* at most, from one to the next */
#define FDS       1024

static uint32_t chance(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*seed >> 33);
}

static bool to_a_host(const struct fx *fx, int fd)
{
	struct sockaddr_in in = { 0 };
	socklen_t length = sizeof(in);
	if (getpeername(fd, (struct sockaddr *)&in, &length) != 0 || in.sin_family != AF_INET)
		return false;
	for (unsigned i = 0; i < fx->count; i++)
		if (ntohs(in.sin_port) == atoi(strrchr(fx->hosts[i].address, ':') + 1))
			return true;
	return false;
}

/* Some of the connections between hosts, seen from who dialled; how many. */
static unsigned break_some(const struct fx *fx, uint64_t *seed)
{
	unsigned of_eight = 1 + chance(seed) % 8, broken = 0;
	for (int fd = 3; fd < FDS; fd++)
		if (to_a_host(fx, fd) && chance(seed) % 8 < of_eight)
			broken += shutdown(fd, SHUT_RDWR) == 0;
	return broken;
}

static bool all_done(const struct fx *fx, const struct caller *callers, unsigned *lost)
{
	bool done = true;
	*lost = 0;
	for (unsigned i = 0; i < fx->count; i++) {
		done = done && callers[i].done >= ROUNDS;
		*lost += fx->hosts[i].link_lost;
	}
	return done;
}

struct tally {
	unsigned broken, views;
};

/* As memberd does when all are alive: a view of the same members. */
static void breaks(Traind__Peer__Algorithm algorithm, unsigned peers, uint64_t seed,
    struct tally *tally)
{
	const struct engine_links links = { .transport = TR_TRANSPORT_TCP,
		.sockets = SOCKETS,
		.tls = fx_tls };
	struct fx *fx = fx_start(peers, TRAIND__PEER__POLICY__POLICY_REPLAY, algorithm);
	struct caller callers[FX_HOSTS_MAX];
	bool all[FX_HOSTS_MAX] = { false };
	unsigned lost, known = 0, done = 0, idle_ms = 0;
	for (unsigned i = 0; i < peers; i++) {
		all[i] = true;
		assert_int_equal(engine_set_links(fx->hosts[i].engine, &links, NULL), TR_OK);
		caller_start(&callers[i], &fx->hosts[i], ROUNDS, 0);
	}
	fx_found(fx, peers);
	for (;;) {
		unsigned pause_ms = chance(&seed) % (BREAKS_MS + 1), sum = 0;
		(void)usleep(1000 * pause_ms);
		pthread_mutex_lock(&fx->lock);
		bool over = all_done(fx, callers, &lost);
		for (unsigned i = 0; i < peers; i++)
			sum += callers[i].done;
		pthread_mutex_unlock(&fx->lock);
		if (over)
			break;
		if (lost != known) {
			known = lost;
			tally->views++;
			fx_change_view(fx, all);
		}
		idle_ms = sum != done ? 0 : idle_ms + pause_ms;
		done = sum;
		if (idle_ms < 50) /* they get no rest, but time for a round now and then */
			tally->broken += chance(&seed) % 4 == 0 ? break_some(fx, &seed) : 0;
		if (idle_ms > 1000 * FX_DEADLINE_S)
			fail_msg("%u of %u rounds, then nothing", sum, peers * ROUNDS);
	}
	callers_succeed(callers, peers);
	fx_stop(fx);
}

static void many(unsigned seeds)
{
	struct tally tally = { 0 };
	for (uint64_t seed = 1; seed <= seeds; seed++) {
		breaks(TRAIND__PEER__ALGORITHM__ALGORITHM_RING, 2, seed, &tally);
		breaks(TRAIND__PEER__ALGORITHM__ALGORITHM_STAR, 3, seed, &tally);
		breaks(TRAIND__PEER__ALGORITHM__ALGORITHM_DIRECT, 3, seed, &tally);
	}
	print_message("%u connections broken, %u views\n", tally.broken, tally.views);
	assert_true(tally.broken > 0 && tally.views > 0);
}

static unsigned seeds(void)
{
	const char *asked = getenv("BREAKS");
	return asked == NULL ? 3 : (unsigned)atoi(asked);
}

static void rounds_end_while_connections_break(void **state)
{
	(void)state;
	many(seeds());
}

static void the_same_with_tls(void **state)
{
	struct tls_files files;
	(void)state;
	tls_files_make(&files);
	fx_tls = tls_files_node(&files, "host");
	many(seeds());
	tls_context_release(fx_tls);
	tls_files_end(&files);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rounds_end_while_connections_break),
		cmocka_unit_test(the_same_with_tls),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
