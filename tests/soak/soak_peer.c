/* One process of the soak (scripts/soak.py): joins a group and runs rounds until SIGTERM, each with a few concurrent ops of random kind, type
 * and size, drawn from the round's number alone, so that all peers submit the same. What a peer contributes is a function of
 * (peer, round, op, element), small whole numbers, so that every order of addition gives the same bits and every element can be checked
 * against the contributor set that the library reports. Codecs are lossy: there only the equality of all peers is checked, by a digest chain
 * which is part of every commit (salt) and of the state that joiners receive.
 *
 *	soak_peer MEMBERSHIP GROUP FOUNDERS POLICY TRANSPORT SEED
 *
 * Prints a JSON object a line: {"joined": peer}; every REPORT_EVERY rounds {"round": r, "chain": hex, "view": v, "peers": n}; {"left": r}; or {"error": name, "text": ...}.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectives/coll.h"

#define OPS_MAX      6
#define ELEMENTS_MAX 200000u
#define REPORT_EVERY 20

static volatile sig_atomic_t ending;

struct plan {
	struct tr_op op;
	size_t element_bytes;
	bool exact;
};

struct soak {
	tr_group *group;
	uint64_t seed, peer;
	uint8_t *input[OPS_MAX], *output[OPS_MAX];
	uint64_t *state; /* [0] rounds applied, [1] the digest chain */
	struct plan plans[OPS_MAX];
	unsigned plan_count;
};

static void fail(const char *call, tr_status st, const struct tr_error *error)
{
	printf("{\"error\": \"%s\", \"call\": \"%s\", \"text\": \"%s\"}\n", tr_status_name(st),
	    call, error->text);
	exit(1);
}

static uint64_t mix(uint64_t a, uint64_t b)
{
	a = (a ^ b) * 0x9e3779b97f4a7c15u;
	a = (a ^ a >> 29) * 0xbf58476d1ce4e5b9u;
	return a ^ a >> 32;
}

/* ---- what a round consists of ---- */

static const struct {
	enum tr_dtype dtype;
	size_t bytes;
} dtypes[] = { { TR_F32, 4 }, { TR_F64, 8 }, { TR_I32, 4 }, { TR_I64, 8 }, { TR_F16, 2 },
	{ TR_BF16, 2 }, { TR_U8, 1 } };

static enum tr_collective draw_collective(uint64_t draw)
{
	static const enum tr_collective rare[] = { TR_REDUCE_SCATTER, TR_ALL_GATHER, TR_BROADCAST,
		TR_BARRIER };
	return draw % 10 < 6 ? TR_ALL_REDUCE : rare[draw / 10 % 4];
}

/* The same on all peers: of the seed, the round and how many contribute. */
static void draw_round(struct soak *soak, const struct tr_round *round)
{
	uint64_t draw = mix(soak->seed, round->round);
	soak->plan_count = 1 + (unsigned)(draw % OPS_MAX);
	for (unsigned k = 0; k < soak->plan_count; k++) {
		struct plan *plan = &soak->plans[k];
		uint64_t a = mix(draw, 2 * k + 1), b = mix(draw, 2 * k + 2);
		unsigned type = (unsigned)(a >> 8) % 7;
		*plan = (struct plan){ .op = TR_OP_INIT, .exact = true };
		plan->op.tag = k;
		plan->op.collective = draw_collective(a >> 16);
		plan->op.dtype = dtypes[type].dtype;
		plan->element_bytes = dtypes[type].bytes;
		plan->op.reduce = (enum tr_reduce)(TR_SUM + (a >> 32) % 4 + ((a >> 32) % 4 > 0));
		plan->op.algorithm = (enum tr_algorithm)((a >> 40) % 6);
		plan->op.count = 1 + (b % ELEMENTS_MAX >> (b >> 32) % 17);
		if (plan->op.collective == TR_BROADCAST)
			plan->op.root = (unsigned)(b >> 40) % round->contributors;
		if (plan->op.collective == TR_BARRIER)
			plan->op.count = 0;
		if (plan->op.collective == TR_ALL_REDUCE && plan->op.dtype == TR_F32 &&
		    plan->op.reduce == TR_SUM && (b >> 48) % 2 == 0) {
			plan->op.codec = (enum tr_codec)(TR_CODEC_BF16 + (b >> 50) % 5);
			plan->exact = false;
		}
		plan->op.input = soak->input[k];
		plan->op.output = soak->output[k];
		plan->op.flags = round->index < round->contributors ? TR_CONTRIBUTE : 0;
	}
}

/* ---- data ---- */

static unsigned contribution(uint64_t peer, uint64_t round, unsigned op, size_t element)
{
	return (unsigned)((peer * 7 + round * 13 + op * 29 + element % 101) % 3);
}

static void put(const struct plan *plan, void *base, size_t e, unsigned x)
{
	static const uint16_t half[] = { 0, 0x3c00, 0x4000 }, brain[] = { 0, 0x3f80, 0x4000 };
	switch (plan->op.dtype) {
	case TR_F32:
		((float *)base)[e] = (float)x;
		return;
	case TR_F64:
		((double *)base)[e] = x;
		return;
	case TR_I32:
		((int32_t *)base)[e] = (int32_t)x;
		return;
	case TR_I64:
		((int64_t *)base)[e] = x;
		return;
	case TR_F16:
		((uint16_t *)base)[e] = half[x];
		return;
	case TR_BF16:
		((uint16_t *)base)[e] = brain[x];
		return;
	case TR_U8:
		((uint8_t *)base)[e] = (uint8_t)x;
		return;
	}
}

/* Small whole numbers only. */
static double get(const struct plan *plan, const void *base, size_t e)
{
	switch (plan->op.dtype) {
	case TR_F32:
		return (double)((const float *)base)[e];
	case TR_F64:
		return ((const double *)base)[e];
	case TR_I32:
		return ((const int32_t *)base)[e];
	case TR_I64:
		return (double)((const int64_t *)base)[e];
	case TR_U8:
		return ((const uint8_t *)base)[e];
	case TR_F16: {
		uint16_t h = ((const uint16_t *)base)[e];
		return h == 0
		    ? 0
		    : (double)(1024 + (h & 1023)) * (double)(1u << (h >> 10)) / 33554432.0;
	}
	case TR_BF16: {
		uint32_t word = (uint32_t)((const uint16_t *)base)[e] << 16;
		float f;
		memcpy(&f, &word, sizeof(f));
		return (double)f;
	}
	}
	return -1;
}

static void fill(struct soak *soak, const struct tr_round *round)
{
	for (unsigned k = 0; k < soak->plan_count; k++) {
		const struct plan *plan = &soak->plans[k];
		size_t first = 0, count = plan->op.count;
		if (plan->op.collective == TR_ALL_GATHER)
			tr_block_range(plan->op.count, round->contributors, round->index, &first,
			    &count);
		for (size_t e = 0; e < count; e++)
			put(plan, soak->input[k], e,
			    contribution(soak->peer, round->round, k, first + e));
		memset(soak->output[k], 0, plan->op.count * plan->element_bytes);
	}
}

static double reference(const struct plan *plan, uint64_t round, unsigned op, size_t e,
    const uint64_t *set, size_t count)
{
	double result = 0;
	for (size_t i = 0; i < count; i++) {
		double x = contribution(set[i], round, op, e);
		if (i == 0 || plan->op.collective == TR_ALL_GATHER ||
		    plan->op.collective == TR_BROADCAST)
			result = x;
		else if (plan->op.reduce == TR_SUM)
			result += x;
		else if (plan->op.reduce == TR_PROD)
			result *= x;
		else if (plan->op.reduce == TR_MIN)
			result = x < result ? x : result;
		else
			result = x > result ? x : result;
	}
	return result;
}

/* Elements are sampled, ends included; every peer's bytes are in the chain. */
static unsigned long check(struct soak *soak, const struct tr_round *round, unsigned k)
{
	const struct plan *plan = &soak->plans[k];
	size_t first = 0, count = plan->op.count;
	unsigned long wrong = 0;
	if (plan->op.collective == TR_REDUCE_SCATTER)
		tr_block_range(plan->op.count, round->contributors, round->index, &first, &count);
	if (count == 0 || !plan->exact)
		return 0;
	size_t step = count / 61 + 1;
	for (size_t i = 0; i < count;
	     i = i + step < count || i == count - 1 ? i + step : count - 1) {
		uint64_t set[256];
		size_t n = 0;
		tr_status st = tr_contributors(soak->group, k, first + i, set, 256, &n);
		if (st != TR_OK)
			fail("contributors", st, &(struct tr_error){ .status = st });
		double want = n > 0 ? reference(plan, round->round, k, first + i, set, n) : 0;
		wrong += get(plan, soak->output[k], i) != want;
	}
	return wrong;
}

static uint64_t chain_next(const struct soak *soak, uint64_t chain)
{
	for (unsigned k = 0; k < soak->plan_count; k++) {
		const struct plan *plan = &soak->plans[k];
		if (plan->op.collective == TR_REDUCE_SCATTER)
			continue;
		size_t bytes = plan->op.count * plan->element_bytes;
		uint64_t word = 0;
		for (size_t i = 0; i < bytes; i += sizeof(word)) {
			size_t left = bytes - i < sizeof(word) ? bytes - i : sizeof(word);
			memcpy(&word, soak->output[k] + i, left);
			chain = mix(chain, word);
		}
	}
	return chain;
}

/* ---- rounds ---- */

static bool one_round(struct soak *soak)
{
	struct tr_error error = { 0 };
	struct tr_round round, committed;
	for (;;) {
		tr_status st = tr_round_begin(soak->group, &round, &error);
		if (st != TR_OK)
			fail("begin", st, &error);
		draw_round(soak, &round);
		fill(soak, &round);
		for (unsigned i = 0; i < soak->plan_count && st == TR_OK;
		     i++) /* in an order of our own */
			st = tr_submit(soak->group,
			    &soak->plans[(i + soak->peer) % soak->plan_count].op, &error);
		if (st == TR_OK && round.receive_state)
			st = tr_state_receive(soak->group, &error);
		if (st != TR_OK && st != TR_ERESTART)
			fail("submit", st, &error);
		st = tr_round_commit(soak->group,
		    &(struct tr_commit){ .samples = 1, .salt = soak->state[1] }, &committed,
		    &error);
		if (st == TR_OK)
			break;
		if (st != TR_ERESTART)
			fail("commit", st, &error);
	}
	unsigned long wrong = 0;
	for (unsigned k = 0; k < soak->plan_count; k++)
		wrong += check(soak, &round, k);
	if (wrong > 0) {
		(void)snprintf(error.text, sizeof(error.text),
		    "round %" PRIu64 ": %lu wrong elements", committed.round, wrong);
		fail("check", TR_EINTERNAL, &error);
	}
	soak->state[1] = chain_next(soak, soak->state[1]);
	soak->state[0] = committed.round;
	if (committed.round % REPORT_EVERY == 0)
		printf("{\"round\": %" PRIu64 ", \"chain\": \"%016" PRIx64 "\", \"view\": %" PRIu64
		       ", \"peers\": %u}\n",
		    committed.round, soak->state[1], committed.view, committed.peers);
	return !ending;
}

static void on_term(int signal)
{
	(void)signal;
	ending = 1;
}

static void join(struct soak *soak, char **argv)
{
	struct tr_join_options options = TR_JOIN_OPTIONS_INIT;
	struct tr_error error = { 0 };
	options.membership = argv[1];
	options.name = argv[2];
	options.size = (unsigned)strtoul(argv[3], NULL, 10);
	options.policy = strcmp(argv[4], "replay") == 0 ? TR_REPLAY
	    : strcmp(argv[4], "uniform") == 0           ? TR_UNIFORM
	                                                : TR_KEEP;
	options.transport = strcmp(argv[5], "tcp") == 0 ? TR_TRANSPORT_TCP
	    : strcmp(argv[5], "shm") == 0               ? TR_TRANSPORT_SHM
	                                                : TR_TRANSPORT_AUTO;
	options.segment_bytes = 32u << 10;
	tr_status st = tr_group_join(&options, &soak->group, &error);
	if (st != TR_OK)
		fail("join", st, &error);
	soak->peer = tr_peer_id(soak->group);
	printf("{\"joined\": %" PRIu64 "}\n", soak->peer);
	for (unsigned k = 0; k < OPS_MAX; k++) {
		soak->input[k] = tr_alloc(soak->group, ELEMENTS_MAX * sizeof(double));
		soak->output[k] = tr_alloc(soak->group, ELEMENTS_MAX * sizeof(double));
		if (soak->input[k] == NULL || soak->output[k] == NULL)
			fail("alloc", TR_ENOMEM, &error);
	}
	soak->state = tr_alloc(soak->group, 2 * sizeof(uint64_t));
	st = tr_state_add(soak->group, "state", soak->state, 2 * sizeof(uint64_t), &error);
	if (st == TR_OK)
		st = tr_state_ready(soak->group, 0, &error);
	if (st != TR_OK)
		fail("ready", st, &error);
}

int main(int argc, char **argv)
{
	struct soak soak = { 0 };
	if (argc != 7) {
		fprintf(stderr,
		    "usage: soak_peer MEMBERSHIP GROUP FOUNDERS POLICY TRANSPORT SEED\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	(void)signal(SIGTERM, on_term);
	soak.seed = strtoull(argv[6], NULL, 10);
	join(&soak, argv);
	while (one_round(&soak))
		continue;
	printf("{\"left\": %" PRIu64 "}\n", soak.state[0]);
	tr_group_leave(soak.group);
	return 0;
}
