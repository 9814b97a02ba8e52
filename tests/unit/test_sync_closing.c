/* What a round does behind inner steps (collectives/sync/closing.h): it is compared and committed as soon as that can be, the outer step is taken with it, and what the caller trains on changes
 * at the merge alone. One member of a stand-in group; formulas in double precision.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/alone_peer.h"

enum { TAU = 3 };

/* DiLoCo whose merges come TAU steps late. */
static struct peer *late_merging(void)
{
	struct peer *p = calloc(1, sizeof(*p));
	fake_world_init(&p->world, 1);
	p->options = options_of(TR_SYNC_DILOCO);
	p->options.alone_steps = 0;
	p->options.overlap = TAU;
	peer_create(p, &p->world.groups[0], 1);
	peer_start(p);
	return p;
}

static void train_steps(struct peer *p, unsigned steps)
{
	for (unsigned i = 0; i < steps; i++)
		train(p);
}

/* After the first movement, from `first` to `taken`. */
static void assert_outer(const struct peer *p, const struct numbers *first,
    const struct numbers *taken)
{
	for (unsigned t = 0; t < TENSORS; t++)
		for (unsigned i = 0; i < NUMBERS; i++) {
			double d = first->at[t][i] - taken->at[t][i];
			double expected = first->at[t][i] - 0.7 * (d + 0.9 * d);
			assert_true(fabs((double)tr_sync_outer(p->sync, t)[i] - expected) < 2e-6);
		}
}

static void a_round_is_committed_before_its_merge(void **state)
{
	(void)state;
	struct peer *p = late_merging();
	struct numbers first = numbers_of(p);
	train_steps(p, H);
	struct numbers taken = numbers_of(p);
	p->world.late = 1;
	train(p); /* it looks in vain */
	assert_outer(p, &first, &first);
	assert_int_equal(p->world.groups[0].committed, 0);
	train(p);
	assert_int_equal(p->world.groups[0].committed, 1);
	assert_outer(p, &first, &taken);
	assert_false(p->now.merged);
	for (unsigned t = 0; t < TENSORS; t++)
		for (unsigned i = 0; i < NUMBERS; i++) {
			double moved = 0;
			for (uint64_t step = H + 1; step <= H + 2; step++)
				moved += (double)((step * 7 + t * 3 + i) % 11) / 64;
			assert_true(fabs((double)p->w[t][i] - (taken.at[t][i] - moved)) < 2e-6);
		}
	assert_int_equal(p->world.groups[0].begun,
	    2);               /* who joins finds a round, who crashes leaves a state */
	p->world.late = 1000; /* a merge that has nothing to wait for does not look */
	train(p);
	assert_true(p->now.merged && p->now.step == H + TAU && p->now.merged_round == 1);
	assert_true(p->now.tokens == H * TOKENS);
	assert_int_equal(p->world.late, 1000);
	for (unsigned t = 0; t < TENSORS; t++)
		assert_memory_equal(p->w[t], tr_sync_outer(p->sync, t), sizeof(p->w[t]));
	peer_end(p);
}

/* What was counted with the commit is not given out again, and nothing is left out: steps between commit and merge go on in the lease. */
static void samples_go_on_behind_a_commit(void **state)
{
	(void)state;
	struct peer *p = late_merging();
	uint64_t next = 0;
	while (p->steps < 5 * H) {
		for (uint64_t i = 0; i < BATCH; i++)
			assert_int_equal(tr_sync_sample(p->sync, i), next++);
		p->world.late = (unsigned)p->steps % 3;
		p->world.late_commits = (unsigned)p->steps % 2;
		train(p);
	}
	assert_int_equal(lease_counted(tr_sync_leases(p->sync)), 4 * H * BATCH);
	peer_end(p);
}

static void a_round_that_is_given_up_is_begun_again_behind_steps(void **state)
{
	(void)state;
	struct peer *p = late_merging();
	struct numbers first = numbers_of(p);
	p->world.late_commits = 1;
	train_steps(p, H);
	struct numbers taken = numbers_of(p);
	train(p); /* all but the commit */
	p->world.restart_in_progress = true;
	p->world.restart_at = 1;
	train(p);
	assert_int_equal(p->world.groups[0].committed, 0);
	assert_false(p->world.restart_in_progress); /* it was begun again */
	train(p);
	assert_true(p->now.merged && p->now.tokens == H * TOKENS);
	assert_outer(p, &first, &taken);
	peer_end(p);
}

/* Put out between a commit and its merge: what was on its way is the group's; of its fragment it keeps what the merge would have left. */
static void what_is_committed_is_not_kept(void **state)
{
	(void)state;
	struct peer *p = peer_new(TR_SYNC_STREAMING, 5, 1), *back = NULL;
	struct tr_error error;
	p->sync->schedule.overlap = 2;
	peer_start(p);
	train_steps(p, 3); /* the first tensor is taken after 2, committed after 3, merged after 4 */
	assert_int_equal(p->world.groups[0].committed, 1);
	size_t bytes = tr_sync_kept_bytes(p->sync);
	void *kept = malloc(bytes);
	bytes = tr_sync_keep(p->sync, kept);
	assert_int_equal(bytes, sizeof(struct sync_kept) + TENSORS * NUMBERS * sizeof(float));
	back = peer_new(TR_SYNC_STREAMING, 9, 1);
	*tr_sync_leases(back->sync) = *tr_sync_leases(p->sync);
	assert_int_equal(tr_sync_bring(back->sync, kept, bytes, &error), TR_OK);
	/* Its group holds what the other one's does. */
	for (unsigned t = 0; t < TENSORS; t++)
		memcpy((void *)(uintptr_t)tr_sync_outer(back->sync, t), tr_sync_outer(p->sync, t),
		    sizeof(p->w[t]));
	peer_start(back);
	for (unsigned i = 0; i < NUMBERS; i++) {
		double outer = (double)tr_sync_outer(p->sync, 0)[i];
		double expected = outer - 0.5 * (outer - (double)p->w[0][i]);
		assert_true(fabs((double)back->w[0][i] - expected) < 2e-6);
		assert_true(fabs((double)back->w[1][i] - (double)p->w[1][i]) < 2e-6);
	}
	assert_non_null(strstr(back->now.event, "in 8 samples goes into its first merge"));
	free(kept);
	peer_end(p);
	peer_end(back);
}

static void flip(void *data)
{
	uint32_t bits;
	memcpy(&bits, data, sizeof(bits));
	bits ^= 1u << 21;
	memcpy(data, &bits, sizeof(bits));
}

/* Of the first tensor of a peer whose memory changes at `at` behind the comparison. */
static struct sync_written written_after(void *(*at)(struct peer *), bool *sound,
    struct sync_written *rest)
{
	struct peer *p = late_merging();
	train_steps(p, H);
	p->world.late_commits = 1;
	train(p);
	assert_true(p->sync->settled && !p->sync->committed);
	if (at != NULL)
		flip(at(p));
	train(p);
	assert_int_equal(p->world.groups[0].committed, 1);
	struct sync_written written = p->sync->written[0];
	*rest = p->sync->written[TENSORS];
	*sound = tr_sync_sound(p->sync);
	train_steps(p,
	    H); /* compared once more, by whom it holds: nothing is known to be wrong any more */
	assert_true(p->now.step == 2 * H + 2);
	train(p);
	assert_true(p->now.merged && tr_sync_sound(p->sync));
	peer_end(p);
	return written;
}

static void *outer_at(struct peer *p)
{
	return (void *)(uintptr_t)tr_sync_outer(p->sync, 0);
}

static void *momentum_at(struct peer *p)
{
	return tr_sync_momentum(p->sync, 0);
}

static void *counters_at(struct peer *p)
{
	return &p->sync->counters->costs;
}

static void *account_at(struct peer *p)
{
	return &tr_sync_leases(p->sync)->anew;
}

static bool is_spoilt(struct tr_digest digest)
{
	return digest.low == UINT64_MAX && digest.high == UINT64_MAX;
}

/* What is made of memory that changed since it was compared is known to be wrong: others are asked at the next merge, and nobody saves it. */
static void a_change_behind_the_comparison_is_known(void **state)
{
	(void)state;
	static const struct {
		void *(*at)(struct peer *);
		bool outer, momentum, counters, account;
	} cases[] = { { NULL, false, false, false, false }, { outer_at, true, false, false, false },
		{ momentum_at, true, true, false, false },
		{ counters_at, false, false, true, false },
		{ account_at, false, false, false, true } };
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sync_written rest;
		bool sound;
		struct sync_written written = written_after(cases[i].at, &sound, &rest);
		assert_int_equal(is_spoilt(written.outer), cases[i].outer);
		assert_int_equal(is_spoilt(written.momentum), cases[i].momentum);
		assert_int_equal(is_spoilt(rest.outer), cases[i].counters);
		assert_int_equal(is_spoilt(rest.momentum), cases[i].account);
		assert_int_equal(sound, cases[i].at == NULL);
	}
}

/* What was agreed with the commit is what the merge goes by, whatever becomes of it in memory meanwhile. */
static void a_merge_goes_by_what_was_committed(void **state)
{
	(void)state;
	struct peer *p = late_merging();
	train_steps(p, H + 1);
	assert_int_equal(p->world.groups[0].committed, 1);
	p->sync->counters->round = 1u << 20;
	p->sync->counters->agreed.step = 1u << 20;
	train_steps(p, 2);
	assert_true(p->now.merged && p->now.merged_round == 1 && !p->now.finished);
	assert_int_equal(p->now.merged_step, H + TAU);
	assert_int_equal(p->sync->slot.take, 2 * H);
	peer_end(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_round_is_committed_before_its_merge),
		cmocka_unit_test(samples_go_on_behind_a_commit),
		cmocka_unit_test(a_round_that_is_given_up_is_begun_again_behind_steps),
		cmocka_unit_test(what_is_committed_is_not_kept),
		cmocka_unit_test(a_change_behind_the_comparison_is_known),
		cmocka_unit_test(a_merge_goes_by_what_was_committed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
