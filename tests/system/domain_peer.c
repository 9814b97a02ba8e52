/* A member of a domain that runs rounds with known data; tests/system/test_backend_mpi.py starts several under mpirun,
 * test_backend_nccl.py by themselves. What a member contributes are small whole numbers, a function of (domain, number,
 * round, element), so every order of addition gives the same bits, and each member computes the reference from the members
 * that a mask of bits, summed too, says are in it.
 *
 *	domain_peer MEMBERSHIP GROUP DOMAINS DOMAIN ROUNDS POLICY COUNT FOLDER [PAUSE_AT_ROUND [RANK]]
 *
 * The environment says which backend (domain_memory.h). Writes a JSON object a line to FOLDER/DOMAIN-RANK.jsonl: {"pid":...}, {"submitted": r}, {"paused": r} (ops
 * are submitted, it does not commit), {"round": r, ...}, {"done": 1} or {"error": name, "text": ...}. With PAUSE_AT_ROUND
 * all ranks pause there, or just RANK.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "collectives/domain.h"
#include "tests/system/domain_memory.h"

#define DOMAINS_MAX 8

struct peer {
	tr_domain *domain;
	tr_group *group; /* leader's */
	FILE *out;
	struct memory memory;
	unsigned own, number; /* of its domain; its rank when that opened */
	size_t count;
	float *data;  /* count, and DOMAINS_MAX behind them: whose data it is, a bit a member */
	int64_t *ids; /* per domain: its leader's peer id, 0: not there */
	int64_t *members;
	uint64_t *sum; /* over all results: the state that a joiner receives */
	void *device_sum;
	uint64_t restarts, damaged;
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

static double now_ms(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static float contribution(unsigned domain, unsigned number, uint64_t round, size_t element)
{
	return (float)((domain * 31 + number * 7 + round * 13 + element % 101) % 64);
}

static float own_element(const struct peer *p, uint64_t round, size_t e)
{
	if (e < p->count)
		return contribution(p->own, p->number, round, e);
	return e - p->count == p->own ? (float)(1u << p->number) : 0;
}

static float sum_of(unsigned domain, unsigned members, uint64_t round, size_t element)
{
	float sum = 0;
	for (unsigned number = 0; members >> number != 0; number++)
		sum += (members >> number & 1) != 0 ? contribution(domain, number, round, element)
		                                    : 0;
	return sum;
}

/* Leader: every element against the sum over the members of the domains whose leaders are in it. */
static size_t wrong_elements(const struct peer *p, uint64_t round)
{
	static uint64_t known[DOMAINS_MAX]; /* a domain that is gone is still in results */
	static unsigned masks[DOMAINS_MAX];
	size_t wrong = 0;
	for (unsigned d = 0; d < DOMAINS_MAX; d++) {
		if (p->ids[d] != 0)
			known[d] = (uint64_t)p->ids[d];
		if (p->data[p->count + d] != 0)
			masks[d] = (unsigned)p->data[p->count + d];
	}
	for (size_t e = 0; e < p->count; e += p->count / 997 + 1) {
		uint64_t peers[DOMAINS_MAX];
		size_t n = 0;
		float expected = 0;
		if (tr_contributors(p->group, 0, e, peers, DOMAINS_MAX, &n) != TR_OK)
			return p->count;
		for (size_t i = 0; i < n; i++)
			for (unsigned d = 0; d < DOMAINS_MAX; d++)
				if (peers[i] == known[d])
					expected += sum_of(d, masks[d], round, e);
		wrong += expected != p->data[e];
	}
	return wrong;
}

static void submit(struct peer *p, uint64_t round)
{
	struct tr_error error = { 0 };
	for (size_t e = 0; e < p->count + DOMAINS_MAX; e++)
		p->data[e] = own_element(p, round, e);
	memset(p->ids, 0, DOMAINS_MAX * sizeof(*p->ids));
	if (p->group != NULL)
		p->ids[p->own] = (int64_t)tr_peer_id(p->group);
	*p->members = 1;
	memory_put(&p->memory, p->data);
	memory_put(&p->memory, p->ids);
	memory_put(&p->memory, p->members);
	tr_status st = tr_domain_allreduce(p->domain, 0, memory_place(&p->memory, p->data),
	    p->count + DOMAINS_MAX, TR_F32, TR_SUM, &error);
	if (st == TR_OK)
		st = tr_domain_allreduce(p->domain, 1, memory_place(&p->memory, p->ids),
		    DOMAINS_MAX, TR_I64, TR_SUM, &error);
	if (st == TR_OK)
		st = tr_domain_allreduce(p->domain, 2, memory_place(&p->memory, p->members), 1,
		    TR_I64, TR_SUM, &error);
	if (st == TR_OK) /* nothing, and so no memory */
		st = tr_domain_allreduce(p->domain, 3, NULL, 0, TR_F32, TR_SUM, &error);
	if (st != TR_OK && st != TR_ERESTART)
		fail(p, "allreduce", st, &error);
}

/* A round that is computed again left the data as it was. */
static void check_restart(struct peer *p, uint64_t round)
{
	memory_get(&p->memory, p->data);
	for (size_t e = 0; e < p->count + DOMAINS_MAX; e++)
		p->damaged += p->data[e] != own_element(p, round, e);
	p->restarts++;
}

/* What the leader received, for all. */
static void share_state(struct peer *p)
{
	struct tr_error error = { 0 };
	void *place = memory_place(&p->memory, p->device_sum);
	struct tr_domain_op op = { .size_of = sizeof(op),
		.collective = TR_BROADCAST,
		.dtype = TR_U8,
		.in = place,
		.out = place,
		.count = sizeof(*p->sum) };
	memcpy(p->device_sum, p->sum, sizeof(*p->sum));
	memory_put(&p->memory, p->device_sum);
	tr_status st = tr_domain_inside(p->domain, &op, &error);
	if (st != TR_OK)
		fail(p, "inside", st, &error);
	memory_get(&p->memory, p->device_sum);
	memcpy(p->sum, p->device_sum, sizeof(*p->sum));
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
		    (p->pause_rank < 0 || p->pause_rank == (int)p->number)) {
			fprintf(p->out, "{\"paused\": %" PRIu64 "}\n", round.round);
			for (;;)
				(void)pause();
		}
		if (round.receive_state && p->group != NULL &&
		    tr_state_receive(p->group, &error) != TR_OK)
			fail(p, "state", error.status, &error);
		if (round.receive_state)
			share_state(p);
		st = tr_domain_commit(p->domain, &(struct tr_commit){ .samples = 1 }, &done, &error);
		if (st == TR_OK)
			break;
		if (st != TR_ERESTART)
			fail(p, "commit", st, &error);
		check_restart(p, round.round);
		fprintf(p->out, "{\"restart\": \"%s\"}\n", error.text);
	}
	memory_get(&p->memory, p->data);
	memory_get(&p->memory, p->ids);
	memory_get(&p->memory, p->members);
	for (size_t e = 0; e < p->count; e++)
		*p->sum = *p->sum * 31 + (uint64_t)p->data[e];
	fprintf(p->out,
	    "{\"round\": %" PRIu64 ", \"peers\": %u, \"members\": %" PRId64
	    ", \"wrong\": %zu, \"restarts\": %" PRIu64 ", \"sum\": %" PRIu64 ", \"ms\": %.3f}\n",
	    done.round, done.peers, *p->members,
	    (size_t)p->damaged + (p->group != NULL ? wrong_elements(p, done.round) : 0),
	    p->restarts, *p->sum, now_ms());
}

/* ---- collectives inside */

#define INSIDE 1000

/* A small whole number, as the type has it. */
static void encode(enum tr_dtype dtype, unsigned value, void *at)
{
	float f32 = (float)value;
	double f64 = value;
	int32_t i32 = (int32_t)value;
	int64_t i64 = value;
	uint8_t u8 = (uint8_t)value;
	uint32_t bits;
	memcpy(&bits, &f32, sizeof(bits));
	uint16_t bf16 = (uint16_t)(bits >> 16), f16 = 0;
	if (value != 0) /* the exponent's bias and the mantissa's length differ */
		f16 = (uint16_t)(((bits >> 23) - 127 + 15) << 10 | (bits >> 13 & 0x3ff));
	switch (dtype) {
	case TR_F32:
		memcpy(at, &f32, 4);
		break;
	case TR_F64:
		memcpy(at, &f64, 8);
		break;
	case TR_I32:
		memcpy(at, &i32, 4);
		break;
	case TR_I64:
		memcpy(at, &i64, 8);
		break;
	case TR_U8:
		memcpy(at, &u8, 1);
		break;
	case TR_F16:
		memcpy(at, &f16, 2);
		break;
	case TR_BF16:
		memcpy(at, &bf16, 2);
		break;
	}
}

static unsigned input(unsigned rank, unsigned element)
{
	return (element + rank) % 3;
}

static unsigned reduced(enum tr_reduce reduce, unsigned size, unsigned element)
{
	unsigned value = input(0, element);
	for (unsigned rank = 1; rank < size; rank++) {
		unsigned other = input(rank, element);
		value = reduce == TR_SUM                    ? value + other
		    : reduce == TR_PROD                     ? value * other
		    : (reduce == TR_MIN) == (other < value) ? other
		                                            : value;
	}
	return value;
}

/* What element i of the result must be. */
static unsigned expected_inside(enum tr_collective kind, enum tr_reduce reduce, unsigned size,
    unsigned rank, unsigned i)
{
	switch (kind) {
	case TR_ALL_REDUCE:
		return reduced(reduce, size, i);
	case TR_REDUCE_SCATTER:
		return reduced(reduce, size, i + rank * INSIDE);
	case TR_ALL_GATHER:
		return input(i / INSIDE, i % INSIDE);
	default:
		return input(0, i);
	}
}

/* Elements that are not what they must be. -1: the backend does not have it. */
static int check_one(struct peer *p, enum tr_collective kind, enum tr_dtype dtype, size_t bytes,
    enum tr_reduce reduce, char *in, char *out)
{
	struct tr_error error = { 0 };
	unsigned size = tr_domain_size(p->domain), rank = tr_domain_rank(p->domain);
	unsigned elements = kind == TR_ALL_GATHER ? INSIDE * size : INSIDE;
	int wrong = 0;
	for (unsigned i = 0; i < INSIDE * size; i++)
		encode(dtype, input(rank, i), in + i * bytes);
	memset(out, 0xa5, INSIDE * size * bytes);
	memory_put(&p->memory, in);
	memory_put(&p->memory, out);
	struct tr_domain_op op = { .size_of = sizeof(op),
		.collective = kind,
		.dtype = dtype,
		.reduce = reduce,
		.in = memory_place(&p->memory, in),
		.out = memory_place(&p->memory, out),
		.count = INSIDE };
	tr_status st = tr_domain_inside(p->domain, &op, &error);
	if (st == TR_EINVAL)
		return -1;
	if (st != TR_OK)
		fail(p, "inside", st, &error);
	memory_get(&p->memory, out);
	for (unsigned i = 0; i < elements; i++) {
		char right[8];
		encode(dtype, expected_inside(kind, reduce, size, rank, i), right);
		wrong += memcmp(out + i * bytes, right, bytes) != 0;
	}
	return wrong;
}

/* Every collective inside, of every type and reduction, against what it must give. */
static void check_inside(struct peer *p)
{
	static const enum tr_collective kinds[] = { TR_ALL_REDUCE, TR_REDUCE_SCATTER, TR_ALL_GATHER,
		TR_BROADCAST };
	static const enum tr_reduce reduces[] = { TR_SUM, TR_PROD, TR_MIN, TR_MAX };
	static const size_t bytes[] = { [TR_F32] = 4,
		[TR_F64] = 8,
		[TR_I32] = 4,
		[TR_I64] = 8,
		[TR_F16] = 2,
		[TR_BF16] = 2,
		[TR_U8] = 1 };
	size_t room = (size_t)INSIDE * tr_domain_size(p->domain) * 8;
	char *in = memory_new(&p->memory, room), *out = memory_new(&p->memory, room);
	int cases = 0, wrong = 0;
	for (unsigned d = 0; d < sizeof(bytes) / sizeof(*bytes); d++)
		for (unsigned k = 0; k < 4; k++)
			for (unsigned r = 0; r < 4 && bytes[d] != 0; r++) {
				int one = check_one(p, kinds[k], (enum tr_dtype)d, bytes[d],
				    reduces[r], in, out);
				cases += one >= 0;
				wrong += one > 0 ? one : 0;
			}
	fprintf(p->out, "{\"inside\": %d, \"wrong\": %d}\n", cases, wrong);
}

/* ---- start */

static void open_domain(struct peer *p, struct tr_domain_options *options)
{
	struct tr_error error = { 0 };
	const char *why = "";
	if (!memory_domain(&p->memory, options, &why)) {
		fprintf(stderr, "domain_peer: %s\n", why);
		exit(1);
	}
	if (tr_domain_open(options, &p->domain, &error) != TR_OK) {
		fprintf(stderr, "%s\n", error.text);
		exit(1);
	}
	p->number = tr_domain_rank(p->domain);
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
	open_domain(&p, &options);
	(void)snprintf(path, sizeof(path), "%s/%u-%u.jsonl", argv[8], p.own, p.number);
	p.out = fopen(path, "w");
	if (p.out == NULL)
		return 1;
	p.data = memory_new(&p.memory, (p.count + DOMAINS_MAX) * sizeof(float));
	p.ids = memory_new(&p.memory, DOMAINS_MAX * sizeof(int64_t));
	p.members = memory_new(&p.memory, sizeof(int64_t));
	p.device_sum = memory_new(&p.memory, sizeof(*p.sum));
	setvbuf(p.out, NULL, _IOLBF, 0);
	fprintf(p.out, "{\"pid\": %d, \"rank\": %u, \"size\": %u}\n", (int)getpid(), p.number,
	    tr_domain_size(p.domain));
	check_inside(&p);
	if (p.number != 0) {
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
