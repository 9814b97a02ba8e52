/* When a message's memory may be used again (pipeline_messages.h): ranks run their lists in any order that messages allow; what is said to be idle is with nobody, and what is
 * not yet stays little. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/rng.h"
#include "daemon/worker/pipeline_messages.h"

#define RANKS_MOST   4
#define NUMBERS_MOST 1024
#define MANY         50
#define TAG          1000

struct rank {
	struct messages messages;
	uint32_t at;                    /* instruction of the list */
	uint64_t tickets[NUMBERS_MOST]; /* in the order that they were added */
	uint32_t numbers[NUMBERS_MOST]; /* the same: of the run */
	uint32_t runs[NUMBERS_MOST];    /* the same */
	uint32_t count;
};

struct play {
	struct schedule schedules[2]; /* by run */
	struct rank ranks[RANKS_MOST];
	bool sent[2][NUMBERS_MOST], waited[2][NUMBERS_MOST]; /* by run and number */
	uint32_t run;
};

static bool is_send(const struct schedule_instruction *what)
{
	return what->op == SCHEDULE_SEND_F || what->op == SCHEDULE_SEND_B;
}

/* All that the rank is told of. */
static void check_idle(const struct play *p, const struct rank *r)
{
	for (uint32_t i = 0; i < r->count; i++) {
		if (!messages_idle(&r->messages, r->tickets[i]))
			continue;
		assert_true(p->sent[r->runs[i]][r->numbers[i]]);
		assert_true(p->waited[r->runs[i]][r->numbers[i]]);
	}
}

static uint32_t busy(const struct rank *r)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < r->count; i++)
		count += !messages_idle(&r->messages, r->tickets[i]);
	return count;
}

/* False: it has to wait. */
static bool step(struct play *p, uint32_t rank)
{
	struct rank *r = &p->ranks[rank];
	const struct schedule *schedule = &p->schedules[p->run];
	const struct schedule_instruction *what = &schedule->lists[rank].at[r->at];
	struct pipeline_message message;
	if (pipeline_message_of(&schedule->shape, rank, what, &message)) {
		uint32_t number = pipeline_message_number(&schedule->shape, &message);
		bool outgoing = is_send(what);
		if (!outgoing && !p->sent[p->run][number])
			return false;
		uint64_t *ticket = &r->tickets[r->count];
		r->numbers[r->count] = number;
		r->runs[r->count++] = p->run;
		assert_true(messages_add(&r->messages, &message, outgoing, ticket));
		assert_int_equal(r->messages.at[*ticket].tag, r->messages.first_tag + number);
		if (outgoing) {
			p->sent[p->run][number] = true;
		} else {
			p->waited[p->run][number] = true;
			messages_waited(&r->messages, *ticket);
		}
	}
	r->at++;
	check_idle(p, r);
	if (schedule->forward)
		assert_in_range(busy(r), 0,
		    schedule_in_flight(&schedule->shape, rank) + SCHEDULE_WORDS + 2);
	return true;
}

static void run(struct play *p, uint64_t seed)
{
	const struct schedule *schedule = &p->schedules[p->run];
	uint32_t ranks = schedule->shape.ranks;
	uint64_t draws = 0;
	for (uint32_t rank = 0; rank < ranks; rank++) {
		p->ranks[rank].at = 0;
		assert_int_equal(messages_begin_run(&p->ranks[rank].messages, schedule, NULL),
		    TR_OK);
	}
	for (bool all = false; !all;) {
		bool moved = false;
		uint32_t first = (uint32_t)rng_below(rng_key(seed, 1, p->run), 0, draws++, ranks);
		for (uint32_t i = 0; i < ranks && !moved; i++) {
			uint32_t rank = (first + i) % ranks;
			moved = p->ranks[rank].at < schedule->lists[rank].count && step(p, rank);
		}
		all = true;
		for (uint32_t rank = 0; rank < ranks; rank++)
			all = all && p->ranks[rank].at == schedule->lists[rank].count;
		assert_true(moved || all);
	}
	for (uint32_t rank = 0; rank < ranks; rank++)
		messages_end_run(&p->ranks[rank].messages);
	p->run++;
}

/* A validation, then a step, in one round. */
static void play(struct schedule_shape shape, uint64_t seed)
{
	static struct play p;
	p = (struct play){ .run = 0 };
	assert_int_equal(schedule_create_forward(&shape, &p.schedules[0], NULL), TR_OK);
	assert_int_equal(schedule_create(&shape, &p.schedules[1], NULL), TR_OK);
	for (uint32_t rank = 0; rank < shape.ranks; rank++) {
		assert_int_equal(messages_init(&p.ranks[rank].messages, shape.ranks, NULL), TR_OK);
		messages_begin_round(&p.ranks[rank].messages, TAG);
	}
	run(&p, seed);
	run(&p, seed);
	/* At the end a rank has gradients back for all that it sent; of what it sent back, that of some microbatches in flight. */
	for (uint32_t rank = 0; rank < shape.ranks; rank++)
		assert_in_range(busy(&p.ranks[rank]), 0,
		    shape.chunks * schedule_in_flight(&shape, rank) + shape.chunks * shape.ranks);
	for (uint32_t rank = 0; rank < shape.ranks; rank++)
		messages_finish(&p.ranks[rank].messages);
	schedule_finish(&p.schedules[0]);
	schedule_finish(&p.schedules[1]);
}

static void what_is_idle_is_with_nobody(void **state)
{
	(void)state;
	for (uint32_t ranks = 2; ranks <= RANKS_MOST; ranks++)
		for (uint32_t m = ranks; m <= 3 * ranks; m += 2)
			for (uint64_t seed = 1; seed <= 8; seed++) {
				play((struct schedule_shape){ SCHEDULE_GPIPE, ranks, m, 1 }, seed);
				play((struct schedule_shape){ SCHEDULE_1F1B, ranks, m, 1 }, seed);
				play((struct schedule_shape){ SCHEDULE_INTERLEAVED, ranks, m, 2 },
				    seed);
			}
}

/* Nothing comes back from the next rank but words, and no more than a few messages wait for them. */
static void many_forward_passes(void **state)
{
	(void)state;
	for (uint32_t ranks = 2; ranks <= RANKS_MOST; ranks++)
		for (uint64_t seed = 1; seed <= 4; seed++) {
			play((struct schedule_shape){ SCHEDULE_GPIPE, ranks, MANY, 1 }, seed);
			play((struct schedule_shape){ SCHEDULE_1F1B, ranks, MANY, 1 }, seed);
			play((struct schedule_shape){ SCHEDULE_INTERLEAVED, ranks, MANY, 2 }, seed);
		}
}

/* Runs of other sizes one after the other, as jobs have them, have tags of their own. */
static void tags_of_a_round_differ(void **state)
{
	(void)state;
	struct schedule schedules[2];
	struct messages m;
	uint64_t last = 0;
	assert_int_equal(messages_init(&m, 2, NULL), TR_OK);
	messages_begin_round(&m, TAG);
	for (uint32_t i = 0; i < 2; i++) {
		struct schedule_shape shape = { SCHEDULE_1F1B, 2, 3 + i, 1 };
		assert_int_equal(schedule_create(&shape, &schedules[i], NULL), TR_OK);
		assert_int_equal(messages_begin_run(&m, &schedules[i], NULL), TR_OK);
		uint32_t lowest = UINT32_MAX, highest = 0;
		for (uint32_t k = 0; k < schedules[i].lists[0].count; k++) {
			struct pipeline_message message;
			uint64_t ticket;
			if (!pipeline_message_of(&shape, 0, &schedules[i].lists[0].at[k], &message))
				continue;
			assert_true(messages_add(&m, &message, true, &ticket));
			uint32_t tag = m.at[ticket].tag;
			lowest = tag < lowest ? tag : lowest;
			highest = tag > highest ? tag : highest;
		}
		assert_true(lowest > last);
		last = highest;
		messages_end_run(&m);
	}
	messages_begin_round(&m, TAG);
	assert_int_equal(m.first_tag, TAG);
	assert_int_equal(m.count, 0);
	messages_finish(&m);
	schedule_finish(&schedules[0]);
	schedule_finish(&schedules[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_idle_is_with_nobody),
		cmocka_unit_test(many_forward_passes),
		cmocka_unit_test(tags_of_a_round_differ),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
