/* Which chunk of a state comes from whom: cuts, shares, thefts, donors that die or fall silent, pieces that were spoilt. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

#include "collectives/core/bits.h"
#include "collectives/engine/state_plan.h"

#define C ((uint64_t)TR_STATE_CHUNK_BYTES)

static void chunks_cover_every_tensor_once(void **state)
{
	(void)state;
	const uint64_t bytes[] = { 0, 1, C, C + 1, 0, 3 * C - 1, 0 };
	struct state_map map;
	uint64_t at[7] = { 0 };
	assert_true(state_map_make(&map, bytes, 7));
	assert_int_equal(state_map_chunks(&map), 1 + 1 + 2 + 3);
	for (uint64_t i = 0; i < state_map_chunks(&map); i++) {
		struct state_chunk chunk = state_map_at(&map, i);
		assert_int_equal(chunk.offset, at[chunk.tensor]);
		assert_true(chunk.bytes > 0 && chunk.bytes <= C);
		at[chunk.tensor] += chunk.bytes;
		assert_int_equal(state_map_index(&map, &chunk), i);
	}
	assert_memory_equal(at, bytes, sizeof(bytes));
	assert_int_equal(map.chunk_bytes, (5 * C + 1) / 7);
	state_map_finish(&map);
}

static void what_is_no_chunk_is_refused(void **state)
{
	(void)state;
	const uint64_t bytes[] = { 2 * C + 5, 0 };
	struct state_map map;
	assert_true(state_map_make(&map, bytes, 2));
	const struct state_chunk wrong[] = { { 0, 1, (uint32_t)C }, { 0, 0, (uint32_t)C - 1 },
		{ 0, 2 * C, (uint32_t)C }, { 0, 3 * C, 5 }, { 1, 0, 0 }, { 2, 0, (uint32_t)C },
		{ 0, UINT64_MAX - C + 1, (uint32_t)C } };
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_true(state_map_index(&map, &wrong[i]) == STATE_NO_CHUNK);
	state_map_finish(&map);
}

/* ---- donors at work ---- */

struct donor {
	struct state_source *source;
	uint64_t next, end; /* as the donor knows it */
	double rate, credit;
	bool dead;
};

static void ask(struct state_plan *plan, struct donor *donors, unsigned count, unsigned who)
{
	struct state_source *robbed;
	if (!state_plan_assign(plan, donors[who].source, &robbed))
		return;
	donors[who].next = donors[who].source->next;
	donors[who].end = donors[who].source->end;
	assert_true(donors[who].next < donors[who].end && donors[who].end <= plan->chunks);
	for (unsigned i = 0; robbed != NULL && i < count; i++)
		if (donors[i].source == robbed && robbed->end < donors[i].end)
			donors[i].end = robbed->end > donors[i].next ? robbed->end : donors[i].next;
}

/* Steps until all is there; sent: chunks that came, those that came twice included. */
static unsigned run(struct state_plan *plan, struct donor *donors, unsigned count, uint64_t *sent)
{
	unsigned steps = 0;
	for (; plan->missing > 0; steps++) {
		assert_true(steps < 1000000);
		for (unsigned i = 0; i < count; i++) {
			struct donor *d = &donors[i];
			for (d->credit += d->dead ? 0 : d->rate; d->credit >= 1; d->credit--) {
				if (d->next == d->end)
					ask(plan, donors, count, i);
				if (d->next == d->end)
					break;
				(void)state_plan_got(plan, d->source, d->next++);
				++*sent;
			}
		}
	}
	return steps;
}

static void add(struct state_plan *plan, struct donor *donors, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		donors[i].source = state_plan_add(plan, 10 + i);
		assert_ptr_equal(state_plan_find(plan, 10 + i), donors[i].source);
	}
}

static void unequal_donors_end_together(void **state)
{
	(void)state;
	struct state_plan plan;
	struct donor donors[3] = { { .rate = 1 }, { .rate = 0.3 }, { .rate = 0.1 } };
	uint64_t sent = 0;
	assert_true(state_plan_make(&plan, 1400, C));
	add(&plan, donors, 3);
	unsigned steps = run(&plan, donors, 3, &sent);
	assert_int_equal(sent, 1400);
	assert_in_range(steps, 1000, 1060); /* 1400 / 1.4, and a last theft that was not worth it */
	state_plan_finish(&plan);
}

/* What they have sent stays; nobody sends it again. */
static void the_dead_cost_their_rest(void **state)
{
	(void)state;
	struct state_plan plan;
	struct donor donors[3] = { { .rate = 1 }, { .rate = 1 }, { .rate = 1 } };
	uint64_t sent = 0;
	assert_true(state_plan_make(&plan, 300, C));
	add(&plan, donors, 3);
	for (unsigned i = 0; i < 3; i++)
		ask(&plan, donors, 3, i);
	for (unsigned i = 0; i < 150; i++, sent++) {
		struct donor *d = &donors[i % 3];
		assert_true(state_plan_got(&plan, d->source, d->next++));
	}
	for (unsigned i = 1; i < 3; i++) {
		donors[i].dead = true;
		state_plan_release(donors[i].source);
	}
	assert_int_equal(run(&plan, donors, 3, &sent), 150);
	assert_int_equal(sent, 300);
	state_plan_finish(&plan);
}

static void spoilt_chunks_come_again(void **state)
{
	(void)state;
	struct state_plan plan;
	struct donor one = { .rate = 1 };
	uint64_t sent = 0;
	assert_true(state_plan_make(&plan, 20, C));
	add(&plan, &one, 1);
	(void)run(&plan, &one, 1, &sent);
	state_plan_spoilt(&plan, 5, 9);
	assert_int_equal(plan.missing, 4);
	(void)run(&plan, &one, 1, &sent);
	assert_int_equal(sent, 24);
	assert_false(state_plan_got(&plan, one.source, 7));
	state_plan_finish(&plan);
}

static void only_so_many_donors(void **state)
{
	(void)state;
	struct state_plan plan;
	assert_true(state_plan_make(&plan, 0, C));
	struct state_source *robbed, *first = state_plan_add(&plan, 1);
	for (unsigned i = 1; i < TR_STATE_DONORS_MAX; i++)
		assert_non_null(state_plan_add(&plan, 1 + i));
	assert_null(state_plan_add(&plan, 99));
	assert_false(state_plan_assign(&plan, first, &robbed));
	state_plan_finish(&plan);
}

/* Of the last few chunks nothing is on its way if nothing ever came of who was asked for them. */
static void the_little_that_nothing_came_of_is_somebody_elses(void **state)
{
	(void)state;
	struct state_plan plan;
	struct state_source *late, *other, *robbed;
	assert_true(state_plan_make(&plan, 16, C));
	late = state_plan_add(&plan, 1);
	assert_true(state_plan_assign(&plan, late, &robbed));
	other = state_plan_add(&plan, 2);
	assert_true(state_plan_assign(&plan, other, &robbed));
	assert_int_equal(other->end - other->next, 8);
	/* Who has not shown that it sends either gets nothing of it. */
	struct state_source *third = state_plan_add(&plan, 3);
	assert_true(state_plan_assign(&plan, third, &robbed));
	assert_int_equal(late->end, 4);
	while (other->next < other->end)
		assert_true(state_plan_got(&plan, other, other->next));
	while (third->next < third->end)
		assert_true(state_plan_got(&plan, third, third->next));
	struct state_source *fourth = state_plan_add(&plan, 4);
	assert_false(state_plan_assign(&plan, fourth, &robbed));
	assert_true(state_plan_assign(&plan, other, &robbed));
	assert_ptr_equal(robbed, late);
	assert_int_equal(other->next, 0);
	assert_int_equal(other->end, 4);
	assert_int_equal(late->next, late->end);
	/* It has sent: what is left of it is on its way, and comes. */
	assert_false(state_plan_assign(&plan, third, &robbed));
	state_plan_finish(&plan);
}

/* What a request is worth is bytes: of a state of many small tensors 2 MiB are more chunks. */
static void small_tensors_are_not_asked_for_one_by_one(void **state)
{
	(void)state;
	uint64_t bytes[128];
	struct state_map map;
	struct state_plan plan;
	for (unsigned i = 0; i < 128; i++)
		bytes[i] = C / 4;
	assert_true(state_map_make(&map, bytes, 128));
	assert_true(state_plan_make(&plan, state_map_chunks(&map), map.chunk_bytes));
	struct state_source *robbed, *slow = state_plan_add(&plan, 1);
	assert_true(state_plan_assign(&plan, slow, &robbed));
	while (slow->end - slow->next > 32)
		assert_true(state_plan_got(&plan, slow, slow->next));
	struct state_source *other = state_plan_add(&plan, 2);
	assert_true(state_plan_assign(&plan, other, &robbed));
	assert_int_equal(other->end - other->next, 16);
	while (other->next < other->end)
		assert_true(state_plan_got(&plan, other, other->next));
	assert_false(state_plan_assign(&plan, other, &robbed));
	state_plan_finish(&plan);
	state_map_finish(&map);
}

/* A joiner that goes on without the rest needs those before anything else, in each round anew. */
static void the_first_chunks_come_before_a_longer_run(void **state)
{
	(void)state;
	struct state_plan plan;
	struct state_source *robbed;
	assert_true(state_plan_make(&plan, 64, C));
	struct state_source *donor = state_plan_add(&plan, 1);
	assert_true(state_plan_assign(&plan, donor, &robbed));
	while (donor->next < 20)
		assert_true(state_plan_got(&plan, donor, donor->next));
	state_plan_release(donor);
	state_plan_spoilt(&plan, 0, 2);
	assert_true(state_plan_assign(&plan, donor, &robbed));
	assert_int_equal(donor->next, 0);
	assert_int_equal(donor->end, 2);
	while (donor->next < donor->end)
		assert_true(state_plan_got(&plan, donor, donor->next));
	assert_true(state_plan_assign(&plan, donor, &robbed));
	assert_int_equal(donor->next, 20);
	assert_int_equal(donor->end, 64);
	state_plan_finish(&plan);
}

/* Donors come, die, fall silent and talk on, at random: all comes, and what nobody interfered with comes once. */
static void whatever_happens_all_comes(void **state)
{
	(void)state;
	for (unsigned seed = 1; seed <= 300; seed++) {
		struct state_plan plan;
		struct donor donors[TR_STATE_DONORS_MAX] = { { .rate = 0.5 } };
		uint64_t sent = 0;
		unsigned count = 1 + seed % TR_STATE_DONORS_MAX;
		srandom(seed);
		uint64_t chunks = (uint64_t)(random() % 500);
		assert_true(state_plan_make(&plan, chunks, C));
		for (unsigned i = 1; i < count; i++)
			donors[i].rate = (double)(1 + random() % 100) / 50;
		add(&plan, donors, count);
		for (unsigned i = 0; i < count; i++)
			ask(&plan, donors, count, i);
		for (unsigned step = 0; step < 200; step++) {
			struct donor *d = &donors[(unsigned)random() % count];
			if (random() % 20 == 0)
				state_plan_release(d->source); /* it goes on for all that */
			if (d->next < d->end)
				(void)state_plan_got(&plan, d->source, d->next++);
			else
				ask(&plan, donors, count, (unsigned)(d - donors));
		}
		for (unsigned i = 1; i < count; i++) {
			donors[i].dead = random() % 3 == 0;
			if (donors[i].dead)
				state_plan_release(donors[i].source);
		}
		(void)run(&plan, donors, count, &sent);
		assert_int_equal(bits_count(plan.have, bits_bytes(plan.chunks)), plan.chunks);
		state_plan_finish(&plan);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chunks_cover_every_tensor_once),
		cmocka_unit_test(what_is_no_chunk_is_refused),
		cmocka_unit_test(unequal_donors_end_together),
		cmocka_unit_test(the_dead_cost_their_rest),
		cmocka_unit_test(spoilt_chunks_come_again),
		cmocka_unit_test(only_so_many_donors),
		cmocka_unit_test(the_little_that_nothing_came_of_is_somebody_elses),
		cmocka_unit_test(small_tensors_are_not_asked_for_one_by_one),
		cmocka_unit_test(the_first_chunks_come_before_a_longer_run),
		cmocka_unit_test(whatever_happens_all_comes),
	};
	return cmocka_run_group_tests_name("state plan", tests, NULL, NULL);
}
