/* Memory that a mesh gives back: it is zeroed when it is handed out again, the system has its pages meanwhile, and changes of mesh in turn ask the group for no more than the first two did. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/worker/mesh_memory.h"

/* A stand-in for the group's memory: one shared file, as an attached group's is. */
enum { ROOM = 64 << 20 };
struct tr_group {
	int fd;
	char *base;
	size_t used;
};

void *tr_alloc_sparse(tr_group *group, size_t bytes)
{
	bytes = (bytes + 63) / 64 * 64;
	if (bytes > ROOM - group->used)
		return NULL;
	group->used += bytes;
	return group->base + group->used - bytes;
}

static size_t resident(const tr_group *group)
{
	struct stat info;
	assert_int_equal(fstat(group->fd, &info), 0);
	return (size_t)info.st_blocks * 512;
}

static void begin(tr_group *group, struct mesh_memory *memory)
{
	*group = (struct tr_group){ .fd = memfd_create("mesh-memory", MFD_CLOEXEC) };
	assert_true(group->fd >= 0 && ftruncate(group->fd, ROOM) == 0);
	group->base = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, group->fd, 0);
	assert_true(group->base != MAP_FAILED);
	mesh_memory_init(group, memory);
}

static void end(tr_group *group, struct mesh_memory *memory)
{
	mesh_memory_finish(memory);
	assert_int_equal(munmap(group->base, ROOM), 0);
	assert_int_equal(close(group->fd), 0);
}

static char *take_filled(struct mesh_memory *memory, size_t bytes)
{
	char *data = mesh_memory_take(memory, bytes);
	assert_non_null(data);
	for (size_t i = 0; i < bytes; i++)
		assert_int_equal(data[i], 0);
	memset(data, 0x5a, bytes);
	return data;
}

static void pages_go_back(void **state)
{
	(void)state;
	tr_group group;
	struct mesh_memory memory;
	begin(&group, &memory);
	char *kept = take_filled(&memory, 100), *large = take_filled(&memory, 8 << 20);
	char *behind = take_filled(&memory, 100);
	assert_true(resident(&group) >= 8 << 20);
	mesh_memory_give(&memory, large);
	mesh_memory_give(&memory, NULL);
	assert_true(resident(&group) < 1 << 20);
	for (size_t i = 0; i < 100; i++)
		assert_true(kept[i] == 0x5a && behind[i] == 0x5a);
	assert_ptr_equal(take_filled(&memory, 5 << 20), large);
	assert_true(take_filled(&memory, 5 << 20) != large);
	assert_int_equal(mesh_memory_bytes(&memory), 200 + (13 << 20));
	assert_null(mesh_memory_take(&memory, ROOM));
	end(&group, &memory);
}

/* As two meshes in turn: while one is made, the other's shards are still held. */
static void changes_in_turn_take_no_more(void **state)
{
	(void)state;
	static const size_t sizes[2][4] = { { 3 << 20, 3 << 20, 3 << 20, 70000 },
		{ 6 << 20, 6 << 20, 6 << 20, 90000 } };
	tr_group group;
	struct mesh_memory memory;
	char *arrays[2][4] = { 0 };
	size_t after_two = 0, pages = 0;
	begin(&group, &memory);
	for (unsigned change = 0; change < 40; change++) {
		for (unsigned i = 0; i < 4; i++)
			arrays[change % 2][i] = take_filled(&memory, sizes[change % 2][i]);
		for (unsigned i = 0; i < 4; i++)
			mesh_memory_give(&memory, arrays[(change + 1) % 2][i]);
		if (change == 1)
			after_two = mesh_memory_bytes(&memory);
		if (change % 2 == 1) {
			pages = pages == 0 ? resident(&group) : pages;
			assert_true(resident(&group) <= pages + 4 * 4096);
		}
	}
	assert_int_equal(mesh_memory_bytes(&memory), after_two);
	end(&group, &memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_go_back),
		cmocka_unit_test(changes_in_turn_take_no_more),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
