/* A member that was cut off, and that the others have put out meanwhile (collectives/sync/alone.h): what it keeps, and what becomes of it when it is back,
 * by the formulas in double precision; its tokens and samples go with it, once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/alone_peer.h"

static struct numbers outer_of(const struct peer *p)
{
	struct numbers n;
	for (unsigned t = 0; t < TENSORS; t++)
		for (unsigned i = 0; i < NUMBERS; i++)
			n.at[t][i] = (double)tr_sync_outer(p->sync, t)[i];
	return n;
}

struct returned {
	void *kept;
	size_t bytes;
	struct numbers first, taken, left; /* outer parameters; at the take; when it was put out */
	struct lease_account *account;     /* of the others */
	uint64_t consumed, on_way;         /* samples */
};

/* It keeps what it learned, one step before it would wait. */
static struct returned put_out(enum tr_sync_mode mode)
{
	struct returned r = { 0 };
	struct peer *p = peer_new(mode, 5, 1);
	r.first = numbers_of(p);
	peer_start(p);
	train_until_alone(p, &r.taken);
	train(p);
	train(p);
	r.left = numbers_of(p);
	r.kept = malloc(tr_sync_kept_bytes(p->sync));
	r.bytes = tr_sync_keep(p->sync, r.kept);
	assert_true(r.bytes > 0 && r.bytes <= tr_sync_kept_bytes(p->sync));
	r.account = malloc(sizeof(*r.account));
	*r.account = *tr_sync_leases(p->sync);
	r.consumed = p->steps * BATCH;
	r.on_way = H * BATCH;
	if (lease_have(r.account, 5) ==
	    0) { /* no round was committed yet: what others made of the roster */
		const struct lease_wish roster = { 5, 0, 0, 0 };
		lease_enroll(r.account, &roster, 1, 1000);
	}
	peer_end(p);
	return r;
}

static struct peer *come_back_as(struct returned *r, enum tr_sync_mode mode, uint64_t id)
{
	struct peer *p = peer_new(mode, id, 3);
	struct tr_error error;
	*tr_sync_leases(p->sync) = *r->account;
	assert_int_equal(tr_sync_bring(p->sync, r->kept, r->bytes, &error), TR_OK);
	peer_start(p);
	free(r->kept);
	free(r->account);
	return p;
}

static struct peer *come_back(struct returned *r, enum tr_sync_mode mode)
{
	return come_back_as(r, mode, 9);
}

/* Until its first merge; tokens of that. */
static double merge_first(struct peer *p)
{
	for (unsigned i = 0; !p->now.merged; i++) {
		assert_true(i < 4 * H);
		train(p);
	}
	return p->now.tokens;
}

static void who_comes_back_brings_what_it_learned(void **state)
{
	(void)state;
	static const enum tr_sync_mode modes[] = { TR_SYNC_DILOCO, TR_SYNC_LOCAL_SGD };
	for (unsigned m = 0; m < 2; m++) {
		struct returned r = put_out(modes[m]);
		struct numbers expected;
		struct peer *p = come_back(&r, modes[m]);
		struct numbers outer = outer_of(p);
		for (unsigned t = 0; t < TENSORS; t++)
			for (unsigned i = 0; i < NUMBERS; i++)
				expected.at[t][i] = outer.at[t][i] -
				    (r.first.at[t][i] - r.left.at[t][i]);
		assert_near(p, &expected);
		assert_non_null(strstr(p->now.event, "peer 9 is back: what it learned as peer 5"));
		uint64_t steps = r.consumed / BATCH + H;
		assert_true(merge_first(p) == (double)(steps * TOKENS));
		assert_int_equal(lease_counted(tr_sync_leases(p->sync)), r.consumed + H * BATCH);
		peer_end(p);
	}
}

/* Eager: parameters start from beyond the outer ones; the movement under way is apart from that since its take. */
static void in_eager_mode_too(void **state)
{
	(void)state;
	struct returned r = put_out(TR_SYNC_EAGER);
	struct peer *p = come_back(&r, TR_SYNC_EAGER);
	struct numbers outer = outer_of(p), expected;
	assert_true(r.consumed > (2 * H) * BATCH);
	/* Where it was at its take it went on from start = outer + lead; lead = -eta (1 + mu) d of its own movement d, it was alone. */
	for (unsigned t = 0; t < TENSORS; t++)
		for (unsigned i = 0; i < NUMBERS; i++) {
			double d = r.first.at[t][i] - (1 + (double)(t + i) / 8);
			assert_true(fabs(d) < 1e-6);
			/* all that was stepped, by the steps' own sizes */
			double stepped = 0;
			for (uint64_t s = 1; s <= r.consumed / BATCH; s++)
				stepped += (double)((s * 7 + t * 3 + i) % 11) / 64;
			expected.at[t][i] = outer.at[t][i] - stepped;
		}
	assert_near(p, &expected);
	peer_end(p);
}

static void what_was_merged_is_not_brought_again(void **state)
{
	(void)state;
	struct returned r = put_out(TR_SYNC_DILOCO);
	const struct lease_use use = { 5, r.on_way, 0 };
	lease_settle(r.account, &use, 1, 1);
	struct peer *p = come_back(&r, TR_SYNC_DILOCO);
	struct numbers outer = outer_of(p), expected;
	for (unsigned t = 0; t < TENSORS; t++)
		for (unsigned i = 0; i < NUMBERS; i++)
			expected.at[t][i] = outer.at[t][i] - (r.taken.at[t][i] - r.left.at[t][i]);
	assert_near(p, &expected);
	assert_non_null(strstr(p->now.event, "merged already"));
	uint64_t steps = (r.consumed - r.on_way) / BATCH + H;
	assert_true(merge_first(p) == (double)(steps * TOKENS));
	assert_int_equal(lease_counted(tr_sync_leases(p->sync)), r.consumed + H * BATCH);
	peer_end(p);
}

static void what_was_given_to_others_is_dropped(void **state)
{
	(void)state;
	struct returned r = put_out(TR_SYNC_DILOCO);
	const struct lease_use others[] = { { 6, 0, 0 } };
	lease_mark_absent(r.account, others, 1, 100, 10);
	lease_settle(r.account, others, 1, 1);
	assert_true(lease_have(r.account, 5) > 0);
	lease_mark_absent(r.account, others, 1, 110, 10);
	lease_settle(r.account, others, 1, 2);
	assert_true(lease_have(r.account, 5) > 0);
	lease_mark_absent(r.account, others, 1, 111, 10);
	lease_settle(r.account, others, 1, 3);
	assert_int_equal(lease_have(r.account, 5), 0);
	struct peer *p = come_back(&r, TR_SYNC_DILOCO);
	struct numbers outer = outer_of(p);
	assert_near(p, &outer);
	assert_non_null(strstr(p->now.event, "peer 9 is back too late"));
	assert_true(merge_first(p) == H * TOKENS);
	peer_end(p);
}

/* Its queue is there, but does not begin where it should: what was learned is dropped, and its samples are trained on, once. */
static void what_is_dropped_is_trained_on_again_once(void **state)
{
	(void)state;
	struct returned r = put_out(TR_SYNC_DILOCO);
	const struct lease_use use = { 5, r.on_way + 1, 0 };
	uint64_t used[H * BATCH];
	lease_settle(r.account, &use, 1, 1);
	struct peer *p = come_back(&r, TR_SYNC_DILOCO);
	assert_non_null(strstr(p->now.event, "is back too late"));
	for (unsigned step = 0; step < H; step++) {
		for (unsigned i = 0; i < BATCH; i++)
			used[step * BATCH + i] = tr_sync_sample(p->sync, i);
		if (step == 1) { /* the round is begun again */
			p->world.restart_in_progress = true;
			p->world.restart_at = p->group->begun;
		}
		train(p);
	}
	assert_true(p->now.merged);
	const struct lease_account *a = tr_sync_leases(p->sync);
	assert_int_equal(lease_counted(a), use.consumed + H * BATCH);
	for (unsigned i = 0; i < H * BATCH; i++) {
		for (size_t k = 0; k < a->held_count; k++)
			assert_false(a->held[k].from <= used[i] && used[i] < a->held[k].to);
		for (size_t k = 0; k < a->free_count; k++)
			assert_false(a->free[k].from <= used[i] && used[i] < a->free[k].to);
	}
	peer_end(p);
}

/* Put out once more before it could begin. */
static void what_was_brought_in_vain_is_kept_again(void **state)
{
	(void)state;
	struct returned r = put_out(TR_SYNC_DILOCO);
	struct peer *p = peer_new(TR_SYNC_DILOCO, 9, 3);
	struct tr_error error;
	char *again = malloc(tr_sync_kept_bytes(p->sync));
	assert_int_equal(tr_sync_bring(p->sync, r.kept, r.bytes, &error), TR_OK);
	assert_int_equal(tr_sync_bring(p->sync, r.kept, r.bytes, &error), TR_EINVAL);
	p->group->dead = true;
	assert_int_equal(tr_state_ready(p->group, 0, &error), TR_OK);
	assert_int_equal(tr_sync_start(p->sync, &p->now, &error), TR_EEVICTED);
	assert_int_equal(tr_sync_keep(p->sync, again), r.bytes);
	assert_memory_equal(again, r.kept, r.bytes);
	free(again);
	free(r.kept);
	free(r.account);
	peer_end(p);
}

/* Put out once more in its first merge; the others made that without it, and know it by its new name. */
static void who_comes_back_twice_is_known_by_either_name(void **state)
{
	(void)state;
	for (unsigned known = 0; known < 2; known++) {
		struct returned r = put_out(TR_SYNC_DILOCO);
		struct lease_account *others = malloc(sizeof(*others));
		*others = *r.account;
		uint64_t consumed = r.consumed;
		struct peer *p = come_back(&r, TR_SYNC_DILOCO);
		struct numbers taken;
		train_until_alone(p, &taken);
		train(p);
		char *kept = malloc(tr_sync_kept_bytes(p->sync));
		struct returned second = { .kept = kept, .account = others };
		second.bytes = tr_sync_keep(p->sync, kept);
		consumed += p->steps * BATCH;
		peer_end(p);
		const struct lease_wish wish = { .peer = 9, .was = 5 };
		const struct lease_use use = { 9, consumed - BATCH, 0 };
		if (known) {
			lease_enroll(others, &wish, 1, 1000);
			lease_settle(others, &use, 1, 2);
		}
		p = come_back_as(&second, TR_SYNC_DILOCO, 12);
		assert_non_null(strstr(p->now.event, "is back: what it learned as peer 9"));
		assert_true(known == (strstr(p->now.event, "merged already") != NULL));
		(void)merge_first(p);
		assert_int_equal(lease_counted(tr_sync_leases(p->sync)), consumed + H * BATCH);
		peer_end(p);
	}
}

/* It had nothing on its way but samples whose work was thrown away: they are used, all the same. */
static void samples_on_their_way_without_a_movement_are_kept(void **state)
{
	(void)state;
	struct tr_sync_options options = options_of(TR_SYNC_DILOCO);
	struct tr_sync_work nothing = { 0 };
	struct tr_error error;
	options.share_by_speed = true;
	struct peer *p = peer_with(&options, 5, 1);
	peer_start(p);
	for (unsigned i = 0; i < H; i++)
		train(p);
	p->sync->lost = BATCH; /* as after a drift */
	p->world.late = 1000;
	for (unsigned i = 0; i < H; i++)
		assert_int_equal(tr_sync_step(p->sync, &nothing, &p->now, &error), TR_OK);
	assert_true(p->now.alone);
	train(p);
	train(p);
	uint64_t next = tr_sync_sample(p->sync, 0);
	assert_int_equal(next, (H + 3) * BATCH);
	void *kept = malloc(tr_sync_kept_bytes(p->sync));
	size_t bytes = tr_sync_keep(p->sync, kept);
	struct lease_account *account = malloc(sizeof(*account));
	*account = *tr_sync_leases(p->sync);
	peer_end(p);
	for (unsigned counted = 0; counted < 2; counted++) {
		p = peer_with(&options, 9, 3);
		*tr_sync_leases(p->sync) = *account;
		assert_int_equal(tr_sync_bring(p->sync, kept, bytes, &error), TR_OK);
		peer_start(p);
		assert_non_null(strstr(p->now.event, "peer 9 is back"));
		assert_null(strstr(p->now.event, "too late"));
		assert_int_equal(tr_sync_sample(p->sync, 0), next);
		peer_end(p);
		const struct lease_use use = { 5, BATCH,
			BATCH }; /* the others merged it after all */
		lease_settle(account, &use, 1, 2);
	}
	free(account);
	free(kept);
}

static void what_does_not_fit_is_refused(void **state)
{
	(void)state;
	struct returned r = put_out(TR_SYNC_DILOCO);
	struct peer *p = peer_new(TR_SYNC_DILOCO, 9, 3);
	struct tr_error error;
	assert_int_equal(tr_sync_bring(p->sync, r.kept, r.bytes - 1, &error), TR_EINVAL);
	assert_int_equal(tr_sync_bring(p->sync, r.kept, 8, &error), TR_EINVAL);
	((char *)r.kept)[8]++; /* of another model */
	assert_int_equal(tr_sync_bring(p->sync, r.kept, r.bytes, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "another model"));
	((char *)r.kept)[8]--;
	/* Its numbers: none may be less than nothing, or none at all. */
	const size_t numbers = offsetof(struct sync_kept, on_way_tokens);
	for (size_t at = numbers; at < sizeof(struct sync_kept); at += sizeof(double)) {
		double wrong[] = { -1, (double)NAN, (double)INFINITY }, was;
		memcpy(&was, (char *)r.kept + at, sizeof(was));
		for (unsigned i = 0; i < 3; i++) {
			memcpy((char *)r.kept + at, &wrong[i], sizeof(was));
			assert_int_equal(tr_sync_bring(p->sync, r.kept, r.bytes, &error), TR_EINVAL);
		}
		memcpy((char *)r.kept + at, &was, sizeof(was));
	}
	peer_start(p);
	assert_int_equal(tr_sync_bring(p->sync, r.kept, r.bytes, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "before tr_sync_start"));
	free(r.kept);
	free(r.account);
	peer_end(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_comes_back_brings_what_it_learned),
		cmocka_unit_test(in_eager_mode_too),
		cmocka_unit_test(what_was_merged_is_not_brought_again),
		cmocka_unit_test(what_was_given_to_others_is_dropped),
		cmocka_unit_test(what_is_dropped_is_trained_on_again_once),
		cmocka_unit_test(what_was_brought_in_vain_is_kept_again),
		cmocka_unit_test(who_comes_back_twice_is_known_by_either_name),
		cmocka_unit_test(samples_on_their_way_without_a_movement_are_kept),
		cmocka_unit_test(what_does_not_fit_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
