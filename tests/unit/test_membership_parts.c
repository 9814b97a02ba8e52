/* The pure parts of memberd's core: placement, the ledger of rounds, the table of job states, how a worker ended in words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/limits.h"
#include "common/rng.h"
#include "daemon/membership/core/exit_words.h"
#include "daemon/membership/core/ledger.h"
#include "daemon/membership/core/placement.h"
#include "daemon/membership/core/state.h"

static void test_placement_native(void **state)
{
	(void)state;
	struct placement_node t[] = { { .id = 1, .slots = 1 }, { .id = 2, .slots = 4, .used = 1 },
		{ .id = 3, .slots = 2 }, { .id = 4, .slots = 2, .used = 2 } };
	assert_int_equal(placement_native(t, 4, 2, 1), 2);
	assert_int_equal(t[1].placed, 1);
	assert_int_equal(t[2].placed, 1);
	for (int i = 0; i < 4; i++)
		t[i].placed = 0;
	assert_int_equal(placement_native(t, 4, 3, 2), 2); /* one too few */
	for (int i = 0; i < 4; i++)
		t[i].placed = 0;
	assert_int_equal(placement_native(t, 4, 3, 1), 3);
	assert_int_equal(t[3].placed, 0);
}

static void test_placement_replacement(void **state)
{
	(void)state;
	struct placement_node t[] = { { .id = 1, .slots = 2, .used = 1, .mine = 1 },
		{ .id = 2, .slots = 1, .used = 1 }, { .id = 3, .slots = 1 } };
	assert_true(placement_replacement(t, 3, 1));
	assert_int_equal(t[2].placed, 1);
	t[2].placed = 0;
	t[2].used = 1;
	assert_false(placement_replacement(t, 3, 1)); /* n1 has one of this job already */
	assert_true(placement_replacement(t, 3, 2));
	assert_int_equal(t[0].placed, 1);
	/* Where a worker left its state comes first, if there is room. */
	struct placement_node left[] = { { .id = 1, .slots = 4 },
		{ .id = 2, .slots = 2, .used = 1, .mine = 1, .left = true } };
	assert_true(placement_replacement(left, 2, 2));
	assert_int_equal(left[1].placed, 1);
	left[1].placed = 0;
	left[1].used = 2;
	assert_true(placement_replacement(left, 2, 2));
	assert_int_equal(left[0].placed, 1);
	/* Where the last one could not start comes last. */
	struct placement_node failed[] = { { .id = 1, .slots = 4, .failed = true },
		{ .id = 2, .slots = 2, .used = 1, .mine = 1 } };
	assert_true(placement_replacement(failed, 2, 2));
	assert_int_equal(failed[1].placed, 1);
	failed[1].placed = 0;
	failed[1].used = 2;
	assert_true(placement_replacement(failed, 2, 2));
	assert_int_equal(failed[0].placed, 1);
}

static void test_placement_elsewhere(void **state)
{
	(void)state;
	/* n2 is taken in part, n4 is not planned with: what was planned stays, what has no place goes to the freest. */
	struct placement_node t[] = { { .id = 1, .slots = 4, .planned = 2 },
		{ .id = 2, .slots = 2, .used = 1, .planned = 2 },
		{ .id = 3, .slots = 1, .used = 1 }, { .id = 4, .slots = 3 } };
	assert_int_equal(placement_elsewhere(t, 4, 5, 1), 3);
	assert_int_equal(t[0].placed, 2);
	assert_int_equal(t[1].placed, 1);
	assert_int_equal(t[2].placed, 0);
	assert_int_equal(t[3].placed, 2);
	/* One on each of as many nodes as it has to have. */
	struct placement_node few[] = { { .id = 1, .slots = 4, .planned = 2 },
		{ .id = 2, .slots = 1 } };
	assert_int_equal(placement_elsewhere(few, 2, 2, 2), 2);
	assert_int_equal(few[0].placed, 1);
	assert_int_equal(few[1].placed, 1);
}

/* Over all small clusters: as many as there are slots for, and nowhere more than that; on enough nodes where these have slots. */
static void test_placement_elsewhere_everywhere(void **state)
{
	(void)state;
	for (uint32_t seed = 0; seed < 3 * 3 * 3 * 3 * 3 * 3 * 7 * 3; seed++) {
		struct placement_node t[3] = { { 0 } };
		uint32_t left = seed, slots = 0, open = 0, placed = 0, used = 0;
		for (uint32_t i = 0; i < 3; i++) {
			t[i] = (struct placement_node){ .id = i + 1,
				.slots = left % 3,
				.planned = left / 3 % 3 };
			slots += t[i].slots;
			open += t[i].slots > 0;
			left /= 9;
		}
		uint32_t workers = 1 + left % 7, nodes = 1 + left / 7;
		uint32_t had = placement_elsewhere(t, 3, workers, nodes);
		for (uint32_t i = 0; i < 3; i++) {
			assert_true(t[i].placed <= t[i].slots);
			placed += t[i].placed;
			used += t[i].placed > 0;
		}
		assert_int_equal(placed, workers < slots ? workers : slots);
		assert_int_equal(had, used);
		uint32_t could = open < nodes ? open : nodes;
		assert_true(had >= (could < workers ? could : workers));
	}
}

/* Over all small clusters: everybody gets a place, free slots first, and no node has two more than another of its kind. */
static void test_placement_command_is_even(void **state)
{
	(void)state;
	for (uint32_t nodes = 1; nodes <= 4; nodes++) {
		for (uint32_t slots = 1; slots <= 3; slots++) {
			for (uint32_t workers = 1; workers <= 12; workers++) {
				struct placement_node t[4] = { { 0 } };
				uint32_t placed = 0, least = UINT32_MAX, most = 0;
				for (uint32_t i = 0; i < nodes; i++)
					t[i] = (struct placement_node){ .id = i + 1,
						.slots = slots };
				uint32_t had = placement_command(t, nodes, 0, workers);
				for (uint32_t i = 0; i < nodes; i++) {
					placed += t[i].placed;
					least = t[i].placed < least ? t[i].placed : least;
					most = t[i].placed > most ? t[i].placed : most;
				}
				assert_int_equal(placed, workers);
				assert_true(most - least <= 1);
				assert_int_equal(had, workers < nodes ? workers : nodes);
			}
		}
	}
}

/* Commands may be more than the slots of a node, but not more than it can tell of. */
static void test_placement_command_has_an_end(void **state)
{
	struct placement_node t[2] = { { .id = 1, .slots = 1, .used = TR_NODE_WORKERS_MAX - 2 },
		{ .id = 2, .slots = 1, .used = TR_NODE_WORKERS_MAX } };
	(void)state;
	assert_int_equal(placement_command(t, 2, 0, 2), 1);
	assert_int_equal(t[0].placed, 2);
	t[0].placed = 0;
	assert_int_equal(placement_command(t, 2, 0, 3), 0);
}

static void test_placement_command_on_exactly_so_many(void **state)
{
	(void)state;
	struct placement_node t[] = { { .id = 1, .slots = 8 }, { .id = 2, .slots = 1 },
		{ .id = 3, .slots = 0 } };
	assert_int_equal(placement_command(t, 3, 2, 4), 2);
	assert_int_equal(t[0].placed + t[1].placed, 4);
	assert_true(t[1].placed >= 1);
	for (int i = 0; i < 3; i++)
		t[i].placed = 0;
	assert_int_equal(placement_command(t, 3, 3, 4), 2); /* a node without slots is none */
	assert_int_equal(placement_command(t, 0, 0, 4), 0);
}

static Traind__Peer__RoundCommit record(uint64_t round, uint64_t *peers, size_t count,
    uint64_t digest)
{
	Traind__Peer__RoundCommit r = TRAIND__PEER__ROUND_COMMIT__INIT;
	r.round = round;
	r.view = r.attempt = 1;
	r.samples = 10;
	r.contributors = peers;
	r.n_contributors = count;
	r.digest_low = digest;
	return r;
}

static void test_ledger(void **state)
{
	(void)state;
	struct ledger *ledger = ledger_create();
	uint64_t three[] = { 1, 2, 3 }, two[] = { 1, 3 }, unsorted[] = { 2, 1 };
	Traind__Peer__RoundCommit r = record(1, three, 3, 11);
	assert_int_equal(ledger_add(ledger, &r), LEDGER_NEW);
	assert_int_equal(ledger_add(ledger, &r), LEDGER_KNOWN);
	r.view = 2; /* decided again after the hub died: the same result */
	assert_int_equal(ledger_add(ledger, &r), LEDGER_KNOWN);
	r.digest_low = 12;
	assert_int_equal(ledger_add(ledger, &r), LEDGER_CONTRADICTS);
	r = record(1, two, 2, 11);
	assert_int_equal(ledger_add(ledger, &r), LEDGER_CONTRADICTS);
	r = record(3, two, 2, 13);
	r.partial = true;
	assert_int_equal(ledger_add(ledger, &r), LEDGER_NEW);
	assert_int_equal(ledger_frontier(ledger), 1);
	assert_int_equal(ledger_newest(ledger), 3);
	r = record(2, three, 3, 12);
	assert_int_equal(ledger_add(ledger, &r), LEDGER_NEW);
	assert_int_equal(ledger_frontier(ledger), 3);
	r = record(0, three, 3, 0);
	assert_int_equal(ledger_add(ledger, &r), LEDGER_BAD);
	r = record(4, unsorted, 2, 0);
	assert_int_equal(ledger_add(ledger, &r), LEDGER_BAD);
	r = record(4, NULL, 0, 0);
	assert_int_equal(ledger_add(ledger, &r), LEDGER_BAD);
	r = record(UINT64_MAX, three, 3, 0);
	assert_int_equal(ledger_add(ledger, &r), LEDGER_BAD);
	Traind__V1__RoundAccount account = TRAIND__V1__ROUND_ACCOUNT__INIT;
	char digest[TR_DIGEST_HEX_MAX];
	ledger_account(ledger, &account, digest);
	assert_int_equal(account.committed, 3);
	assert_int_equal(account.recorded, 3);
	assert_int_equal(account.samples, 30);
	assert_int_equal(account.partial_rounds, 1);
	ledger_forget_from(ledger, 3);
	ledger_account(ledger, &account, digest);
	assert_int_equal(account.committed, 2);
	assert_int_equal(account.samples, 20);
	assert_int_equal(account.partial_rounds, 0);
	r = record(3, three, 3, 99); /* on the new path it may be another */
	assert_int_equal(ledger_add(ledger, &r), LEDGER_NEW);
	ledger_destroy(ledger);
}

/* In any order, with gaps and repeats; packed and unpacked it is the same. */
static void test_ledger_in_any_order(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct ledger *ledger = ledger_create();
		struct rng_key key = rng_key(seed, 0, 0);
		bool seen[200] = { false };
		size_t count = 0;
		for (uint64_t i = 0; i < 300; i++) {
			uint64_t round = 1 + rng_below(key, 1, i, 199),
			         peers[] = { 1, 2 + round % 3 };
			Traind__Peer__RoundCommit r = record(round, peers, 2, round * 7);
			assert_int_equal(ledger_add(ledger, &r),
			    seen[round] ? LEDGER_KNOWN : LEDGER_NEW);
			count += seen[round] ? 0 : 1;
			seen[round] = true;
		}
		uint64_t frontier = 0;
		while (frontier + 1 < 200 && seen[frontier + 1])
			frontier++;
		assert_int_equal(ledger_frontier(ledger), frontier);
		assert_int_equal(ledger_recorded(ledger), count);
		Traind__Peer__SnapshotLedger *packed = ledger_pack(ledger);
		struct ledger *copy = ledger_unpack(packed);
		assert_non_null(copy);
		Traind__Peer__SnapshotLedger *again = ledger_pack(copy);
		assert_int_equal(packed->rows.len, again->rows.len);
		assert_memory_equal(packed->rows.data, again->rows.data, packed->rows.len);
		assert_int_equal(again->frontier, frontier);
		/* Cut anywhere, it is refused and not believed. */
		for (size_t cut = 0; cut < packed->rows.len; cut += 7) {
			again->rows.len = cut;
			assert_null(ledger_unpack(again));
		}
		traind__peer__snapshot_ledger__free_unpacked(packed, NULL);
		traind__peer__snapshot_ledger__free_unpacked(again, NULL);
		ledger_destroy(copy);
		ledger_destroy(ledger);
	}
}

static void test_ledger_forgets_the_oldest(void **state)
{
	(void)state;
	struct ledger *ledger = ledger_create();
	uint64_t peers[] = { 1, 2 };
	for (uint64_t round = 1; round <= TR_ROUND_RECORDS_MAX + 1000; round++) {
		Traind__Peer__RoundCommit r = record(round, peers, 2, round);
		assert_int_equal(ledger_add(ledger, &r), LEDGER_NEW);
	}
	assert_int_equal(ledger_recorded(ledger), TR_ROUND_RECORDS_MAX + 1000);
	Traind__Peer__RoundCommit r = record(1, peers, 2, 77);
	assert_int_equal(ledger_add(ledger, &r), LEDGER_KNOWN);
	ledger_close(ledger);
	r = record(TR_ROUND_RECORDS_MAX + 5, peers, 2, 77);
	assert_int_equal(ledger_add(ledger, &r), LEDGER_KNOWN);
	assert_int_equal(ledger_recorded(ledger), TR_ROUND_RECORDS_MAX + 1000);
	ledger_destroy(ledger);
}

/* As of nodes that come and go for months: a view, and so other contributors, every few rounds. What no row names goes. */
static void test_ledger_forgets_sets_of_forgotten_rounds(void **state)
{
	(void)state;
	struct ledger *ledger = ledger_create();
	uint64_t peers[] = { 1, 0 };
	for (uint64_t round = 1; round <= 3 * TR_ROUND_RECORDS_MAX; round++) {
		peers[1] = 2 + round / 16;
		Traind__Peer__RoundCommit r = record(round, peers, 2, round);
		assert_int_equal(ledger_add(ledger, &r), LEDGER_NEW);
	}
	Traind__Peer__SnapshotLedger *packed = ledger_pack(ledger);
	assert_in_range(packed->n_sets, packed->rows_count / 16, TR_ROUND_RECORDS_MAX / 16 + 1);
	struct ledger *copy = ledger_unpack(packed);
	assert_non_null(copy);
	for (uint64_t round = 3 * TR_ROUND_RECORDS_MAX - packed->rows_count + 1;
	     round <= 3 * TR_ROUND_RECORDS_MAX; round++) {
		peers[1] = 2 + round / 16;
		Traind__Peer__RoundCommit r = record(round, peers, 2, round);
		assert_int_equal(ledger_look(ledger, &r), LEDGER_KNOWN);
		assert_int_equal(ledger_look(copy, &r), LEDGER_KNOWN);
	}
	traind__peer__snapshot_ledger__free_unpacked(packed, NULL);
	ledger_destroy(copy);
	ledger_destroy(ledger);
}

/* A memberd that starts reads it all before it serves. */
static void test_ledger_of_many_sets_is_read_at_once(void **state)
{
	enum { SETS = 30000, PEERS = 64 };
	(void)state;
	struct ledger *ledger = ledger_create();
	Traind__Peer__SnapshotLedger *packed = ledger_pack(ledger);
	free(packed->sets);
	packed->sets = calloc(SETS, sizeof(*packed->sets));
	assert_non_null(packed->sets);
	for (; packed->n_sets < SETS; packed->n_sets++) {
		Traind__Peer__ContributorSet *set = malloc(sizeof(*set));
		assert_non_null(set);
		traind__peer__contributor_set__init(set);
		set->peers = malloc(PEERS * sizeof(*set->peers));
		assert_non_null(set->peers);
		for (; set->n_peers < PEERS; set->n_peers++)
			set->peers[set->n_peers] = 1 + set->n_peers;
		set->peers[PEERS - 1] += packed->n_sets;
		packed->sets[packed->n_sets] = set;
	}
	struct ledger *copy = ledger_unpack(
	    packed); /* seconds, if each were compared with all before it */
	assert_non_null(copy);
	traind__peer__snapshot_ledger__free_unpacked(packed, NULL);
	ledger_destroy(copy);
	ledger_destroy(ledger);
}

/* A view is told to each node by asking for the job of each member: 65,536 times for 256 of both, with thousands of later jobs behind it. */
static void test_an_old_job_is_found_at_once(void **state)
{
	static struct job jobs[TR_JOBS_MAX];
	static void *items[TR_JOBS_MAX];
	struct membership m = { .jobs = { items, TR_JOBS_MAX, TR_JOBS_MAX } };
	(void)state;
	for (size_t i = 0; i < TR_JOBS_MAX; i++) {
		jobs[i].id = 1 + 2 * i;
		items[i] = &jobs[i];
	}
	for (size_t i = 0; i < TR_JOBS_MAX; i++)
		assert_ptr_equal(state_job(&m, 1 + 2 * i), &jobs[i]);
	assert_null(state_job(&m, 0));
	assert_null(state_job(&m, 2));
	assert_null(state_job(&m, UINT64_MAX));
	for (unsigned i = 0; i < 200000; i++)
		assert_ptr_equal(state_job(&m, 1 + 2 * (i % 8)), &jobs[i % 8]);
	jobs[TR_JOBS_MAX - 1].id = 2; /* in no order */
	assert_ptr_equal(state_job(&m, 2), &jobs[TR_JOBS_MAX - 1]);
}

static void test_job_moves(void **state)
{
	(void)state;
	unsigned legal = 0;
	for (int from = -1; from < 9; from++) {
		for (int to = -1; to < 9; to++) {
			bool ended = from >= 4 && from <= 6;
			bool ok = job_move_legal((Traind__V1__JobState)from,
			    (Traind__V1__JobState)to);
			legal += ok ? 1 : 0;
			if (ok) {
				assert_true(from >= 1 && from <= 6 && to >= 1 && to <= 6);
				assert_false(ended); /* what has ended stays */
				assert_int_not_equal(from, to);
			}
		}
	}
	assert_int_equal(legal, 12);
	assert_string_equal(job_state_name((Traind__V1__JobState)4), "done");
	assert_string_equal(job_state_name((Traind__V1__JobState)99), "unknown");
}

/* Expects these words for a worker that ended so and wrote that. */
static void expect_words(int code, int signal, const char *lines, const char *words)
{
	Traind__Peer__WorkerExited exited = TRAIND__PEER__WORKER_EXITED__INIT;
	char text[REASON_MAX];
	exited.exit_code = code;
	exited.signal = signal;
	exited.last_lines = (char *)(uintptr_t)lines;
	exit_words(&exited, text, sizeof(text));
	assert_string_equal(text, words);
}

#define STAMP "2026-07-29T10:01:02.345Z "
#define X50   "xxxxxxxxx xxxxxxxxx xxxxxxxxx xxxxxxxxx xxxxxxxxx "
#define X100  X50 X50

static void test_exit_words_are_whole_lines(void **state)
{
	(void)state;
	expect_words(1, 0, "", "exit code 1");
	expect_words(1, 0, "\n \r\n\t\n", "exit code 1");
	expect_words(1, 0, "  File \"a.py\", line 3\n\nValueError: no\n",
	    "exit code 1: File \"a.py\", line 3 | ValueError: no");
	expect_words(1, 0, "first\n" X100 "\n" X50 "\nthe last", "exit code 1: " X50 "| the last");
	expect_words(1, 0,
	    "10%\r20%\r30%\nit\x1b"
	    "broke",
	    "exit code 1: 10% | 20% | 30% | it broke");
}

static void test_exit_words_cut_a_long_line_at_its_end(void **state)
{
	(void)state;
	char line[400], expected[400];
	expect_words(1, 0, "before\nError: " X50 X100 X100,
	    "exit code 1: Error: " X50 X50 "xxxxxxxxx xxxxxxxxx xxxxxxxxx xxxxxxxxx xxxxxxxxx...");
	memset(line, 'y', 300);
	line[300] = '\0';
	(void)snprintf(expected, sizeof(expected), "exit code 1: %.157s...", line);
	expect_words(1, 0, line, expected);
	for (size_t i = 0; i < 100; i++)
		memcpy(line + 3 * i, "\xe2\x82\xac", 3);
	(void)snprintf(expected, sizeof(expected), "exit code 1: %.156s...",
	    line); /* 52 whole characters */
	expect_words(1, 0, line, expected);
}

static void test_exit_words_of_a_kill_from_outside(void **state)
{
	(void)state;
	expect_words(0, 9, "step 4\n", "killed by signal 9");
	expect_words(0, 15, "step 4\n", "killed by signal 15");
	expect_words(0, 11, "step 4\n", "killed by signal 11: step 4");
	expect_words(0, 6, "a.c:3: f: Assertion `x' failed.\n",
	    "killed by signal 6: a.c:3: f: Assertion `x' failed.");
}

static void test_exit_words_of_our_own_log(void **state)
{
	(void)state;
	expect_words(1, 0,
	    STAMP "info  gemm: OpenBLAS uses its Zen kernels\n" STAMP
	          "error trainworker: no data in /x\n",
	    "exit code 1: trainworker: no data in /x");
	expect_words(0, 11, STAMP "warn  trainer: slow\n" STAMP "debug trainer: step 3\n",
	    "killed by signal 11");
	expect_words(1, 0, STAMP "fatal other: x\n" STAMP "\n",
	    "exit code 1: " STAMP "fatal other: x | 2026-07-29T10:01:02.345Z");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_placement_native),
		cmocka_unit_test(test_placement_replacement),
		cmocka_unit_test(test_placement_elsewhere),
		cmocka_unit_test(test_placement_elsewhere_everywhere),
		cmocka_unit_test(test_placement_command_is_even),
		cmocka_unit_test(test_placement_command_has_an_end),
		cmocka_unit_test(test_placement_command_on_exactly_so_many),
		cmocka_unit_test(test_ledger),
		cmocka_unit_test(test_ledger_in_any_order),
		cmocka_unit_test(test_ledger_forgets_the_oldest),
		cmocka_unit_test(test_ledger_forgets_sets_of_forgotten_rounds),
		cmocka_unit_test(test_ledger_of_many_sets_is_read_at_once),
		cmocka_unit_test(test_an_old_job_is_found_at_once),
		cmocka_unit_test(test_job_moves),
		cmocka_unit_test(test_exit_words_are_whole_lines),
		cmocka_unit_test(test_exit_words_cut_a_long_line_at_its_end),
		cmocka_unit_test(test_exit_words_of_a_kill_from_outside),
		cmocka_unit_test(test_exit_words_of_our_own_log),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
