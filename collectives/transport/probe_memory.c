#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "collectives/transport/probe.h"
#include "collectives/transport/probe_io.h"

#define COPY_BYTES \
	((size_t)16 << 20) /* more than a processor's own cache holds, as a model's gradients are */
#define COPIES 4
#define WAKES  200

/* One thread writes and wakes, the other reads what it wrote: what a worker and its engine do. */
struct ping {
	int to, from;
};

static bool wake(int fd)
{
	const uint64_t one = 1;
	return write(fd, &one, sizeof(one)) == (ssize_t)sizeof(one);
}

static bool wait_for(int fd)
{
	uint64_t count;
	return read(fd, &count, sizeof(count)) == (ssize_t)sizeof(count);
}

static void *answer(void *arg)
{
	const struct ping *ping = arg;
	for (unsigned i = 0; i < WAKES && wait_for(ping->to); i++)
		if (!wake(ping->from))
			break;
	return NULL;
}

/* 0: it cannot be told. */
static double least_wake_us(const struct ping *ping)
{
	uint64_t least_us = UINT64_MAX, ten_us = probe_now_us();
	/* The clock counts microseconds: ten at a time. */
	for (unsigned i = 1; i <= WAKES; i++) {
		if (!wake(ping->to) || !wait_for(ping->from))
			return 0;
		if (i % 10 != 0)
			continue;
		uint64_t now_us = probe_now_us();
		least_us = now_us - ten_us < least_us ? now_us - ten_us : least_us;
		ten_us = now_us;
	}
	return (double)least_us / 10;
}

static double measure_wakes(void)
{
	struct ping ping = { eventfd(0, EFD_CLOEXEC), eventfd(0, EFD_CLOEXEC) };
	pthread_t thread;
	double us = 0;
	if (ping.to >= 0 && ping.from >= 0 && pthread_create(&thread, NULL, answer, &ping) == 0) {
		us = least_wake_us(&ping);
		(void)pthread_join(thread, NULL);
	}
	if (ping.to >= 0)
		(void)close(ping.to);
	if (ping.from >= 0)
		(void)close(ping.from);
	return us * 1e-6;
}

struct writing {
	uint8_t *bytes;
	int value;
};

static void *write_all(void *arg)
{
	const struct writing *writing = arg;
	memset(writing->bytes, writing->value, COPY_BYTES);
	return NULL;
}

/* What another thread wrote last, copied: the best of some. */
static double measure_copies(void)
{
	struct writing writing = { malloc(COPY_BYTES), 0 };
	uint8_t *copy = malloc(COPY_BYTES);
	uint64_t least_us = UINT64_MAX;
	for (int i = 0; i < COPIES && writing.bytes != NULL && copy != NULL; i++) {
		pthread_t thread;
		writing.value = i + 1;
		if (pthread_create(&thread, NULL, write_all, &writing) != 0)
			break;
		(void)pthread_join(thread, NULL);
		memset(copy, 0, COPY_BYTES); /* its pages are there, and hold something else */
		uint64_t from_us = probe_now_us();
		memcpy(copy, writing.bytes, COPY_BYTES);
		uint64_t us = probe_now_us() - from_us;
		if (copy[(size_t)us % COPY_BYTES] == (uint8_t)writing.value && us < least_us)
			least_us = us > 0 ? us : 1;
	}
	free(writing.bytes);
	free(copy);
	return least_us == UINT64_MAX ? 0 : (double)COPY_BYTES / (1e-6 * (double)least_us);
}

tr_status probe_memory(struct probe_figures *figures, struct tr_error *error)
{
	double bytes_per_s = measure_copies();
	*figures = (struct probe_figures){ measure_wakes(), bytes_per_s, bytes_per_s };
	if (figures->round_trip_s > 0 && bytes_per_s > 0)
		return TR_OK;
	return tr_error_set(error, TR_ENOMEM,
	    "no memory or thread to measure what workers of this host share");
}
