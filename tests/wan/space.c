#include "tests/wan/space.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <arpa/inet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICE         "wan0"
#define DEVICE_QUEUE   20000 /* packets that wait for the relay: it shall not be what loses them */
#define CLEAR_PAUSE_US 2000

static tr_status failed(struct tr_error *error, const char *what)
{
	return tr_error_set(error, TR_EIO, "%s: %s", what, strerror(errno));
}

/* ---- inside ---- */

static bool request(int fd, unsigned long number, const char *device, struct ifreq *ifr)
{
	(void)snprintf(ifr->ifr_name, sizeof(ifr->ifr_name), "%s", device);
	return ioctl(fd, number, ifr) == 0;
}

static bool up(int fd, const char *device)
{
	struct ifreq ifr = { 0 };
	if (!request(fd, SIOCGIFFLAGS, device, &ifr))
		return false;
	ifr.ifr_flags |= IFF_UP;
	return request(fd, SIOCSIFFLAGS, device, &ifr);
}

static bool set_address(int fd, unsigned long number, const char *text)
{
	struct ifreq ifr = { 0 };
	struct sockaddr_in address = { .sin_family = AF_INET };
	if (inet_pton(AF_INET, text, &address.sin_addr) != 1)
		return false;
	memcpy(&ifr.ifr_addr, &address, sizeof(address));
	return request(fd, number, DEVICE, &ifr);
}

static int open_device(void)
{
	struct ifreq ifr = { 0 };
	int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	ifr.ifr_flags = IFF_TUN | IFF_NO_PI;
	if (fd >= 0 && !request(fd, TUNSETIFF, DEVICE, &ifr)) {
		(void)close(fd);
		return -1;
	}
	return fd;
}

/* So that nothing is said that nobody asked for. */
static void without_ipv6(void)
{
	int fd = open("/proc/sys/net/ipv6/conf/all/disable_ipv6", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	(void)!write(fd, "1", 1);
	(void)close(fd);
}

static tr_status furnish(struct space *space, const char *address, unsigned mtu,
    struct tr_error *error)
{
	struct ifreq size = { .ifr_mtu = (int)mtu }, queue = { .ifr_qlen = DEVICE_QUEUE };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	tr_status st = TR_OK;
	if (fd < 0)
		return failed(error, "a socket in a namespace");
	without_ipv6();
	if (!up(fd, "lo"))
		st = failed(error, "loopback");
	if (st == TR_OK && address != NULL && (space->device = open_device()) < 0)
		st = failed(error, "/dev/net/tun");
	if (st == TR_OK && address != NULL &&
	    !(request(fd, SIOCSIFMTU, DEVICE, &size) && request(fd, SIOCSIFTXQLEN, DEVICE, &queue) &&
	        set_address(fd, SIOCSIFADDR, address) &&
	        set_address(fd, SIOCSIFNETMASK, "255.255.255.0") && up(fd, DEVICE)))
		st = failed(error, DEVICE);
	(void)close(fd);
	return st;
}

/* ---- the interface ---- */

tr_status space_enter(int net, struct tr_error *error)
{
	return setns(net, CLONE_NEWNET) == 0 ? TR_OK : failed(error, "entering a namespace");
}

tr_status space_create(struct space *space, const char *address, unsigned mtu,
    struct tr_error *error)
{
	int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	*space = (struct space){ -1, -1 };
	if (home < 0)
		return failed(error, "/proc/self/ns/net");
	tr_status st = TR_OK;
	if (unshare(CLONE_NEWNET) != 0) {
		st = failed(error, "a network namespace (are you root?)");
	} else {
		space->net = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
		st = space->net < 0 ? failed(error, "/proc/self/ns/net")
		                    : furnish(space, address, mtu, error);
		if (setns(home, CLONE_NEWNET) != 0)
			st = failed(error, "the way back from a namespace");
	}
	(void)close(home);
	if (st != TR_OK)
		space_close(space);
	return st;
}

void space_close(struct space *space)
{
	if (space->device >= 0)
		(void)close(space->device);
	if (space->net >= 0)
		(void)close(space->net);
	*space = (struct space){ -1, -1 };
}

/* ---- who is in there ---- */

static bool lives_in(pid_t pid, const ino_t *nets, unsigned count)
{
	char path[64];
	struct stat found;
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
	if (stat(path, &found) != 0)
		return false;
	for (unsigned i = 0; i < count; i++)
		if (nets[i] == found.st_ino)
			return true;
	return false;
}

/* Looked at while its number is held, so that it is no other process that is ended. */
static bool end_if_inside(pid_t pid, const ino_t *nets, unsigned count)
{
	int fd = pidfd_open(pid, 0);
	if (fd < 0)
		return false;
	bool inside = lives_in(pid, nets, count);
	if (inside)
		(void)pidfd_send_signal(fd, SIGKILL, NULL, 0);
	(void)close(fd);
	return inside;
}

static unsigned end_all(const ino_t *nets, unsigned count)
{
	unsigned ended = 0;
	DIR *folder = opendir("/proc");
	if (folder == NULL)
		return 0;
	for (const struct dirent *entry;
	     (entry = readdir(folder)) != NULL;) { // NOLINT(concurrency-mt-unsafe)
		pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
		if (pid > 0 && pid != getpid())
			ended += end_if_inside(pid, nets, count);
	}
	(void)closedir(folder);
	return ended;
}

void space_clear(const struct space *spaces, unsigned count)
{
	ino_t nets[SPACES_MAX];
	struct stat found;
	unsigned known = 0;
	for (unsigned i = 0; i < count && i < SPACES_MAX; i++)
		if (spaces[i].net >= 0 && fstat(spaces[i].net, &found) == 0)
			nets[known++] = found.st_ino;
	while (known > 0 && end_all(nets, known) > 0)
		(void)usleep(CLEAR_PAUSE_US);
}
