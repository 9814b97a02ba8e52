/* For fuzzers of code that blocks: its waits and its clock are ours (poll, ppoll and clock_gettime are interposed), so that all runs in one thread. While
 * it waits the input acts, a turn a millisecond, and then time passes: a test of a deadline of seconds takes none. Static.
 *
 *	waits_begin(turn, 20);    // each look at the clock takes 20 us
 *	st = probe_dial(...);     // turn() is called while it waits, with the real functions
 *	waits_end();
 */
#ifndef TR_TESTS_FUZZ_WAITS_H
#define TR_TESTS_FUZZ_WAITS_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WAITS_TURN_NS UINT64_C(1000000)

static struct {
	bool ours; /* the code under test is at work */
	uint64_t now_ns, look_ns;
	long patience_ns; /* in which the kernel brings what was sent, as it does not always at once */
	/* false: nothing more comes unless the other end speaks: time may pass at once. */
	bool (*turn)(void);
} waits = { .now_ns = UINT64_C(1000000000), .patience_ns = 50000 };

static void waits_begin(bool (*turn)(void), uint64_t look_us)
{
	waits.turn = turn;
	waits.look_ns = look_us * 1000;
	waits.ours = true;
}

static void waits_end(void)
{
	waits.ours = false;
}

/* One turn of the input's, while the code under test is at work. */
static bool waits_turn(void)
{
	waits.ours = false;
	bool more = waits.turn();
	waits.ours = true;
	return more;
}

static int waits_poll(struct pollfd *fds, nfds_t count, uint64_t wait_ns)
{
	uint64_t until_ns = waits.now_ns + wait_ns;
	for (;;) {
		bool more = wait_ns > 0 && waits_turn();
		struct timespec now = { 0, more || wait_ns == 0 ? 0 : waits.patience_ns };
		int ready = (int)syscall(SYS_ppoll, fds, count, &now, NULL, 0);
		if (ready != 0 || waits.now_ns >= until_ns)
			return ready;
		uint64_t left_ns = until_ns - waits.now_ns;
		waits.now_ns += more && left_ns > WAITS_TURN_NS ? WAITS_TURN_NS : left_ns;
	}
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *limit, const sigset_t *mask)
{
	if (waits.ours && limit != NULL && mask == NULL)
		return waits_poll(fds, count,
		    (uint64_t)limit->tv_sec * 1000000000 + (uint64_t)limit->tv_nsec);
	struct timespec left = limit != NULL ? *limit : (struct timespec){ 0 };
	return (int)syscall(SYS_ppoll, fds, count, limit != NULL ? &left : NULL, mask, _NSIG / 8);
}

int poll(struct pollfd *fds, nfds_t count, int wait_ms)
{
	if (waits.ours && wait_ms >= 0)
		return waits_poll(fds, count, (uint64_t)wait_ms * 1000000);
	struct timespec limit = { wait_ms / 1000, wait_ms % 1000 * 1000000L };
	return (int)syscall(SYS_ppoll, fds, count, wait_ms < 0 ? NULL : &limit, NULL, 0);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	if (!waits.ours)
		return (int)syscall(SYS_clock_gettime, clock, now);
	waits.now_ns += waits.look_ns;
	*now = (struct timespec){ (time_t)(waits.now_ns / 1000000000),
		(long)(waits.now_ns % 1000000000) };
	return 0;
}

#endif
