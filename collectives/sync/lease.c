#include "collectives/sync/lease.h"

#include <string.h>

/* ---- free ranges ---- */

static void drop_free(struct lease_account *a, size_t at)
{
	a->free_count--;
	memmove(&a->free[at], &a->free[at + 1], (a->free_count - at) * sizeof(a->free[0]));
	a->free[a->free_count] = (struct lease_range){ 0 }; /* digested: no rest stays */
}

static void add_free(struct lease_account *a, uint64_t from, uint64_t to)
{
	size_t at = 0;

	if (from >= to)
		return;
	while (at < a->free_count && a->free[at].to < from)
		at++;
	if (at < a->free_count && a->free[at].from <= to) {
		if (from < a->free[at].from)
			a->free[at].from = from;
		if (to > a->free[at].to)
			a->free[at].to = to;
		if (at + 1 < a->free_count && a->free[at + 1].from <= a->free[at].to) {
			a->free[at].to = a->free[at + 1].to;
			drop_free(a, at + 1);
		}
		return;
	}
	if (a->free_count == LEASE_FREE_MAX) {
		lease_drop(a,
		    (struct lease_dropped){ .from = from,
		        .to = to,
		        .count = to - from,
		        .cause = LEASE_NO_ROOM });
		return;
	}
	memmove(&a->free[at + 1], &a->free[at], (a->free_count - at) * sizeof(a->free[0]));
	a->free[at] = (struct lease_range){ from, to };
	a->free_count++;
}

static struct lease_range take_at_cursor(struct lease_account *a, uint64_t most)
{
	uint64_t left = a->cursor < LEASE_SAMPLE_MAX ? LEASE_SAMPLE_MAX - a->cursor : 0;
	struct lease_range taken = { a->cursor, a->cursor + (most < left ? most : left) };

	a->cursor = taken.to;
	return taken;
}

/* At most `most` samples, from what is free or else, or if `last`, from the cursor. None: all were handed out. */
static struct lease_range take_next(struct lease_account *a, uint64_t most, bool last)
{
	struct lease_range taken;

	if (a->free_count == 0 || (last && a->free[0].to - a->free[0].from < most))
		return take_at_cursor(a, most);
	taken = a->free[0];
	if (taken.to - taken.from > most)
		taken.to = taken.from + most;
	a->free[0].from = taken.to;
	if (a->free[0].from == a->free[0].to)
		drop_free(a, 0);
	return taken;
}

/* ---- queues ---- */

/* Where the peer's queue begins, or would begin. */
static size_t first_of(const struct lease_account *a, uint64_t peer)
{
	size_t at = 0;

	while (at < a->held_count && a->held[at].peer < peer)
		at++;
	return at;
}

static size_t end_of(const struct lease_account *a, uint64_t peer)
{
	size_t at = first_of(a, peer);

	while (at < a->held_count && a->held[at].peer == peer)
		at++;
	return at;
}

static void drop_held(struct lease_account *a, size_t at)
{
	a->held_count--;
	memmove(&a->held[at], &a->held[at + 1], (a->held_count - at) * sizeof(a->held[0]));
	a->held[a->held_count] = (struct lease_held){ 0 };
}

/* Behind what the peer has. */
static void add_held(struct lease_account *a, uint64_t peer, struct lease_range range)
{
	size_t at = end_of(a, peer);

	if (range.from >= range.to)
		return;
	if (at > 0 && a->held[at - 1].peer == peer && a->held[at - 1].to == range.from) {
		a->held[at - 1].to = range.to;
		return;
	}
	if (a->held_count == LEASE_HELD_MAX) {
		add_free(a, range.from, range.to);
		return;
	}
	memmove(&a->held[at + 1], &a->held[at], (a->held_count - at) * sizeof(a->held[0]));
	a->held[at] = (struct lease_held){ peer, range.from, range.to, 0 };
	a->held_count++;
}

uint64_t lease_have(const struct lease_account *a, uint64_t peer)
{
	uint64_t have = 0;

	for (size_t i = first_of(a, peer); i < a->held_count && a->held[i].peer == peer; i++)
		have += a->held[i].to - a->held[i].from;
	return have;
}

uint64_t lease_at(const struct lease_account *a, uint64_t peer, uint64_t i)
{
	for (size_t at = first_of(a, peer); at < a->held_count && a->held[at].peer == peer; at++) {
		uint64_t length = a->held[at].to - a->held[at].from;
		if (i < length)
			return a->held[at].from + i;
		i -= length;
	}
	return UINT64_MAX;
}

unsigned lease_members(const struct lease_account *a)
{
	unsigned members = 0;

	for (size_t i = 0; i < a->held_count; i++)
		members += i == 0 || a->held[i].peer != a->held[i - 1].peer;
	return members;
}

uint64_t lease_counted(const struct lease_account *a)
{
	uint64_t counted = a->cursor;

	for (size_t i = 0; i < a->held_count; i++)
		counted -= a->held[i].to - a->held[i].from;
	for (size_t i = 0; i < a->free_count; i++)
		counted -= a->free[i].to - a->free[i].from;
	for (size_t i = 0; i < a->dropped_count; i++)
		counted -= a->dropped[i].count;
	return counted;
}

/* ---- rules ---- */

uint64_t lease_guess(uint64_t consumed, uint64_t least)
{
	return 2 * (2 * consumed > least ? 2 * consumed : least);
}

/* What comes is large beside what is left, so little is left of the pieces before it when the next one comes. */
void lease_top_up(struct lease_account *a, uint64_t peer, uint64_t need, bool exact)
{
	uint64_t have = lease_have(a, peer);

	if (!exact && have >= need - need / 2)
		return;
	while (have < need && a->held_count < LEASE_HELD_MAX) {
		size_t pieces = end_of(a, peer) - first_of(a, peer);
		bool last = pieces + 1 >= LEASE_PIECES_MAX;
		if (!exact && pieces >= LEASE_PIECES_MAX)
			return;
		struct lease_range next = take_next(a, (exact && last ? 2 * need : need) - have,
		    last);
		if (next.from == next.to)
			return;
		add_held(a, peer, next);
		have += next.to - next.from;
	}
}

static uint64_t whole(double number)
{
	return number > 0 && number < (double)LEASE_SAMPLE_MAX ? (uint64_t)number : 0;
}

struct lease_range lease_claim(const struct lease_account *own, const struct lease_account *group,
    uint64_t peer)
{
	struct lease_range claim = { 0 };

	for (size_t i = first_of(own, peer); i < own->held_count && own->held[i].peer == peer; i++)
		if (own->held[i].to > group->cursor)
			claim = (struct lease_range){ own->held[i].from > group->cursor
				    ? own->held[i].from
				    : group->cursor,
				own->held[i].to };
	return claim;
}

/* Of whom nothing is known but that he is there. */
static bool has_come(const struct lease_wish *roster, size_t count, uint64_t peer)
{
	for (size_t i = 0; i < count; i++)
		if (whole(roster[i].peer) == peer)
			return true;
	return false;
}

/* Who was somebody else before he was cut off. */
static void take_over(struct lease_account *a, const struct lease_wish *roster, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t peer = whole(roster[i].peer), was = whole(roster[i].was);
		if (peer == 0 || was == 0 || lease_have(a, peer) > 0 || has_come(roster, count, was))
			continue;
		for (size_t at = first_of(a, was); at < a->held_count && a->held[at].peer == was;
		     at = first_of(a, was)) {
			struct lease_range range = { a->held[at].from, a->held[at].to };
			drop_held(a, at);
			add_held(a, peer, range);
		}
	}
}

/* Whether the peer holds something beyond `cursor`. */
static bool holds_beyond(const struct lease_account *a, uint64_t peer, uint64_t cursor)
{
	size_t end = end_of(a, peer);

	return end > 0 && a->held[end - 1].peer == peer && a->held[end - 1].to > cursor;
}

/* Those who have a lease from a try before say so; nobody who is alive has one beyond them, so the others' come after. */
static void take_claims(struct lease_account *a, const struct lease_wish *roster, size_t count)
{
	uint64_t end = a->cursor, first = a->cursor;

	for (size_t i = 0; i < count; i++) {
		uint64_t peer = whole(roster[i].peer), from = whole(roster[i].from),
		         to = whole(roster[i].to);
		bool may = roster[i].was > 0 ? !holds_beyond(a, peer, first)
		                             : lease_have(a, peer) == 0;
		if (peer == 0 || from < first || to <= from || !may)
			continue;
		add_held(a, peer, (struct lease_range){ from, to });
		end = to > end ? to : end;
	}
	/* What lies between them was that of somebody who died. */
	while (a->cursor < end) {
		uint64_t next = end, past = a->cursor;
		for (size_t i = 0; i < a->held_count; i++) {
			if (a->held[i].from <= a->cursor && a->held[i].to > past)
				past = a->held[i].to;
			if (a->held[i].from > a->cursor && a->held[i].from < next)
				next = a->held[i].from;
		}
		if (past == a->cursor)
			add_free(a, a->cursor, past = next);
		a->cursor = past;
	}
}

void lease_enroll(struct lease_account *a, const struct lease_wish *roster, size_t count,
    uint64_t need)
{
	uint64_t first = a->cursor;

	take_over(a, roster, count);
	take_claims(a, roster, count);
	for (size_t i = 0; i < count; i++) {
		uint64_t peer = whole(roster[i].peer);
		bool served = roster[i].was > 0 ? holds_beyond(a, peer, first)
		                                : lease_have(a, peer) > 0;
		if (peer == 0 || served)
			continue;
		/* From the cursor, so that those of a later try are apart from it. */
		add_held(a, peer, take_at_cursor(a, need));
	}
}

/* The first `count` of its queue, which are dropped, or counted. */
static void consume(struct lease_account *a, uint64_t peer, uint64_t count, bool lost,
    uint64_t round)
{
	while (count > 0) {
		size_t at = first_of(a, peer);
		if (at == a->held_count || a->held[at].peer != peer)
			return;
		struct lease_held *held = &a->held[at];
		uint64_t length = held->to - held->from < count ? held->to - held->from : count;
		if (lost)
			lease_drop(a,
			    (struct lease_dropped){ .from = held->from,
			        .to = held->from + length,
			        .count = length,
			        .peer = peer,
			        .round = round,
			        .cause = LEASE_DRIFTED });
		held->from += length;
		count -= length;
		if (held->from == held->to)
			drop_held(a, at);
	}
}

static bool is_there(const struct lease_use *uses, size_t count, uint64_t peer)
{
	for (size_t i = 0; i < count; i++)
		if (uses[i].peer == peer)
			return true;
	return false;
}

/* Rows that those who are there do not need, now or as newcomers. */
static size_t room_for_absent(const struct lease_use *uses, size_t count)
{
	size_t needed = 0;

	for (size_t i = 0; i < count; i++)
		needed += uses[i].peer != 0 ? LEASE_PIECES_MAX + 1 : 0;
	return needed < LEASE_HELD_MAX ? LEASE_HELD_MAX - needed : 0;
}

/* All of a queue or nothing. */
void lease_mark_absent(struct lease_account *a, const struct lease_use *uses, size_t count,
    uint64_t round, uint64_t keep)
{
	size_t marked = 0, room = room_for_absent(uses, count);

	for (size_t at = 0, end; at < a->held_count; at = end) {
		uint64_t since = a->held[at].absent;
		end = end_of(a, a->held[at].peer);
		if (since == 0)
			since = round;
		if (is_there(uses, count, a->held[at].peer) || round - since > keep ||
		    marked + (end - at) > room)
			since = 0;
		marked += since > 0 ? end - at : 0;
		for (size_t i = at; i < end; i++)
			a->held[i].absent = since;
	}
}

bool lease_any_absent(const struct lease_account *a)
{
	for (size_t i = 0; i < a->held_count; i++)
		if (a->held[i].absent > 0)
			return true;
	return false;
}

void lease_settle(struct lease_account *a, const struct lease_use *uses, size_t count,
    uint64_t round)
{
	for (size_t at = 0; at < a->held_count;) {
		struct lease_held held = a->held[at];
		if (held.absent > 0 || is_there(uses, count, held.peer)) {
			at++;
			continue;
		}
		drop_held(a, at);
		add_free(a, held.from, held.to);
	}
	for (size_t i = 0; i < count; i++) {
		const struct lease_use *use = &uses[i];
		uint64_t lost = use->lost < use->consumed ? use->lost : use->consumed;
		if (use->peer == 0)
			continue;
		consume(a, use->peer, lost, true, round);
		consume(a, use->peer, use->consumed - lost, false, round);
	}
	a->round = round;
}

uint64_t lease_batch(struct lease_account *a, uint64_t count, uint64_t round)
{
	uint64_t first = a->cursor;

	a->cursor += count;
	a->round = round;
	return first;
}

/* What is said of both; the first one begins first. */
static struct lease_dropped both_dropped(const struct lease_dropped *one,
    const struct lease_dropped *other)
{
	return (struct lease_dropped){ .from = one->from,
		.to = one->to > other->to ? one->to : other->to,
		.count = one->count + other->count,
		.peer = one->peer == other->peer ? one->peer : 0,
		.round = one->round == other->round ? one->round : 0,
		.cause = one->cause == other->cause ? one->cause : 0 };
}

/* Joins the two neighbours that are nearest to each other. */
static void join_dropped(struct lease_account *a)
{
	size_t best = 0;

	for (size_t i = 1; i + 1 < a->dropped_count; i++)
		if (a->dropped[i + 1].to - a->dropped[i].from <
		    a->dropped[best + 1].to - a->dropped[best].from)
			best = i;
	struct lease_dropped *one = &a->dropped[best], *other = one + 1;
	*one = both_dropped(one, other);
	a->dropped_count--;
	memmove(other, other + 1, (a->dropped_count - best - 1) * sizeof(*other));
	a->dropped[a->dropped_count] = (struct lease_dropped){ 0 };
}

/* The first row that ends after `number`. */
static size_t dropped_after(const struct lease_account *a, uint64_t number)
{
	size_t at = 0;

	while (at < a->dropped_count && a->dropped[at].to <= number)
		at++;
	return at;
}

void lease_drop(struct lease_account *a, struct lease_dropped dropped)
{
	if (dropped.from >= dropped.to || dropped.count == 0)
		return;
	size_t at = dropped_after(a, dropped.from);
	bool joins = at < a->dropped_count && a->dropped[at].from < dropped.to;
	if (!joins && a->dropped_count == LEASE_DROPPED_MAX) {
		join_dropped(a);
		at = dropped_after(a, dropped.from); /* it may lie between those two */
		joins = at < a->dropped_count && a->dropped[at].from < dropped.to;
	}
	if (joins) { /* what was dropped is apart from each other, so it lies between two that were joined */
		a->dropped[at] = both_dropped(&a->dropped[at], &dropped);
		return;
	}
	memmove(&a->dropped[at + 1], &a->dropped[at],
	    (a->dropped_count - at) * sizeof(a->dropped[0]));
	a->dropped[at] = dropped;
	a->dropped_count++;
}

void lease_drop_free(struct lease_account *a)
{
	while (a->free_count > 0) {
		struct lease_range range = a->free[a->free_count - 1];
		drop_free(a, a->free_count - 1);
		lease_drop(a,
		    (struct lease_dropped){ .from = range.from,
		        .to = range.to,
		        .count = range.to - range.from,
		        .cause = LEASE_LEFT_OVER });
	}
}

void lease_release(struct lease_account *a)
{
	while (a->held_count > 0) {
		struct lease_held held = a->held[a->held_count - 1];
		drop_held(a, a->held_count - 1);
		add_free(a, held.from, held.to);
	}
}

bool lease_valid(const struct lease_account *a)
{
	uint64_t last = 0, given = 0;

	if (a->cursor > LEASE_SAMPLE_MAX || a->anew > a->cursor || a->held_count != 0 ||
	    a->free_count > LEASE_FREE_MAX || a->dropped_count > LEASE_DROPPED_MAX)
		return false;
	for (size_t i = 0; i < a->free_count; i++) {
		const struct lease_range *r = &a->free[i];
		if (r->from >= r->to || r->to > a->cursor || (i > 0 && r->from <= last))
			return false;
		last = r->to;
		given += r->to - r->from;
	}
	for (size_t i = 0; i < a->dropped_count; i++) {
		const struct lease_dropped *d = &a->dropped[i];
		if (d->from >= d->to || d->to > a->cursor || d->count == 0 ||
		    d->count > d->to - d->from || (i > 0 && d->from < a->dropped[i - 1].to))
			return false;
		given += d->count;
	}
	return given <= a->cursor;
}
