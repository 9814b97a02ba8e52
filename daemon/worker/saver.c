#include "daemon/worker/saver.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common/arena.h"
#include "daemon/checkpoint/bulk_file.h"
#include "daemon/worker/patience.h"

struct saver {
	struct checkpoint_folder folder;
	const struct layout *layout;
	struct optim_arrays state, copy; /* what is copied; and what it is written from */
	char *memory;                    /* of `copy`, all of it */
	size_t bytes;                    /* of that */
	pthread_t preparer;
	bool prepares;     /* that thread exists and was not joined yet */
	atomic_bool hurry; /* it is to end */
	bool works;        /* instead: */
	struct saver_work work;
	struct saver_parts parts; /* what it is then, of such */
	struct manifest manifest;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	bool started; /* the thread exists and was not joined yet */
	bool copied;  /* under lock: `state` is needed no more */
	bool done;    /* under lock: the thread has written result */
	struct steps steps;
	double started_s, waited_s; /* the caller's */
	struct saver_result result;
};

tr_status saver_create(const struct checkpoint_folder *folder, const struct layout *layout,
    struct saver **out, struct tr_error *error)
{
	struct saver *saver = calloc(1, sizeof(*saver));
	if (saver == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for the writer of checkpoints");
	saver->folder = *folder;
	saver->layout = layout;
	(void)pthread_mutex_init(&saver->lock, NULL);
	patience_condition(&saver->changed);
	*out = saver;
	return TR_OK;
}

static void end_preparing(struct saver *saver)
{
	if (!saver->prepares)
		return;
	atomic_store(&saver->hurry, true);
	(void)pthread_join(saver->preparer, NULL);
	saver->prepares = false;
}

void saver_destroy(struct saver *saver)
{
	if (saver == NULL)
		return;
	if (saver->started)
		(void)pthread_join(saver->thread, NULL);
	end_preparing(saver);
	(void)pthread_mutex_destroy(&saver->lock);
	(void)pthread_cond_destroy(&saver->changed);
	free(saver->memory);
	free(saver);
}

static void set(struct saver *saver, bool *what)
{
	(void)pthread_mutex_lock(&saver->lock);
	*what = true;
	(void)pthread_cond_broadcast(&saver->changed);
	(void)pthread_mutex_unlock(&saver->lock);
}

static void copy(struct saver *saver)
{
	size_t bytes = saver->layout->count * sizeof(float);
	memcpy(saver->copy.params, saver->state.params, bytes);
	memcpy(saver->copy.first, saver->state.first, bytes);
	memcpy(saver->copy.second, saver->state.second, bytes);
	if (saver->state.outer != NULL)
		memcpy(saver->copy.outer, saver->state.outer, bytes);
	set(saver, &saver->copied);
}

static void copy_parts(void *arg)
{
	const struct saver *saver = arg;
	saver->parts.copy(saver->parts.source.arg);
}

static tr_status write_parts(void *arg, const struct progress *steps,
    char path[CHECKPOINT_PATH_MAX], struct tr_error *error)
{
	struct saver *saver = arg;
	return checkpoint_write_from(&saver->folder, saver->layout, &saver->parts.source,
	    &saver->manifest, NULL, steps, path, error);
}

static tr_status write_state(struct saver *saver, char path[CHECKPOINT_PATH_MAX],
    struct tr_error *error)
{
	struct progress steps = steps_progress(&saver->steps);
	if (saver->works)
		return saver->work.write(saver->work.arg, &steps, path, error);
	return checkpoint_write(&saver->folder, saver->layout, &saver->copy, &saver->manifest, NULL,
	    &steps, path, error);
}

/* Of this thread: the step that begins waits for the copy, nobody for what is written then. */
#define COPY_NICE  5
#define WRITE_NICE 19
/* Of parameters, from which on writing is felt. A small checkpoint costs nothing, and is there before the next one begins, however soon that is. */
#define LARGE_BYTES (2u << 20)

/* Of root's daemon that was started with nice 10 it would be a higher priority. */
static void yield_to_training(int nice)
{
	if (getpriority(PRIO_PROCESS, 0) < nice)
		(void)setpriority(PRIO_PROCESS, 0, nice);
}

static double seconds_of(clockid_t clock)
{
	struct timespec now;
	(void)clock_gettime(clock, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *save(void *arg)
{
	struct saver *saver = arg;
	struct saver_result *r = &saver->result;
	yield_to_training(COPY_NICE);
	end_preparing(saver); /* what is left of it the copy does */
	if (saver->works) {
		saver->work.copy(saver->work.arg);
		set(saver, &saver->copied);
	} else {
		copy(saver);
	}
	if (saver->layout->count * sizeof(float) >= LARGE_BYTES)
		yield_to_training(WRITE_NICE);
	r->step = saver->manifest.step;
	r->path[0] = '\0';
	r->status = write_state(saver, r->path, &r->error);
	r->cpu_s = seconds_of(CLOCK_THREAD_CPUTIME_ID);
	r->took_s = seconds_of(CLOCK_MONOTONIC) - saver->started_s;
	set(saver, &saver->done);
	return NULL;
}

tr_status saver_check(const struct saver *saver, const struct manifest *manifest,
    struct tr_error *error)
{
	if (!saver->started)
		return TR_OK;
	return tr_error_set(error, TR_EAGAIN,
	    "checkpoint of step %llu left out: the one of step %llu is still being written",
	    (unsigned long long)manifest->step, (unsigned long long)saver->manifest.step);
}

static size_t whole_pages(size_t bytes, size_t page)
{
	return (bytes + page - 1) / page * page;
}

/* As the files have it: parameters, then from a page's beginning on the moments, one array behind the other. What lies so goes to the disk without another copy. */
static bool make_room(struct saver *saver, bool outer)
{
	size_t bytes = saver->layout->count * sizeof(float);
	size_t params = whole_pages(bytes, BULK_ALIGNMENT);
	size_t all = whole_pages(params + (outer ? 3 : 2) * bytes, BULK_ALIGNMENT);
	if (saver->memory != NULL && (saver->copy.outer != NULL) == outer)
		return true;
	end_preparing(saver);
	free(saver->memory);
	bool large = all >= ARENA_HUGE_PAGE;
	char *memory = large ? aligned_alloc(ARENA_HUGE_PAGE, whole_pages(all, ARENA_HUGE_PAGE))
	                     : aligned_alloc(BULK_ALIGNMENT, all);
	saver->memory = memory;
	saver->bytes = all;
	if (memory == NULL)
		return false;
	if (large)
		(void)madvise(memory, all / ARENA_HUGE_PAGE * ARENA_HUGE_PAGE, MADV_HUGEPAGE);
	saver->copy = (struct optim_arrays){ .params = (float *)(void *)memory,
		.first = (float *)(void *)(memory + params),
		.second = (float *)(void *)(memory + params + bytes),
		.outer = outer ? (float *)(void *)(memory + params + 2 * bytes) : NULL };
	return true;
}

/* Pages come when they are first written. */
static void *prepare(void *arg)
{
	struct saver *saver = arg;
	yield_to_training(WRITE_NICE);
	for (size_t at = 0; at < saver->bytes && !atomic_load(&saver->hurry); at += BULK_ALIGNMENT)
		*(volatile char *)(saver->memory + at) = 0;
	return NULL;
}

void saver_prepare(struct saver *saver, bool outer)
{
	if (saver->memory != NULL || saver->started || !make_room(saver, outer))
		return;
	atomic_store(&saver->hurry, false);
	saver->prepares = pthread_create(&saver->preparer, NULL, prepare, saver) == 0;
}

static tr_status start(struct saver *saver, const struct manifest *manifest, struct tr_error *error)
{
	atomic_store(&saver->hurry, true);
	saver->manifest = *manifest;
	saver->copied = false;
	saver->done = false;
	steps_take(&saver->steps);
	int failed = pthread_create(&saver->thread, NULL, save, saver);
	if (failed != 0)
		return tr_error_set(error, TR_ELIMIT,
		    "checkpoint of step %llu left out: cannot start a thread: %s",
		    (unsigned long long)manifest->step, strerror(failed));
	saver->waited_s = seconds_of(CLOCK_MONOTONIC) - saver->started_s;
	saver->started = true;
	return TR_OK;
}

tr_status saver_start(struct saver *saver, const struct optim_arrays *arrays,
    const struct manifest *manifest, struct tr_error *error)
{
	tr_status status = saver_check(saver, manifest, error);
	if (status != TR_OK)
		return status;
	saver->started_s = seconds_of(CLOCK_MONOTONIC);
	if (!make_room(saver, arrays->outer != NULL))
		return tr_error_set(error, TR_ENOMEM,
		    "checkpoint of step %llu left out: no memory for a copy of the state (%u x "
		    "%zu bytes)",
		    (unsigned long long)manifest->step, arrays->outer != NULL ? 4 : 3,
		    saver->layout->count * sizeof(float));
	saver->state = *arrays;
	saver->works = false;
	return start(saver, manifest, error);
}

tr_status saver_start_work(struct saver *saver, const struct saver_work *work,
    const struct manifest *manifest, struct tr_error *error)
{
	tr_status status = saver_check(saver, manifest, error);
	if (status != TR_OK)
		return status;
	saver->started_s = seconds_of(CLOCK_MONOTONIC);
	saver->work = *work;
	saver->works = true;
	return start(saver, manifest, error);
}

tr_status saver_start_parts(struct saver *saver, const struct saver_parts *parts,
    const struct manifest *manifest, struct tr_error *error)
{
	const struct saver_work work = { copy_parts, write_parts, saver };
	tr_status status = saver_check(saver, manifest, error);
	if (status != TR_OK)
		return status;
	saver->parts = *parts;
	return saver_start_work(saver, &work, manifest, error);
}

/* For what the thread sets. */
static void wait_for(struct saver *saver, const bool *what, const struct progress *progress,
    unsigned bound_ms)
{
	if (!saver->started)
		return;
	(void)pthread_mutex_lock(&saver->lock);
	while (!*what) {
		patience_wait(&saver->changed, &saver->lock);
		if (!*what && steps_within(&saver->steps, bound_ms))
			progress_tell(progress);
	}
	(void)pthread_mutex_unlock(&saver->lock);
}

void saver_settle(struct saver *saver, const struct progress *progress, unsigned bound_ms)
{
	double since_s = seconds_of(CLOCK_MONOTONIC);
	bool waits = saver->started;
	wait_for(saver, &saver->copied, progress, bound_ms);
	if (waits)
		saver->waited_s += seconds_of(CLOCK_MONOTONIC) - since_s;
}

void saver_wait(struct saver *saver, const struct progress *progress, unsigned bound_ms)
{
	wait_for(saver, &saver->done, progress, bound_ms);
}

bool saver_result(struct saver *saver, bool wait, struct saver_result *result)
{
	if (!saver->started)
		return false;
	(void)pthread_mutex_lock(&saver->lock);
	while (wait && !saver->done)
		(void)pthread_cond_wait(&saver->changed, &saver->lock);
	bool done = saver->done;
	(void)pthread_mutex_unlock(&saver->lock);
	if (!done)
		return false;
	(void)pthread_join(saver->thread, NULL);
	saver->started = false;
	*result = saver->result;
	result->waited_s = saver->waited_s;
	return true;
}
