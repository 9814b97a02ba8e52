#include "common/log_writer.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define END_WAIT_MS 1000

static struct {
	pthread_mutex_t lock;
	pthread_cond_t more;
	char ring[LOG_WRITER_BYTES];
	size_t head, used; /* bytes of whole entries */
	unsigned long left_out;
	log_writer_left_out *say;
	atomic_bool started;
	atomic_ulong put, done; /* lines; signal handlers may look at these alone */
} writer = { .lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER };

/* Before each line in the ring. */
struct entry {
	size_t bytes;
	unsigned long lines; /* what is lost with it */
};

static void ring_put(const void *data, size_t bytes)
{
	size_t at = (writer.head + writer.used) % sizeof(writer.ring);
	size_t first = sizeof(writer.ring) - at < bytes ? sizeof(writer.ring) - at : bytes;
	memcpy(writer.ring + at, data, first);
	memcpy(writer.ring, (const char *)data + first, bytes - first);
	writer.used += bytes;
}

static void ring_take(void *data, size_t bytes)
{
	size_t left = sizeof(writer.ring) - writer.head, first = left < bytes ? left : bytes;
	memcpy(data, writer.ring + writer.head, first);
	memcpy((char *)data + first, writer.ring, bytes - first);
	writer.head = (writer.head + bytes) % sizeof(writer.ring);
	writer.used -= bytes;
}

/* Under the lock. */
static bool append(const char *line, size_t bytes, unsigned long lines)
{
	struct entry entry = { bytes, lines };
	if (bytes > LOG_WRITER_LINE_MAX || writer.used + sizeof(entry) + bytes > sizeof(writer.ring))
		return false;
	ring_put(&entry, sizeof(entry));
	ring_put(line, bytes);
	atomic_fetch_add(&writer.put, 1);
	return true;
}

/* Under the lock: what was left out comes before what follows it. */
static bool append_left_out(void)
{
	char line[LOG_WRITER_LINE_MAX];
	if (writer.left_out == 0)
		return true;
	size_t bytes = writer.say(writer.left_out, line);
	/* One that just fits would have no line after it, and be told once for each. */
	if (writer.used > sizeof(writer.ring) / 2 || !append(line, bytes, writer.left_out))
		return false;
	writer.left_out = 0;
	return true;
}

bool log_writer_put(const char *line, size_t bytes)
{
	if (!atomic_load(&writer.started))
		return false;
	(void)pthread_mutex_lock(&writer.lock);
	if (!append_left_out() || !append(line, bytes, 1))
		writer.left_out++;
	(void)pthread_cond_signal(&writer.more);
	(void)pthread_mutex_unlock(&writer.lock);
	return true;
}

/* One write a line, so that lines of several processes do not mix. False: it did not get there. */
static bool write_line(const char *line, size_t bytes)
{
	while (bytes > 0) {
		ssize_t wrote = write(STDERR_FILENO, line, bytes);
		if (wrote < 0 && errno == EAGAIN) {
			struct pollfd ready = { .fd = STDERR_FILENO, .events = POLLOUT };
			(void)poll(&ready, 1, -1);
		} else if (wrote < 0 && errno != EINTR) {
			return false;
		} else if (wrote > 0) {
			line += wrote;
			bytes -= (size_t)wrote;
		}
	}
	return true;
}

static void *run(void *arg)
{
	char line[LOG_WRITER_LINE_MAX];
	struct entry entry;
	(void)arg;
	(void)pthread_setname_np(pthread_self(), "log");
	(void)pthread_mutex_lock(&writer.lock);
	for (;;) {
		/* Those left out are told when there is room, also where nobody logs any more. */
		if (writer.used == 0)
			(void)append_left_out();
		if (writer.used == 0) {
			(void)pthread_cond_wait(&writer.more, &writer.lock);
			continue;
		}
		ring_take(&entry, sizeof(entry));
		ring_take(line, entry.bytes);
		(void)pthread_mutex_unlock(&writer.lock);
		bool written = write_line(line, entry.bytes);
		(void)pthread_mutex_lock(&writer.lock);
		atomic_fetch_add(&writer.done, 1);
		if (!written) {
			/* A full disk, say: told with the next line, not in a loop. */
			writer.left_out += entry.lines;
			if (writer.used == 0)
				(void)pthread_cond_wait(&writer.more, &writer.lock);
		}
	}
	return NULL;
}

/* Calls only what a signal handler may. */
static void wait_for_the_last(void)
{
	const struct timespec ms = { .tv_nsec = 1000000 };
	unsigned long last = atomic_load(&writer.put);
	for (int i = 0; i < END_WAIT_MS && atomic_load(&writer.done) < last; i++)
		(void)nanosleep(&ms, NULL);
}

/* Once; then the signal takes its course, also where another process sent it. */
static void fatal(int number)
{
	wait_for_the_last();
	(void)raise(number);
}

static void catch_fatal(void)
{
	static const int numbers[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT };
	struct sigaction action = { .sa_handler = fatal, .sa_flags = (int)SA_RESETHAND }, found;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (sigaction(numbers[i], NULL, &found) == 0 && found.sa_handler == SIG_DFL)
			(void)sigaction(numbers[i], &action, NULL);
}

/* There is no thread in a child. */
static void in_child(void)
{
	atomic_store(&writer.started, false);
}

bool log_writer_start(log_writer_left_out *left_out)
{
	pthread_t thread;
	sigset_t all, before;
	if (atomic_load(&writer.started))
		return true;
	writer.say = left_out;
	/* Signals are for the program's own threads. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	int failed = pthread_create(&thread, NULL, run, NULL);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed != 0)
		return false;
	(void)pthread_detach(thread);
	(void)pthread_atfork(NULL, NULL, in_child);
	(void)atexit(wait_for_the_last);
	catch_fatal();
	atomic_store(&writer.started, true);
	return true;
}
