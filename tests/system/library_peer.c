/* A process that joins a group and runs rounds with known data; tests/system/test_library.py starts several. What a
 * peer contributes is a function of (peer, round, op, element), small whole numbers, so that every order of addition
 * gives the same bits and the reference can be computed from the contributor sets that tr_contributors reports.
 *
 *	library_peer MEMBERSHIP GROUP SIZE ROUNDS POLICY ALGORITHM [COUNT] [PAUSE_AT_ROUND] [ANNOUNCE_ROUND]
 *	    [LISTEN] [fork] [sockets=N] [tls=DIR] [tcp]
 *
 * With `fork` it leaves a child behind that holds copies of all its files: {"child": pid}. `sockets`: connections to each peer.
 *
 * Prints a JSON object a line: {"joined": peer}, {"paused": r}, {"submitted": r} (all ops of the round to announce are
 * with the library), {"round": r, ...}, {"done": rounds} or {"error": name, "text": ...}.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/system/peer_program.h"

#define OPS 3

struct peer {
	tr_group *group;
	size_t count;
	float *data[OPS];
	uint64_t *state; /* [0] rounds applied, [1] a sum over all results: equal on all peers */
};

static float contribution(uint64_t peer, uint64_t round, unsigned op, size_t element)
{
	return (float)((peer * 7 + round * 13 + op * 29 + element % 101) % 64);
}

/* The last element of the run that `element` lies in has the same contributors. */
static bool is_of_its_run(const struct peer *p, unsigned op, size_t element, const uint64_t *peers,
    size_t count)
{
	size_t run = 0, found = 0, none = 0;
	if (tr_run_elements(p->group, op, &run) != TR_OK ||
	    tr_run_elements(p->group, UINT32_MAX, &none) != TR_ENOTFOUND || none != 0)
		return false;
	size_t last = element / run * run + run - 1;
	uint64_t others[256];
	return tr_contributors(p->group, op, last < p->count ? last : p->count - 1, others, 256,
	           &found) == TR_OK &&
	    found == count && memcmp(others, peers, count * sizeof(*peers)) == 0;
}

/* Every element against the sum over its segment's contributors; elements are sampled, ends included. */
static unsigned long check_op(const struct peer *p, uint64_t round, unsigned op,
    size_t *contributors)
{
	unsigned long wrong = 0;
	size_t step = p->count / 97 + 1;
	for (size_t e = 0; e < p->count;
	     e = e + step < p->count || e == p->count - 1 ? e + step : p->count - 1) {
		uint64_t peers[256];
		size_t n = 0;
		float sum = 0;
		if (tr_contributors(p->group, op, e, peers, 256, &n) != TR_OK)
			return p->count;
		for (size_t i = 0; i < n; i++)
			sum += contribution(peers[i], round, op, e);
		wrong += sum != p->data[op][e] || !is_of_its_run(p, op, e, peers, n);
		*contributors = n;
	}
	return wrong;
}

static void apply(struct peer *p, uint64_t round)
{
	uint64_t sum = p->state[1];
	for (unsigned op = 0; op < OPS; op++)
		for (size_t e = 0; e < p->count; e++)
			sum = sum * 31 + (uint64_t)p->data[op][e];
	p->state[1] = sum;
	p->state[0] = round;
}

static void one_round(struct peer *p, uint64_t pause_at, uint64_t announce)
{
	struct tr_error error = { 0 };
	struct tr_round round, committed;
	uint64_t restarts = 0;
	for (;;) {
		tr_status st = tr_round_begin(p->group, &round, &error);
		if (st != TR_OK)
			fail("begin", st, &error);
		uint64_t me = tr_peer_id(p->group);
		unsigned flags = round.index < round.contributors ? TR_CONTRIBUTE : 0;
		for (unsigned op = 0; op < OPS; op++) {
			for (size_t e = 0; e < p->count; e++)
				p->data[op][e] = contribution(me, round.round, op, e);
			(void)tr_progress(p->group);
			st = tr_allreduce(p->group, op, p->data[op], p->count, TR_F32, TR_SUM,
			    flags, &error);
			if (st != TR_OK && st != TR_ERESTART)
				fail("allreduce", st, &error);
			if (op == 1 && round.round == pause_at) {
				printf("{\"paused\": %" PRIu64 "}\n", round.round);
				for (;;)
					(void)pause();
			}
		}
		if (round.round == announce)
			printf("{\"submitted\": %" PRIu64 "}\n", round.round);
		if (round.receive_state) {
			st = tr_state_receive(p->group, &error);
			if (st != TR_OK && st != TR_ERESTART)
				fail("state", st, &error);
		}
		st = tr_round_commit(p->group,
		    &(struct tr_commit){ .samples = 1, .salt = p->state[1] }, &committed, &error);
		if (st == TR_OK)
			break;
		if (st != TR_ERESTART)
			fail("commit", st, &error);
		restarts++;
	}
	size_t contributors = 0;
	unsigned long wrong = 0;
	for (unsigned op = 0; op < OPS; op++)
		wrong += check_op(p, committed.round, op, &contributors);
	apply(p, committed.round);
	say_round(&committed, contributors, wrong, restarts, p->state[1]);
}

static void leave_child(void)
{
	pid_t child = fork();
	if (child == 0)
		for (;;)
			(void)pause();
	printf("{\"child\": %d}\n", (int)child);
}

int main(int argc, char **argv)
{
	struct tr_join_options options = TR_JOIN_OPTIONS_INIT;
	struct tr_error error = { 0 };
	struct peer p = { .count = number_of(argc, argv, 7, 100000) };
	if (argc < 7) {
		fprintf(stderr,
		    "usage: library_peer MEMBERSHIP GROUP SIZE ROUNDS POLICY ALGORITHM [COUNT] "
		    "[PAUSE_AT_ROUND] [ANNOUNCE_ROUND] [LISTEN] [fork] [sockets=N]\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	options.membership = argv[1];
	options.name = argv[2];
	options.size = (unsigned)strtoul(argv[3], NULL, 10);
	uint64_t rounds = number_of(argc, argv, 4, 0);
	options.policy = policy_of(argv[5]);
	options.algorithm = strcmp(argv[6], "star") == 0 ? TR_STAR
	    : strcmp(argv[6], "ring") == 0               ? TR_RING
	    : strcmp(argv[6], "direct") == 0             ? TR_DIRECT
	    : strcmp(argv[6], "hierarchical") == 0       ? TR_HIERARCHICAL
	                                                 : TR_AUTO;
	uint64_t pause_at = number_of(argc, argv, 8, 0);
	uint64_t announce = number_of(argc, argv, 9, 0);
	options.listen = argc > 10 ? argv[10] : NULL;
	options.insecure = argc > 10;
	for (int i = 11; i < argc; i++) {
		if (strncmp(argv[i], "sockets=", 8) == 0)
			options.sockets = (unsigned)strtoul(argv[i] + 8, NULL, 10);
		else if (strncmp(argv[i], "tls=", 4) == 0)
			options.tls = argv[i] + 4;
		else if (strcmp(argv[i], "tcp") == 0)
			options.transport = TR_TRANSPORT_TCP;
	}
	tr_status st = tr_group_join(&options, &p.group, &error);
	if (st != TR_OK)
		fail("join", st, &error);
	printf("{\"joined\": %" PRIu64 "}\n", tr_peer_id(p.group));
	for (unsigned op = 0; op < OPS; op++)
		p.data[op] = tr_alloc(p.group, p.count * sizeof(float));
	if (p.data[OPS - 1] == NULL)
		return 1;
	p.state = state_of(p.group);
	for (int i = 11; i < argc; i++)
		if (strcmp(argv[i], "fork") == 0)
			leave_child();
	while (p.state[0] < rounds)
		one_round(&p, pause_at, announce);
	printf("{\"done\": %" PRIu64 "}\n", p.state[0]);
	tr_group_leave(p.group);
	return 0;
}
