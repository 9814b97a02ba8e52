/* Defines fsync, so that the linker takes this instead of the C library's: the first one of a file after slow_disk_begin returns only when somebody has told often enough that it gets on. */
#ifndef TR_TESTS_UNIT_SLOW_DISK_H
#define TR_TESTS_UNIT_SLOW_DISK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLOW_DISK_TELLS 3
#define SLOW_DISK_TRIES 1500 /* of 10 ms: then nobody will */

static struct {
	atomic_bool waits;
	atomic_uint told;
	atomic_bool in_vain;
	unsigned tries;
} slow_disk;

static inline void slow_disk_begin(unsigned tries)
{
	slow_disk.told = 0;
	slow_disk.in_vain = false;
	slow_disk.tries = tries;
	slow_disk.waits = true;
}

static inline void slow_disk_tell(void *arg)
{
	(void)arg;
	slow_disk.told++;
}

int fsync(int fd)
{
	struct stat about;
	if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) &&
	    atomic_exchange(&slow_disk.waits, false)) {
		unsigned from = slow_disk.told, tries = 0;
		while (slow_disk.told - from < SLOW_DISK_TELLS && tries++ < slow_disk.tries)
			(void)usleep(10000);
		slow_disk.in_vain = slow_disk.told - from < SLOW_DISK_TELLS;
	}
	return (int)syscall(SYS_fsync, fd);
}

#endif
