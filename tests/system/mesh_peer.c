/* A process that joins a group and runs rounds of a mesh: sums along rows and across columns, a reduce-scatter with the all-gather that belongs to
 * it, activations that go from each row to the next one, and a sum of all; tests/system/test_library_scopes.py starts several. Data are whole
 * numbers of (contributor, round, op, element), so every result is known.
 *
 *	mesh_peer MEMBERSHIP GROUP SIZE ROUNDS POLICY ROW [COUNT] [PAUSE_AT_ROUND]
 *
 * ROW contributors are a row; the last one may be shorter. Says what library_peer says.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/system/peer_program.h"

enum { ROW_SUM, COLUMN_BLOCK, COLUMN_SUM, HANDED_ON, ALL_SUM, OPS };

/* Beside those of OPS, whose numbers are their tags: one for each way. */
#define TAG_HANDED_ON 100

struct peer {
	tr_group *group;
	unsigned row;
	size_t count;
	float *data[OPS], *received;
	uint64_t *state; /* as library_peer's */
	struct tr_round round;
};

/* Contributors of a scope. */
struct set {
	uint32_t members[256], count;
};

static struct set set_of(unsigned first, unsigned stride, unsigned end)
{
	struct set set = { .count = 0 };
	for (unsigned i = first; i < end; i += stride)
		set.members[set.count++] = i;
	return set;
}

static struct set row_of(const struct peer *p)
{
	unsigned n = p->round.contributors, first = p->round.index - p->round.index % p->row;
	return set_of(first, 1, first + p->row < n ? first + p->row : n);
}

static struct set column_of(const struct peer *p)
{
	return set_of(p->round.index % p->row, p->row, p->round.contributors);
}

static float given(unsigned contributor, uint64_t round, unsigned op, size_t element)
{
	return (float)((contributor * 7 + round * 13 + op * 29 + element % 101) % 64);
}

static float summed(const struct peer *p, const struct set *set, unsigned op, size_t element)
{
	float sum = 0;
	for (unsigned i = 0; i < set->count; i++)
		sum += given(set->members[i], p->round.round, op, element);
	return sum;
}

static tr_status submit(struct peer *p, uint32_t tag, enum tr_collective collective,
    const float *input, float *output, unsigned root, const struct set *set, struct tr_error *error)
{
	struct tr_op op = TR_OP_INIT;
	op.tag = tag;
	op.collective = collective;
	op.input = input;
	op.output = output;
	op.count = p->count;
	op.reduce = TR_SUM;
	op.root = root;
	op.scope = (struct tr_scope){ set->members, set->count };
	return tr_submit(p->group, &op, error);
}

/* What this contributor does in a round; the all-gather gives on what the reduce-scatter has made, so that is waited for. */
static tr_status scoped_ops(struct peer *p, struct tr_error *error)
{
	const struct set row = row_of(p), column = column_of(p), everybody = { .count = 0 };
	unsigned i = p->round.index, n = p->round.contributors;
	size_t first, own;
	tr_status st = submit(p, ROW_SUM, TR_ALL_REDUCE, NULL, p->data[ROW_SUM], 0, &row, error);
	if (st == TR_OK)
		st = submit(p, COLUMN_BLOCK, TR_REDUCE_SCATTER, NULL, p->data[COLUMN_BLOCK], 0,
		    &column, error);
	if (st == TR_OK && i + p->row < n)
		st = submit(p, TAG_HANDED_ON + i, TR_SEND, p->data[HANDED_ON], NULL, i + p->row,
		    &everybody, error);
	if (st == TR_OK && i >= p->row)
		st = submit(p, TAG_HANDED_ON + i - p->row, TR_RECV, NULL, p->received, i - p->row,
		    &everybody, error);
	if (st == TR_OK)
		st = tr_wait(p->group, COLUMN_BLOCK, error);
	if (st != TR_OK)
		return st;
	tr_block_range(p->count, column.count, i / p->row, &first, &own);
	memcpy(p->data[COLUMN_SUM] + first, p->data[COLUMN_BLOCK] + first, own * sizeof(float));
	return submit(p, COLUMN_SUM, TR_ALL_GATHER, NULL, p->data[COLUMN_SUM], 0, &column, error);
}

static unsigned long check(const struct peer *p)
{
	const struct set row = row_of(p), column = column_of(p);
	const struct set all = set_of(0, 1, p->round.contributors);
	unsigned long wrong = 0;
	for (size_t e = 0; e < p->count; e += p->count / 97 + 1) {
		wrong += p->data[ALL_SUM][e] != summed(p, &all, ALL_SUM, e);
		if (p->round.index >= p->round.contributors)
			continue;
		wrong += p->data[ROW_SUM][e] != summed(p, &row, ROW_SUM, e);
		wrong += p->data[COLUMN_SUM][e] != summed(p, &column, COLUMN_BLOCK, e);
		wrong += p->round.index >= p->row &&
		    p->received[e] != given(p->round.index - p->row, p->round.round, HANDED_ON, e);
	}
	return wrong;
}

static void fill(struct peer *p)
{
	for (unsigned op = 0; op < OPS; op++)
		for (size_t e = 0; e < p->count; e++)
			p->data[op][e] = given(p->round.index, p->round.round, op, e);
}

/* One attempt. TR_ERESTART: another one, please. */
static tr_status attempt(struct peer *p, uint64_t pause_at, struct tr_round *committed,
    struct tr_error *error)
{
	tr_status st = tr_round_begin(p->group, &p->round, error);
	bool contributes = p->round.index < p->round.contributors;
	if (st != TR_OK)
		fail("begin", st, error);
	fill(p);
	if (contributes)
		st = scoped_ops(p, error);
	if (st == TR_OK && p->round.round == pause_at) {
		printf("{\"paused\": %" PRIu64 "}\n", p->round.round);
		for (;;)
			(void)pause();
	}
	if (st == TR_OK)
		st = tr_allreduce(p->group, ALL_SUM, p->data[ALL_SUM], p->count, TR_F32, TR_SUM,
		    contributes ? TR_CONTRIBUTE : 0, error);
	if (st == TR_OK && p->round.receive_state)
		st = tr_state_receive(p->group, error);
	if (st != TR_OK && st != TR_ERESTART)
		fail("submit", st, error);
	return tr_round_commit(p->group, &(struct tr_commit){ .samples = 1, .salt = p->state[1] },
	    committed, error);
}

static void one_round(struct peer *p, uint64_t pause_at)
{
	struct tr_error error = { 0 };
	struct tr_round committed;
	uint64_t restarts = 0, sum;
	tr_status st;
	while ((st = attempt(p, pause_at, &committed, &error)) == TR_ERESTART)
		restarts++;
	if (st != TR_OK)
		fail("commit", st, &error);
	unsigned long wrong = check(p);
	sum = p->state[1];
	for (size_t e = 0; e < p->count; e++)
		sum = sum * 31 + (uint64_t)p->data[ALL_SUM][e];
	p->state[1] = sum;
	p->state[0] = committed.round;
	say_round(&committed, committed.contributors, wrong, restarts, sum);
}

int main(int argc, char **argv)
{
	struct tr_join_options options = TR_JOIN_OPTIONS_INIT;
	struct tr_error error = { 0 };
	if (argc < 7) {
		fprintf(stderr,
		    "usage: mesh_peer MEMBERSHIP GROUP SIZE ROUNDS POLICY ROW [COUNT] "
		    "[PAUSE_AT_ROUND]\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	struct peer p = { .row = (unsigned)strtoul(argv[6], NULL, 10),
		.count = number_of(argc, argv, 7, 10000) };
	uint64_t rounds = number_of(argc, argv, 4, 0);
	uint64_t pause_at = number_of(argc, argv, 8, 0);
	options.membership = argv[1];
	options.name = argv[2];
	options.size = (unsigned)strtoul(argv[3], NULL, 10);
	options.policy = policy_of(argv[5]);
	tr_status st = tr_group_join(&options, &p.group, &error);
	if (st != TR_OK)
		fail("join", st, &error);
	printf("{\"joined\": %" PRIu64 "}\n", tr_peer_id(p.group));
	for (unsigned op = 0; op < OPS; op++)
		p.data[op] = tr_alloc(p.group, p.count * sizeof(float));
	p.received = tr_alloc(p.group, p.count * sizeof(float));
	if (p.data[OPS - 1] == NULL || p.received == NULL)
		return 1;
	p.state = state_of(p.group);
	while (p.state[0] < rounds)
		one_round(&p, pause_at);
	printf("{\"done\": %" PRIu64 "}\n", p.state[0]);
	tr_group_leave(p.group);
	return 0;
}
