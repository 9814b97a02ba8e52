/* The ring of shared memory: order, room, waiting, and what a hostile side may write. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collectives/transport/shm_export.h"
#include "collectives/transport/shm_memory.h"
#include "collectives/transport/shm_ring.h"
#include "common/rng.h"

struct pair {
	struct shm_ring ring;
	struct shm_sender out;
	struct shm_receiver in;
	int fd;
};

static void pair_open(struct pair *pair)
{
	assert_int_equal(shm_ring_create(&pair->ring, &pair->fd, NULL), TR_OK);
	shm_sender_init(&pair->out, &pair->ring);
	shm_receiver_init(&pair->in, &pair->ring);
}

static void pair_close(struct pair *pair)
{
	shm_ring_unmap(&pair->ring);
	(void)close(pair->fd);
}

static void count_release(void *arg, bool sent)
{
	assert_true(sent);
	++*(unsigned *)arg;
}

/* ---- one thread ---- */

static void test_frames_come_as_they_went(void **state)
{
	static struct pair pair;
	struct shm_frame frame;
	(void)state;
	pair_open(&pair);
	assert_int_equal(shm_ring_next(&pair.in, &frame, NULL), TR_EAGAIN);
	struct shm_put inside = { .type = 3,
		.head = "abc",
		.head_bytes = 3,
		.body = "body",
		.body_bytes = 5 };
	assert_int_equal(shm_ring_put(&pair.out, &inside), TR_OK);
	unsigned released = 0;
	struct shm_put described = { .type = 4,
		.head = "h",
		.head_bytes = 1,
		.memory = 7,
		.offset = 4096,
		.body_bytes = 123,
		.released = count_release,
		.arg = &released };
	assert_int_equal(shm_ring_put(&pair.out, &described), TR_OK);
	assert_int_equal(shm_ring_next(&pair.in, &frame, NULL), TR_OK);
	assert_int_equal(frame.type, 3);
	assert_int_equal(frame.memory, SHM_RING_INSIDE);
	assert_memory_equal(frame.head, "abc", 3);
	assert_string_equal((const char *)frame.inside, "body");
	assert_false(shm_ring_advance(&pair.in));
	assert_int_equal(shm_ring_next(&pair.in, &frame, NULL), TR_OK);
	assert_int_equal(frame.memory, 7);
	assert_int_equal(frame.offset, 4096);
	assert_int_equal(frame.body_bytes, 123);
	assert_null(frame.inside);
	/* What is described stays until it was gone past. */
	assert_int_equal(shm_ring_collect(&pair.out), TR_OK);
	assert_int_equal(released, 0);
	assert_false(shm_ring_advance(&pair.in));
	assert_int_equal(shm_ring_collect(&pair.out), TR_OK);
	assert_int_equal(released, 1);
	assert_int_equal(shm_ring_next(&pair.in, &frame, NULL), TR_EAGAIN);
	pair_close(&pair);
}

static void test_full_ring_takes_nothing(void **state)
{
	static struct pair pair;
	struct shm_frame frame;
	unsigned released = 0;
	struct shm_put put = { .type = 4, .memory = 0, .released = count_release, .arg = &released };
	(void)state;
	pair_open(&pair);
	for (unsigned i = 0; i < SHM_RING_SLOTS; i++)
		assert_int_equal(shm_ring_put(&pair.out, &put), TR_OK);
	assert_int_equal(shm_ring_put(&pair.out, &put), TR_EAGAIN);
	assert_true(shm_ring_wait_room(&pair.out));
	assert_int_equal(shm_ring_next(&pair.in, &frame, NULL), TR_OK);
	assert_true(shm_ring_advance(&pair.in));  /* the sender waits: ring */
	assert_false(shm_ring_advance(&pair.in)); /* once is enough */
	assert_false(shm_ring_wait_room(&pair.out));
	assert_int_equal(shm_ring_put(&pair.out, &put), TR_OK);
	assert_int_equal(released, 2);
	shm_ring_let_go(&pair.out);
	assert_int_equal(released, SHM_RING_SLOTS + 1);
	pair_close(&pair);
}

/* One turn of reading may send many frames before it looks at what was read of them; their bodies' memory is wanted before. */
static void test_what_was_read_is_released_while_more_is_put(void **state)
{
	static struct pair pair;
	struct shm_frame frame;
	unsigned released = 0;
	struct shm_put put = { .type = 4, .memory = 0, .released = count_release, .arg = &released };
	(void)state;
	pair_open(&pair);
	for (unsigned i = 0; i < 2 * SHM_RING_SLOTS; i++) {
		assert_int_equal(shm_ring_put(&pair.out, &put), TR_OK);
		assert_int_equal(shm_ring_next(&pair.in, &frame, NULL), TR_OK);
		(void)shm_ring_advance(&pair.in);
		assert_true(i + 1 - released <= SHM_RING_UNCOLLECTED);
	}
	pair_close(&pair);
}

/* Large ones at once: a few of them are as much memory. */
static void test_large_bodies_are_released_sooner(void **state)
{
	static struct pair pair;
	struct shm_frame frame;
	unsigned released = 0;
	struct shm_put put = { .type = 4,
		.memory = 0,
		.body_bytes = SHM_RING_UNCOLLECTED_BYTES / 2,
		.released = count_release,
		.arg = &released };
	(void)state;
	pair_open(&pair);
	for (unsigned i = 0; i < SHM_RING_SLOTS; i++) {
		assert_int_equal(shm_ring_put(&pair.out, &put), TR_OK);
		assert_int_equal(shm_ring_next(&pair.in, &frame, NULL), TR_OK);
		(void)shm_ring_advance(&pair.in);
		assert_true(i + 1 - released <= 2);
	}
	pair_close(&pair);
}

/* What a frame's `released` does: the receiver goes past `advance` frames more, then one is put. */
struct again {
	struct pair *pair;
	unsigned advance, released;
	uint32_t type; /* of the frame that is put; 0: none */
};

static void release_again(void *arg, bool sent)
{
	struct again *again = arg;
	struct shm_put put = { .type = again->type, .memory = 1 };
	(void)sent;
	again->released++;
	for (; again->advance > 0; again->advance--)
		(void)shm_ring_advance(&again->pair->in);
	assert_int_equal(shm_ring_collect(&again->pair->out), TR_OK);
	if (again->type != 0)
		assert_int_equal(shm_ring_put(&again->pair->out, &put), TR_OK);
}

static void test_released_may_put_again(void **state)
{
	static struct pair pair;
	static uint8_t body[SHM_RING_BODY_MAX];
	struct again again = { .pair = &pair, .type = 8 };
	struct shm_put first = { .type = 4, .released = release_again, .arg = &again };
	struct shm_put large = { .type = 5, .body = body, .body_bytes = sizeof(body) };
	struct shm_frame frame;
	(void)state;
	pair_open(&pair);
	assert_int_equal(shm_ring_put(&pair.out, &first), TR_OK);
	assert_int_equal(shm_ring_put(&pair.out, &large), TR_OK);
	assert_int_equal(shm_ring_put(&pair.out, &large), TR_OK); /* no room for bodies */
	for (unsigned i = 0; i < 3; i++)
		(void)shm_ring_advance(&pair.in);
	large.type = 9;
	assert_int_equal(shm_ring_put(&pair.out, &large), TR_OK);
	assert_int_equal(again.released, 1);
	assert_int_equal(shm_ring_next(&pair.in, &frame, NULL), TR_OK);
	assert_int_equal(frame.type, 8);
	(void)shm_ring_advance(&pair.in);
	assert_int_equal(shm_ring_next(&pair.in, &frame, NULL), TR_OK);
	assert_int_equal(frame.type, 9);
	(void)shm_ring_advance(&pair.in);
	assert_false(shm_ring_pending(&pair.in));
	pair_close(&pair);
}

static void test_released_may_collect_more(void **state)
{
	static struct pair pair;
	struct again again = { .pair = &pair, .advance = 2 };
	unsigned released = 0;
	struct shm_put first = { .type = 4, .released = release_again, .arg = &again };
	struct shm_put put = { .type = 4, .released = count_release, .arg = &released };
	(void)state;
	pair_open(&pair);
	assert_int_equal(shm_ring_put(&pair.out, &first), TR_OK);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(shm_ring_put(&pair.out, &put), TR_OK);
	(void)shm_ring_advance(&pair.in);
	assert_int_equal(shm_ring_collect(&pair.out), TR_OK);
	assert_int_equal(released, 2); /* not those that the receiver has still before it */
	shm_ring_let_go(&pair.out);
	assert_int_equal(released, 4);
	pair_close(&pair);
}

static void test_bodies_inside_wrap(void **state)
{
	static struct pair pair;
	static uint8_t body[SHM_RING_BODY_MAX];
	struct shm_frame frame;
	struct rng_key key = rng_key(11, 0, 0);
	uint64_t sent = 0, got = 0;
	(void)state;
	pair_open(&pair);
	for (unsigned i = 0; i < 4000; i++) {
		uint32_t bytes = (uint32_t)(rng_below(key, 0, i,
		    i % 50 == 0 ? SHM_RING_BODY_MAX : 9000));
		memset(body, (int)(sent % 251), bytes);
		struct shm_put put = { .type = 4,
			.body = body,
			.body_bytes = bytes,
			.offset = 0,
			.head = &sent,
			.head_bytes = sizeof(sent) };
		if (shm_ring_put(&pair.out, &put) == TR_OK)
			sent++;
		for (uint64_t k = rng_below(key, 1, i, 3); k > 0 && got < sent; k--) {
			uint64_t number;
			assert_int_equal(shm_ring_next(&pair.in, &frame, NULL), TR_OK);
			memcpy(&number, frame.head, sizeof(number));
			assert_int_equal(number, got);
			for (uint32_t b = 0; b < frame.body_bytes; b += 997)
				assert_int_equal(frame.inside[b], got % 251);
			if (frame.body_bytes > 0)
				assert_int_equal(frame.inside[frame.body_bytes - 1], got % 251);
			(void)shm_ring_advance(&pair.in);
			got++;
		}
	}
	assert_true(sent > 2000 && sent - got <= SHM_RING_SLOTS);
	pair_close(&pair);
}

/* ---- hostile ---- */

static void test_receiver_believes_nothing(void **state)
{
	static struct pair pair;
	struct shm_frame frame;
	struct tr_error error;
	struct shm_put put = { .type = 4, .body = "x", .body_bytes = 1 };
	(void)state;
	pair_open(&pair);
	assert_int_equal(shm_ring_put(&pair.out, &put), TR_OK);
	struct shm_ring_slot good = pair.ring.slots[0];
	const struct shm_ring_slot bad[] = {
		{ .type = 4, .memory = SHM_RING_INSIDE, .head_bytes = SHM_RING_HEAD_MAX + 1 },
		{ .type = 4, .memory = SHM_RING_INSIDE, .head_bytes = UINT32_MAX },
		{ .type = 4, .memory = SHM_RING_INSIDE, .body_bytes = SHM_RING_BODY_MAX + 1 },
		{ .type = 4, .memory = SHM_RING_INSIDE, .body_bytes = 64, .offset = SHM_RING_DATA },
		{ .type = 4, .memory = SHM_RING_INSIDE, .body_bytes = 64, .offset = UINT64_MAX - 63 },
		{ .type = 4, .memory = SHM_RING_INSIDE, .body_bytes = 64, .offset = 1 },
		{ .type = 4, .memory = 0, .body_bytes = UINT32_MAX },
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		pair.ring.slots[0] = bad[i];
		assert_int_equal(shm_ring_next(&pair.in, &frame, &error), TR_EPROTO);
		assert_true(strlen(error.text) > 0);
	}
	pair.ring.slots[0] = good;
	const uint64_t indices[] = { SHM_RING_SLOTS + 1, UINT64_MAX, UINT64_MAX / 2 };
	for (size_t i = 0; i < sizeof(indices) / sizeof(indices[0]); i++) {
		atomic_store(&pair.ring.control->produced, indices[i]);
		assert_int_equal(shm_ring_next(&pair.in, &frame, &error), TR_EPROTO);
	}
	atomic_store(&pair.ring.control->produced, 1);
	assert_int_equal(shm_ring_next(&pair.in, &frame, NULL), TR_OK);
	pair_close(&pair);
}

static void test_sender_believes_nothing(void **state)
{
	static struct pair pair;
	unsigned released = 0;
	struct shm_put put = { .type = 4, .memory = 0, .released = count_release, .arg = &released };
	const uint64_t indices[] = { 3, UINT64_MAX, UINT64_MAX / 2 };
	(void)state;
	pair_open(&pair);
	assert_int_equal(shm_ring_put(&pair.out, &put), TR_OK);
	assert_int_equal(shm_ring_put(&pair.out, &put), TR_OK);
	for (size_t i = 0; i < sizeof(indices) / sizeof(indices[0]); i++) {
		atomic_store(&pair.ring.control->consumed, indices[i]);
		assert_int_equal(shm_ring_collect(&pair.out), TR_EPROTO);
		assert_int_equal(released, 0);
	}
	atomic_store(&pair.ring.control->consumed, 2);
	assert_int_equal(shm_ring_collect(&pair.out), TR_OK);
	atomic_store(&pair.ring.control->consumed, 1); /* back */
	assert_int_equal(shm_ring_collect(&pair.out), TR_EPROTO);
	assert_int_equal(released, 2);
	pair_close(&pair);
}

static int plain_memfd(size_t bytes, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	if (seals != 0)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void test_memory_is_checked(void **state)
{
	struct shm_ring ring = { 0 };
	struct tr_error error;
	bool stable = false;
	(void)state;
	int shrinkable = plain_memfd(1 << 20, 0), small = plain_memfd(4096, F_SEAL_SHRINK);
	int blank = plain_memfd(8 << 20, F_SEAL_SHRINK), pipes[2];
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(shm_ring_open(&ring, shrinkable, &error), TR_EPROTO);
	assert_int_equal(shm_ring_open(&ring, small, &error), TR_EPROTO);
	assert_int_equal(shm_ring_open(&ring, blank, &error), TR_EPROTO);
	assert_int_equal(shm_ring_open(&ring, pipes[0], &error), TR_EPROTO);
	struct shm_import *import = shm_import_create();
	assert_int_equal(shm_import_add(import, shrinkable, 4096, true, &error), TR_EPROTO);
	assert_int_equal(shm_import_add(import, small, 4097, true, &error), TR_EPROTO);
	assert_int_equal(shm_import_add(import, small, 0, true, &error), TR_EPROTO);
	assert_int_equal(shm_import_add(import, small, UINT64_MAX, true, &error), TR_EPROTO);
	assert_int_equal(shm_import_add(import, small, 4096, true, &error), TR_OK);
	assert_int_equal(shm_import_add(import, blank, 8 << 20, false, &error), TR_OK);
	assert_non_null(shm_import_at(import, 0, 0, 4096, &stable));
	assert_true(stable);
	assert_non_null(shm_import_at(import, 1, 8, 4096, &stable));
	assert_false(stable);
	assert_null(shm_import_at(import, 0, 8, 4096, &stable));
	assert_null(shm_import_at(import, 0, UINT64_MAX - 7, 16, &stable));
	assert_null(shm_import_at(import, 0, 1, 16, &stable));
	assert_null(shm_import_at(import, 2, 0, 0, &stable));
	shm_import_release(import);
	int all[] = { shrinkable, small, blank, pipes[0], pipes[1] };
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		(void)close(all[i]);
}

/* Whether the mapping that begins at `base` asks for huge pages ("hg" of its VmFlags). */
static bool asks_for_huge_pages(const void *base)
{
	char line[512], start[32];
	bool here = false, asks = false;
	FILE *file = fopen("/proc/self/smaps", "re");
	assert_non_null(file);
	(void)snprintf(start, sizeof(start), "%lx-", (unsigned long)(uintptr_t)base);
	while (fgets(line, sizeof(line), file) != NULL) {
		here = here || strncmp(line, start, strlen(start)) == 0;
		if (here && strncmp(line, "VmFlags:", 8) == 0) {
			asks = strstr(line, " hg") != NULL;
			break;
		}
	}
	(void)fclose(file);
	assert_true(here);
	return asks;
}

static void test_tensors_ask_for_huge_pages_and_rings_do_not(void **state)
{
	static const size_t sizes[] = { 1 << 20, 64 << 20 };
	(void)state;
	if (access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0)
		skip(); /* a kernel without them */
	for (size_t i = 0; i < 2; i++) {
		void *made, *mapped;
		int fd;
		assert_int_equal(shm_memory_create("test", sizes[i], &fd, &made, NULL), TR_OK);
		assert_int_equal(shm_memory_map(fd, sizes[i], true, &mapped, NULL), TR_OK);
		assert_int_equal(asks_for_huge_pages(made), i == 1);
		assert_int_equal(asks_for_huge_pages(mapped), i == 1);
		assert_int_equal(munmap(made, sizes[i]) | munmap(mapped, sizes[i]) | close(fd), 0);
	}
}

static void test_shown_memory_cannot_be_written(void **state)
{
	struct tr_error error;
	void *base;
	int fd;
	(void)state;
	assert_int_equal(shm_memory_create("test", 8192, &fd, &base, &error), TR_OK);
	strcpy(base, "shown");
	int shown = shm_memory_read_only(fd);
	assert_true(shown >= 0);
	assert_true(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, shown, 0) == MAP_FAILED);
	void *seen;
	assert_int_equal(shm_memory_map(shown, 8192, false, &seen, &error), TR_OK);
	assert_string_equal(seen, "shown");
	(void)munmap(seen, 8192);
	(void)munmap(base, 8192);
	(void)close(shown);
	(void)close(fd);
}

/* ---- two threads ---- */

#define FRAMES 60000u

struct bells {
	struct pair pair;
	int to_sender, to_receiver;
	uint8_t described[64];
	unsigned released;
};

static void bell_ring(int bell)
{
	uint64_t one = 1;
	assert_int_equal(write(bell, &one, sizeof(one)), sizeof(one));
}

static void bell_wait(int bell)
{
	struct pollfd wait = { .fd = bell, .events = POLLIN };
	uint64_t count;
	assert_int_equal(poll(&wait, 1, 60000), 1); /* a lost wake-up */
	assert_int_equal(read(bell, &count, sizeof(count)), sizeof(count));
}

static void *send_all(void *arg)
{
	struct bells *bells = arg;
	uint8_t body[3000];
	for (uint64_t i = 0; i < FRAMES;) {
		uint32_t bytes = (uint32_t)(i * 7919 % sizeof(body));
		memset(body, (int)(i % 256), bytes);
		struct shm_put put = { .type = 4,
			.head = &i,
			.head_bytes = sizeof(i),
			.body = body,
			.body_bytes = bytes };
		if (i % 5 == 0)
			put = (struct shm_put){ .type = 4,
				.head = &i,
				.head_bytes = sizeof(i),
				.memory = 1,
				.offset = i,
				.body_bytes = 8,
				.released = count_release,
				.arg = &bells->released };
		if (shm_ring_put(&bells->pair.out, &put) == TR_OK) {
			i++;
			if (shm_ring_must_wake(&bells->pair.out))
				bell_ring(bells->to_receiver);
		} else if (shm_ring_wait_room(&bells->pair.out)) {
			bell_wait(bells->to_sender);
		}
	}
	return NULL;
}

static void receive_all(struct bells *bells)
{
	for (uint64_t i = 0; i < FRAMES;) {
		struct shm_frame frame;
		struct tr_error error;
		uint64_t number;
		tr_status st = shm_ring_next(&bells->pair.in, &frame, &error);
		if (st == TR_EAGAIN) {
			if (shm_ring_sleep(&bells->pair.in))
				bell_wait(bells->to_receiver);
			continue;
		}
		assert_int_equal(st, TR_OK);
		memcpy(&number, frame.head, sizeof(number));
		assert_int_equal(number, i);
		if (i % 5 == 0) {
			assert_int_equal(frame.memory, 1);
			assert_int_equal(frame.offset, i);
		} else {
			assert_int_equal(frame.body_bytes, i * 7919 % 3000);
			for (uint32_t b = 0; b < frame.body_bytes; b += 211)
				assert_int_equal(frame.inside[b], i % 256);
		}
		if (shm_ring_advance(&bells->pair.in))
			bell_ring(bells->to_sender);
		i++;
	}
}

static void test_two_threads_lose_nothing(void **state)
{
	static struct bells bells;
	pthread_t thread;
	(void)state;
	pair_open(&bells.pair);
	bells.to_sender = eventfd(0, EFD_CLOEXEC);
	bells.to_receiver = eventfd(0, EFD_CLOEXEC);
	assert_int_equal(pthread_create(&thread, NULL, send_all, &bells), 0);
	receive_all(&bells);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(shm_ring_collect(&bells.pair.out), TR_OK);
	assert_int_equal(bells.released, FRAMES / 5);
	(void)close(bells.to_sender);
	(void)close(bells.to_receiver);
	pair_close(&bells.pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frames_come_as_they_went),
		cmocka_unit_test(test_full_ring_takes_nothing),
		cmocka_unit_test(test_what_was_read_is_released_while_more_is_put),
		cmocka_unit_test(test_large_bodies_are_released_sooner),
		cmocka_unit_test(test_released_may_put_again),
		cmocka_unit_test(test_released_may_collect_more),
		cmocka_unit_test(test_bodies_inside_wrap),
		cmocka_unit_test(test_receiver_believes_nothing),
		cmocka_unit_test(test_sender_believes_nothing),
		cmocka_unit_test(test_memory_is_checked),
		cmocka_unit_test(test_tensors_ask_for_huge_pages_and_rings_do_not),
		cmocka_unit_test(test_shown_memory_cannot_be_written),
		cmocka_unit_test(test_two_threads_lose_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
