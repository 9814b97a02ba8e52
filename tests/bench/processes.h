/* The processes of a case: forked from one, with results and a barrier in memory that they share. */
#ifndef TR_BENCH_PROCESSES_H
#define TR_BENCH_PROCESSES_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "tests/bench/measure.h"

#ifdef __cplusplus
extern "C" {
#endif

struct processes {
	pthread_barrier_t barrier;
	struct measure_result results[MEASURE_WORLD_MAX];
};

/* Shared memory for `world` processes. NULL: there is none. */
struct processes *processes_create(unsigned world);
void processes_destroy(struct processes *processes);
void processes_meet(struct processes *processes);

/* Runs `body(arg, rank)` in `world` processes of its own; each ends with exit code 0 when body returns. One that fails ends
 * the others, which would wait for it. true: all ended well. They die with this process. */
bool processes_run(unsigned world, void (*body)(void *arg, unsigned rank), void *arg);
/* The two halves: */
void processes_start(unsigned world, void (*body)(void *arg, unsigned rank), void *arg, pid_t *pids);
bool processes_wait(unsigned world, pid_t *pids);

/* In a process that was started here: ends it with exit code 1. Of all processes, only the first to come here says why: what fails
 * in one fails in all. */
__attribute__((noreturn)) void processes_die(const char *what, const char *why);

#ifdef __cplusplus
}
#endif

#endif
