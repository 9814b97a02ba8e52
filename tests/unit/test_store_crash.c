/* memberd killed at any moment, and writes torn at any byte: what was acknowledged is there, in order, once. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "common/log.h"
#include "common/rng.h"
#include "tests/unit/store_harness.h"

static int ack_fd;
static bool bad_disk;

/* In place of libc's. */
ssize_t pread(int fd, void *bytes, size_t size, off_t at)
{
	if (!bad_disk)
		return syscall(SYS_pread64, fd, bytes, size, at);
	errno = EIO;
	return -1;
}

static void acknowledge(struct owner *o, uint64_t number)
{
	if (!o->leading)
		return;
	if (write(ack_fd, &number, sizeof(number)) != (ssize_t)sizeof(number))
		_exit(3);
}

/* Appends for ever; tells the parent each number that came back. */
static void append_for_ever(const char *folder)
{
	struct owner o;
	struct tr_error error = { 0 };
	if (owner_try(&o, folder, &error) != TR_OK)
		_exit(2);
	while (!o.leading)
		(void)uv_run(&o.loop, UV_RUN_ONCE);
	o.on_applied = acknowledge;
	for (uint64_t number = o.newest + 1;;) {
		for (; number < o.newest + 8; number++)
			(void)owner_append_in(&o, number, 8 + number % 300,
			    number % 16 < 5 ? STORE_WITH_NEXT : STORE_NOW);
		(void)uv_run(&o.loop, UV_RUN_ONCE);
		if (!o.in_order)
			_exit(4);
	}
}

static uint64_t run_and_kill(const char *folder, unsigned after)
{
	int fds[2];
	uint64_t number, newest = 0;
	assert_int_equal(pipe(fds), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		(void)close(fds[0]);
		ack_fd = fds[1];
		append_for_ever(folder);
	}
	(void)close(fds[1]);
	bool killed = false;
	for (unsigned acks = 0; read(fds[0], &number, sizeof(number)) == (ssize_t)sizeof(number);
	     acks++) {
		newest = number;
		if (acks >= after && !killed) {
			assert_int_equal(kill(child, SIGKILL), 0);
			killed = true; /* acknowledgements that are still in the pipe count too */
		}
	}
	(void)close(fds[0]);
	int status = 0;
	assert_int_equal(waitpid(child, &status, 0), child);
	if (!WIFSIGNALED(status))
		fail_msg("the child ended by itself: %d", WEXITSTATUS(status));
	return newest;
}

static void test_kill_20_times(void **state)
{
	char folder[64];
	uint64_t total = 0;
	(void)state;
	folder_make(folder);
	for (uint64_t round = 0; round < 20; round++) {
		/* Some lives are long enough for snapshots. */
		unsigned after = (unsigned)rng_below(rng_key(1, 2, 3), 0, round,
		    round % 5 == 4 ? 6000 : 400);
		uint64_t acknowledged = run_and_kill(folder, after);
		struct owner o;
		owner_open(&o, folder);
		assert_true(o.in_order);
		assert_true(o.newest >= acknowledged);
		assert_true(o.newest >= total);
		total = o.newest;
		owner_close(&o);
	}
	print_message("20 kills, %llu entries\n", (unsigned long long)total);
	folder_remove(folder);
}

/* The very first moments count too: a folder that was only half made must not stand in the way. */
static void test_kill_while_founding(void **state)
{
	(void)state;
	for (uint64_t round = 0; round < 20; round++) {
		char folder[64];
		struct owner o;
		folder_make(folder);
		pid_t child = fork();
		if (child == 0) {
			ack_fd = open("/dev/null", O_WRONLY);
			append_for_ever(folder);
		}
		(void)usleep((useconds_t)rng_below(rng_key(4, 5, 6), 0, round, 20000));
		assert_int_equal(kill(child, SIGKILL), 0);
		assert_int_equal(waitpid(child, NULL, 0), child);
		owner_open(&o, folder);
		assert_true(o.in_order);
		uint64_t next = o.newest + 1;
		assert_int_equal(owner_append(&o, next, 8), TR_OK);
		owner_run_until(&o, next);
		owner_close(&o);
		folder_remove(folder);
	}
}

struct bytes {
	char name[64];
	uint8_t *data;
	size_t used, size; /* used: without the zeros at the end */
};

/* All of C-Raft's files as they are after a kill. */
static size_t read_folder(const char *folder, struct bytes *files, size_t max)
{
	char path[256];
	(void)snprintf(path, sizeof(path), "%s/raft", folder);
	DIR *dir = opendir(path);
	size_t count = 0;
	assert_non_null(dir);
	for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
		if (entry->d_name[0] == '.')
			continue;
		assert_true(count < max);
		struct bytes *file = &files[count++];
		(void)snprintf(file->name, sizeof(file->name), "%.60s", entry->d_name);
		(void)snprintf(path, sizeof(path), "%s/raft/%.60s", folder, entry->d_name);
		int fd = open(path, O_RDONLY);
		struct stat st;
		assert_int_equal(fstat(fd, &st), 0);
		file->size = (size_t)st.st_size;
		file->data = malloc(file->size + 1);
		assert_int_equal(read(fd, file->data, file->size), st.st_size);
		for (file->used = file->size; file->used > 0 && file->data[file->used - 1] == 0;)
			file->used--;
		(void)close(fd);
	}
	(void)closedir(dir);
	return count;
}

enum tear { TRUNCATE, ZEROS };

static void write_folder(const char *folder, const struct bytes *files, size_t count,
    const struct bytes *torn, enum tear tear, size_t offset)
{
	char path[256];
	assert_int_equal(mkdir(folder, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/raft", folder);
	assert_int_equal(mkdir(path, 0700), 0);
	for (size_t i = 0; i < count; i++) {
		size_t used = files[i].used, size = files[i].size;
		if (&files[i] == torn) {
			used = used < offset ? used : offset;
			size = tear == TRUNCATE ? offset : size;
		}
		(void)snprintf(path, sizeof(path), "%s/raft/%s", folder, files[i].name);
		int fd = open(path, O_WRONLY | O_CREAT, 0600);
		assert_int_equal(write(fd, files[i].data, used), (ssize_t)used);
		assert_int_equal(ftruncate(fd, (off_t)size), 0);
		(void)close(fd);
	}
}

#define SMALL 24 /* bytes of an entry of the torn file */

/* Where the batch of entry `number` ends in the file. */
static size_t end_of(const struct bytes *file, uint64_t number)
{
	uint8_t wanted[SMALL];
	memset(wanted, (int)(uint8_t)number, sizeof(wanted));
	memcpy(wanted, &number, sizeof(number));
	for (size_t at = 0; at + sizeof(wanted) <= file->used + 8; at++)
		if (memcmp(file->data + at, wanted, sizeof(wanted)) == 0)
			return at + sizeof(wanted);
	fail_msg("entry %llu is not in %s", (unsigned long long)number, file->name);
	return 0;
}

static void append_one_by_one(const char *folder, uint64_t first, uint64_t last)
{
	struct owner o;
	owner_open(&o, folder);
	for (uint64_t number = first; number <= last; number++) {
		assert_int_equal(owner_append(&o, number, SMALL), TR_OK);
		owner_run_until(&o, number);
	}
	if (first == 1)
		owner_close(&o);
}

#define CHILDREN    32
#define FIRST_LIFE  5
#define SECOND_LIFE 9

static void tear_at(const struct bytes *files, size_t count, const struct bytes *torn,
    enum tear tear, size_t offset)
{
	char folder[64];
	struct owner o;
	uint64_t least = FIRST_LIFE;
	folder_make_fast(folder);
	assert_int_equal(rmdir(folder), 0);
	for (uint64_t number = FIRST_LIFE + 1; number <= SECOND_LIFE; number++)
		if (end_of(torn, number) <= offset)
			least = number;
	write_folder(folder, files, count, torn, tear, offset);
	owner_open(&o, folder);
	if (!o.in_order || o.newest < least || o.newest > SECOND_LIFE)
		fail_msg("%s at byte %zu: %llu entries came back, at least %llu wanted, in order: "
		         "%d",
		    tear == TRUNCATE ? "truncated" : "zeros", offset, (unsigned long long)o.newest,
		    (unsigned long long)least, o.in_order);
	uint64_t next = o.newest + 1;
	assert_int_equal(owner_append(&o, next, SMALL), TR_OK);
	owner_run_until(&o, next);
	owner_close(&o);
	owner_open(&o, folder);
	assert_int_equal(o.newest, next);
	assert_true(o.in_order);
	owner_close(&o);
	folder_remove(folder);
}

typedef void tear_fn(const struct bytes *files, size_t count, const struct bytes *torn,
    enum tear tear, size_t offset);

/* Opening waits for the kernel most of the time, so many at once take no longer. */
static void in_children(const struct bytes *files, size_t count, const struct bytes *torn,
    size_t offsets, tear_fn *tear)
{
	pid_t children[CHILDREN];
	for (size_t c = 0; c < CHILDREN; c++) {
		children[c] = fork();
		if (children[c] != 0)
			continue;
		log_configure(LOG_ERROR, false);
		for (size_t offset = c; offset < offsets; offset += CHILDREN) {
			tear(files, count, torn, TRUNCATE, offset);
			tear(files, count, torn, ZEROS, offset);
		}
		_exit(0);
	}
	for (size_t c = 0; c < CHILDREN; c++) {
		int status = 0;
		assert_int_equal(waitpid(children[c], &status, 0), children[c]);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
}

static void test_torn_at_every_byte(void **state)
{
	char folder[64];
	struct bytes files[32];
	(void)state;
	folder_make_fast(folder);
	append_one_by_one(folder, 1, FIRST_LIFE);
	pid_t child = fork();
	if (child == 0) {
		append_one_by_one(folder, FIRST_LIFE + 1, SECOND_LIFE);
		(void)raise(SIGKILL);
	}
	assert_int_equal(waitpid(child, NULL, 0), child);
	size_t count = read_folder(folder, files, 32), torn = count;
	for (size_t i = 0; i < count; i++)
		if (strncmp(files[i].name, "open-", 5) == 0 && files[i].used > 0)
			torn = i;
	assert_true(torn < count);
	print_message("%s has %zu bytes\n", files[torn].name, files[torn].used);
	in_children(files, count, &files[torn], files[torn].used + 10, tear_at);
	for (size_t i = 0; i < count; i++)
		free(files[i].data);
	folder_remove(folder);
}

static void tear_metadata_at(const struct bytes *files, size_t count, const struct bytes *torn,
    enum tear tear, size_t offset)
{
	char folder[64];
	struct owner o;
	folder_make_fast(folder);
	assert_int_equal(rmdir(folder), 0);
	write_folder(folder, files, count, torn, tear, offset);
	owner_open(&o, folder);
	assert_int_equal(o.newest, FIRST_LIFE);
	assert_true(o.in_order);
	owner_close(&o);
	folder_remove(folder);
}

/* The other file that is written in place: 32 bytes. */
static void test_torn_metadata(void **state)
{
	char folder[64];
	struct bytes files[32];
	(void)state;
	folder_make_fast(folder);
	append_one_by_one(folder, 1, FIRST_LIFE);
	size_t count = read_folder(folder, files, 32), torn = 0;
	for (size_t i = 0; i < count; i++) {
		if (strncmp(files[i].name, "metadata", 8) != 0)
			continue;
		in_children(files, count, &files[i], files[i].size, tear_metadata_at);
		torn++;
	}
	assert_true(torn > 0);
	for (size_t i = 0; i < count; i++)
		free(files[i].data);
	folder_remove(folder);
}

/* What cannot be read now may be read later: it stays. */
static void test_a_disk_that_does_not_give_up_its_bytes(void **state)
{
	char folder[64];
	struct owner o;
	struct tr_error error = { 0 };
	(void)state;
	folder_make_fast(folder);
	uint64_t acknowledged = run_and_kill(folder, 40);
	assert_true(acknowledged >= 40);
	bad_disk = true;
	tr_status status = owner_try(&o, folder, &error);
	bad_disk = false;
	assert_int_equal(status, TR_EIO);
	assert_non_null(strstr(error.text, "Input/output error"));
	owner_finish_loop(&o);
	owner_open(&o, folder);
	assert_true(o.in_order);
	assert_true(o.newest >= acknowledged);
	owner_close(&o);
	folder_remove(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kill_20_times),
		cmocka_unit_test(test_kill_while_founding),
		cmocka_unit_test(test_a_disk_that_does_not_give_up_its_bytes),
		cmocka_unit_test(test_torn_at_every_byte),
		cmocka_unit_test(test_torn_metadata),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
