/* For test programs of domains of backend "nccl": the members are threads, NCCL and the CUDA runtime are tests/unit/fake_nccl.c, which does
 * the collectives and holds the rules of calling; the group is real (engine_fixture.h). In the fake, device memory is memory,
 * so that the test can fill and read it. `play` runs a world of domains for some rounds, `check` looks at what came of it.
 *
 * All of it is static: a test program includes this once.
 */
#ifndef TR_TESTS_NCCL_FIXTURE_H
#define TR_TESTS_NCCL_FIXTURE_H

#include "tests/unit/engine_fixture.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include "collectives/backend/domain_internal.h"
#include "tests/unit/fake_nccl.h"

#define MEMBERS_MAX 3
#define DOMAINS_MAX 2
#define OPS         2
#define ROUNDS      3
#define NEVER       99

struct world;

struct member {
	struct world *world;
	unsigned number, domain;
	tr_status st; /* not TR_OK: of the call that ended it */
	char text[512], restart[512];
	unsigned restarts, size; /* of the domain, at the end */
	unsigned wrong;
	int64_t mask[ROUNDS + 1][OPS]; /* whose data was in each op: a bit a member */
	pthread_t thread;
};

/* What is played. Rounds count from 1. */
struct world {
	unsigned members, domains;
	size_t count; /* of op 0's floats */
	enum tr_policy policy;
	uint32_t deadline_ms;
	unsigned dies, dies_in_round, dies_after_op, dies_late_ms; /* member of domain 0; NEVER */
	unsigned differs_in_round; /* its last member calls another count; 0: never */
	const char *nccl_library, *cuda_library;
	size_t count_again; /* of op 0's floats in a round that is computed again; 0: as before */
	uint32_t
	    calls_before; /* so many calls were made before round 1, as if the domain had run for long */
	bool leaks;       /* the device keeps what it does not come to rest with */
	unsigned
	    passed; /* members of domain 0 for whom ops 0 and 1 are summed in the round of death; atomic */
	struct fx *fx;
	struct member all[DOMAINS_MAX * MEMBERS_MAX];
};

static const struct fake_calls *fake;
static void *fake_library;
static char fake_path[512];
static int (*fake_malloc)(void **, size_t);
static int (*fake_free)(void *);

static unsigned bit_of(unsigned domain, unsigned number)
{
	return domain * MEMBERS_MAX + number;
}

#define PERIOD 101 /* values repeat, no chunk is a multiple of it */

static float value(unsigned domain, unsigned number, uint64_t round, size_t element)
{
	return (float)((bit_of(domain, number) * 7 + round * 13 + element % PERIOD) % 64);
}

static void fill(const struct member *m, float *x, size_t count, uint64_t round)
{
	float period[PERIOD];
	for (size_t e = 0; e < PERIOD; e++)
		period[e] = value(m->domain, m->number, round, e);
	for (size_t e = 0; e < count; e += PERIOD)
		memcpy(x + e, period, (count - e < PERIOD ? count - e : PERIOD) * sizeof(*x));
}

static unsigned wrong_periods(const float *x, size_t count, int64_t mask, uint64_t round)
{
	float period[PERIOD] = { 0 };
	unsigned wrong = 0;
	for (unsigned bit = 0; bit < DOMAINS_MAX * MEMBERS_MAX; bit++)
		for (size_t e = 0; e < PERIOD && (mask >> bit & 1) != 0; e++)
			period[e] += value(bit / MEMBERS_MAX, bit % MEMBERS_MAX, round, e);
	for (size_t e = 0; e < count; e += PERIOD)
		wrong += memcmp(x + e, period,
		             (count - e < PERIOD ? count - e : PERIOD) * sizeof(*x)) != 0;
	return wrong;
}

/* Until all ops so far are summed inside, as one that comes after them is. */
static tr_status summed(struct member *m, tr_domain *d, uint64_t round, int64_t *scratch,
    struct tr_error *error)
{
	struct tr_domain_op op = { .size_of = sizeof(op),
		.collective = TR_ALL_REDUCE,
		.dtype = TR_I64,
		.reduce = TR_SUM,
		.in = scratch,
		.out = scratch,
		.count = 1 };
	tr_status st = tr_domain_inside(d, &op, error);
	if (st == TR_OK && m->domain == 0 && round == m->world->dies_in_round)
		(void)__atomic_add_fetch(&m->world->passed, 1, __ATOMIC_SEQ_CST);
	return st;
}

/* Once the others know that the sums are there. */
static bool die_last(struct world *w)
{
	while (__atomic_load_n(&w->passed, __ATOMIC_SEQ_CST) < w->members)
		(void)sched_yield();
	return false;
}

/* false: it played dead */
static bool play_round(struct member *m, tr_domain *d, float *x, int64_t *masks, uint64_t number)
{
	struct world *w = m->world;
	struct tr_error error = { 0 };
	struct tr_round round = { 0 };
	size_t count = w->count;
	bool mortal = m->domain == 0 && m->number == w->dies && number == w->dies_in_round;
	for (;;) {
		m->st = tr_domain_round_begin(d, &round, &error);
		if (m->st != TR_OK)
			break;
		fill(m, x, count, number);
		masks[0] = masks[1] = 1LL << bit_of(m->domain, m->number);
		bool differs = number == w->differs_in_round && m->number == w->members - 1 &&
		    m->domain == 0;
		m->st = tr_domain_allreduce(d, 0, x, count, TR_F32, TR_SUM, &error);
		if (mortal && w->dies_after_op == 0)
			return nanosleep(&(struct timespec){ .tv_nsec = (long)w->dies_late_ms *
			                         1000000 },
			           NULL) != 0;
		if (m->st == TR_OK)
			m->st = tr_domain_allreduce(d, 1, &masks[0], 1, TR_I64, TR_SUM, &error);
		if (m->st == TR_OK)
			m->st = summed(m, d, number, &masks[OPS], &error);
		if (mortal && w->dies_after_op == 1)
			return die_last(w);
		if (m->st == TR_OK)
			m->st = tr_domain_allreduce(d, 2, &masks[1], differs ? 0 : 1, TR_I64,
			    TR_SUM, &error);
		if (m->st == TR_OK || m->st == TR_ERESTART)
			m->st = tr_domain_commit(d, &(struct tr_commit){ 0 }, &round, &error);
		if (m->st != TR_ERESTART)
			break;
		m->restarts++;
		count = w->count_again != 0 ? w->count_again : count;
		(void)snprintf(m->restart, sizeof(m->restart), "%s", error.text);
	}
	if (m->st != TR_OK) {
		(void)snprintf(m->text, sizeof(m->text), "%s", error.text);
		return true;
	}
	m->mask[number][0] = masks[0];
	m->mask[number][1] = masks[1];
	m->wrong += wrong_periods(x, w->count, masks[0], number);
	return true;
}

static tr_status lead(struct member *m, tr_domain *d, struct tr_error *error)
{
	struct fx_host *host = &m->world->fx->hosts[m->domain];
	tr_status st = tr_state_ready(host->group, 0, error);
	return st == TR_OK ? tr_domain_lead(d, host->group, error) : st;
}

static void *member_main(void *arg)
{
	struct member *m = arg;
	struct world *w = m->world;
	struct tr_domain_options options = TR_DOMAIN_OPTIONS_INIT;
	struct tr_error error = { 0 };
	char address[64];
	void *x = NULL, *masks = NULL;
	tr_domain *d = NULL;
	(void)snprintf(address, sizeof(address), "@traind-test-%d-%p-%u", (int)getpid(), (void *)w,
	    m->domain);
	options.backend = "nccl";
	options.address = address;
	options.rank = m->number;
	options.size = w->members;
	options.policy = w->policy;
	options.deadline_ms = w->deadline_ms;
	options.nccl_library = w->nccl_library;
	options.cuda_library = w->cuda_library;
	m->st = tr_domain_open(&options, &d, &error);
	if (m->st == TR_OK && m->number == 0)
		m->st = lead(m, d, &error);
	if (m->st != TR_OK) {
		(void)snprintf(m->text, sizeof(m->text), "%s", error.text);
		tr_domain_close(d);
		return NULL;
	}
	if (fake_malloc(&x, w->count * sizeof(float)) != 0 ||
	    fake_malloc(&masks, (OPS + 1) * sizeof(int64_t)) != 0)
		abort();
	d->calls = w->calls_before;
	for (unsigned i = 1; i < w->members; i++)
		d->members[i].made = w->calls_before;
	for (uint64_t round = 1; round <= ROUNDS && m->st == TR_OK; round++)
		if (!play_round(m, d, x, masks, round))
			break;
	m->size = tr_domain_size(d);
	tr_domain_close(d);
	(void)fake_free(x);
	(void)fake_free(masks);
	return NULL;
}

static void play(struct world *w, bool opens)
{
	if (w->members == 0)
		w->members = MEMBERS_MAX;
	if (w->domains == 0)
		w->domains = 1;
	if (w->nccl_library == NULL)
		w->nccl_library = fake_path;
	if (w->cuda_library == NULL)
		w->cuda_library = fake_path;
	if (w->count == 0)
		w->count = 1000;
	w->fx = fx_start(w->domains, (Traind__Peer__Policy)w->policy,
	    TRAIND__PEER__ALGORITHM__ALGORITHM_STAR);
	for (unsigned d = 0; d < w->domains; d++)
		fx_attach(&w->fx->hosts[d]);
	for (unsigned d = 0; d < w->domains; d++) {
		for (unsigned n = 0; n < w->members; n++) {
			struct member *m = &w->all[bit_of(d, n)];
			*m = (struct member){ .world = w, .number = n, .domain = d };
			assert_int_equal(pthread_create(&m->thread, NULL, member_main, m), 0);
		}
	}
	if (opens)
		fx_found(w->fx, w->domains);
	for (unsigned d = 0; d < w->domains; d++)
		for (unsigned n = 0; n < w->members; n++)
			assert_int_equal(pthread_join(w->all[bit_of(d, n)].thread, NULL), 0);
	fx_stop(w->fx);
	if (fake->violation() != NULL)
		fail_msg("%s", fake->violation());
	if (!w->leaks)
		assert_int_equal(fake->live(), 0);
	assert_int_equal(fake->calls("ncclGroupStart"), fake->calls("ncclGroupEnd"));
}

/* All but `dead` (NEVER) did all rounds, with the same right results; from `round` on without the dead one. */
static void check(const struct world *w, unsigned dead, unsigned round, bool both)
{
	for (unsigned d = 0; d < w->domains; d++) {
		for (unsigned n = 0; n < w->members; n++) {
			const struct member *m = &w->all[bit_of(d, n)];
			if (d == 0 && n == dead)
				continue;
			if (m->st != TR_OK)
				fail_msg("member %u of domain %u: %s", n, d, m->text);
			assert_int_equal(m->wrong, 0);
			assert_int_equal(m->size, w->members - (d == 0 && dead != NEVER));
			for (unsigned r = 1; r <= ROUNDS; r++) {
				int64_t all = 0;
				for (unsigned i = 0; i < w->domains; i++)
					all |= ((1LL << w->members) - 1) << bit_of(i, 0);
				int64_t without = dead == NEVER ? all
				                                : all & ~(1LL << bit_of(0, dead));
				for (unsigned op = 0; op < OPS; op++)
					if (r != round || both)
						assert_int_equal(m->mask[r][op],
						    r < round ? all : without);
				/* the same everywhere */
				assert_memory_equal(m->mask[r], w->all[0].mask[r],
				    sizeof(m->mask[r]));
			}
		}
	}
}

static int setup(void **state)
{
	(void)state;
	fake->reset();
	return 0;
}

/* fake_nccl.so lies beside the test program. */
static bool load_fake(void)
{
	ssize_t length = readlink("/proc/self/exe", fake_path, sizeof(fake_path) - 32);
	if (length < 0)
		return false;
	fake_path[length] = '\0';
	char *name = strrchr(fake_path, '/');
	(void)snprintf(name, 32, "/fake_nccl.so");
	fake_library = dlopen(fake_path, RTLD_NOW | RTLD_LOCAL);
	fake = fake_library != NULL ? dlsym(fake_library, "fake") : NULL;
	if (fake == NULL) {
		(void)fprintf(stderr, "%s\n", dlerror());
		return false;
	}
	*(void **)&fake_malloc = dlsym(fake_library, "cudaMalloc");
	*(void **)&fake_free = dlsym(fake_library, "cudaFree");
	return true;
}

#endif
