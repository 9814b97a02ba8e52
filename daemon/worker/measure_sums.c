#include "daemon/worker/measure_sums.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/measure_clock.h"

enum {
	SMALL = 1 << 10, /* numbers of an op */
	LARGE = 128 << 10,
	SMALL_OPS = 16, /* that are timed together: the clock is not that fine */
	LOOKS = 4096    /* then the other one may need the core */
};
#define LONG_S     0.05 /* of each size, but for the least number of tries */
#define TRIES      8
#define TRIES_MOST 1024
/* Two threads that have cores of their own need less to see each other; more is other work's. */
#define OP_MOST_S 5e-6
#define ENTRIES   2 /* of a seat: who shows one has read the one before last */

struct side {
	_Alignas(64) _Atomic uint64_t shown;
	float *seat[ENTRIES];
	float *numbers;
};

struct pair {
	struct side sides[2];
	size_t count;
	unsigned ops;       /* of a try */
	cpu_set_t allowed;  /* cores */
	_Atomic bool ended; /* said by side 0 between tries */
	uint64_t at[2];     /* ops that each has made */
};

struct self {
	struct pair *pair;
	unsigned index;
};

static void await(_Atomic uint64_t *shown, uint64_t op)
{
	for (unsigned looks = 0; atomic_load_explicit(shown, memory_order_acquire) < op; looks++)
		if (looks == LOOKS) {
			looks = 0;
			(void)sched_yield();
		}
}

static void add(float *to, const float *first, const float *second, size_t count)
{
	for (size_t i = 0; i < count; i++)
		to[i] = first[i] + second[i];
}

/* Both add in the same order, into their own. Returns seconds without those waited. */
static double make(struct pair *pair, unsigned index)
{
	struct side *own = &pair->sides[index], *other = &pair->sides[!index];
	uint64_t op = ++pair->at[index];
	double begun = now_s();
	memcpy(own->seat[op % ENTRIES], own->numbers, pair->count * sizeof(float));
	atomic_store_explicit(&own->shown, op, memory_order_release);
	double waits = now_s();
	await(&other->shown, op);
	double came = now_s();
	const float *theirs = other->seat[op % ENTRIES];
	add(own->numbers, index == 0 ? own->numbers : theirs, index == 0 ? theirs : own->numbers,
	    pair->count);
	return now_s() - came + waits - begun;
}

/* Seconds of its ops, and of these those that were not waited. */
static double try_once(struct pair *pair, unsigned index, double *worked)
{
	double begun = now_s();
	*worked = 0;
	for (unsigned i = 0; i < pair->ops; i++)
		*worked += make(pair, index);
	return now_s() - begun;
}

/* Of its own, if there are two: in one core's cache the other's numbers are nearer than they ever are between two workers. */
static void take_core(const struct pair *pair, unsigned index)
{
	cpu_set_t own;
	unsigned found = 0;
	CPU_ZERO(&own);
	for (size_t core = 0; core < CPU_SETSIZE && CPU_COUNT(&own) == 0; core++)
		if (CPU_ISSET(core, &pair->allowed) && found++ == index)
			CPU_SET(core, &own);
	if (CPU_COUNT(&own) > 0)
		(void)sched_setaffinity(0, sizeof(own), &own);
}

/* Side 1. What side 0 said before an op is known behind it. */
static void *follow(void *arg)
{
	struct pair *pair = arg;
	double worked;
	take_core(pair, 1);
	do {
		(void)try_once(pair, 1, &worked);
		(void)make(pair, 1);
	} while (!atomic_load(&pair->ended));
	return NULL;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Of an op: all of it in the shortest try, and in the median one what was not waited. */
static void find(struct pair *pair, double *all, double *work)
{
	double begun = now_s(), works[TRIES_MOST];
	unsigned tries = 0;
	*all = INFINITY;
	while (!atomic_load(&pair->ended)) {
		*all = fmin(*all, try_once(pair, 0, &works[tries++]) / pair->ops);
		bool enough = tries >= TRIES && now_s() - begun > LONG_S;
		atomic_store(&pair->ended, enough || tries == TRIES_MOST);
		(void)make(pair, 0);
	}
	qsort(works, tries, sizeof(works[0]), compare);
	*work = works[tries / 2] / pair->ops;
}

/* Zeroed numbers stay zero, however often they are added. */
static bool prepare(struct pair *pair)
{
	bool there = true;
	for (unsigned i = 0; i < 2; i++) {
		struct side *side = &pair->sides[i];
		side->numbers = calloc(LARGE, sizeof(float));
		there = there && side->numbers != NULL;
		for (unsigned entry = 0; entry < ENTRIES; entry++) {
			side->seat[entry] = calloc(LARGE, sizeof(float));
			there = there && side->seat[entry] != NULL;
		}
	}
	return there;
}

static void finish(struct pair *pair)
{
	for (unsigned i = 0; i < 2; i++) {
		free(pair->sides[i].numbers);
		for (unsigned entry = 0; entry < ENTRIES; entry++)
			free(pair->sides[i].seat[entry]);
	}
}

/* Of one op of so many numbers. */
static tr_status measure(struct pair *pair, size_t count, unsigned ops, double *all, double *work,
    struct tr_error *error)
{
	pthread_t thread;
	pair->count = count;
	pair->ops = ops;
	atomic_store(&pair->ended, false);
	if (pthread_create(&thread, NULL, follow, pair) != 0)
		return tr_error_set(error, TR_ENOMEM, "no thread to measure sums with");
	take_core(pair, 0);
	find(pair, all, work);
	(void)pthread_join(thread, NULL);
	(void)sched_setaffinity(0, sizeof(pair->allowed), &pair->allowed);
	return TR_OK;
}

tr_status measure_sums(struct sum_cost *cost, struct tr_error *error)
{
	struct pair pair = { .count = 0 };
	(void)sched_getaffinity(0, sizeof(pair.allowed), &pair.allowed);
	double small = 0, small_work = 0, large = 0, large_work = 0;
	tr_status st = prepare(&pair) ? measure(&pair, SMALL, SMALL_OPS, &small, &small_work, error)
	                              : tr_error_set(error, TR_ENOMEM, "no memory to measure sums");
	if (st == TR_OK)
		st = measure(&pair, LARGE, 1, &large, &large_work, error);
	finish(&pair);
	if (st != TR_OK)
		return st;
	/* Each copies its own input, and reads the other's. */
	const double touched = 2 * sizeof(float);
	*cost = (struct sum_cost){ fmin(fmax(small - small_work, 0), OP_MOST_S),
		large_work / (touched * LARGE) };
	return TR_OK;
}
