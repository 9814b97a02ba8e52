/* Pipeline schedules: thousands of shapes proved free of deadlock, complete, in order and within their memory; and the checker itself,
 * against every exchange of two instructions, judged by another method. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/limits.h"
#include "common/rng.h"
#include "daemon/plan/schedule.h"
#include "daemon/plan/schedule_check.h"

static const struct schedule_channel by_name = { .capacity = SCHEDULE_UNBOUNDED };
static const struct schedule_channel rendezvous = { .capacity = 0 };

static struct schedule made(enum schedule_kind kind, uint32_t p, uint32_t m, uint32_t v)
{
	struct schedule_shape shape = { kind, p, m, v };
	struct schedule schedule;
	struct tr_error error = { 0 };

	if (schedule_create(&shape, &schedule, &error) != TR_OK)
		fail_msg("%s", error.text);
	return schedule;
}

static void assert_passes(const struct schedule *schedule, struct schedule_channel channel)
{
	const struct schedule_shape *shape = &schedule->shape;
	struct tr_error error = { 0 };

	if (schedule_check(schedule, channel, &error) != TR_OK)
		fail_msg("%s p %u m %u v %u, capacity %u: %s", schedule_kind_name(shape->kind),
		    shape->ranks, shape->microbatches, shape->chunks, channel.capacity, error.text);
}

/* Counted here from the list alone, not by the checker: everything once, in order, and how much is in flight at most. */
static void assert_rank(const struct schedule *schedule, uint32_t rank)
{
	const struct schedule_shape *shape = &schedule->shape;
	const struct schedule_list *list = &schedule->lists[rank];
	uint32_t all = shape->microbatches * shape->chunks, in_flight = 0, most = 0, forwards = 0,
	         backwards = 0, ready = 0, sent[2] = { 0 }, warm_up = UINT32_MAX;
	uint8_t *seen = calloc(all, 1);
	uint32_t *left = calloc(shape->chunks, sizeof(*left));

	for (uint32_t i = 0; i < list->count; i++) {
		const struct schedule_instruction *what = &list->at[i];
		uint8_t *unit = &seen[what->chunk * shape->microbatches + what->microbatch];
		if (what->op == SCHEDULE_GRAD_READY) {
			assert_int_equal(left[what->chunk], shape->microbatches);
			assert_int_equal(list->at[i].microbatch, 0);
			left[what->chunk] = 0;
			ready++;
			continue;
		}
		assert_int_equal(*unit >> what->op & 1, 0);
		*unit |= (uint8_t)(1u << what->op);
		sent[0] += what->op == SCHEDULE_SEND_F;
		sent[1] += what->op == SCHEDULE_SEND_B;
		if (what->op == SCHEDULE_FWD) {
			forwards++;
			in_flight++;
		}
		if (what->op == SCHEDULE_BWD) {
			assert_int_equal(*unit >> SCHEDULE_FWD & 1, 1);
			warm_up = backwards == 0 ? forwards : warm_up;
			backwards++;
			in_flight--;
			left[what->chunk]++;
		}
		most = in_flight > most ? in_flight : most;
	}
	assert_int_equal(forwards, all);
	assert_int_equal(backwards, all);
	assert_int_equal(ready, shape->chunks);
	assert_int_equal(most, schedule_in_flight(shape, rank));
	/* The first backward comes right after the forward behind the warm-up, if there is one. */
	assert_int_equal(warm_up, schedule_in_flight(shape, rank));
	assert_int_equal(sent[0], all - (rank + 1 == shape->ranks ? shape->microbatches : 0));
	assert_int_equal(sent[1], all - (rank == 0 ? shape->microbatches : 0));
	free(seen);
	free(left);
}

static void assert_whole(const struct schedule *schedule)
{
	for (uint32_t rank = 0; rank < schedule->shape.ranks; rank++)
		assert_rank(schedule, rank);
	assert_passes(schedule, by_name);
	assert_passes(schedule,
	    (struct schedule_channel){ .capacity = schedule_capacity(&schedule->shape),
	        .in_order = true });
}

/* ---- forward passes alone ---- */

/* Of one rank: how far its list is, what it sent and nobody has said has come. */
struct passer {
	uint32_t next, unheard, most, forwards;
};

static bool *message_at(bool *sent, const struct schedule_shape *shape, uint32_t rank,
    const struct schedule_instruction *what)
{
	uint32_t stage = schedule_stage(shape, rank, what->chunk);
	bool back = what->op == SCHEDULE_SEND_B || what->op == SCHEDULE_RECV_B;
	/* Of the sender's stage for both kinds. */
	stage -= what->op == SCHEDULE_RECV_F || what->op == SCHEDULE_SEND_B;
	return &sent[(stage * shape->microbatches + what->microbatch) * 2 + back];
}

/* As far as it goes; how many instructions that were. */
static uint32_t pass(const struct schedule *schedule, uint32_t rank, struct passer *p, bool *sent)
{
	const struct schedule_shape *shape = &schedule->shape;
	const struct schedule_list *list = &schedule->lists[rank];
	uint32_t before = p->next, word = schedule_in_flight(shape, rank);

	word = word < SCHEDULE_WORDS ? word : SCHEDULE_WORDS;
	for (; p->next < list->count; p->next++) {
		const struct schedule_instruction *what = &list->at[p->next];
		if (what->op == SCHEDULE_FWD) {
			p->forwards++;
			continue;
		}
		bool *message = message_at(sent, shape, rank, what);
		bool sends = what->op == SCHEDULE_SEND_F || what->op == SCHEDULE_SEND_B;
		if (!sends && !*message)
			break;
		assert_true(*message != sends);
		*message = sends;
		p->unheard += what->op == SCHEDULE_SEND_F;
		p->unheard -= what->op == SCHEDULE_RECV_B ? word : 0;
		p->most = p->unheard > p->most ? p->unheard : p->most;
	}
	return p->next - before;
}

/* None waits for ever, nothing that was sent is left over, and who sends knows in time what has come. */
static void assert_forward(enum schedule_kind kind, uint32_t p, uint32_t m, uint32_t v)
{
	struct schedule_shape shape = { kind, p, m, v };
	struct schedule schedule;
	struct passer passers[16] = { { 0 } };
	bool *sent = calloc((size_t)2 * p * v * m, sizeof(*sent));
	uint32_t moved;

	assert_int_equal(schedule_create_forward(&shape, &schedule, NULL), TR_OK);
	do {
		moved = 0;
		for (uint32_t rank = 0; rank < p; rank++)
			moved += pass(&schedule, rank, &passers[rank], sent);
	} while (moved > 0);
	for (uint32_t rank = 0; rank < p; rank++) {
		if (passers[rank].next != schedule.lists[rank].count)
			fail_msg("%s p %u m %u v %u: rank %u waits for ever",
			    schedule_kind_name(kind), p, m, v, rank);
		assert_int_equal(passers[rank].forwards, m * v);
		assert_in_range(passers[rank].most, 0,
		    schedule_in_flight(&schedule.shape, rank) + SCHEDULE_WORDS - 1);
	}
	for (size_t i = 0; i < (size_t)2 * p * v * m; i++)
		assert_false(sent[i]);
	free(sent);
	schedule_finish(&schedule);
}

static void every_small_shape(void **state)
{
	unsigned count = 0;

	(void)state;
	for (uint32_t p = 1; p <= 8; p++)
		for (uint32_t m = 1; m <= 20; m++)
			for (uint32_t v = 1; v <= 4; v++)
				for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
					bool interleaved = kind == SCHEDULE_INTERLEAVED;
					if (interleaved ? v == 1 || p == 1 : v > 1)
						continue;
					assert_forward((enum schedule_kind)kind, p, m, v);
					if (interleaved && m < p)
						continue;
					struct schedule schedule = made((enum schedule_kind)kind, p,
					    m, v);
					assert_whole(&schedule);
					schedule_finish(&schedule);
					count++;
				}
	print_message("%u shapes proved\n", count);
}

static void random_shapes(void **state)
{
	const unsigned count = 5000;

	(void)state;
	for (unsigned i = 0; i < count; i++) {
		struct rng_key key = rng_key(20261122, i, 0);
		enum schedule_kind kind = (enum schedule_kind)rng_below(key, 0, 0, SCHEDULE_KINDS);
		uint32_t p = 1 + (uint32_t)rng_below(key, 0, 1, 16),
		         m = 1 + (uint32_t)rng_below(key, 0, 2, 64), v = 1;
		if (kind == SCHEDULE_INTERLEAVED) {
			v = 2 + (uint32_t)rng_below(key, 0, 3, 5);
			p += p == 1;
			m += m < p ? p : 0;
		}
		struct schedule schedule = made(kind, p, m, v);
		assert_whole(&schedule);
		assert_forward(kind, p, m, v);
		schedule_finish(&schedule);
	}
	print_message("%u random shapes proved\n", count);
}

static void as_megatron_draws_it(void **state)
{
	/* Rank 1 of 1F1B, 4 ranks, 4 microbatches: forwards 0 1 2, then in turn. F and B with the microbatch. */
	static const char *const wanted = "F0 F1 F2 B0 F3 B1 B2 B3 ";
	/* Figure 4 of arXiv 2104.04473: rank 3 of 4, 8 microbatches, 2 chunks; small letters are of chunk 1. */
	static const char
	    *const wanted_interleaved = "F0 F1 F2 F3 f0 b0 f1 b1 f2 b2 f3 b3 F4 B0 F5 B1 F6 B2 F7 "
	                                "B3 f4 b4 f5 b5 f6 b6 f7 b7 B4 B5 B6 B7 ";
	struct schedule schedules[2] = { made(SCHEDULE_1F1B, 4, 4, 1),
		made(SCHEDULE_INTERLEAVED, 4, 8, 2) };

	(void)state;
	for (int k = 0; k < 2; k++) {
		const struct schedule_list *list = &schedules[k].lists[k == 0 ? 1 : 3];
		char text[200] = "";
		for (uint32_t i = 0; i < list->count; i++) {
			static const char letters[2][2] = { { 'F', 'f' }, { 'B', 'b' } };
			bool backward = list->at[i].op == SCHEDULE_BWD;
			if (backward || list->at[i].op == SCHEDULE_FWD) {
				char one[4] = { letters[backward][list->at[i].chunk],
					(char)('0' + list->at[i].microbatch), ' ', 0 };
				strcat(text, one);
			}
		}
		assert_string_equal(text, k == 0 ? wanted : wanted_interleaved);
		schedule_finish(&schedules[k]);
	}
}

static void formulas(void **state)
{
	struct schedule_shape one = { SCHEDULE_1F1B, 4, 8, 1 },
	                      many = { SCHEDULE_INTERLEAVED, 4, 8, 2 };
	struct schedule_shape uneven = { SCHEDULE_INTERLEAVED, 4, 11, 2 };

	(void)state;
	assert_true(schedule_bubble(&one) == 3.0 / 8);
	assert_true(schedule_bubble(&many) == 3.0 / 16);
	assert_int_equal(schedule_in_flight(&one, 0), 4);
	assert_int_equal(schedule_in_flight(&one, 3), 1);
	assert_int_equal(schedule_group(&many), 4);
	/* 1 + (p-1)/(p v) times p stages of v chunks. */
	assert_int_equal(schedule_in_flight(&many, 0), 4 * 2 * 11 / 8);
	assert_int_equal(schedule_group(&uneven), 6);
	assert_int_equal(schedule_capacity(&uneven), 3);
	assert_int_equal(schedule_capacity(&many), 1);
}

static void over_rendezvous(void **state)
{
	struct schedule gpipe = made(SCHEDULE_GPIPE, 4, 8, 1), one = made(SCHEDULE_1F1B, 2, 4, 1);
	struct tr_error error;

	(void)state;
	assert_passes(&gpipe, rendezvous);
	assert_int_equal(schedule_check(&one, rendezvous, &error), TR_EINVAL);
	assert_string_equal(error.text,
	    "deadlock: rank 0 in SEND_F of microbatch 1, chunk 0, which waits for rank 1 in SEND_B "
	    "of microbatch 0, chunk 0, which "
	    "waits for rank 0");
	schedule_finish(&gpipe);
	schedule_finish(&one);
}

/* Groups larger than p: the last rank sends on what rank 0 takes only after its group. */
static void too_little_room(void **state)
{
	struct schedule schedule = made(SCHEDULE_INTERLEAVED, 2, 5, 2);
	struct tr_error error;

	(void)state;
	assert_int_equal(schedule_capacity(&schedule.shape), 2);
	assert_int_equal(schedule_check(&schedule, (struct schedule_channel){ .capacity = 1 },
	                     &error),
	    TR_EINVAL);
	assert_non_null(strstr(error.text, "deadlock: rank 0 in SEND_B of microbatch 2, chunk 1"));
	schedule_finish(&schedule);
}

/* A receiver that wants the second message first gets it by name, and never from a stream. */
static void against_the_order_of_sends(void **state)
{
	struct schedule schedule = made(SCHEDULE_GPIPE, 2, 2, 1);
	struct schedule_channel stream = { .capacity = 2, .in_order = true };
	struct tr_error error;

	(void)state;
	assert_passes(&schedule, stream);
	for (uint32_t i = 0; i < schedule.lists[1].count; i++)
		if (schedule.lists[1].at[i].op <= SCHEDULE_SEND_F)
			schedule.lists[1].at[i].microbatch = 1 - schedule.lists[1].at[i].microbatch;
	assert_passes(&schedule, by_name);
	assert_int_equal(schedule_check(&schedule, stream, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "rank 1 in RECV_F of microbatch 1, chunk 0"));
	schedule_finish(&schedule);
}

/* The same question by another method: an order of all instructions exists if and only if the graph of program order and messages has no
 * circle. Local rules are checked on each rank's own list. */

static bool lists_are_legal(const struct schedule *schedule)
{
	const struct schedule_shape *shape = &schedule->shape;
	bool legal = true;

	for (uint32_t rank = 0; rank < shape->ranks; rank++) {
		const struct schedule_list *list = &schedule->lists[rank];
		for (uint32_t i = 0; i < list->count; i++) {
			const struct schedule_instruction *what = &list->at[i];
			/* What must be before it in this list: for each op the one before it in the life of a microbatch. */
			static const int before[SCHEDULE_OPS] = { -1, SCHEDULE_RECV_F, SCHEDULE_FWD,
				-1, SCHEDULE_RECV_B, SCHEDULE_BWD, -1 };
			uint32_t backwards = 0;
			bool found = before[what->op] < 0 ||
			    (what->op == SCHEDULE_FWD &&
			        schedule_is_first(shape, rank, what->chunk)) ||
			    (what->op == SCHEDULE_BWD && schedule_is_last(shape, rank, what->chunk));
			bool forward = what->op != SCHEDULE_BWD;
			for (uint32_t k = 0; k < i; k++) {
				bool same = list->at[k].chunk == what->chunk &&
				    list->at[k].microbatch == what->microbatch;
				found = found || (same && list->at[k].op == before[what->op]);
				forward = forward || (same && list->at[k].op == SCHEDULE_FWD);
				backwards += list->at[k].chunk == what->chunk &&
				    list->at[k].op == SCHEDULE_BWD;
			}
			legal = legal && found && forward &&
			    (what->op != SCHEDULE_GRAD_READY || backwards == shape->microbatches);
		}
	}
	return legal;
}

/* Whether `a` on rank ra sends what `b` on rank rb receives. */
static bool is_message(const struct schedule_shape *shape, uint32_t ra,
    const struct schedule_instruction *a, uint32_t rb, const struct schedule_instruction *b)
{
	uint32_t from = a->chunk * shape->ranks + ra, to = b->chunk * shape->ranks + rb;

	return a->microbatch == b->microbatch &&
	    ((a->op == SCHEDULE_SEND_F && b->op == SCHEDULE_RECV_F && to == from + 1) ||
	        (a->op == SCHEDULE_SEND_B && b->op == SCHEDULE_RECV_B && from == to + 1));
}

static bool can_be_ordered(const struct schedule *schedule)
{
	const struct schedule_shape *shape = &schedule->shape;
	uint32_t next[8] = { 0 };
	bool moved = true, ended = true;

	/* Takes from each list what has all its senders before it; a circle is left over. */
	while (moved) {
		moved = false;
		for (uint32_t r = 0; r < shape->ranks; r++) {
			while (next[r] < schedule->lists[r].count) {
				bool ready = true;
				for (uint32_t s = 0; s < shape->ranks; s++)
					for (uint32_t i = next[s]; i < schedule->lists[s].count; i++)
						ready = ready &&
						    !is_message(shape, s, &schedule->lists[s].at[i],
						        r, &schedule->lists[r].at[next[r]]);
				if (!ready)
					break;
				next[r]++;
				moved = true;
			}
		}
	}
	for (uint32_t r = 0; r < shape->ranks; r++)
		ended = ended && next[r] == schedule->lists[r].count;
	return ended;
}

static void every_exchange_of_two(void **state)
{
	struct schedule schedules[] = { made(SCHEDULE_GPIPE, 3, 3, 1), made(SCHEDULE_1F1B, 2, 4, 1),
		made(SCHEDULE_1F1B, 4, 3, 1), made(SCHEDULE_INTERLEAVED, 2, 2, 2),
		made(SCHEDULE_INTERLEAVED, 2, 3, 2), made(SCHEDULE_INTERLEAVED, 3, 3, 2) };
	unsigned tried = 0, wrong = 0, stuck = 0;

	(void)state;
	for (size_t k = 0; k < sizeof(schedules) / sizeof(schedules[0]); k++) {
		struct schedule *schedule = &schedules[k];
		for (uint32_t r = 0; r < schedule->shape.ranks; r++) {
			struct schedule_list *list = &schedule->lists[r];
			for (uint32_t i = 0; i < list->count; i++)
				for (uint32_t j = i + 1; j < list->count; j++, tried++) {
					struct schedule_instruction was = list->at[i];
					struct tr_error error = { 0 };
					list->at[i] = list->at[j];
					list->at[j] = was;
					bool legal = lists_are_legal(schedule),
					     ordered = can_be_ordered(schedule);
					bool passed = schedule_check(schedule, by_name, &error) ==
					    TR_OK;
					assert_int_equal(passed, legal && ordered);
					/* A deadlock is called one, where it alone is wrong. */
					if (legal && !ordered) {
						assert_non_null(
						    strstr(error.text, "deadlock: rank "));
						stuck++;
					}
					wrong += !passed;
					list->at[j] = list->at[i];
					list->at[i] = was;
				}
		}
		assert_passes(schedule, by_name);
		schedule_finish(schedule);
	}
	assert_true(wrong > 0 && stuck > 0 && wrong < tried);
	print_message("%u exchanges, %u caught (%u of them deadlocks), the others harmless\n",
	    tried, wrong, stuck);
}

/* One instruction lost, or one twice. */
static void what_is_missing_or_twice(void **state)
{
	struct schedule schedule = made(SCHEDULE_INTERLEAVED, 2, 4, 2);
	struct tr_error error;

	(void)state;
	for (uint32_t r = 0; r < 2; r++) {
		struct schedule_list *list = &schedule.lists[r];
		for (uint32_t i = 0; i < list->count; i++) {
			struct schedule_instruction was = list->at[i];
			size_t behind = (size_t)(list->count - i - 1) * sizeof(was);
			memmove(&list->at[i], &list->at[i + 1], behind);
			list->count--;
			assert_int_equal(schedule_check(&schedule, by_name, &error), TR_EINVAL);
			memmove(&list->at[i + 1], &list->at[i], behind);
			list->at[i] = was;
			list->count++;
			if (i > 0) {
				list->at[i] = list->at[0];
				assert_int_equal(schedule_check(&schedule, by_name, &error),
				    TR_EINVAL);
				list->at[i] = was;
			}
		}
	}
	assert_passes(&schedule, by_name);
	schedule_finish(&schedule);
}

static void refused(enum schedule_kind kind, uint32_t p, uint32_t m, uint32_t v, const char *words)
{
	struct schedule_shape shape = { kind, p, m, v };
	struct schedule schedule = { .shape.ranks = 77 };
	struct tr_error error;

	assert_int_equal(schedule_create(&shape, &schedule, &error), TR_EINVAL);
	assert_string_equal(error.text, words);
	assert_int_equal(schedule.shape.ranks, 77);
}

static void shapes_that_cannot_be(void **state)
{
	(void)state;
	refused(SCHEDULE_1F1B, 0, 4, 1, "schedule 1f1b: 0 pipeline ranks; 1 to 256 are allowed");
	refused(SCHEDULE_GPIPE, 4, 0, 1, "schedule gpipe: 0 microbatches; 1 to 16384 are allowed");
	refused(SCHEDULE_1F1B, 4, 8, 2,
	    "schedule 1f1b: 2 chunks a rank; it has 1, interleaved has more");
	refused(SCHEDULE_INTERLEAVED, 4, 8, 1,
	    "schedule interleaved: 1 chunks a rank; 2 to 64 are allowed");
	refused(SCHEDULE_INTERLEAVED, 1, 8, 2,
	    "schedule interleaved: one pipeline rank; it needs 2 at least");
	refused(SCHEDULE_INTERLEAVED, 4, 3, 2,
	    "schedule interleaved: 3 microbatches for 4 pipeline ranks; it needs 4 at least");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_small_shape),
		cmocka_unit_test(random_shapes),
		cmocka_unit_test(as_megatron_draws_it),
		cmocka_unit_test(formulas),
		cmocka_unit_test(over_rendezvous),
		cmocka_unit_test(too_little_room),
		cmocka_unit_test(against_the_order_of_sends),
		cmocka_unit_test(every_exchange_of_two),
		cmocka_unit_test(what_is_missing_or_twice),
		cmocka_unit_test(shapes_that_cannot_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
