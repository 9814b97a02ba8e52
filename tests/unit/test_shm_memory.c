/* What shm_memory.h says of huge pages: where mappings lie, what a fill makes and what it leaves. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "collectives/transport/shm_memory.h"

#define HUGE  SHM_HUGE_BYTES
#define PAGE  4096u
#define PART  (5 * PAGE) /* of a huge page */
#define BYTES (3 * HUGE + PART)

static uint8_t *made(int *fd, size_t bytes)
{
	void *base;
	assert_int_equal(shm_memory_create("test", bytes, fd, &base, NULL), TR_OK);
	return base;
}

static uint8_t *mapped(int fd, size_t bytes)
{
	void *base;
	assert_int_equal(shm_memory_map(fd, bytes, false, &base, NULL), TR_OK);
	return base;
}

static size_t pages_there(uint8_t *at, size_t bytes)
{
	unsigned char there[BYTES / PAGE];
	size_t count = 0;
	assert_in_range(bytes, PAGE, BYTES);
	assert_int_equal(mincore(at, bytes, there), 0);
	for (size_t i = 0; i < bytes / PAGE; i++)
		count += there[i] & 1;
	return count;
}

/* Of reads of each page; a sanitizer's own memory would fault too. */
__attribute__((no_sanitize_address, no_sanitize_thread)) static long faults_of_reading(const uint8_t
                                                                                           *at,
    size_t bytes)
{
	struct rusage before, after;
	assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
	for (size_t i = 0; i < bytes; i += PAGE)
		(void)*(const volatile uint8_t *)&at[i];
	assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
	return after.ru_minflt - before.ru_minflt;
}

/* Of this kernel, with this memory: it may be old, shared memory may have none here, or all may be taken. */
static bool gives_huge_pages(void)
{
	int fd;
	uint8_t *base = made(&fd, HUGE);
	base[0] = 1;
	bool gives = sysconf(_SC_PAGESIZE) == PAGE &&
	    madvise(base, HUGE, 25 /* MADV_COLLAPSE */) == 0;
	(void)munmap(base, HUGE);
	(void)close(fd);
	return gives;
}

static void room_for_a_huge_page_lies_where_one_fits(void **state)
{
	static const size_t sizes[] = { HUGE, HUGE + 1, BYTES, 64 * HUGE };
	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		int fd;
		uint8_t *first = made(&fd, sizes[i]), *second = mapped(fd, sizes[i]);
		assert_int_equal((uintptr_t)first % HUGE, 0);
		assert_int_equal((uintptr_t)second % HUGE, 0);
		first[sizes[i] - 1] = 7;
		assert_int_equal(second[sizes[i] - 1], 7);
		(void)munmap(first, sizes[i]);
		(void)munmap(second, sizes[i]);
		(void)close(fd);
	}
}

static void a_fill_makes_whole_huge_pages_and_keeps_what_was_written(void **state)
{
	(void)state;
	if (!gives_huge_pages())
		skip();
	int fd;
	uint8_t *first = made(&fd, BYTES), *second = mapped(fd, BYTES);
	memset(first + HUGE - 1, 9, 2);
	size_t touched = pages_there(first, HUGE - PAGE),
	       rest = pages_there(first + 3 * HUGE, PART);
	assert_true(shm_memory_fill(first + PART, BYTES - PART)); /* of the first one only a part */
	assert_int_equal(pages_there(first, HUGE - PAGE), touched);
	assert_int_equal(pages_there(first + HUGE, 2 * HUGE), 2 * HUGE / PAGE);
	assert_int_equal(pages_there(first + 3 * HUGE, PART), rest);
	assert_int_equal(first[HUGE - 1], 9);
	assert_int_equal(first[HUGE], 9);
	assert_int_equal(first[HUGE + 1], 0);
	assert_in_range(faults_of_reading(second + HUGE, 2 * HUGE), 1,
	    4); /* two, and perhaps one of ours */
	(void)munmap(first, BYTES);
	(void)munmap(second, BYTES);
	(void)close(fd);
}

static void what_holds_no_huge_page_is_left(void **state)
{
	(void)state;
	int fd;
	uint8_t *base = made(&fd, BYTES);
	shm_memory_fill(base, 0);
	shm_memory_fill(base, HUGE - 1);
	shm_memory_fill(base + PAGE, HUGE);            /* across two of them */
	shm_memory_fill(base + 2 * HUGE + PAGE, HUGE); /* likewise, to the end's part */
	shm_memory_fill(base + 3 * HUGE, PART);
	assert_int_equal(pages_there(base, BYTES), 0);
	(void)munmap(base, BYTES);
	(void)close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(room_for_a_huge_page_lies_where_one_fits),
		cmocka_unit_test(a_fill_makes_whole_huge_pages_and_keeps_what_was_written),
		cmocka_unit_test(what_holds_no_huge_page_is_left),
	};
	return cmocka_run_group_tests_name("shm_memory", tests, NULL, NULL);
}
