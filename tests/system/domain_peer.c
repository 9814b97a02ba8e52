/* A member of a domain that runs rounds with known data; tests/system/test_backend_mpi.py starts several under mpirun. What a
 * member contributes are small whole numbers, a function of (domain, rank, round, element), so every order of addition gives
 * the same bits and the leader can compute the reference from tr_contributors.
 *
 *	domain_peer MEMBERSHIP GROUP DOMAINS DOMAIN ROUNDS POLICY COUNT FOLDER [PAUSE_AT_ROUND [RANK]]
 *
 * Writes a JSON object a line to FOLDER/DOMAIN-RANK.jsonl: {"pid":...}, {"submitted": r}, {"paused": r} (ops are submitted,
 * it does not commit), {"round": r, ...}, {"done": 1} or {"error": name, "text": ...}. With PAUSE_AT_ROUND all ranks pause
 * there, or just RANK.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/domain.h"

#define DOMAINS_MAX 8

struct peer {
	tr_domain *domain;
	tr_group *group; /* leader's */
	FILE *out;
	unsigned own, size;
	size_t count;
	float *data;
	int64_t *ids; /* per domain: its leader's peer id, 0: not there */
	int64_t members;
	uint64_t *sum; /* over all results: the state that a joiner receives */
	uint64_t restarts;
	uint64_t pause_at;
	int pause_rank; /* -1: all */
};

static void fail(struct peer *p, const char *what, tr_status st, const struct tr_error *error)
{
	fprintf(p->out, "{\"error\": \"%s\", \"call\": \"%s\", \"text\": \"%s\"}\n",
	    tr_status_name(st), what, error->text);
	tr_domain_close(p->domain);
	tr_group_leave(p->group);
	exit(1);
}

static float contribution(unsigned domain, unsigned rank, uint64_t round, size_t element)
{
	return (float)((domain * 31 + rank * 7 + round * 13 + element % 101) % 64);
}

/* Leader: every element against the sum over the members of the domains whose leaders are in it. */
static size_t wrong_elements(const struct peer *p, uint64_t round)
{
	static uint64_t known[DOMAINS_MAX]; /* a domain that is gone is still in results */
	size_t wrong = 0;
	for (unsigned d = 0; d < DOMAINS_MAX; d++)
		if (p->ids[d] != 0)
			known[d] = (uint64_t)p->ids[d];
	for (size_t e = 0; e < p->count; e += p->count / 997 + 1) {
		uint64_t peers[DOMAINS_MAX];
		size_t n = 0;
		float expected = 0;
		if (tr_contributors(p->group, 0, e, peers, DOMAINS_MAX, &n) != TR_OK)
			return p->count;
		for (size_t i = 0; i < n; i++)
			for (unsigned d = 0; d < DOMAINS_MAX; d++)
				for (unsigned r = 0; peers[i] == known[d] && r < p->size; r++)
					expected += contribution(d, r, round, e);
		wrong += expected != p->data[e];
	}
	return wrong;
}

static void submit(struct peer *p, uint64_t round)
{
	struct tr_error error = { 0 };
	unsigned rank = tr_domain_rank(p->domain);
	for (size_t e = 0; e < p->count; e++)
		p->data[e] = contribution(p->own, rank, round, e);
	memset(p->ids, 0, DOMAINS_MAX * sizeof(*p->ids));
	if (p->group != NULL)
		p->ids[p->own] = (int64_t)tr_peer_id(p->group);
	p->members = 1;
	tr_status st = tr_domain_allreduce(p->domain, 0, p->data, p->count, TR_F32, TR_SUM, &error);
	if (st == TR_OK)
		st = tr_domain_allreduce(p->domain, 1, p->ids, DOMAINS_MAX, TR_I64, TR_SUM, &error);
	if (st == TR_OK)
		st = tr_domain_allreduce(p->domain, 2, &p->members, 1, TR_I64, TR_SUM, &error);
	if (st == TR_OK) /* nothing, and so no memory */
		st = tr_domain_allreduce(p->domain, 3, NULL, 0, TR_F32, TR_SUM, &error);
	if (st != TR_OK && st != TR_ERESTART)
		fail(p, "allreduce", st, &error);
}

static void one_round(struct peer *p)
{
	struct tr_error error = { 0 };
	struct tr_round round, done;
	for (;;) {
		tr_status st = tr_domain_round_begin(p->domain, &round, &error);
		if (st != TR_OK)
			fail(p, "begin", st, &error);
		submit(p, round.round);
		fprintf(p->out, "{\"submitted\": %" PRIu64 "}\n", round.round);
		if (round.round == p->pause_at &&
		    (p->pause_rank < 0 || p->pause_rank == (int)tr_domain_rank(p->domain))) {
			fprintf(p->out, "{\"paused\": %" PRIu64 "}\n", round.round);
			for (;;)
				(void)pause();
		}
		if (round.receive_state && p->group != NULL &&
		    tr_state_receive(p->group, &error) != TR_OK)
			fail(p, "state", error.status, &error);
		if (round.receive_state) { /* what the leader received, for all */
			struct tr_domain_op op = { .size_of = sizeof(op),
				.collective = TR_BROADCAST,
				.dtype = TR_U8,
				.in = p->sum,
				.out = p->sum,
				.count = sizeof(*p->sum) };
			st = tr_domain_inside(p->domain, &op, &error);
			if (st != TR_OK)
				fail(p, "inside", st, &error);
		}
		st = tr_domain_commit(p->domain, &(struct tr_commit){ .samples = 1 }, &done, &error);
		if (st == TR_OK)
			break;
		if (st != TR_ERESTART)
			fail(p, "commit", st, &error);
		p->restarts++;
		fprintf(p->out, "{\"restart\": \"%s\"}\n", error.text);
	}
	for (size_t e = 0; e < p->count; e++)
		*p->sum = *p->sum * 31 + (uint64_t)p->data[e];
	fprintf(p->out,
	    "{\"round\": %" PRIu64 ", \"peers\": %u, \"members\": %" PRId64
	    ", \"wrong\": %zu, \"restarts\": %" PRIu64 ", \"sum\": %" PRIu64 "}\n",
	    done.round, done.peers, p->members,
	    p->group != NULL ? wrong_elements(p, done.round) : 0, p->restarts, *p->sum);
}

/* Every collective inside, against what it must give. */
static void check_inside(struct peer *p)
{
	struct tr_error error = { 0 };
	unsigned size = tr_domain_size(p->domain), rank = tr_domain_rank(p->domain);
	enum { N = 1000 };
	int32_t *in = calloc((size_t)N * size, sizeof(*in)),
	        *out = calloc((size_t)N * size, sizeof(*out));
	static const enum tr_collective kinds[] = { TR_ALL_REDUCE, TR_REDUCE_SCATTER, TR_ALL_GATHER,
		TR_BROADCAST };
	unsigned wrong = in == NULL || out == NULL;
	for (unsigned k = 0; !wrong && k < 4; k++) {
		for (unsigned i = 0; i < N * size; i++)
			in[i] = (int32_t)(i + rank * 1000000);
		struct tr_domain_op op = { .size_of = sizeof(op),
			.collective = kinds[k],
			.dtype = TR_I32,
			.reduce = TR_MAX,
			.in = in,
			.out = out,
			.count = N };
		tr_status st = tr_domain_inside(p->domain, &op, &error);
		if (st != TR_OK)
			fail(p, "inside", st, &error);
		unsigned elements = kinds[k] == TR_ALL_GATHER ? N * size : N;
		for (unsigned i = 0; i < elements; i++) {
			unsigned top = (size - 1) * 1000000;
			unsigned expected = kinds[k] == TR_ALL_REDUCE ? i + top
			    : kinds[k] == TR_REDUCE_SCATTER           ? i + rank * N + top
			    : kinds[k] == TR_ALL_GATHER               ? i % N + i / N * 1000000
			                                              : i;
			wrong += (unsigned)out[i] != expected;
		}
	}
	fprintf(p->out, "{\"inside\": 4, \"wrong\": %u}\n", wrong);
	free(in);
	free(out);
}

int main(int argc, char **argv)
{
	struct tr_domain_options options = TR_DOMAIN_OPTIONS_INIT;
	struct tr_join_options join = TR_JOIN_OPTIONS_INIT;
	struct tr_error error = { 0 };
	struct peer p = { .pause_rank = -1 };
	char path[512];
	if (argc < 9) {
		fprintf(stderr,
		    "usage: domain_peer MEMBERSHIP GROUP DOMAINS DOMAIN ROUNDS POLICY COUNT FOLDER "
		    "[PAUSE_AT_ROUND [RANK]]\n");
		return 2;
	}
	join.membership = argv[1];
	join.name = argv[2];
	join.size = (unsigned)strtoul(argv[3], NULL, 10);
	p.own = (unsigned)strtoul(argv[4], NULL, 10);
	uint64_t rounds = strtoull(argv[5], NULL, 10);
	options.policy = join.policy = strcmp(argv[6], "replay") == 0 ? TR_REPLAY : TR_KEEP;
	p.count = strtoul(argv[7], NULL, 10);
	p.pause_at = argc > 9 ? strtoull(argv[9], NULL, 10) : 0;
	p.pause_rank = argc > 10 ? (int)strtol(argv[10], NULL, 10) : -1;
	options.backend = "mpi";
	if (tr_domain_open(&options, &p.domain, &error) != TR_OK) {
		fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	p.size = tr_domain_size(p.domain);
	(void)snprintf(path, sizeof(path), "%s/%u-%u.jsonl", argv[8], p.own,
	    tr_domain_rank(p.domain));
	p.out = fopen(path, "w");
	p.data = calloc(p.count + 1, sizeof(float));
	p.ids = calloc(DOMAINS_MAX, sizeof(int64_t));
	if (p.out == NULL || p.data == NULL || p.ids == NULL)
		return 1;
	setvbuf(p.out, NULL, _IOLBF, 0);
	fprintf(p.out, "{\"pid\": %d, \"rank\": %u, \"size\": %u}\n", (int)getpid(),
	    tr_domain_rank(p.domain), p.size);
	check_inside(&p);
	if (tr_domain_rank(p.domain) != 0) {
		p.sum = calloc(1, sizeof(*p.sum));
	} else {
		if (tr_group_join(&join, &p.group, &error) != TR_OK ||
		    (p.sum = tr_alloc(p.group, sizeof(*p.sum))) == NULL ||
		    tr_state_add(p.group, "sum", p.sum, sizeof(*p.sum), &error) != TR_OK ||
		    tr_state_ready(p.group, 0, &error) != TR_OK ||
		    tr_domain_lead(p.domain, p.group, &error) != TR_OK)
			fail(&p, "join", error.status, &error);
	}
	for (uint64_t i = 0; i < rounds; i++)
		one_round(&p);
	fprintf(p.out, "{\"done\": 1}\n");
	tr_domain_close(p.domain);
	tr_group_leave(p.group);
	return 0;
}
