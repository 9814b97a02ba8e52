/* Players that run in turn, one at a time, each in a thread of its own, until they meet: coroutines whose code need not know that it is one.
 *
 *	turns_create(8, play, &job, &turns, &error);
 *	turns_run(turns);                       // play(&job, k) for each k < 8; in it, as often as they like but all alike:
 *	turns_meet(turns, k, meet, &meeting);   //     returns when all have called it; meet(&meeting) was called once, by the last
 *	turns_destroy(turns);
 *
 * One caller thread, which plays player 0. Since one runs at a time they may share what only one thread may use, such as a pool.
 */
#ifndef TR_DAEMON_WORKER_TURNS_H
#define TR_DAEMON_WORKER_TURNS_H

#include <stdbool.h>

#include "common/error.h"

struct turns;

/* False: it stops, and then all do at their next meeting. */
typedef bool turns_play(void *arg, unsigned player);

tr_status turns_create(unsigned players, turns_play *play, void *arg, struct turns **turns,
    struct tr_error *error);
void turns_destroy(struct turns *turns); /* accepts NULL */
/* False: somebody stopped. */
bool turns_run(struct turns *turns);
/* False: somebody stopped, or `meet` said so. */
bool turns_meet(struct turns *turns, unsigned player, bool (*meet)(void *arg), void *arg);

#endif
