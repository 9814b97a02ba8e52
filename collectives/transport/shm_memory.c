#include "collectives/transport/shm_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <uv.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

/* What is as large as tensors asks for huge pages on first touch too, which a system of "advise" in
 * /sys/kernel/mm/transparent_hugepage/shmem_enabled gives ("never" is the kernel's default). Rings stay as small as what they use. */
#define ASK_FROM_BYTES ((size_t)8 << 20)

/* Each call waits for a moment of each of the system's processors, so slices are large: a slice's ordinary pages take some 40 ms to come, huge ones 4 to 10. */
#define SLICE_BYTES   ((size_t)64 << 20)
#define SLICE_NS_MOST UINT64_C(500000000)

/* Where the huge pages of the file can be huge pages of the mapping, if it has room for one. */
static void *map_shared(int fd, size_t bytes, int protection)
{
	if (bytes < SHM_HUGE_BYTES || bytes > SIZE_MAX - SHM_HUGE_BYTES)
		return mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
	size_t room = bytes + SHM_HUGE_BYTES;
	unsigned char *all = mmap(NULL, room, PROT_NONE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (all == MAP_FAILED) /* no addresses left for both */
		return mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
	size_t before = -(uintptr_t)all % SHM_HUGE_BYTES;
	(void)munmap(all, room);
	/* Others may have taken the place in between: without MAP_FIXED they keep it, and this mapping lies elsewhere. */
	void *mapped = mmap(all + before, bytes, protection, MAP_SHARED, fd, 0);
	if (mapped != MAP_FAILED && bytes >= ASK_FROM_BYTES)
		(void)madvise(mapped, bytes, MADV_HUGEPAGE); /* without them it is only slower */
	return mapped;
}

bool shm_memory_fill(void *at, size_t bytes)
{
	unsigned char *begin = at, *end = begin + bytes;
	size_t misplaced = -(uintptr_t)begin % SHM_HUGE_BYTES;
	if (bytes < SHM_HUGE_BYTES || misplaced > bytes)
		return true;
	for (begin += misplaced; (size_t)(end - begin) >= SHM_HUGE_BYTES;) {
		size_t left = (size_t)(end - begin) & ~(SHM_HUGE_BYTES - 1);
		size_t slice = left < SLICE_BYTES ? left : SLICE_BYTES;
		uint64_t began = uv_hrtime();
		/* What has no page at all cannot be made a huge one. */
		for (size_t i = 0; i < slice; i += SHM_HUGE_BYTES)
			(void)*(volatile unsigned char *)(begin + i);
		/* EAGAIN: somebody held a page of it just now. */
		if ((madvise(begin, slice, MADV_COLLAPSE) != 0 && errno != EAGAIN) ||
		    uv_hrtime() - began > SLICE_NS_MOST)
			return false;
		begin += slice;
	}
	return true;
}

static tr_status create(const char *name, size_t bytes, int more_seals, int *fd, void **base,
    struct tr_error *error)
{
	int made = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *mapped = MAP_FAILED;
	if (made >= 0 && ftruncate(made, (off_t)bytes) == 0)
		mapped = map_shared(made, bytes, PROT_READ | PROT_WRITE);
	if (mapped != MAP_FAILED &&
	    fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | more_seals) != 0) {
		(void)munmap(mapped, bytes);
		mapped = MAP_FAILED;
	}
	if (mapped == MAP_FAILED) {
		(void)tr_error_set(error, errno == ENOMEM ? TR_ENOMEM : TR_EIO,
		    "cannot make %zu bytes of shared memory (%s): %s", bytes, name,
		    strerror(errno));
		if (made >= 0)
			(void)close(made);
		return errno == ENOMEM ? TR_ENOMEM : TR_EIO;
	}
	*fd = made;
	*base = mapped;
	return TR_OK;
}

tr_status shm_memory_create(const char *name, size_t bytes, int *fd, void **base,
    struct tr_error *error)
{
	return create(name, bytes, 0, fd, base, error);
}

tr_status shm_memory_create_shown(const char *name, size_t bytes, int *fd, void **base,
    struct tr_error *error)
{
	return create(name, bytes, F_SEAL_FUTURE_WRITE, fd, base, error);
}

tr_status shm_memory_check(int fd, uint64_t bytes, struct tr_error *error)
{
	struct stat info;
	struct statfs system;
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
		return tr_error_set(error, TR_EPROTO, "its memory is not sealed against shrinking");
	if (fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC)
		return tr_error_set(error, TR_EPROTO, "its memory is not of ordinary pages");
	if (fstat(fd, &info) != 0 || bytes == 0 || (uint64_t)info.st_size < bytes)
		return tr_error_set(error, TR_EPROTO, "its memory is smaller than it says");
	return TR_OK;
}

tr_status shm_memory_map(int fd, size_t bytes, bool writable, void **base, struct tr_error *error)
{
	tr_status st = shm_memory_check(fd, bytes, error);
	if (st != TR_OK)
		return st;
	void *mapped = map_shared(fd, bytes, PROT_READ | (writable ? PROT_WRITE : 0));
	if (mapped == MAP_FAILED)
		return tr_error_set(error, TR_ENOMEM, "cannot map %zu bytes of its memory: %s",
		    bytes, strerror(errno));
	*base = mapped;
	return TR_OK;
}

int shm_memory_read_only(int fd)
{
	char path[64];
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDONLY | O_CLOEXEC);
}
