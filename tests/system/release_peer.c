/* A process that joins a group and runs rounds of very many small sums out of a few buffers, as tensor parallel training does: along rows and across columns of a mesh by turns, and
 * each op's memory is taken back as soon as a later op of the same members is there. tests/system/test_library_release.py starts several. Data are whole
 * numbers of (contributor, round, step), so every result is known.
 *
 *	release_peer MEMBERSHIP GROUP SIZE ROUNDS STEPS [COUNT [GATE]]
 *
 * In the middle of round 1 it waits until somebody has opened GATE, a FIFO, to write. Says what library_peer says, and now and then how far it is: {"at": [ROUND, STEP]}.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/system/peer_program.h"

#define BUFFERS   4
#define ROW       2
#define SAY_EVERY 500
#define GATE_STEP 1000

struct peer {
	tr_group *group;
	size_t count;
	uint32_t steps;
	const char *gate; /* NULL: none */
	float *buffers[BUFFERS], *all;
	uint64_t *state; /* as library_peer's */
	struct tr_round round;
	unsigned long wrong;
};

static float given(unsigned contributor, uint64_t round, uint32_t step, size_t element)
{
	return (float)((contributor * 7 + round * 13 + step * 29 + element % 101) % 64);
}

static uint32_t members_of(const struct peer *p, uint32_t step, uint32_t *members)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < p->round.contributors; i++)
		if (step % 2 == 0 ? i / ROW == p->round.index / ROW
		                  : i % ROW == p->round.index % ROW)
			members[count++] = i;
	return count;
}

/* Opening it to read waits for who opens it to write. */
static void pass(const char *gate)
{
	int fd = open(gate, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		perror(gate);
		exit(1);
	}
	(void)close(fd);
}

static tr_status one_step(struct peer *p, uint32_t step, struct tr_error *error)
{
	struct tr_op op = TR_OP_INIT;
	uint32_t members[256];
	float *data = p->buffers[step % BUFFERS];
	op.tag = step;
	op.output = data;
	op.count = p->count;
	op.scope = (struct tr_scope){ members, members_of(p, step, members) };
	for (size_t e = 0; e < p->count; e++)
		data[e] = given(p->round.index, p->round.round, step, e);
	tr_status st = tr_submit(p->group, &op, error);
	if (st == TR_OK)
		st = tr_wait(p->group, step, error);
	if (st != TR_OK)
		return st;
	for (size_t e = 0; e < p->count; e += p->count / 7 + 1) {
		float sum = 0;
		for (uint32_t i = 0; i < op.scope.count; i++)
			sum += given(members[i], p->round.round, step, e);
		p->wrong += sum != data[e];
	}
	if (step % SAY_EVERY == 0)
		printf("{\"at\": [%" PRIu64 ", %u]}\n", p->round.round, step);
	if (p->gate != NULL && p->round.round == 1 && step == GATE_STEP)
		pass(p->gate);
	return step < 2 ? TR_OK : tr_release(p->group, step - 2, error);
}

/* One attempt. TR_ERESTART: another one, please. */
static tr_status attempt(struct peer *p, struct tr_round *committed, struct tr_error *error)
{
	tr_status st = tr_round_begin(p->group, &p->round, error);
	bool contributes = p->round.index < p->round.contributors;
	if (st != TR_OK)
		fail("begin", st, error);
	p->wrong = 0;
	for (uint32_t step = 0; contributes && step < p->steps && st == TR_OK; step++)
		st = one_step(p, step, error);
	p->all[0] = 1;
	if (st == TR_OK)
		st = tr_allreduce(p->group, p->steps, p->all, 1, TR_F32, TR_SUM,
		    contributes ? TR_CONTRIBUTE : 0, error);
	if (st == TR_OK && p->round.receive_state)
		st = tr_state_receive(p->group, error);
	if (st == TR_OK)
		st = tr_round_commit(p->group,
		    &(struct tr_commit){ .samples = 1, .salt = p->state[1] }, committed, error);
	if (st != TR_OK && st != TR_ERESTART)
		fail("round", st, error);
	return st;
}

static void one_round(struct peer *p)
{
	struct tr_error error = { 0 };
	struct tr_round committed;
	uint64_t restarts = 0;
	while (attempt(p, &committed, &error) == TR_ERESTART)
		restarts++;
	p->wrong += p->all[0] != (float)committed.contributors;
	p->state[1] = p->state[1] * 31 + (uint64_t)p->all[0];
	p->state[0] = committed.round;
	say_round(&committed, committed.contributors, p->wrong, restarts, p->state[1]);
}

int main(int argc, char **argv)
{
	struct tr_join_options options = TR_JOIN_OPTIONS_INIT;
	struct tr_error error = { 0 };
	if (argc < 6) {
		fprintf(stderr,
		    "usage: release_peer MEMBERSHIP GROUP SIZE ROUNDS STEPS [COUNT "
		    "[GATE]]\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	struct peer p = { .steps = (uint32_t)number_of(argc, argv, 5, 0),
		.count = number_of(argc, argv, 6, 1024),
		.gate = argc > 7 ? argv[7] : NULL };
	uint64_t rounds = number_of(argc, argv, 4, 0);
	options.membership = argv[1];
	options.name = argv[2];
	options.size = (unsigned)strtoul(argv[3], NULL, 10);
	options.policy = TR_REPLAY;
	tr_status st = tr_group_join(&options, &p.group, &error);
	if (st != TR_OK)
		fail("join", st, &error);
	printf("{\"joined\": %" PRIu64 "}\n", tr_peer_id(p.group));
	p.all = tr_alloc(p.group, sizeof(float));
	for (unsigned i = 0; i < BUFFERS; i++)
		p.buffers[i] = tr_alloc(p.group, p.count * sizeof(float));
	if (p.buffers[BUFFERS - 1] == NULL || p.all == NULL)
		return 1;
	p.state = state_of(p.group);
	while (p.state[0] < rounds)
		one_round(&p);
	printf("{\"done\": %" PRIu64 "}\n", p.state[0]);
	tr_group_leave(p.group);
	return 0;
}
