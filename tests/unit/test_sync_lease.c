/* Leases of samples: whoever comes, dies, reads a roster of a try that is given up, runs dry or is fast, every sample is in exactly one place, none
 * is counted twice, and all that is not held is counted in the end. Held against a plain array with a mark for each sample. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/sync/lease.h"
#include "common/rng.h"
#include "daemon/plan/sample_account.h"

enum { SAMPLES = 1 << 18, MEMBERS = 24, QUEUE = 4096, ABSENT = 8, KEEP = 3 };

struct member {
	uint64_t id;  /* 0: nobody */
	uint64_t was; /* cut off as that one, it came back; 0: no */
	bool enrolled;
	struct lease_account own; /* before its first commit: what it made of the roster it read */
	uint64_t taken[QUEUE];    /* consumed, in order, and not counted yet */
	size_t given, consumed;   /* of `taken`: with the round under way; in all */
};

struct world {
	struct rng_key key;
	uint64_t draws, next_id, round;
	struct lease_account account;
	struct member members[MEMBERS];
	bool waits;                   /* for those who are cut off */
	struct member absent[ABSENT]; /* they go on consuming what they have */
	unsigned returned, late;
	uint8_t counted[SAMPLES], lost[SAMPLES];
};

static uint64_t draw(struct world *w, uint64_t below)
{
	return rng_below(w->key, 1, w->draws++, below);
}

static const struct lease_account *view_of(const struct world *w, const struct member *m)
{
	return m->enrolled ? &w->account : &m->own;
}

static void consume(struct world *w, struct member *m, uint64_t most)
{
	uint64_t count = draw(w, most + 1);
	for (uint64_t i = 0; i < count && m->consumed < QUEUE; i++) {
		uint64_t sample = lease_at(view_of(w, m), m->id, m->consumed);
		if (sample == UINT64_MAX)
			return; /* it ran dry and waits for the merge */
		assert_true(sample < SAMPLES);
		m->taken[m->consumed++] = sample;
	}
}

static void join(struct world *w)
{
	for (size_t i = 0; i < MEMBERS; i++) {
		struct member *m = &w->members[i];
		if (m->id != 0)
			continue;
		memset(m, 0, sizeof(*m));
		struct member *back = &w->absent[draw(w, ABSENT)];
		if (back->id != 0 && draw(w, 2) == 0) {
			*m = *back;
			memset(back, 0, sizeof(*back));
			m->was = m->id;
			m->enrolled = false;
			m->own = (struct lease_account){ 0 };
		}
		m->id = w->next_id += 1 + draw(w, 5);
		return;
	}
}

static struct member *anybody(struct world *w)
{
	struct member *m = &w->members[draw(w, MEMBERS)];
	return m->id != 0 ? m : NULL;
}

/* It dies, or is cut off and works on what it has. */
static void leaves(struct world *w, struct member *m)
{
	struct member *absent = &w->absent[draw(w, ABSENT)];
	if (w->waits && m->enrolled && absent->id == 0) {
		consume(w, m, 40);
		*absent = *m;
	}
	memset(m, 0, sizeof(*m));
}

/* Whether what it consumed alone is still its own; else nothing of that may be merged. */
static void see_what_is_left(struct world *w, struct member *m)
{
	if (m->was == 0 || m->consumed == 0)
		return;
	if (lease_at(&m->own, m->id, 0) != m->taken[0]) {
		m->consumed = 0;
		w->late++;
		return;
	}
	w->returned++;
	for (size_t k = 0; k < m->consumed; k++)
		assert_int_equal(lease_at(&m->own, m->id, k), m->taken[k]);
}

/* What the round's roster comes to in this try. */
static void roster_of(const struct world *w, struct lease_wish *roster)
{
	memset(roster, 0, MEMBERS * sizeof(*roster));
	for (size_t i = 0; i < MEMBERS; i++) {
		const struct member *m = &w->members[i];
		roster[i].peer = (double)m->id;
		if (m->id == 0 || m->enrolled)
			continue;
		roster[i].was = (double)m->was;
		if (lease_have(&m->own, m->id) == 0)
			continue;
		struct lease_range claim = lease_claim(&m->own, &w->account, m->id);
		roster[i].from = (double)claim.from;
		roster[i].to = (double)claim.to;
	}
}

/* A try of a round: some newcomers get to read its roster and work. */
static void try_round(struct world *w, const struct lease_wish *roster, uint64_t need, bool last)
{
	for (size_t i = 0; i < MEMBERS; i++) {
		struct member *m = &w->members[i];
		if (m->id == 0)
			continue;
		if (!m->enrolled && lease_have(&m->own, m->id) == 0 && (last || draw(w, 2) == 0)) {
			m->own = w->account;
			lease_enroll(&m->own, roster, MEMBERS, need);
			assert_true(lease_have(&m->own, m->id) == need ||
			    (m->was != 0 && lease_have(&m->own, m->id) > need));
			see_what_is_left(w, m);
		}
		consume(w, m, 20);
	}
}

static void commit(struct world *w, const struct lease_wish *roster, uint64_t need)
{
	struct lease_use uses[MEMBERS] = { 0 };
	for (size_t i = 0; i < MEMBERS; i++) {
		struct member *m = &w->members[i];
		uses[i] = (struct lease_use){ m->id, m->given,
			draw(w, 60) == 0 ? draw(w, m->given + 1) : 0 };
		for (size_t k = 0; m->id != 0 && k < m->given; k++) {
			assert_int_equal(w->counted[m->taken[k]], 0);
			w->counted[m->taken[k]] = k >= uses[i].lost;
			assert_int_equal(w->lost[m->taken[k]], 0);
			w->lost[m->taken[k]] = k < uses[i].lost;
		}
		memmove(m->taken, m->taken + m->given,
		    (m->consumed - m->given) * sizeof(m->taken[0]));
		m->consumed -= m->given;
		m->given = 0;
	}
	lease_enroll(&w->account, roster, MEMBERS, need);
	if (w->waits)
		lease_mark_absent(&w->account, uses, MEMBERS, w->round + 1, KEEP);
	lease_settle(&w->account, uses, MEMBERS, ++w->round);
	for (size_t i = 0; i < MEMBERS; i++) {
		struct member *m = &w->members[i];
		if (m->id == 0)
			continue;
		lease_top_up(&w->account, m->id, 30 + draw(w, 30), draw(w, 2) == 0);
		m->enrolled = true;
		/* What it consumed before the merge and after its take is at the head of its queue now. */
		for (size_t k = 0; k < m->consumed; k++)
			assert_int_equal(lease_at(&w->account, m->id, k), m->taken[k]);
	}
}

static void check(const struct world *w)
{
	static uint8_t places[SAMPLES];
	const struct lease_account *a = &w->account;
	uint64_t counted = 0;
	memcpy(places, w->counted, sizeof(places));
	for (size_t i = 0; i < SAMPLES; i++)
		counted += places[i];
	assert_int_equal(lease_counted(a), counted);
	for (size_t i = 0; i < a->held_count; i++)
		for (uint64_t s = a->held[i].from; s < a->held[i].to; s++)
			places[s]++;
	for (size_t i = 0; i < a->free_count; i++)
		for (uint64_t s = a->free[i].from; s < a->free[i].to; s++)
			places[s]++;
	for (size_t i = 0; i < a->dropped_count; i++)
		for (uint64_t s = a->dropped[i].from; s < a->dropped[i].to; s++)
			places[s]++;
	for (uint64_t s = 0; s < SAMPLES; s++)
		assert_true(places[s] == (s < a->cursor) && places[s] >= w->lost[s]);
}

static unsigned returned, late; /* of those who were cut off, in all games */

static void play(uint64_t seed, unsigned rounds, bool waits)
{
	struct world *w = calloc(1, sizeof(*w));
	assert_non_null(w);
	w->waits = waits;
	w->key = rng_key(seed, 0, 0);
	for (unsigned i = 0; i < 4; i++)
		join(w);
	for (unsigned r = 0; r < rounds && w->account.cursor < SAMPLES - 4096; r++) {
		struct lease_wish roster[MEMBERS];
		uint64_t need = 20 + draw(w, 40);
		for (uint64_t j = draw(w, 4); j > 1; j--)
			join(w);
		for (uint64_t tries = draw(w, 4); tries > 0; tries--) {
			roster_of(w, roster);
			try_round(w, roster, need, false);
			struct member *dead = anybody(w);
			if (dead != NULL && draw(w, 3) > 0)
				leaves(w, dead);
		}
		roster_of(w, roster);
		try_round(w, roster, need, true);
		for (size_t i = 0; i < MEMBERS; i++)
			w->members[i].given = w->members[i].consumed;
		for (size_t i = 0; i < MEMBERS; i++)
			if (w->members[i].id != 0)
				consume(w, &w->members[i], 10);
		commit(w, roster, need);
		check(w);
		struct member *dead = anybody(w);
		if (dead != NULL && draw(w, 3) == 0) /* its data was in the round */
			leaves(w, dead);
		if (draw(w, 40) == 0) { /* all die: from a checkpoint of this round */
			memset(w->members, 0, sizeof(w->members));
			memset(w->absent, 0, sizeof(w->absent));
			lease_release(&w->account);
			assert_true(lease_valid(&w->account));
			check(w);
		}
	}
	check(w);
	assert_true(w->returned == 0 || waits);
	returned += w->returned;
	late += w->late;
	free(w);
}

static void every_sample_is_in_one_place_whoever_comes_and_dies(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 30; seed++)
		play(seed, 60, false);
}

static void who_was_cut_off_finds_what_it_held_or_learns_that_it_comes_too_late(void **state)
{
	(void)state;
	returned = late = 0;
	for (uint64_t seed = 1; seed <= 60; seed++)
		play(seed, 60, true);
	assert_true(returned > 50 && late > 50);
}

static void nothing_is_lost_by_a_death(void **state)
{
	(void)state;
	struct lease_account *a = calloc(1, sizeof(*a));
	const struct lease_wish both[] = { { 7, 0, 0, 0 }, { 9, 0, 0, 0 } };
	const struct lease_use uses[] = { { 7, 10, 0 }, { 9, 4, 0 } };
	lease_enroll(a, both, 2, 10);
	lease_settle(a, uses, 2, 1);
	lease_top_up(a, 7, 10, true);
	assert_int_equal(lease_at(a, 7, 0), 20);
	lease_settle(a, uses, 1, 2); /* 9 is dead: 14 to 20 are free */
	assert_int_equal(lease_counted(a), 24);
	assert_int_equal(a->free_count, 1);
	lease_top_up(a, 7, 10, true);
	assert_int_equal(lease_at(a, 7, 0), 14);
	assert_int_equal(lease_at(a, 7, 5), 19);
	assert_int_equal(lease_at(a, 7, 6), 30);
	/* What was learned from wrong parameters is not used again. */
	const struct lease_use wrong = { 7, 7, 7 };
	lease_settle(a, &wrong, 1, 3);
	assert_int_equal(lease_at(a, 7, 0), 31);
	assert_int_equal(a->dropped_count, 2);
	assert_true(a->dropped[0].from == 14 && a->dropped[0].to == 20 && a->dropped[0].peer == 7 &&
	    a->dropped[0].round == 3 && a->dropped[0].cause == LEASE_DRIFTED);
	assert_int_equal(lease_counted(a), 24);
	free(a);
}

static void wild_numbers_do_no_harm(void **state)
{
	(void)state;
	static const double wild[] = { -1, 0, 1, 3, 1e300, -1e300, (double)NAN, (double)INFINITY,
		9007199254740991.0, 1e15, 12, 20 };
	struct rng_key key = rng_key(3, 0, 0);
	struct lease_account *a = calloc(1, sizeof(*a));
	const size_t kinds = sizeof(wild) / sizeof(wild[0]);
	for (uint64_t n = 0; n < 20000; n++) {
		struct lease_wish roster[8];
		struct lease_use uses[8];
		for (size_t i = 0; i < 8; i++) {
			roster[i].peer = wild[rng_below(key, 1, 40 * n + i, kinds)];
			roster[i].from = wild[rng_below(key, 2, 40 * n + i, kinds)];
			roster[i].to = wild[rng_below(key, 3, 40 * n + i, kinds)];
			uses[i].peer = rng_below(key, 4, 40 * n + i, 13);
			uses[i].consumed = rng_below(key, 5, 40 * n + i, UINT64_MAX);
			uses[i].lost = n % 3 == 0 ? rng_below(key, 6, 40 * n + i, UINT64_MAX) : 0;
		}
		if (n % 50 == 0)
			memset(a, 0, sizeof(*a));
		lease_enroll(a, roster, 8, 5);
		lease_settle(a, uses, 8, n + 1);
		lease_top_up(a, 3, 7, n % 2 == 0);
	}
	assert_true(a->held_count <= LEASE_HELD_MAX && a->free_count <= LEASE_FREE_MAX &&
	    a->dropped_count <= LEASE_DROPPED_MAX && a->cursor <= LEASE_SAMPLE_MAX);
	free(a);
}

static void a_full_list_of_drops_joins_its_nearest(void **state)
{
	(void)state;
	struct lease_account *a = calloc(1, sizeof(*a));
	for (uint64_t i = 0; i < LEASE_DROPPED_MAX + 100; i++) {
		uint64_t first = lease_batch(a, 10, i + 1);
		assert_int_equal(first, 10 * i);
		lease_drop(a,
		    (struct lease_dropped){ first + 2, first + 5, 3, .peer = i, .round = i + 1 });
	}
	assert_int_equal(a->dropped_count, LEASE_DROPPED_MAX);
	assert_int_equal(lease_counted(a), 7 * (LEASE_DROPPED_MAX + 100));
	assert_true(lease_valid(a));
	a->dropped[3].count = 0;
	assert_false(lease_valid(a));
	free(a);
}

/* What memberd is told of it, and takes. */
static bool memberd_takes(const struct lease_account *a)
{
	Traind__V1__SampleAccount said = TRAIND__V1__SAMPLE_ACCOUNT__INIT;
	Traind__V1__SampleRange rows[LEASE_DROPPED_MAX], *places[LEASE_DROPPED_MAX];
	said.per_epoch = 1000;
	said.given = a->cursor;
	said.dropped = places;
	for (said.n_dropped = 0; said.n_dropped < a->dropped_count; said.n_dropped++) {
		Traind__V1__SampleRange *row = places[said.n_dropped] = &rows[said.n_dropped];
		traind__v1__sample_range__init(row);
		row->from = a->dropped[said.n_dropped].from;
		row->to = a->dropped[said.n_dropped].to;
		row->count = a->dropped[said.n_dropped].count;
	}
	return sample_account_valid(&said);
}

/* (A range that lay in two joined ones was listed beside them: memberd took no account any more, and in the end no checkpoint could be read.) */
static void drops_in_any_order_stay_apart(void **state)
{
	(void)state;
	enum { DROPS = 400, EACH = 40 };
	uint64_t within = 0; /* joined ones */
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct rng_key key = rng_key(seed, 0, 0);
		struct lease_account *a = calloc(1, sizeof(*a));
		uint64_t order[DROPS], sum = 0;
		(void)lease_batch(a, (uint64_t)DROPS * EACH, 1);
		for (uint64_t i = 0; i < DROPS; i++) {
			uint64_t at = rng_below(key, 1, i, i + 1);
			order[i] = order[at];
			order[at] = i;
		}
		for (uint64_t i = 0; seed % 2 == 0 && i < DROPS; i++) /* every other one first */
			order[i] = i < DROPS / 2 ? 2 * i : 2 * (i - DROPS / 2) + 1;
		for (uint64_t i = 0; i < DROPS; i++) {
			uint64_t from = order[i] * EACH + rng_below(key, 2, i, EACH / 2);
			uint64_t count = 1 + rng_below(key, 3, i, EACH / 2);
			for (size_t d = 0; d < a->dropped_count; d++)
				within += a->dropped[d].from < from && from < a->dropped[d].to;
			lease_drop(a,
			    (struct lease_dropped){ .from = from,
			        .to = from + count,
			        .count = count,
			        .peer = 1 + i % 3,
			        .round = i,
			        .cause = LEASE_DRIFTED });
			sum += count;
			assert_int_equal(lease_counted(a), (uint64_t)DROPS * EACH - sum);
			assert_true(lease_valid(a) && memberd_takes(a));
			for (size_t d = 1; d < a->dropped_count; d++)
				assert_true(a->dropped[d].from >= a->dropped[d - 1].to);
		}
		a->dropped[5].to = a->dropped[6].from + 1;
		assert_false(lease_valid(a));
		free(a);
	}
	assert_true(within > 500);
}

/* A checkpoint of leases that is continued by whole batches, in order: what was free stays in the account, as dropped. */
static void what_is_free_is_dropped_before_whole_batches(void **state)
{
	(void)state;
	struct lease_account *a = calloc(1, sizeof(*a));
	const struct lease_wish both[] = { { 7, 0, 0, 0 }, { 9, 0, 0, 0 } };
	const struct lease_use use = { 7, 4, 0 };
	lease_enroll(a, both, 2, 10);
	lease_settle(a, &use, 1, 1); /* 9 is dead: 10 to 20 are free */
	lease_release(a);            /* and 4 to 10: a file holds no leases */
	assert_int_equal(a->free_count, 1);
	lease_drop_free(a);
	assert_true(lease_valid(a) && a->free_count == 0 && a->dropped_count == 1);
	assert_true(a->dropped[0].from == 4 && a->dropped[0].to == 20 &&
	    a->dropped[0].count == 16 && a->dropped[0].cause == LEASE_LEFT_OVER);
	assert_int_equal(lease_batch(a, 8, 2), 20);
	assert_int_equal(lease_counted(a), 12);
	assert_true(memberd_takes(a));
	free(a);
}

/* ---- ranges stay few ---- */

/* Members that take steps as they can, or by a schedule in which their shares of a batch are one less than what they are given for. */
struct crowd {
	struct rng_key key;
	struct lease_account account;
	size_t count;
	uint64_t draws, rate[TR_GROUP_PEERS_MAX], ahead[TR_GROUP_PEERS_MAX];
	uint64_t least; /* of a round, by pace; need, by schedule */
	bool exact;
};

static void crowd_enroll(struct crowd *c)
{
	struct lease_wish roster[TR_GROUP_PEERS_MAX] = { 0 };
	for (size_t i = 0; i < c->count; i++)
		roster[i].peer = (double)(i + 1);
	lease_enroll(&c->account, roster, c->count, c->least);
}

/* By pace: at random about its rate, and something between take and merge, which counts with the next one. */
static uint64_t crowd_consumes(struct crowd *c, size_t i, uint64_t have)
{
	uint64_t rate = c->rate[i], now = rate;
	if (!c->exact)
		now = rate / 2 + rng_below(c->key, 1, c->draws++, rate + 1);
	now = now < have ? now : have;
	now = now > c->ahead[i] ? now : c->ahead[i];
	uint64_t more = c->exact ? 0 : rng_below(c->key, 1, c->draws++, rate / 4 + 1);
	c->ahead[i] = more < have - now ? more : have - now;
	return now;
}

static size_t pieces_of(const struct lease_account *a, uint64_t peer)
{
	size_t pieces = 0;
	for (size_t i = 0; i < a->held_count; i++)
		pieces += a->held[i].peer == peer;
	return pieces;
}

static void newcomer_gets_its_need(const struct crowd *c)
{
	static struct lease_account own;
	const struct lease_wish wish = { 1000, 0, 0, 0 };
	own = c->account;
	lease_enroll(&own, &wish, 1, c->least);
	assert_int_equal(lease_have(&own, 1000), c->least);
}

static void crowd_plays(struct crowd *c, unsigned commits)
{
	struct lease_account *a = &c->account;
	c->key = rng_key(7, 0, 0);
	crowd_enroll(c);
	for (unsigned commit = 1; commit <= commits; commit++) {
		struct lease_use uses[TR_GROUP_PEERS_MAX] = { 0 };
		for (size_t i = 0; i < c->count; i++) {
			uint64_t have = lease_have(a, i + 1);
			uses[i] = (struct lease_use){ i + 1, crowd_consumes(c, i, have), 0 };
			assert_true(!c->exact || uses[i].consumed == c->rate[i]); /* never dry */
		}
		lease_settle(a, uses, c->count, commit);
		for (size_t i = 0; i < c->count; i++)
			lease_top_up(a, i + 1,
			    c->exact ? c->least : lease_guess(uses[i].consumed, c->least),
			    c->exact);
		for (size_t i = 0; i < c->count; i++) {
			assert_true(pieces_of(a, i + 1) <= LEASE_PIECES_MAX);
			assert_true(lease_have(a, i + 1) >= (c->exact ? c->least : 1));
		}
		assert_true(a->held_count < LEASE_HELD_MAX);
		newcomer_gets_its_need(c);
	}
}

/* (The level was topped up by exactly what was consumed, so slow members held a piece for each commit in which they took a little of it: the
 * table was full, newcomers got nothing and ended, and so did the job.) */
static void members_hold_few_pieces_whatever_their_pace(void **state)
{
	(void)state;
	struct crowd *c = calloc(1, sizeof(*c));
	*c = (struct crowd){ .count = 24, .least = 202 };
	for (size_t i = 0; i < c->count; i++)
		c->rate[i] = 5;
	crowd_plays(c, 500);
	*c = (struct crowd){ .count = 16, .least = 202 };
	for (size_t i = 0; i < c->count; i++)
		c->rate[i] = i < 8 ? 100 : 2;
	crowd_plays(c, 500);
	free(c);
}

/* (Half of the rows were for who is absent: beside many of them a large group got no samples, and its members ended.) */
static void who_is_absent_leaves_room_for_who_is_there(void **state)
{
	(void)state;
	static struct lease_use uses[TR_GROUP_PEERS_MAX];
	struct lease_account *a = calloc(1, sizeof(*a));
	for (unsigned present = 10; present <= TR_GROUP_PEERS_MAX; present += 246) {
		memset(a, 0, sizeof(*a));
		for (uint64_t i = 0; i < 510; i++) /* pieces apart from each other */
			a->held[i] = (struct lease_held){ 1 + i / 3, 20 * i, 20 * i + 10, 1 };
		a->cursor = 20 * 510;
		a->held_count = 510;
		for (uint64_t i = 0; i < 510; i++) {
			const uint64_t from = 20 * i + 10;
			a->free[i] = (struct lease_range){ from, from + 10 };
		}
		a->free_count = 510;
		for (unsigned i = 0; i < present; i++) {
			const struct lease_wish wish = { .peer = 1000 + i };
			uses[i].peer = 1000 + i;
			lease_enroll(a, &wish, 1, 10);
		}
		lease_mark_absent(a, uses, present, 2, 10);
		lease_settle(a, uses, present, 2);
		size_t absent = a->held_count - present;
		assert_int_equal(absent, present == 10 ? 510 : 0);
		assert_int_equal(lease_counted(a), 0);
	}
	free(a);
}

/* Overlap of a whole period: given for 2 samples a step, all but a few take 1. */
static void members_by_schedule_hold_few_pieces_too(void **state)
{
	(void)state;
	struct crowd *c = calloc(1, sizeof(*c));
	*c = (struct crowd){ .count = 200, .least = 40, .exact = true };
	for (size_t i = 0; i < c->count; i++)
		c->rate[i] = i < 20 ? 20 : 10;
	crowd_plays(c, 500);
	free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_sample_is_in_one_place_whoever_comes_and_dies),
		cmocka_unit_test(
		    who_was_cut_off_finds_what_it_held_or_learns_that_it_comes_too_late),
		cmocka_unit_test(nothing_is_lost_by_a_death),
		cmocka_unit_test(what_is_free_is_dropped_before_whole_batches),
		cmocka_unit_test(wild_numbers_do_no_harm),
		cmocka_unit_test(a_full_list_of_drops_joins_its_nearest),
		cmocka_unit_test(drops_in_any_order_stay_apart),
		cmocka_unit_test(members_hold_few_pieces_whatever_their_pace),
		cmocka_unit_test(who_is_absent_leaves_room_for_who_is_there),
		cmocka_unit_test(members_by_schedule_hold_few_pieces_too),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
