/* The shared-memory channel: both ends together, and a worker that writes whatever it likes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/core/strided.h"
#include "collectives/engine/channel_host.h"
#include "collectives/engine/channel_op.h"
#include "collectives/engine/channel_worker.h"
#include "collectives/kernels/reduce.h"
#include "common/rng.h"
#include "tests/unit/channel_ends.h"

/* Of the worker's reports: how many came, and how many more there is no room for. */
static unsigned reports, refuse_reports;

static bool on_report(void *arg, const void *packed, size_t bytes)
{
	(void)arg;
	(void)packed;
	(void)bytes;
	if (refuse_reports > 0) {
		refuse_reports--;
		return false;
	}
	reports++;
	return true;
}

/* The worker's control page, to write to. */
static struct channel_control *page(struct ends *ends)
{
	return (struct channel_control *)(uintptr_t)channel_worker_control(ends->worker);
}

static tr_status read_all(struct ends *ends, struct tr_error *error)
{
	return channel_host_read(ends->host, on_report, NULL, error);
}

/* Both ends in order. */
static void assignment_arrives(void **state)
{
	struct ends *ends = *state;
	const struct channel_control *control = channel_worker_control(ends->worker);
	assert_int_equal(control->job, 5);
	assert_int_equal(control->peer, 7);
	assert_int_equal(control->rank, 2);
	assert_int_equal(control->world_size, 3);
	assert_int_equal(control->threads, 4);
	assert_int_equal(control->restarts, 1);
	Traind__V1__JobSpec *spec = traind__v1__job_spec__unpack(NULL, control->spec_bytes,
	    (const uint8_t *)(control + 1));
	assert_non_null(spec);
	assert_string_equal(spec->name, "a job");
	traind__v1__job_spec__free_unpacked(spec, NULL);
}

static void memory_is_shared(void **state)
{
	struct ends *ends = *state;
	uint32_t arena;
	uint64_t offset;
	uint8_t *small = channel_worker_alloc(ends->worker, 100);
	uint8_t *more = channel_worker_alloc(ends->worker, 0);
	uint8_t *big = channel_worker_alloc(ends->worker, 3 * TR_CHANNEL_ARENA_BYTES + 1);
	assert_non_null(big);
	assert_int_equal((uintptr_t)small % 64 + (uintptr_t)more % 64 + (uintptr_t)big % 64, 0);
	assert_true(more > small);
	for (size_t i = 0; i < 100; i++)
		assert_int_equal(small[i], 0);
	memcpy(small, "hello", 5);
	big[3 * TR_CHANNEL_ARENA_BYTES] = 42;
	assert_int_equal(read_all(ends, NULL), TR_OK);
	assert_int_equal(channel_worker_locate(ends->worker, small, 100, &arena, &offset), TR_OK);
	assert_memory_equal(channel_host_memory(ends->host, arena, offset, 100, 4), "hello", 5);
	assert_int_equal(channel_worker_locate(ends->worker, big + 3 * TR_CHANNEL_ARENA_BYTES, 1,
	                     &arena, &offset),
	    TR_OK);
	assert_int_equal(*(uint8_t *)channel_host_memory(ends->host, arena, offset, 1, 1), 42);
	/* not ours, or over the end */
	uint8_t local;
	assert_int_equal(channel_worker_locate(ends->worker, &local, 1, &arena, &offset), TR_EINVAL);
	assert_int_equal(channel_worker_locate(ends->worker, big, 4 * TR_CHANNEL_ARENA_BYTES,
	                     &arena, &offset),
	    TR_EINVAL);
	assert_int_equal(channel_worker_locate(ends->worker, big, SIZE_MAX, &arena, &offset),
	    TR_EINVAL);
	assert_null(channel_worker_alloc(ends->worker, SIZE_MAX / 2));
}

static void submissions_go_round(void **state)
{
	struct ends *ends = *state;
	struct channel_submission s = { .call = CHANNEL_SUBMIT, .dtype = TR_F32, .reduce = TR_SUM };
	struct tr_error error;
	for (uint32_t tag = 0; tag < 3 * TR_CHANNEL_RING; tag++) {
		s.tag = tag;
		assert_int_equal(channel_worker_submit(ends->worker, &s, NULL, &error), TR_OK);
		if (tag % 100 == 99)
			for (uint32_t k = tag - 99; k <= tag; k++) {
				struct channel_submission got;
				assert_int_equal(channel_host_take(ends->host, &got, &error), TR_OK);
				assert_int_equal(got.tag, k);
			}
	}
}

/* How often the engine's doorbell was rung since the last look. */
static uint64_t rings(const struct ends *ends)
{
	uint64_t count = 0;
	return read(ends->host->own_bell, &count, sizeof(count)) > 0 ? count : 0;
}

/* A note wakes nobody; and the next submission does, though the engine has not caught up with what was there before. */
static void a_note_waits_for_company(void **state)
{
	struct ends *ends = *state;
	struct channel_submission s = { .call = CHANNEL_SUBMIT, .dtype = TR_F32 }, got;
	const struct channel_submission note = { .call = CHANNEL_RELEASE, .tag = 7 };
	struct tr_error error;
	(void)rings(ends);
	for (unsigned turn = 0; turn < 3; turn++) {
		for (unsigned k = 0; k <= turn; k++)
			assert_int_equal(channel_worker_note(ends->worker, &note, NULL, &error),
			    TR_OK);
		assert_int_equal(rings(ends), 0);
		assert_int_equal(channel_worker_submit(ends->worker, &s, NULL, &error), TR_OK);
		assert_int_equal(rings(ends), 1);
		/* It looks again by itself. */
		assert_int_equal(channel_worker_note(ends->worker, &note, NULL, &error), TR_OK);
		assert_int_equal(channel_worker_submit(ends->worker, &s, NULL, &error), TR_OK);
		assert_int_equal(rings(ends), 0);
		for (unsigned k = 0; k < turn + 4; k++) {
			assert_int_equal(channel_host_take(ends->host, &got, &error), TR_OK);
			assert_int_equal(got.call,
			    k == turn + 1 || k == turn + 3 ? CHANNEL_SUBMIT : CHANNEL_RELEASE);
		}
		assert_int_equal(channel_host_take(ends->host, &got, &error), TR_EAGAIN);
	}
}

static void *answer_later(void *arg)
{
	struct ends *ends = arg;
	struct channel_submission s;
	while (channel_host_take(ends->host, &s, NULL) != TR_OK)
		(void)usleep(1000);
	struct channel_answer stale = { .id = s.id - 1, .status = TR_EIO },
	                      answer = { .id = s.id, .status = TR_ELIMIT, .text = "too much" };
	assert_int_equal(channel_host_answer(ends->host, &stale, true), TR_OK);
	assert_int_equal(channel_host_answer(ends->host, &answer, true), TR_OK);
	return NULL;
}

static void calls_are_answered(void **state)
{
	struct ends *ends = *state;
	for (int i = 0; i < 3 * TR_CHANNEL_ANSWERS; i++) {
		pthread_t thread;
		struct channel_submission s = { .call = CHANNEL_BEGIN };
		struct channel_answer answer;
		struct tr_error error = { 0 };
		assert_int_equal(pthread_create(&thread, NULL, answer_later, ends), 0);
		assert_int_equal(channel_worker_call(ends->worker, &s, &answer, &error), TR_ELIMIT);
		assert_string_equal(error.text, "too much");
		assert_int_equal(pthread_join(thread, NULL), 0);
	}
}

static void *end_later(void *arg)
{
	struct ends *ends = arg;
	channel_host_end(ends->host, TR_EEVICTED, "silent for 2.0 s");
	return NULL;
}

static void the_end_is_told(void **state)
{
	struct ends *ends = *state;
	struct channel_submission s = { .call = CHANNEL_COMMIT };
	struct channel_answer answer;
	struct tr_error error = { 0 };
	pthread_t thread;
	assert_true(channel_worker_progress(ends->worker, channel_worker_abandons(ends->worker)));
	assert_int_equal(channel_host_progress(ends->host), 1);
	assert_int_equal(pthread_create(&thread, NULL, end_later, ends), 0);
	assert_int_equal(channel_worker_call(ends->worker, &s, &answer, &error), TR_EEVICTED);
	assert_string_equal(error.text, "silent for 2.0 s");
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(channel_worker_submit(ends->worker, &s, NULL, &error), TR_EEVICTED);
	assert_false(channel_worker_progress(ends->worker, 0));
}

static void *end_when_full(void *arg)
{
	struct ends *ends = arg;
	while (atomic_load(&page(ends)->submitted) < TR_CHANNEL_RING)
		(void)usleep(1000);
	channel_host_end(ends->host, TR_EEVICTED, "silent for 2.0 s");
	return NULL;
}

/* Nobody takes what is in the ring of a member that is over: who waits for room in it must hear of the end. */
static void the_end_is_told_when_the_ring_is_full(void **state)
{
	struct ends *ends = *state;
	struct channel_submission s = { .call = CHANNEL_SUBMIT, .dtype = TR_F32, .reduce = TR_SUM };
	struct tr_error error = { 0 };
	pthread_t thread;
	tr_status st = TR_OK;
	assert_int_equal(pthread_create(&thread, NULL, end_when_full, ends), 0);
	for (int i = 0; i <= TR_CHANNEL_RING && st == TR_OK; i++)
		st = channel_worker_submit(ends->worker, &s, NULL, &error);
	assert_int_equal(st, TR_EEVICTED);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void *die_later(void *arg)
{
	struct ends *ends = arg;
	struct channel_submission s;
	while (channel_host_take(ends->host, &s, NULL) != TR_OK)
		(void)usleep(1000);
	channel_host_destroy(ends->host);
	ends->host = NULL;
	return NULL;
}

static void death_of_the_engine_is_noticed(void **state)
{
	struct ends *ends = *state;
	struct channel_submission s = { .call = CHANNEL_COMMIT };
	struct channel_answer answer;
	struct tr_error error = { 0 };
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, die_later, ends), 0);
	assert_int_equal(channel_worker_call(ends->worker, &s, &answer, &error), TR_EUNAVAILABLE);
	assert_string_equal(error.text, "traind is gone");
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(channel_worker_state(ends->worker, "x", 0, 0, 0, 0, &error),
	    TR_EUNAVAILABLE);
}

static void reports_wait_for_room(void **state)
{
	struct ends *ends = *state;
	for (int i = 0; i < 10; i++)
		assert_int_equal(channel_worker_report(ends->worker, "report", 6, NULL), TR_OK);
	reports = 0;
	refuse_reports = 2;
	assert_int_equal(read_all(ends, NULL), TR_EAGAIN);
	assert_int_equal(read_all(ends, NULL), TR_EAGAIN);
	assert_int_equal(read_all(ends, NULL), TR_OK);
	assert_int_equal(reports, 10);
	static uint8_t big[TR_CHANNEL_MESSAGE_MAX + 1];
	assert_int_equal(channel_worker_report(ends->worker, big, sizeof(big), NULL), TR_ELIMIT);
	assert_int_equal(channel_worker_report(ends->worker, big, sizeof(big) - 1, NULL), TR_OK);
	assert_int_equal(read_all(ends, NULL), TR_OK);
	assert_int_equal(reports, 11);
}

static void state_is_named(void **state)
{
	struct ends *ends = *state;
	uint32_t arena;
	uint64_t offset;
	void *data = channel_worker_alloc(ends->worker, 1000);
	assert_int_equal(channel_worker_locate(ends->worker, data, 1000, &arena, &offset), TR_OK);
	assert_int_equal(channel_worker_state(ends->worker, "weights", arena, offset, 1000, 0, NULL),
	    TR_OK);
	assert_int_equal(read_all(ends, NULL), TR_OK);
	assert_int_equal(ends->host->tensor_count, 1);
	assert_string_equal(ends->host->tensors[0].name, "weights");
	assert_int_equal(ends->host->tensors[0].bytes, 1000);
}

/* A worker that breaks the rules. */
static void expect_refused(struct ends *ends, const char *cause)
{
	struct tr_error error = { 0 };
	assert_int_equal(read_all(ends, &error), TR_EPROTO);
	if (strstr(error.text, cause) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", error.text, cause);
}

static void send_arena(struct ends *ends, int fd, uint64_t says)
{
	assert_int_equal(channel_send(ends->raw, CHANNEL_ARENA, &says, sizeof(says), NULL, 0, &fd,
	                     1),
	    TR_OK);
	(void)close(fd);
}

static int memory(size_t bytes, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void unsealed_memory_is_refused(void **state)
{
	struct ends *ends = *state;
	send_arena(ends, memory(4096, F_SEAL_GROW), 4096);
	expect_refused(ends, "not sealed");
	assert_int_equal(ends->host->arena_count, 0);
}

static void memory_that_is_too_small_is_refused(void **state)
{
	struct ends *ends = *state;
	send_arena(ends, memory(4096, F_SEAL_SHRINK), 8192);
	expect_refused(ends, "smaller than it says");
	send_arena(ends, memory(4096, F_SEAL_SHRINK), 0);
	expect_refused(ends, "smaller than it says");
}

static void a_file_is_no_memory(void **state)
{
	struct ends *ends = *state;
	send_arena(ends, open("/dev/zero", O_RDWR | O_CLOEXEC), 4096);
	expect_refused(ends, "not sealed");
}

static void malformed_messages_are_refused(void **state)
{
	struct ends *ends = *state;
	uint64_t size = 4096;
	assert_int_equal(channel_send(ends->raw, 99, "?", 1, NULL, 0, NULL, 0), TR_OK);
	expect_refused(ends, "unknown kind");
	assert_int_equal(channel_send(ends->raw, CHANNEL_ARENA, &size, sizeof(size), NULL, 0, NULL,
	                     0),
	    TR_OK);
	expect_refused(ends, "without memory");
	int fd = memory(4096, F_SEAL_SHRINK);
	assert_int_equal(channel_send(ends->raw, CHANNEL_ARENA, "x", 1, NULL, 0, &fd, 1), TR_OK);
	(void)close(fd);
	expect_refused(ends, "of 1 bytes");
	struct channel_state outside = { .offset = UINT64_MAX,
		.bytes = 2,
		.arena = 0,
		.name_bytes = 1 };
	assert_int_equal(channel_send(ends->raw, CHANNEL_STATE, &outside, sizeof(outside), "n", 1,
	                     NULL, 0),
	    TR_OK);
	expect_refused(ends, "outside");
	outside.name_bytes = UINT32_MAX;
	assert_int_equal(channel_send(ends->raw, CHANNEL_STATE, &outside, sizeof(outside), "n", 1,
	                     NULL, 0),
	    TR_OK);
	expect_refused(ends, "name");
	struct channel_message huge = { CHANNEL_REPORT, UINT32_MAX };
	assert_int_equal(write(ends->raw, &huge, sizeof(huge)), sizeof(huge));
	expect_refused(ends, "malformed");
}

static void too_many_descriptors_are_refused(void **state)
{
	struct ends *ends = *state;
	int fds[CHANNEL_DESCRIPTORS_MAX];
	for (int i = 0; i < CHANNEL_DESCRIPTORS_MAX; i++)
		fds[i] = ends->raw;
	for (int i = 0; i < 2; i++)
		assert_int_equal(channel_send(ends->raw, CHANNEL_REPORT, "x", 1, NULL, 0, fds,
		                     CHANNEL_DESCRIPTORS_MAX),
		    TR_OK);
	expect_refused(ends, "malformed");
}

static void ring_counters_are_checked(void **state)
{
	struct ends *ends = *state;
	static const uint64_t wrong[] = { TR_CHANNEL_RING + 1, UINT64_MAX, 1ull << 63 };
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct channel_submission s;
		struct tr_error error = { 0 };
		atomic_store(&page(ends)->submitted, wrong[i]);
		assert_int_equal(channel_host_take(ends->host, &s, &error), TR_EPROTO);
		assert_non_null(strstr(error.text, "ring of submissions"));
	}
}

static void answers_that_are_not_taken(void **state)
{
	struct ends *ends = *state;
	struct channel_answer answer = { .id = 1 };
	for (int i = 0; i < TR_CHANNEL_ANSWERS; i++)
		assert_int_equal(channel_host_answer(ends->host, &answer, true), TR_OK);
	assert_int_equal(channel_host_answer(ends->host, &answer, true), TR_EPROTO);
	atomic_store(&page(ends)->answers_taken, UINT64_MAX); /* more than there were */
	tr_status st = channel_host_answer(ends->host, &answer, true);
	assert_true(st == TR_OK || st == TR_EPROTO);
}

static void offsets_are_checked(void **state)
{
	struct ends *ends = *state;
	const uint64_t size = TR_CHANNEL_ARENA_BYTES;
	assert_non_null(channel_worker_alloc(ends->worker, 64));
	assert_int_equal(read_all(ends, NULL), TR_OK);
	assert_non_null(channel_host_memory(ends->host, 0, 0, size, 8));
	assert_non_null(channel_host_memory(ends->host, 0, size, 0, 8));
	assert_null(channel_host_memory(ends->host, 0, 1, size, 1));
	assert_null(channel_host_memory(ends->host, 0, size + 8, 0, 8));
	assert_null(channel_host_memory(ends->host, 0, UINT64_MAX - 7, 8, 8));
	assert_null(channel_host_memory(ends->host, 0, 8, UINT64_MAX, 8));
	assert_null(channel_host_memory(ends->host, 0, 4, 8, 8));
	assert_null(channel_host_memory(ends->host, 1, 0, 8, 8));
	assert_null(channel_host_memory(ends->host, UINT32_MAX, 0, 8, 8));
}

/* Whatever stands in the page, a taken submission is one whose fields are in range. */
static void random_pages(void **state)
{
	struct ends *ends = *state;
	struct rng_key key = rng_key(1, 2, 3);
	unsigned taken = 0;
	for (uint64_t i = 0; i < 20000; i++) {
		struct channel_submission s;
		struct tr_error error;
		uint64_t at = ends->host->taken % TR_CHANNEL_RING;
		uint8_t *bytes = (uint8_t *)&page(ends)->submissions[at];
		for (size_t k = 0; k < sizeof(s); k++)
			bytes[k] = (uint8_t)rng_u64(key, i, k);
		if (i % 3 != 0) /* plausible ones, so that the later checks are reached */
			page(ends)->submissions[at].call = (uint32_t)(i % 10);
		if (i % 2 != 0)
			page(ends)->submissions[at].dtype = (uint8_t)(i % 5);
		if (i % 4 != 0)
			page(ends)->submissions[at].reduce = (uint8_t)(i % 6);
		atomic_store(&page(ends)->submitted, ends->host->taken + 1);
		if (channel_host_take(ends->host, &s, &error) != TR_OK)
			continue;
		taken++;
		assert_in_range(s.call, CHANNEL_SUBMIT, CHANNEL_SCOPED);
		if (s.call != CHANNEL_SUBMIT)
			continue;
		struct channel_op op;
		if (channel_op_read(ends->host, &s, &op, &error) != TR_OK)
			continue;
		assert_in_range(op.submit.dtype, TR_F32, TR_U8);
		assert_in_range(op.submit.reduce, TR_SUM, TR_PROD);
		assert_true(op.submit.count <= SIZE_MAX / 8);
	}
	assert_true(taken > 0);
}

/* Numbers near the bounds of what there is, and far beyond. */
static uint64_t hostile(struct rng_key key, uint64_t i, uint64_t k)
{
	static const uint64_t values[] = { 0, 1, 2, 3, 7, 8, 64, 1000, 4096,
		TR_CHANNEL_ARENA_BYTES / 4, TR_CHANNEL_ARENA_BYTES - 4, TR_CHANNEL_ARENA_BYTES,
		TR_CHANNEL_ARENA_BYTES + 4, UINT32_MAX, 1ull << 62, 1ull << 63, UINT64_MAX / 8,
		UINT64_MAX - 3, UINT64_MAX };
	uint64_t draw = rng_below(key, i, k, 2 * sizeof(values) / sizeof(values[0]));
	return values[draw < sizeof(values) / sizeof(values[0]) ? draw : draw % 8];
}

static void hostile_block(struct channel_block *block, struct rng_key key, uint64_t i, uint64_t k)
{
	block->present = rng_below(key, i, k, 2) == 0;
	block->rank = (uint32_t)(rng_below(key, i, k + 1, 3) > 0 ? rng_below(key, i, k + 2, 4)
	                                                         : hostile(key, i, k + 2));
	for (unsigned d = 0; d < TR_BLOCK_RANK_MAX; d++) {
		block->extents[d] = hostile(key, i, k + 10 + d);
		block->strides[d] = hostile(key, i, k + 20 + d);
	}
}

static void assert_inside(const struct ends *ends, const void *memory, const struct tr_block *block,
    uint64_t elements, size_t element_bytes)
{
	struct strided layout;
	if (memory == NULL)
		return;
	assert_int_equal(strided_init(&layout, block, elements, element_bytes, "t", NULL), TR_OK);
	const uint8_t *base = ends->host->arenas[0].base;
	const uint8_t *begin = memory;
	assert_true(begin >= base && begin <= base + TR_CHANNEL_ARENA_BYTES);
	assert_true(layout.span * element_bytes <= (size_t)(base + TR_CHANNEL_ARENA_BYTES - begin));
	assert_int_equal((uintptr_t)memory % element_bytes, 0);
}

/* Whatever a worker says of an op's memory: either it is refused, or all of it lies in the arena, input, output, blocks and residuals. */
static void hostile_ops_never_leave_the_arena(void **state)
{
	struct ends *ends = *state;
	struct rng_key key = rng_key(9, 2, 3);
	unsigned strided = 0, residuals = 0;
	assert_non_null(channel_worker_alloc(ends->worker, 64));
	assert_int_equal(read_all(ends, NULL), TR_OK);
	for (uint64_t i = 0; i < 200000; i++) {
		struct channel_submission s = { .call = CHANNEL_SUBMIT,
			.dtype = (uint8_t)rng_below(key, i, 0, 9),
			.reduce = (uint8_t)(1 + rng_below(key, i, 1, 5)),
			.collective = (uint8_t)rng_below(key, i, 2, 8),
			.count = hostile(key, i, 3),
			.offset = hostile(key, i, 4),
			.arena = rng_below(key, i, 5, 20) == 0,
			.extended = rng_below(key, i, 6, 8) > 0 };
		struct channel_extra *x = &ends->host->extra;
		struct channel_op op;
		struct tr_error error;
		struct channel_place *places[] = { &x->input, &x->residual, &x->residual_next };
		for (unsigned k = 0; k < 3; k++)
			*places[k] = (struct channel_place){ hostile(key, i, 10 + k),
				rng_below(key, i, 20 + k, 20) == 0,
				rng_below(key, i, 30 + k, 3) == 0 };
		x->own_elements = hostile(key, i, 7);
		hostile_block(&x->input_block, key, i, 100);
		hostile_block(&x->output_block, key, i, 200);
		if (channel_op_read(ends->host, &s, &op, &error) != TR_OK)
			continue;
		size_t bytes = reduce_element_bytes(op.submit.dtype);
		bool own_out = op.submit.collective == TR_REDUCE_SCATTER && op.submit.input != NULL;
		bool own_in = op.submit.collective == TR_ALL_GATHER;
		strided += op.submit.data_block != NULL || op.submit.input_block != NULL;
		residuals += op.submit.residual != NULL;
		assert_inside(ends, op.submit.data, op.submit.data_block,
		    own_out ? op.submit.own_elements : op.submit.count, bytes);
		assert_inside(ends, op.submit.input, op.submit.input_block,
		    own_in ? op.submit.own_elements : op.submit.count, bytes);
		assert_inside(ends, op.submit.residual, NULL, op.submit.count, 4);
		assert_inside(ends, op.submit.residual_next, NULL, op.submit.count, 4);
	}
	assert_true(strided > 100 && residuals > 100);
}

/* The engine's end sees a killed worker as the end of its socket, and its memory stays readable. */
static void worker_killed(void **state)
{
	struct ends *ends = *state;
	int ready[2];
	uint8_t byte;
	struct tr_error error;
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		uint8_t *data = channel_worker_alloc(ends->worker, 1 << 20);
		memset(data, 7, 1 << 20);
		(void)!write(ready[1], "x", 1);
		(void)pause();
		_exit(0);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	(void)kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	channel_worker_close(ends->worker); /* the parent's copies of its descriptors */
	ends->worker = NULL;
	(void)close(ends->raw);
	ends->raw = -1;
	assert_int_equal(read_all(ends, &error), TR_EUNAVAILABLE);
	assert_int_equal(*(uint8_t *)channel_host_memory(ends->host, 0, 12345, 1, 1), 7);
	(void)close(ready[0]);
	(void)close(ready[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_ENDS(assignment_arrives),
		WITH_ENDS(memory_is_shared),
		WITH_ENDS(submissions_go_round),
		WITH_ENDS(a_note_waits_for_company),
		WITH_ENDS(calls_are_answered),
		WITH_ENDS(the_end_is_told),
		WITH_ENDS(the_end_is_told_when_the_ring_is_full),
		WITH_ENDS(death_of_the_engine_is_noticed),
		WITH_ENDS(reports_wait_for_room),
		WITH_ENDS(state_is_named),
		WITH_ENDS(unsealed_memory_is_refused),
		WITH_ENDS(memory_that_is_too_small_is_refused),
		WITH_ENDS(a_file_is_no_memory),
		WITH_ENDS(malformed_messages_are_refused),
		WITH_ENDS(too_many_descriptors_are_refused),
		WITH_ENDS(ring_counters_are_checked),
		WITH_ENDS(answers_that_are_not_taken),
		WITH_ENDS(offsets_are_checked),
		WITH_ENDS(random_pages),
		WITH_ENDS(hostile_ops_never_leave_the_arena),
		WITH_ENDS(worker_killed),
	};
	return cmocka_run_group_tests_name("channel", tests, NULL, NULL);
}
