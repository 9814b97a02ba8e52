/* What shm_prefault.h says: memory that another mapping has touched is mapped here without a fault; what nobody touched is not made. */
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
#include "collectives/transport/shm_prefault.h"

#define BYTES ((size_t)9 << 20) /* two slices and a part */
#define PAGE  4096u

struct twice {
	uv_loop_t loop;
	struct shm_prefault prefault;
	uint8_t *first, *second; /* mappings of the same memory */
	int fd, closed;
};

static void start(struct twice *t)
{
	void *first, *second;
	*t = (struct twice){ 0 };
	assert_int_equal(uv_loop_init(&t->loop), 0);
	shm_prefault_init(&t->prefault, &t->loop);
	t->prefault.idle.data = t;
	assert_int_equal(shm_memory_create("test", BYTES, &t->fd, &first, NULL), TR_OK);
	assert_int_equal(shm_memory_map(t->fd, BYTES, true, &second, NULL), TR_OK);
	t->first = first;
	t->second = second;
}

static void on_closed(uv_handle_t *handle)
{
	((struct twice *)handle->data)->closed++;
}

static void stop(struct twice *t)
{
	shm_prefault_close(&t->prefault, on_closed);
	shm_prefault_add(&t->prefault, t->second, BYTES); /* too late: nothing */
	assert_int_equal(uv_run(&t->loop, UV_RUN_DEFAULT), 0);
	assert_int_equal(t->closed, 1);
	assert_int_equal(uv_loop_close(&t->loop), 0);
	(void)munmap(t->first, BYTES);
	(void)munmap(t->second, BYTES);
	(void)close(t->fd);
}

static long faults(void)
{
	struct rusage usage;
	assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
	return usage.ru_minflt;
}

/* Of writes to each page; a sanitizer's own memory would fault too. */
__attribute__((no_sanitize_address, no_sanitize_thread)) static long faults_of_writing(uint8_t *at,
    size_t bytes)
{
	long before = faults();
	for (size_t i = 0; i < bytes; i += PAGE)
		*(volatile uint8_t *)&at[i] = 1;
	return faults() - before;
}

static size_t pages_there(uint8_t *at, size_t bytes)
{
	unsigned char there[BYTES / PAGE];
	size_t count = 0;
	assert_int_equal(mincore(at, bytes, there), 0);
	for (size_t i = 0; i < bytes / PAGE; i++)
		count += there[i] & 1;
	return count;
}

/* Kernels before 5.14 fill nothing; a system with larger pages, or with huge ones for all shared memory, has few to count. */
static bool fills(uint8_t *at)
{
	return sysconf(_SC_PAGESIZE) == PAGE && madvise(at, PAGE, 22 /* MADV_POPULATE_READ */) == 0;
}

static void touched_pages_are_mapped_for_writing(void **state)
{
	(void)state;
	struct twice t;
	start(&t);
	memset(t.first, 1, BYTES);
	if (!fills(t.second)) {
		stop(&t);
		skip();
	}
	shm_prefault_add(&t.prefault, t.second, BYTES);
	unsigned turns = 0;
	while (uv_run(&t.loop, UV_RUN_NOWAIT) != 0)
		turns++;
	assert_int_equal(turns, 2); /* it is active until the last slice */
	assert_in_range(faults_of_writing(t.second, BYTES), 0, 16);
	stop(&t);
}

static void untouched_pages_are_not_made(void **state)
{
	(void)state;
	struct twice t;
	start(&t);
	t.first[5 * PAGE] = 1;
	memset(t.first + BYTES / 2, 1, 7 * PAGE);
	size_t there = pages_there(t.second, BYTES);
	shm_prefault_add(&t.prefault, t.second, BYTES);
	(void)uv_run(&t.loop, UV_RUN_DEFAULT); /* until it rests */
	assert_in_range(there, 8, BYTES / PAGE / 2);
	assert_int_equal(pages_there(t.second, BYTES), there);
	stop(&t);
}

/* The loop must not touch it once it is unmapped. */
static void what_ends_is_forgotten(void **state)
{
	(void)state;
	struct twice t, u;
	start(&t);
	start(&u);
	memset(t.first, 1, BYTES);
	memset(u.first, 1, BYTES);
	shm_prefault_add(&t.prefault, t.second, BYTES);
	shm_prefault_add(&t.prefault, u.second, BYTES);
	(void)uv_run(&t.loop, UV_RUN_NOWAIT);
	shm_prefault_end(&t.prefault, u.second);
	shm_prefault_end(&t.prefault, u.second); /* not there: nothing */
	assert_non_null(t.prefault.ranges);
	assert_null(t.prefault.ranges->next);
	shm_prefault_end(&t.prefault, t.second);
	assert_null(t.prefault.ranges);
	assert_int_equal(uv_run(&t.loop, UV_RUN_NOWAIT), 0); /* and it rests */
	stop(&u);
	stop(&t);
}

static void closing_forgets_all(void **state)
{
	(void)state;
	struct twice t;
	start(&t);
	memset(t.first, 1, BYTES);
	shm_prefault_add(&t.prefault, t.second, BYTES);
	shm_prefault_add(&t.prefault, t.first, BYTES);
	(void)uv_run(&t.loop, UV_RUN_NOWAIT);
	stop(&t);
	assert_null(t.prefault.ranges);
}

/* A range that cannot be filled does not keep the loop busy, nor the next one waiting. */
static void what_cannot_be_filled_is_left(void **state)
{
	(void)state;
	struct twice t;
	start(&t);
	void *nothing = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(nothing, MAP_FAILED);
	(void)munmap(nothing, BYTES);
	memset(t.first, 1, BYTES);
	shm_prefault_add(&t.prefault, nothing, BYTES);
	shm_prefault_add(&t.prefault, t.second, BYTES);
	(void)uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_null(t.prefault.ranges);
	if (fills(t.second))
		assert_in_range(faults_of_writing(t.second, BYTES), 0, 16);
	stop(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(touched_pages_are_mapped_for_writing),
		cmocka_unit_test(untouched_pages_are_not_made),
		cmocka_unit_test(what_ends_is_forgotten),
		cmocka_unit_test(closing_forgets_all),
		cmocka_unit_test(what_cannot_be_filled_is_left),
	};
	return cmocka_run_group_tests_name("shm_prefault", tests, NULL, NULL);
}
