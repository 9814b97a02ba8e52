/* Ring or star: the cost model of a view's links decides, the same way on every member.
 *
 *	ring                 2(n-1)a + 2(n-1)/n * S/B     deterministic (one chain): 2(n-1)a + 2 S/B
 *	star, pipelined      2a + (n-1) S/B
 *
 * n peers, S bytes, B bytes/s per direction of the slowest link, a one-way latency of the worst link (Thakur, Rabenseifner
 * & Gropp, "Optimization of collective communication operations in MPICH", 2005, for the form of such models).
 */
#ifndef TR_COLLECTIVES_CORE_SELECT_H
#define TR_COLLECTIVES_CORE_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/coll.h"

struct select_input {
	enum tr_algorithm wanted; /* TR_AUTO: choose */
	double latency_s,
	    bandwidth_bytes_per_s; /* 0: not measured yet; a loopback's figures are taken */
	uint64_t bytes;
	unsigned peers;
	bool deterministic;
};

double select_ring_s(const struct select_input *input);
double select_star_s(const struct select_input *input);

/* TR_RING or TR_STAR. `reason` (may be NULL) gets the words: "ring: 1.26 s against 2.34 s (star) for 4.0 MB ...". */
enum tr_algorithm select_algorithm(const struct select_input *input, char *reason,
    size_t reason_bytes);

#endif
