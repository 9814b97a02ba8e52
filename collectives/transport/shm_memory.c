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

/* Pieces as large as tensors have huge pages where the system lets shared memory have them when asked ("advise" in
 * /sys/kernel/mm/transparent_hugepage/shmem_enabled; "never" is the kernel's default): a tenth of a large op's time. Rings stay as small as what they use. */
#define HUGE_FROM_BYTES ((size_t)8 << 20)

static void ask_for_huge_pages(void *base, size_t bytes)
{
	if (bytes >= HUGE_FROM_BYTES)
		(void)madvise(base, bytes, MADV_HUGEPAGE); /* without them it is only slower */
}

static tr_status create(const char *name, size_t bytes, int more_seals, int *fd, void **base,
    struct tr_error *error)
{
	int made = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *mapped = MAP_FAILED;
	if (made >= 0 && ftruncate(made, (off_t)bytes) == 0)
		mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
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
	ask_for_huge_pages(mapped, bytes);
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
	void *mapped = mmap(NULL, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
	if (mapped == MAP_FAILED)
		return tr_error_set(error, TR_ENOMEM, "cannot map %zu bytes of its memory: %s",
		    bytes, strerror(errno));
	ask_for_huge_pages(mapped, bytes);
	*base = mapped;
	return TR_OK;
}

int shm_memory_read_only(int fd)
{
	char path[64];
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDONLY | O_CLOEXEC);
}
