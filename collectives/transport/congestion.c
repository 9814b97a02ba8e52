#include "collectives/transport/congestion.h"

#include <linux/inet_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/transport/address.h"
#include "collectives/transport/tcp_path.h"

#define ACK_WAITS_US 5000u /* for another, or a processor */
#define BBR_WINDOW   2u    /* it keeps what goes in so many of the least round trips */
#define BBR_UNIT     256u  /* of its gains (net/ipv4/tcp_bbr.c) */

const char *const *congestion_choices(bool loopback, uint32_t rtt_us)
{
	static const char *const near_by[] = { "cubic", "reno", NULL };
	static const char *const far[] = { "bbr", "cubic", "reno", NULL };
	return loopback || rtt_us < CONGESTION_LAN_RTT_US ? near_by : far;
}

static bool set_one(int fd, const char *name)
{
	return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0;
}

bool congestion_set(int fd, const char *const *choices)
{
	for (; *choices != NULL; choices++)
		if (set_one(fd, *choices))
			return true;
	return false;
}

void congestion_choose(int fd, const char *wanted)
{
	struct sockaddr_storage sa = { 0 };
	struct tcp_path path;
	socklen_t length = sizeof(sa);
	if (wanted != NULL && wanted[0] != '\0' && set_one(fd, wanted))
		return;
	if (getpeername(fd, (struct sockaddr *)&sa, &length) != 0 || sa.ss_family == AF_UNIX)
		return;
	if (!tcp_path_get(fd, &path))
		return;
	(void)congestion_set(fd,
	    congestion_choices(address_is_loopback((struct sockaddr *)&sa), path.rtt_us));
}

void congestion_get(int fd, char name[CONGESTION_NAME_MAX])
{
	socklen_t length = CONGESTION_NAME_MAX - 1;
	memset(name, 0, CONGESTION_NAME_MAX);
	if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0)
		name[0] = '\0';
}

/* 0 before its first acknowledgement. */
static bool bbr_fills_its_window(int fd)
{
	union tcp_cc_info cc = { 0 };
	socklen_t length = sizeof(cc);
	return getsockopt(fd, IPPROTO_TCP, TCP_CC_INFO, &cc, &length) == 0 &&
	    length == sizeof(cc.bbr) && cc.bbr.bbr_cwnd_gain > BBR_UNIT;
}

static bool all_is_well(int fd)
{
	struct tcp_path path = { 0 };
	return tcp_path_get(fd, &path) && !path.mends_loss &&
	    path.now_rtt_us <= BBR_WINDOW * path.rtt_us + ACK_WAITS_US;
}

bool congestion_begin_bbr_anew(int fd)
{
	char used[CONGESTION_NAME_MAX];
	congestion_get(fd, used);
	/* A process may have what it may not ask for. */
	if (strcmp(used, "bbr") != 0 || !bbr_fills_its_window(fd) || !all_is_well(fd) ||
	    congestion_check(used, NULL) != TR_OK || !set_one(fd, "reno"))
		return false;
	return set_one(fd, used);
}

static void list_names(char text[128])
{
	FILE *file = fopen("/proc/sys/net/ipv4/tcp_available_congestion_control", "re");
	(void)snprintf(text, 128, "unknown");
	if (file == NULL)
		return;
	if (fgets(text, 128, file) != NULL)
		text[strcspn(text, "\n")] = '\0';
	(void)fclose(file);
}

tr_status congestion_check(const char *name, struct tr_error *error)
{
	char names[128];
	if (strlen(name) < CONGESTION_NAME_MAX) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0)
			return tr_error_set(error, TR_EIO, "no socket to try congestion %s on",
			    name);
		bool set = set_one(fd, name);
		(void)close(fd);
		if (set)
			return TR_OK;
	}
	list_names(names);
	return tr_error_set(error, TR_EINVAL,
	    "congestion %.32s: this kernel does not offer it; it has: %s", name, names);
}
