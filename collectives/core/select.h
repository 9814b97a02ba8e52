/* Which algorithm an op takes: the cost model of a view's links decides, the same way on every member.
 *
 *	ring           2(n-1)(a + c) + (n-1)/n (2S/B + gS)   deterministic (one chain): 2(n-1)(a + c) + 2 S/B + gS
 *	star           2a + 2(n-1)c + max((n-1) S/B_hub, S/B) + (n-1) gS
 *	direct         2a + 2(n-1)c + L S/B + (n-1)/n gS     L: the most that any member moves, of S, times B over its own bandwidth:
 *	                                                     2(n-1)/n when all are alike (shares.h)
 *	hierarchical   2(a + a_h) + 2(m+R-2)c + 2(m-1)/m S/B_h + 2(R-1)/R (S/m)/B + ((m-1)/m + (R-1)/R/m) gS
 *	one-shot       a + 2(n-1)c max(1, m/2) + (n-1) (S/B + gS)   (all m peers of a host handle as much as a hub, on its cores)
 *	               a_h + (c + (n-1) gS) max(1, m/2)             where inputs are shown to all at once
 *
 *
 * Over a long way (a of 0.5 ms or more) what follows hides what went before, and a segment of s bytes has to be whole before it goes on:
 *
 *	ring           (2n-3) max(a + c + s/B, b/B) + a + c + b/B + (n-1)/n gS       b: S/n, in whole segments
 *	star           2a + 2(n-1)c + max((n-1) S/B_hub, S/B) + (n-1) s/B_hub + (n-1) gS
 *	direct         max(2a + I S/B + (n-1) s/B, a + L S/B + s/B) + 2(n-1)c + (n-1)/n gS   I: the most that any member has to take of inputs, as L: (n-1) b/S when
 *	                                                                             all are alike, and L is 1 + (n-2) b/S then
 *
 * n peers, S bytes, B bytes/s per direction of the slowest link, a one-way latency of the worst link, c the handling of one
 * message at its ends, g the time to fold one byte into a sum; R hosts of at most m peers, whose memory has latency a_h and
 * bandwidth B_h. With R hosts, direct has (n-m)/(n-1) of its bytes between hosts. If all share one host, what everybody moves and adds
 * (ring, direct, one-shot) and direct's second trip count m/2 times where that is more, since its cores (two, for all that is known) take
 * turns; and a is at most the loopback's. If they have only sockets there, direct's bytes count 1.1 times when n > 2: what n - 1 streams
 * hold at the same time leaves the caches before it is read (measured: docs/benchmarks.md). The form is that of Thakur, Rabenseifner & Gropp, "Optimization of collective
 * communication operations in MPICH", 2005.
 */
#ifndef TR_COLLECTIVES_CORE_SELECT_H
#define TR_COLLECTIVES_CORE_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/coll.h"

struct select_input {
	enum tr_algorithm wanted; /* TR_AUTO: choose */
	/* 0: not measured yet; a loopback's figures are taken. */
	double latency_s, bandwidth_bytes_per_s;
	double hub_bandwidth_bytes_per_s; /* 0: as the others */
	double direct_load;               /* L above; 0: all alike */
	double direct_given;              /* I above */
	uint64_t bytes;
	uint32_t segment_bytes; /* 0: no matter */
	unsigned peers;
	unsigned hosts;      /* 0: unknown, every peer is on its own */
	unsigned host_peers; /* m: on the fullest host */
	bool sockets;        /* peers of one host do not share memory */
	bool shown;          /* one-shot's inputs are shown to all at once (GROUP_DO_SPREAD) */
	bool deterministic;
};

bool select_long(double latency_s); /* so far that trips count more than what handles them */
const char *select_name(enum tr_algorithm algorithm); /* as options have it: "ring", "one-shot" */
double select_cost_s(const struct select_input *input, enum tr_algorithm algorithm);

/* Never TR_AUTO. A wish for hierarchical becomes direct where sums are to be taken in one order (deterministic), and where no two
 * peers, or all, share a host. `reason` (may be NULL) gets the words: "direct: 0.66 s against 1.26 s (ring), ...". */
enum tr_algorithm select_algorithm(const struct select_input *input, char *reason,
    size_t reason_bytes);

#endif
