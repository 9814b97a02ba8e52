/* Whatever is put, in whatever pieces and whichever way it goes, is in the file, and the digest is of it; and what lies right is written from where it lies. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/rng.h"
#include "daemon/checkpoint/bulk_file.h"

#define BLOCK     ((size_t)BULK_BLOCK_BYTES)
#define ALL_BYTES (40 * BLOCK)

/* What the disk does; the linker takes these instead of the C library's. */
static struct {
	bool refuses;     /* to go direct, when asked */
	bool wants_more;  /* EINVAL for each direct write */
	unsigned shorter; /* so many writes take a part only, of no whole number of lines */
	int fails;        /* errno of each write behind `room` bytes */
	size_t room;
	size_t direct, cached, lent; /* bytes that were written; those that lay in `source` */
	off_t sent, waited_for;
	int sync_fails, wait_fails; /* errno */
} disk;
static uint8_t *source; /* [ALL_BYTES], page-aligned */
static int watched = -1;

int fcntl(int fd, int command, ...)
{
	va_list args;
	va_start(args, command);
	long argument = va_arg(args, long);
	va_end(args);
	if (fd == watched && command == F_SETFL && (argument & O_DIRECT) != 0 && disk.refuses) {
		errno = EINVAL;
		return -1;
	}
	return (int)syscall(SYS_fcntl, fd, command, argument);
}

ssize_t write(int fd, const void *from, size_t count)
{
	if (fd != watched)
		return syscall(SYS_write, fd, from, count);
	bool direct = (syscall(SYS_fcntl, fd, F_GETFL, 0) & O_DIRECT) != 0;
	if (direct && disk.wants_more) {
		errno = EINVAL;
		return -1;
	}
	if (disk.fails != 0 && disk.direct + disk.cached + count > disk.room) {
		errno = disk.fails;
		return -1;
	}
	if (disk.shorter > 0 && count > 1000) {
		disk.shorter--;
		count = 1000;
		if (direct) /* as if it had taken so many */
			(void)syscall(SYS_fcntl, fd, F_SETFL, O_RDWR);
	}
	ssize_t wrote = syscall(SYS_write, fd, from, count);
	size_t bytes = wrote > 0 ? (size_t)wrote : 0;
	*(direct ? &disk.direct : &disk.cached) += bytes;
	if ((const uint8_t *)from >= source && (const uint8_t *)from < source + ALL_BYTES)
		disk.lent += bytes;
	return wrote;
}

int sync_file_range(int fd, off_t from, off_t bytes, unsigned flags)
{
	bool wait = (flags & SYNC_FILE_RANGE_WAIT_AFTER) != 0;
	(void)fd;
	*(wait ? &disk.waited_for : &disk.sent) = from + bytes;
	errno = wait ? disk.wait_fails : disk.sync_fails;
	return errno != 0 ? -1 : 0;
}

static int setup(void **state)
{
	(void)state;
	source = aligned_alloc(BULK_ALIGNMENT, ALL_BYTES);
	assert_non_null(source);
	for (size_t i = 0; i < ALL_BYTES; i += sizeof(uint64_t))
		memcpy(source + i, &(uint64_t){ rng_u64(rng_key(7, 0, 0), 1, i) }, sizeof(uint64_t));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(source);
	return 0;
}

static int make_file(struct bulk_file *file, const struct progress *progress)
{
	char path[] = "/tmp/test_bulk_file_XXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(unlink(path), 0);
	watched = fd;
	bulk_file_begin(file, fd, progress);
	return fd;
}

/* What the file has is source[0 .. bytes). */
static void check(struct bulk_file *file, size_t bytes)
{
	struct tr_digest digest;
	struct tr_error error;
	struct stat stat;
	if (bulk_file_end(file, &digest, &error) != TR_OK)
		fail_msg("%s", error.text);
	bulk_file_finish(file);
	assert_true(tr_digest_equal(digest, tr_digest_of(source, bytes)));
	assert_int_equal(fstat(file->fd, &stat), 0);
	assert_int_equal(stat.st_size, bytes);
	assert_int_equal(syscall(SYS_fcntl, file->fd, F_GETFL, 0) & O_DIRECT, 0);
	uint8_t *back = malloc(bytes + 1);
	assert_non_null(back);
	for (size_t at = 0; at < bytes;) {
		ssize_t n = pread(file->fd, back + at, bytes - at, (off_t)at);
		assert_true(n > 0);
		at += (size_t)n;
	}
	assert_memory_equal(back, source, bytes);
	free(back);
	assert_int_equal(close(file->fd), 0);
	watched = -1;
}

/* As a caller's that lies at any address. */
static void put_copy(struct bulk_file *file, size_t at, size_t bytes)
{
	struct tr_error error;
	uint8_t *copy = malloc(bytes + 1);
	assert_non_null(copy);
	memcpy(copy + 1, source + at, bytes);
	assert_int_equal(bulk_file_put(file, copy + 1, bytes, &error), TR_OK);
	free(copy);
}

static void put_room(struct bulk_file *file, size_t at, size_t bytes)
{
	while (bytes > 0) {
		struct tr_error error;
		void *room;
		size_t most;
		assert_int_equal(bulk_file_room(file, &room, &most, &error), TR_OK);
		assert_true(most > 0);
		most = bytes < most ? bytes : most;
		memcpy(room, source + at, most);
		bulk_file_filled(file, most);
		at += most;
		bytes -= most;
	}
}

static void put_any(struct bulk_file *file, uint64_t seed)
{
	size_t at = 0;
	struct tr_error error;
	const struct rng_key key = rng_key(seed, 0, 0);
	unsigned pieces = (unsigned)(rng_u64(key, 2, 0) % 9);
	for (unsigned i = 0; i < pieces; i++) {
		uint64_t kind = rng_u64(key, 3, i) % 3, size = rng_u64(key, 4, i);
		size_t bytes = size % 4 == 0 ? size / 4 % (3 * BLOCK) : /* odd ones, too */
		    size % 4 == 1   ? size / 4 % 5000
		    : size % 4 == 2 ? size / 4 % 3 * BULK_ALIGNMENT
		                    : size / 4 % 3 * BLOCK;
		if (kind == 0)
			assert_int_equal(bulk_file_put(file, source + at, bytes, &error), TR_OK);
		else if (kind == 1)
			put_copy(file, at, bytes);
		else
			put_room(file, at, bytes);
		at += bytes;
	}
	check(file, at);
}

static void test_any_pieces_any_way(void **state)
{
	(void)state;
	size_t direct = 0;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct bulk_file file;
		memset(&disk, 0, sizeof(disk));
		disk.refuses = seed % 6 == 1;
		disk.wants_more = seed % 6 == 2;
		disk.shorter = seed % 6 == 3 ? 1 + (unsigned)(seed % 4) : 0;
		(void)make_file(&file, NULL);
		put_any(&file, seed);
		direct += disk.direct;
		if (disk.refuses || disk.wants_more)
			assert_int_equal(disk.direct, 0);
	}
	if (direct == 0)
		skip(); /* /tmp has no such way */
	assert_true(direct > 50 * BLOCK);
}

/* A header of a whole line, then numbers: none of them is copied, and the cache has the last part of a line only. */
static void test_what_lies_right_is_not_copied(void **state)
{
	(void)state;
	struct bulk_file file;
	struct tr_error error;
	const size_t bytes = 5 * BLOCK + 4 * BULK_ALIGNMENT + 12;
	memset(&disk, 0, sizeof(disk));
	(void)make_file(&file, NULL);
	put_copy(&file, 0, BULK_ALIGNMENT);
	assert_int_equal(bulk_file_put(&file, source + BULK_ALIGNMENT, bytes - BULK_ALIGNMENT,
	                     &error),
	    TR_OK);
	check(&file, bytes);
	if (disk.direct == 0)
		skip();
	assert_int_equal(disk.lent, 5 * BLOCK);
	assert_int_equal(disk.cached, 12);
}

static void test_a_small_file_goes_through_the_cache(void **state)
{
	(void)state;
	struct bulk_file file;
	struct tr_error error;
	memset(&disk, 0, sizeof(disk));
	(void)make_file(&file, NULL);
	check(&file, 0);
	(void)make_file(&file, NULL);
	assert_int_equal(bulk_file_put(&file, source, BLOCK - 1, &error), TR_OK);
	check(&file, BLOCK - 1);
	assert_int_equal(disk.direct, 0);
}

/* The disk gets it in pieces, and the one before the last is waited for; also where it is said to go direct, which may be through the cache all the same. */
static void test_the_disk_gets_pieces(void **state)
{
	(void)state;
	static const struct {
		int sync_fails, wait_fails;
		bool good;
	} cases[] = { { 0, 0, true }, { ENOSYS, 0, true }, { EPERM, 0, true }, { EIO, 0, false },
		{ 0, EIO, false }, { 0, ENODATA, false }, { 0, EPERM, false } };
	const size_t count = sizeof(cases) / sizeof(cases[0]);
	for (size_t n = 0; n < 2 * count; n++) {
		size_t i = n % count;
		struct bulk_file file;
		struct tr_error error;
		memset(&disk, 0, sizeof(disk));
		disk.refuses = n < count;
		disk.sync_fails = cases[i].sync_fails;
		disk.wait_fails = cases[i].wait_fails;
		int fd = make_file(&file, NULL);
		assert_int_equal(bulk_file_put(&file, source, ALL_BYTES, &error),
		    cases[i].good ? TR_OK : TR_EIO);
		assert_true(!cases[i].good || disk.sent >= 128 << 20);
		assert_true(cases[i].sync_fails != 0 || disk.waited_for >= 64 << 20);
		bulk_file_finish(&file);
		assert_int_equal(close(fd), 0);
	}
}

static void test_a_full_disk(void **state)
{
	(void)state;
	for (size_t room = 0; room < 3 * BLOCK; room += BLOCK) {
		struct bulk_file file;
		struct tr_error error;
		struct tr_digest digest;
		memset(&disk, 0, sizeof(disk));
		disk.fails = ENOSPC;
		disk.room = room;
		int fd = make_file(&file, NULL);
		tr_status status = bulk_file_put(&file, source, 2 * BLOCK + 100, &error);
		if (status == TR_OK)
			status = bulk_file_end(&file, &digest, &error);
		assert_int_equal(status, TR_EIO);
		assert_string_equal(error.text, "cannot write: No space left on device");
		bulk_file_finish(&file);
		assert_int_equal(close(fd), 0);
	}
}

static atomic_bool given_up;
static unsigned told;

static void tell(void *arg)
{
	atomic_store(&given_up, ++told == *(unsigned *)arg);
}

static void test_given_up(void **state)
{
	(void)state;
	unsigned after = 2;
	const struct progress progress = { tell, &after, &given_up };
	struct bulk_file file;
	struct tr_error error;
	memset(&disk, 0, sizeof(disk));
	int fd = make_file(&file, &progress);
	assert_int_equal(bulk_file_put(&file, source, 5 * BLOCK, &error), TR_ECANCELLED);
	assert_int_equal(disk.direct + disk.cached, 2 * BLOCK);
	bulk_file_finish(&file);
	assert_int_equal(close(fd), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_pieces_any_way),
		cmocka_unit_test(test_what_lies_right_is_not_copied),
		cmocka_unit_test(test_a_small_file_goes_through_the_cache),
		cmocka_unit_test(test_the_disk_gets_pieces),
		cmocka_unit_test(test_a_full_disk),
		cmocka_unit_test(test_given_up),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
