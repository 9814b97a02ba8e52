/* Who is right among contributors that hold different bits, and what comes of it; the group is a stand-in, whose tr_* the linker takes instead of
 * the library's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "collectives/sync/parity.h"

/* A letter is what a contributor holds; a small one: and it is not what it wrote. A dash: nobody. */
static unsigned right(const char *members)
{
	struct parity_record records[3 * 16] = { 0 };
	unsigned count = (unsigned)strlen(members);

	for (unsigned i = 0; i < count; i++) {
		uint64_t letter = (uint64_t)members[i] & ~UINT64_C(0x20);
		uint64_t how = members[i] >= 'a' ? PARITY_SPOILT : PARITY_SOUND;
		if (members[i] == '-')
			how = PARITY_ABSENT;
		records[3 * i] = (struct parity_record){ { letter, letter }, how };
		/* Neighbours in memory are of other parts. */
		records[3 * i + 1] = (struct parity_record){ { 99, i }, i % 2 };
	}
	return parity_right(records, 3, count);
}

static void the_majority_is_right(void **state)
{
	(void)state;
	assert_int_equal(right("ABB"), 1);
	assert_int_equal(right("AAB"), 0);
	assert_int_equal(right("CABB"), 2);
	assert_int_equal(right("AAAA"), 0);
}

/* Two, or two against two: else a coin would decide. */
static void who_holds_what_it_wrote_is_right(void **state)
{
	(void)state;
	assert_int_equal(right("aB"), 1);
	assert_int_equal(right("Ab"), 0);
	assert_int_equal(right("aBab"), 1); /* the second b's note of what it wrote is off */
	assert_int_equal(right("aaB"), 2);  /* a joiner that got them from a spoilt donor */
	assert_int_equal(right("aabBB"), 3);
	assert_int_equal(right("-aB"), 2);
	assert_int_equal(right("--a"), 2);
}

static void else_who_has_been_there_longest(void **state)
{
	(void)state;
	assert_int_equal(right("AB"), 0);
	assert_int_equal(right("ABC"), 0);
	assert_int_equal(right("AABB"), 0);
	assert_int_equal(right("BBCCA"), 0);
	assert_int_equal(right("ab"), 0);
	assert_int_equal(right("A"), 0);
}

/* Nobody sent anything: the salt is of one's own data, and nothing is written. (A good worker of two read memory that was never there.) */
static void without_a_verdict_all_keep_their_own(void **state)
{
	(void)state;
	char data[2][16] = { "held by this one", "and this beside " }, before[2][16];
	struct parity_part parts[2] = { { .data = data[0], .bytes = 16 },
		{ .data = data[1], .bytes = 16, .at = 16 } };
	for (unsigned index = 0; index < 4; index++) { /* the last one is a joiner */
		struct parity p = { .parts = parts, .count = 2, .index = index, .contributors = 3 };
		parts[0].differs = parts[1].differs = false;
		uint64_t alike = parity_salt(&p);
		p.drifted = p.undecided = true;
		parts[0].differs = parts[1].differs = true;
		memcpy(before, data, sizeof(before));
		assert_true(parity_salt(&p) == alike);
		parity_mend(&p);
		assert_memory_equal(data, before, sizeof(before));
	}
}

/* ---- a group: two that are right, one that is not, a joiner ---- */

enum { MEMBERS = 4, CONTRIBUTORS = 3, PARTS = 2, PART_BYTES = 48, MEMORY = 64 };
enum { TAG = 10, TAG_FLAT = 10, TAG_SAID = 11 }; /* then the broadcasts */

struct tr_group {
	unsigned index;
	struct parity parity;
	struct parity_part parts[PARTS];
	char data[PARTS][PART_BYTES];
	int64_t *flat;
	struct parity_record *said;
	void *memory[MEMORY];
	size_t memory_count;
};

static struct tr_group members[MEMBERS];
static bool donor_dies; /* before anything of its broadcast came: under keep that is no error */

void *tr_alloc(tr_group *group, size_t bytes)
{
	assert_true(group->memory_count < MEMORY);
	return group->memory[group->memory_count++] = calloc(1, bytes);
}

void *tr_alloc_sparse(tr_group *group, size_t bytes)
{
	return tr_alloc(group, bytes);
}

uint64_t tr_peer_id(const tr_group *group)
{
	return group->index + 1;
}

tr_status tr_allreduce(tr_group *group, uint32_t tag, void *data, size_t count, enum tr_dtype dtype,
    enum tr_reduce reduce, unsigned flags, struct tr_error *error)
{
	(void)flags;
	(void)error;
	assert_true(tag == TAG_FLAT && count == 4 && dtype == TR_I64 && reduce == TR_MAX);
	group->flat = data;
	return TR_OK;
}

tr_status tr_allgather(tr_group *group, uint32_t tag, const void *input, void *output, size_t count,
    enum tr_dtype dtype, struct tr_error *error)
{
	(void)error;
	assert_true(tag == TAG_SAID && input == NULL && dtype == TR_I64);
	assert_int_equal(count * sizeof(int64_t),
	    CONTRIBUTORS * (PARTS + 1) * sizeof(struct parity_record));
	group->said = output;
	return TR_OK;
}

tr_status tr_broadcast(tr_group *group, uint32_t tag, void *data, size_t count, enum tr_dtype dtype,
    unsigned root, struct tr_error *error)
{
	(void)error;
	assert_true(tag == TAG + 2 + root && root == 0 && dtype == TR_U8);
	assert_int_equal(count, (size_t)PARTS * PART_BYTES);
	if (!donor_dies)
		memcpy(data, members[root].data, count);
	(void)group;
	return TR_OK;
}

tr_status tr_wait(tr_group *group, uint32_t tag, struct tr_error *error)
{
	(void)error;
	if (tag == TAG_FLAT)
		memset(group->flat, 0, 4 * sizeof(int64_t)); /* not each other's complement */
	for (unsigned m = 0; tag == TAG_SAID && m < CONTRIBUTORS; m++) {
		struct parity_record *record = group->said + (size_t)m * (PARTS + 1);
		record[0] = (struct parity_record){ { m + 1, 0 }, 0 };
		for (size_t i = 0; i < PARTS; i++)
			record[1 + i] = (struct parity_record){
				tr_digest_of(members[m].data[i], PART_BYTES), PARITY_SOUND
			};
	}
	return TR_OK;
}

/* In round `round` all hold the same, but for a contributor; the salts of all. */
static void group_settles(uint64_t round, uint64_t salts[MEMBERS])
{
	struct tr_error error;
	for (unsigned m = 0; m < MEMBERS; m++)
		memset(members[m].data, (int)round, sizeof(members[m].data));
	for (size_t i = 0; i < PARTS; i++)
		members[2].data[i][5] ^= 4;
	for (unsigned m = 0; m < MEMBERS; m++) {
		struct tr_group *g = &members[m];
		struct tr_round now = { .round = round, .index = m, .contributors = CONTRIBUTORS };
		assert_int_equal(parity_submit(&g->parity, &now, &error), TR_OK);
		assert_int_equal(parity_settle(&g->parity, &error), TR_OK);
		assert_true(g->parity.drifted);
		salts[m] = parity_salt(&g->parity);
	}
}

static void group_begin(void)
{
	struct tr_error error;
	memset(members, 0, sizeof(members));
	for (unsigned m = 0; m < MEMBERS; m++) {
		struct tr_group *g = &members[m];
		g->index = m;
		assert_int_equal(parity_create(&g->parity, g, TAG, &error), TR_OK);
		for (size_t i = 0; i < PARTS; i++)
			g->parts[i] = (struct parity_part){ .what = "parameters",
				.data = g->data[i],
				.bytes = PART_BYTES };
		g->parity.parts = g->parts;
		g->parity.count = PARTS;
		g->parity.majority = true;
	}
}

static void group_end(void)
{
	for (unsigned m = 0; m < MEMBERS; m++)
		for (size_t i = 0; i < members[m].memory_count; i++)
			free(members[m].memory[i]);
}

static void who_is_wrong_gets_what_is_right(void **state)
{
	uint64_t salts[MEMBERS];
	(void)state;
	group_begin();
	donor_dies = false;
	group_settles(1, salts);
	for (unsigned m = 0; m < MEMBERS; m++) {
		assert_true(salts[m] == salts[0]);
		parity_mend(&members[m].parity);
		assert_memory_equal(members[m].data, members[0].data, sizeof(members[0].data));
	}
	group_end();
}

/* What lay where it should have come is read by nobody. (The wrong one and a joiner agreed on zeros, or on an older mend: two to one.) */
static void what_did_not_come_is_no_mend(void **state)
{
	uint64_t salts[MEMBERS];
	char before[PARTS][PART_BYTES];
	(void)state;
	for (unsigned older = 0; older < 2; older++) {
		group_begin();
		donor_dies = false;
		if (older)
			group_settles(1, salts);
		donor_dies = true;
		group_settles(2, salts);
		assert_true(salts[0] == salts[1] && salts[3] == salts[1] && salts[2] != salts[1]);
		for (unsigned m = 0; m < MEMBERS; m++) {
			memcpy(before, members[m].data, sizeof(before));
			parity_mend(&members[m].parity);
			assert_memory_equal(members[m].data, before, sizeof(before));
		}
		group_end();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_majority_is_right),
		cmocka_unit_test(who_holds_what_it_wrote_is_right),
		cmocka_unit_test(else_who_has_been_there_longest),
		cmocka_unit_test(without_a_verdict_all_keep_their_own),
		cmocka_unit_test(who_is_wrong_gets_what_is_right),
		cmocka_unit_test(what_did_not_come_is_no_mend),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
