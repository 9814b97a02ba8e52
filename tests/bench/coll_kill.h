/* collbench --kill-at F, --stop-at F: one process of N is killed (SIGKILL) or stopped (SIGSTOP) in the middle of an op, and what
 * that costs the others is measured.
 *
 * When: a thread of the victim watches the bytes that its own sockets have sent, and raises the signal when they are the
 * fraction F of its median in the ops before. Where an op sends next to nothing over TCP (shared memory) it goes by time: F
 * of the undisturbed median. `trigger` in the output says which.
 *
 *	undisturbed_s  median of the ops before, from the call to the result's arrival, slowest process
 *	disturbed_s    the same of the op under way, slowest survivor
 *	detect_s       from the signal to the first line that a survivor or memberd logs; `detect_event` is that line
 *	resent_bytes   payload that the survivors gave out again for that op (struct tr_stats), all of it; resent_shares: in units of
 *	               bytes / world
 *	exact          every survivor's result is, element by element, the sum over the contributors that tr_contributors names (with a
 *	               codec as near to it as that rounds), and all survivors hold the same bits
 */
#ifndef TR_BENCH_COLL_KILL_H
#define TR_BENCH_COLL_KILL_H

#include "tests/bench/coll_case.h"

struct coll_kill {
	double at; /* fraction of the op; 0: no kill */
	bool stop;
	bool busiest; /* it strikes who sends most in an op, a star's hub; else some process */
};

/* Runs the case with a memberd of its own and prints one JSON object. false: something failed and said why. */
bool coll_kill_run(const struct coll_case *c, const struct coll_kill *kill, const char *memberd);

#endif
