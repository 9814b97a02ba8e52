#include "client/trainctl/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "client/trainctl/exit_code.h"

/* `timeout` and the like signal the process and then its group: within this time it is one signal. */
#define SAME_MS 250

static atomic_int pending;
static atomic_bool is_pending;
static _Atomic(const char *) left;
static _Atomic int64_t first_ms; /* when the first came; 0: none has */
static int event = -1;           /* readable while one is pending */

static int64_t now_ms(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + 1;
}

static void say_left(void)
{
	const char *line = atomic_load(&left);
	ssize_t written = line != NULL ? write(STDERR_FILENO, line, strlen(line)) : 0;
	(void)written;
}

/* A shell that loses its terminal and the kernel both send SIGHUP: the second one means no more than the first. */
static void on_signal(int number)
{
	int saved = errno;
	int64_t now = now_ms(), none = 0;
	uint64_t one = 1;
	if (!atomic_compare_exchange_strong(&first_ms, &none, now)) {
		if (number != SIGHUP && now - none >= SAME_MS) {
			say_left();
			_exit(interrupt_exit_code(number));
		}
		errno = saved;
		return;
	}
	atomic_store(&pending, number);
	atomic_store(&is_pending, true);
	ssize_t written = event >= 0 ? write(event, &one, sizeof(one)) : 0;
	(void)written;
	errno = saved;
}

void interrupt_begin(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction before, ours = { .sa_handler = on_signal };
	if (event < 0)
		event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	(void)sigemptyset(&ours.sa_mask);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		(void)sigaddset(&ours.sa_mask, numbers[i]);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
			(void)sigaction(numbers[i], &ours, NULL);
}

int interrupt_pending(void)
{
	return atomic_load(&pending);
}

int interrupt_take(void)
{
	uint64_t count;
	int number = atomic_exchange(&pending, 0);
	atomic_store(&is_pending, false);
	ssize_t got = event >= 0 ? read(event, &count, sizeof(count)) : 0;
	(void)got;
	return number;
}

void interrupt_leaves(const char *line)
{
	atomic_store(&left, line);
}

const atomic_bool *interrupt_flag(void)
{
	return &is_pending;
}

tr_status interrupt_error(struct tr_error *error)
{
	return tr_error_set(error, TR_ECANCELLED, "%s", interrupt_words(interrupt_pending()));
}

/* ---- loops ---- */

static void on_event(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	(void)uv_poll_stop(poll); /* it stays readable; the turn is what was wanted */
}

void interrupt_watch_open(struct interrupt_watch *watch, uv_loop_t *loop)
{
	watch->open = event >= 0 && uv_poll_init(loop, &watch->poll, event) == 0;
}

void interrupt_watch_start(struct interrupt_watch *watch)
{
	if (watch->open)
		(void)uv_poll_start(&watch->poll, UV_READABLE, on_event);
}

void interrupt_watch_stop(struct interrupt_watch *watch)
{
	if (watch->open)
		(void)uv_poll_stop(&watch->poll);
}

void interrupt_watch_close(struct interrupt_watch *watch)
{
	if (watch->open)
		uv_close((uv_handle_t *)&watch->poll, NULL);
	watch->open = false;
}

/* ---- what it is called ---- */

const char *interrupt_words(int number)
{
	switch (number) {
	case SIGTERM:
		return "told to end";
	case SIGHUP:
		return "the terminal went away";
	default:
		return "interrupted";
	}
}

int interrupt_exit_code(int number)
{
	switch (number) {
	case SIGTERM:
		return EXIT_TERMINATED;
	case SIGHUP:
		return EXIT_HANGUP;
	default:
		return EXIT_INTERRUPTED;
	}
}
