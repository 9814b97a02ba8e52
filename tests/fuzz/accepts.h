/* Accepting, as a daemon's port does it (listener.h): connections that are dialled, and an accept4() that fails when the script wants it: no descriptor is
 * left, who dialled has gone, a signal came. For fuzzers with port_end.h; the sockets that listen become local ones, where what is dialled is there at once.
 * Static.
 *
 *	port_start(on_accepted);
 *	accepts_start(on_accepted);
 *	accepts_act(&port.script);    // port_connect dials from then on, perhaps
 *	accepts_end();                // what fails is over; port_connect dials
 */
#ifndef TR_TESTS_FUZZ_ACCEPTS_H
#define TR_TESTS_FUZZ_ACCEPTS_H

#include <sys/resource.h>
#include <sys/un.h>

#include "common/limits.h"
#include "tests/fuzz/port_end.h"

/* So few that more come. */
#undef TR_CONN_UNGREETED_MAX
#define TR_CONN_UNGREETED_MAX (PORT_ENDS - 1)
#include "collectives/transport/listener.c"

#define ACCEPTS_LATE_MS   1000 /* by which a deadline may be missed */
#define ACCEPTS_BACKLOG   128
#define ACCEPTS_GONE_MAX  32 /* that dial and go at once */
#define ACCEPTS_SOME_MS   (2 * ACCEPT_PAUSE_MS)
#define ACCEPTS_NO_LIMIT  0
#define ACCEPTS_ALL_TAKEN 4 /* of which none is left for strangers */

static struct {
	listener_fn *accepted;
	unsigned fails; /* of the next so many */
	int cause;
	rlim_t limit;           /* of descriptors, as it is told */
	uint64_t starved_ms[2]; /* when the plain port, the other had no descriptor; 0: it had */
	struct sockaddr_un names[2];
	unsigned opened; /* names that were given out */
} accepts;

static struct listener **accepts_port(bool secure)
{
	return secure ? &port.secure : &port.plain;
}

/* ---- what the listener is told */

int getrlimit(__rlimit_resource_t resource, struct rlimit *limits)
{
	if (resource != RLIMIT_NOFILE || accepts.limit == ACCEPTS_NO_LIMIT)
		return (int)syscall(SYS_prlimit64, 0, resource, NULL, limits);
	*limits = (struct rlimit){ accepts.limit, accepts.limit };
	return 0;
}

static bool accepts_is_want(int cause)
{
	return cause == EMFILE || cause == ENFILE || cause == ENOBUFS || cause == ENOMEM;
}

int accept4(int fd, __SOCKADDR_ARG from, socklen_t *length, int flags) /* as glibc declares it */
{
	bool secure = port.secure != NULL && port.secure->fd == fd;
	uint64_t *starved_ms = &accepts.starved_ms[secure], now_ms = uv_now(&port.net);
	if (*starved_ms != 0 && now_ms < *starved_ms + ACCEPT_PAUSE_MS)
		live_die("it accepts again at once, without a descriptor");
	*starved_ms = 0;
	int made = -1;
	if (accepts.fails > 0) {
		accepts.fails--;
		errno = accepts.cause;
	} else {
		made = (int)syscall(SYS_accept4, fd, from.__sockaddr__, length, flags);
	}
	int cause = errno;
	if (made < 0 ? accepts_is_want(cause) : made >= first_kept())
		*starved_ms = now_ms;
	errno = cause;
	return made;
}

/* ---- the port */

/* Before the loop looks at it. */
static void accepts_listen(bool secure)
{
	struct listener *listener = *accepts_port(secure);
	struct sockaddr_un *name = &accepts.names[secure];
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	*name = (struct sockaddr_un){ .sun_family = AF_UNIX };
	(void)snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1, "fuzz-%d-%u", (int)getpid(),
	    accepts.opened++);
	if (fd < 0 || bind(fd, (struct sockaddr *)name, sizeof(*name)) != 0 ||
	    listen(fd, ACCEPTS_BACKLOG) != 0 || dup3(fd, listener->fd, O_CLOEXEC) < 0)
		live_die("no socket that listens");
	(void)close(fd);
	accepts.starved_ms[secure] = 0;
}

static void accepts_start(listener_fn *accepted)
{
	accepts.accepted = accepted;
	accepts_listen(false);
	accepts_listen(true);
}

/* -1: too many wait to be accepted. */
static int accepts_dial(bool secure)
{
	const struct sockaddr_un *name = &accepts.names[secure];
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		live_die("no sockets");
	if (connect(fd, (const struct sockaddr *)name, sizeof(*name)) == 0)
		return fd;
	(void)close(fd);
	return -1;
}

static void accepts_come_and_go(bool secure, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		int fd = accepts_dial(secure);
		if (fd >= 0)
			(void)close(fd);
	}
}

/* It ends, whatever waits there, and is opened again. */
static void accepts_again(bool secure)
{
	struct tr_error error = { 0 };
	listener_stop(*accepts_port(secure));
	live_need(listener_start(&port.net, "127.0.0.1:0", false, secure ? tls_end_victims : NULL,
	              accepts.accepted, NULL, accepts_port(secure), &error),
	    &error, "a port again");
	accepts_listen(secure);
}

/* ---- what the script lets happen */

static void accepts_act(struct script *script)
{
	static const int causes[] = { EMFILE, ENFILE, ENOBUFS, ENOMEM, ECONNABORTED, EINTR, EPROTO,
		EAGAIN, EPERM };
	uint8_t what = script_byte(script);
	switch (what % 8) {
	case 0:
		port.dials = port.dials == NULL ? accepts_dial : NULL;
		break;
	case 1:
	case 2:
		port.dials = accepts_dial;
		accepts.cause = causes[what / 8 % (sizeof(causes) / sizeof(causes[0]))];
		accepts.fails = script_byte(script);
		break;
	case 3:
		port.dials = accepts_dial;
		accepts.limit = accepts.limit == ACCEPTS_NO_LIMIT ? ACCEPTS_ALL_TAKEN
		                                                  : ACCEPTS_NO_LIMIT;
		break;
	case 4:
		accepts_again((what & 8) != 0);
		break;
	default:
		accepts_come_and_go(what % 2 == 1, 1 + what / 8 % ACCEPTS_GONE_MAX);
	}
}

/* What waits for a descriptor gets one in its time. */
static void accepts_end(void)
{
	accepts.fails = 0;
	accepts.limit = ACCEPTS_NO_LIMIT;
	port.dials = accepts_dial;
	accepts_come_and_go(false, 1);
	accepts_come_and_go(true, 1);
	for (uint64_t from_ns = one.now_ns; one.now_ns < from_ns + ACCEPTS_SOME_MS * 1000000;)
		one_wait(ONE_IDLE_NS);
	for (unsigned i = 0; i < 2; i++)
		if (accepts.starved_ms[i] != 0)
			live_die("it does not accept again");
}

static void accepts_look(void)
{
	uint64_t now_ms = uv_now(&port.net);
	for (unsigned i = 0; i < 2; i++) {
		const struct listener *listener = *accepts_port(i == 1);
		unsigned count = 0;
		for (const struct waiting *w = listener->oldest; w != NULL; w = w->newer, count++)
			if (w->deadline_ms + ACCEPTS_LATE_MS < now_ms)
				live_die("who says nothing is kept for too long");
		if (count != listener->waiting_count || count > TR_CONN_UNGREETED_MAX)
			live_die("more say nothing than are counted, or than may be");
		if (!uv_is_active((const uv_handle_t *)&listener->poll) &&
		    !uv_is_active((const uv_handle_t *)&listener->pause))
			live_die("it neither accepts nor will");
		if (count > 0 && !uv_is_active((const uv_handle_t *)&listener->expire))
			live_die("who says nothing is kept for ever");
	}
}

#endif
