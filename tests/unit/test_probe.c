/* Probes: estimates from looks at what came, and the whole conversation over real sockets, plain and with TLS. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>

#include "collectives/transport/probe.h"
#include "collectives/transport/probe_io.h"
#include "collectives/transport/probe_rate.h"
#include "collectives/transport/socket.h"
#include "common/rng.h"
#include "proto/frame.h"
#include "proto/probe.h"
#include "tests/unit/tls_files.h"

/* ---- estimates ---- */

/* Looks while a way brings `rate` bytes a second, of which `bucket` come at once, and `ramp_us` pass until it is full; each look is up to
 * `late_us` late. */
struct way {
	double rate, bucket;
	uint64_t ramp_us, lasts_us, every_us, late_us, seed;
};

static double brought(const struct way *way, double us)
{
	double ramp = (double)way->ramp_us;
	double full = us < ramp ? us * us / (2 * ramp) : us - ramp / 2;
	return way->bucket + way->rate * full * 1e-6;
}

/* `least_us` > 0: until it has settled, if it does, which takes *took_us. */
static double estimate_until(const struct way *way, uint64_t least_us, uint64_t *took_us)
{
	static struct probe_rate rate;
	uint64_t draws = 0, said_us = 0;
	rate = (struct probe_rate){ 0 };
	for (uint64_t us = 0; us <= way->lasts_us; us += way->every_us) {
		uint64_t late = way->late_us == 0
		    ? 0
		    : rng_below(rng_key(way->seed, 0, 0), 0, draws++, way->late_us);
		said_us = us + late > said_us ? us + late : said_us;
		probe_rate_look(&rate, 1000000 + said_us, (uint64_t)brought(way, (double)us));
		if (least_us > 0 && probe_rate_settled(&rate, least_us))
			break;
	}
	*took_us = said_us;
	return probe_rate_of(&rate);
}

static double estimate(const struct way *way)
{
	uint64_t took_us;
	return estimate_until(way, 0, &took_us);
}

static void within(double found, double wanted, double part)
{
	if (fabs(found / wanted - 1) > part)
		fail_msg("found %g, wanted %g", found, wanted);
}

static void rates_of_ways(void **state)
{
	(void)state;
	for (double rate = 1e4; rate < 2e10; rate *= 7) {
		within(estimate(&(struct way){ rate, 0, 1, 1000000, 500, 0, 0 }), rate, 0.001);
		/* windows that open for a third of the time */
		within(estimate(&(struct way){ rate, 0, 330000, 1000000, 500, 0, 0 }), rate, 0.001);
		/* a bucket of a tenth of all at once */
		within(estimate(&(struct way){ rate, rate / 10, 1, 1000000, 500, 0, 0 }), rate,
		    0.001);
		/* a reader that a busy machine wakes up to 20 ms late */
		for (uint64_t seed = 1; seed <= 20; seed++)
			within(estimate(&(struct way){ rate, 0, 1, 1000000, 500, 20000, seed }),
			    rate, 0.05);
	}
	/* few looks, as of a slow way whose packets are rare */
	within(estimate(&(struct way){ 1e4, 0, 1, 1000000, 200000, 0, 0 }), 1e4, 0.01);
}

/* What is settled is right; what still opens, or is heard of in heaps, takes as long as it takes. */
static void rates_that_settle(void **state)
{
	(void)state;
	uint64_t took_us;
	for (double rate = 1e5; rate < 2e10; rate *= 7) {
		struct way even = { rate, 0, 1, 1000000, 500, 0, 0 };
		within(estimate_until(&even, 200000, &took_us), rate, 0.001);
		assert_in_range(took_us, 200000, 201000);
		within(estimate_until(&even, 600000, &took_us), rate, 0.001);
		assert_in_range(took_us, 600000, 601000);
		struct way opens = { rate, 0, 300000, 4000000, 500, 0, 0 };
		within(estimate_until(&opens, 200000, &took_us), rate, 0.02);
		assert_in_range(took_us, 600000, 1300000);
		struct way bucket = { rate, rate / 10, 1, 1000000, 500, 0, 0 };
		within(estimate_until(&bucket, 200000, &took_us), rate, 0.001);
		for (uint64_t seed = 1; seed <= 20; seed++) {
			struct way heaps = { rate, 0, 1, 1000000, 500, 20000, seed };
			within(estimate_until(&heaps, 200000, &took_us), rate, 0.06);
		}
	}
	struct way rare = { 1e4, 0, 1, 1000000, 200000, 0, 0 };
	within(estimate_until(&rare, 200000, &took_us), 1e4, 0.01);
	assert_int_equal(took_us, 1000000); /* too few looks */
}

/* Others come after half a second and go after 1.75; this one's last bytes come long after it has given them. */
static void rates_beside_others(void **state)
{
	struct probe_rate rate = { 0 };
	uint64_t total = 0;

	(void)state;
	assert_true(probe_rate_within(&rate, 750000, 1750000) == 0);
	for (uint64_t ms = 0; ms <= 2700; ms += 5) {
		probe_rate_look(&rate, 1000 * ms, total);
		total += ms < 500 || ms >= 1750 ? 500 : 250;
	}
	assert_true(fabs(probe_rate_within(&rate, 750000, 1750000) - 50e3) < 1500);
	assert_true(probe_rate_within(&rate, 2800000, 2900000) == 0);
}

static void rates_of_nothing(void **state)
{
	(void)state;
	struct probe_rate rate = { 0 };
	assert_true(probe_rate_of(&rate) == 0);
	probe_rate_look(&rate, 5, 100);
	assert_true(probe_rate_of(&rate) == 0);
	probe_rate_look(&rate, 5, 200); /* at the same time */
	assert_true(probe_rate_of(&rate) == 0);
	probe_rate_look(&rate, 1000005, 300);
	assert_true(probe_rate_of(&rate) > 99);
}

static void messages(void **state)
{
	(void)state;
	uint8_t bytes[PROBE_MESSAGE_BYTES];
	struct probe_message message = { PROBE_GIVE, { 7, UINT64_MAX } }, got;
	probe_message_put(&message, bytes);
	assert_int_equal(probe_message_get(bytes, &got, NULL), TR_OK);
	assert_int_equal(got.kind, PROBE_GIVE);
	assert_true(got.value[0] == 7 && got.value[1] == UINT64_MAX);
	const uint8_t spoilt[] = { 0, 4, 7, 24, 31 };
	for (size_t i = 0; i < sizeof(spoilt); i++) {
		uint8_t wrong[PROBE_MESSAGE_BYTES];
		memcpy(wrong, bytes, sizeof(wrong));
		wrong[spoilt[i]] = 0xee;
		assert_int_equal(probe_message_get(wrong, &got, NULL), TR_EPROTO);
	}
}

/* ---- conversations ---- */

/* The other end: accepts once, reads the greeting, and serves, or does what `odd` says. */
struct door {
	int fd;
	char address[64];
	struct tls_context *tls;
	uint64_t token[2];
	enum { SERVES, CLOSES, SPEAKS_GARBAGE, GOES_SILENT } odd;
	atomic_bool stop;
	pthread_t thread;
	tr_status served;
};

static void read_all(const struct stream *stream, uint8_t *bytes, size_t count)
{
	struct pollfd readable = { .fd = stream->fd, .events = POLLIN };
	while (count > 0) {
		ssize_t n = stream_read(stream, bytes, count);
		if (n > 0) {
			bytes += n;
			count -= (size_t)n;
		} else if (n == 0) {
			return;
		} else {
			(void)poll(&readable, 1, 10);
		}
	}
}

static void *open_door(void *arg)
{
	struct door *door = arg;
	uint8_t greeting[FRAME_GREETING_BYTES], garbage[PROBE_MESSAGE_BYTES];
	struct tr_error error;
	struct sockaddr_storage from = { 0 };
	socklen_t length = sizeof(from);
	struct stream stream = { accept(door->fd, (struct sockaddr *)&from, &length), NULL };
	if (stream.fd < 0)
		return NULL;
	if (door->tls != NULL) {
		stream.tls = tls_create(door->tls, stream.fd, NULL);
		if (tls_handshake(stream.tls) != TLS_DONE) {
			stream_close(&stream);
			return NULL;
		}
	}
	socket_tune(stream.fd, (struct sockaddr *)&from);
	read_all(&stream, greeting, sizeof(greeting));
	assert_memory_equal(greeting, PROBE_GREETING, sizeof(greeting));
	memset(garbage, 0xee, sizeof(garbage));
	if (door->odd == SERVES) {
		door->served = probe_serve(stream, door->token, &door->stop, &error);
		return NULL;
	}
	if (door->odd == SPEAKS_GARBAGE)
		(void)stream_write(&stream, garbage, sizeof(garbage));
	while (door->odd == GOES_SILENT && !atomic_load(&door->stop))
		(void)poll(NULL, 0, 1);
	stream_close(&stream);
	return NULL;
}

static void door_open(struct door *door)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(at);
	door->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(door->fd, (struct sockaddr *)&at, length), 0);
	assert_int_equal(listen(door->fd, 8), 0);
	assert_int_equal(getsockname(door->fd, (struct sockaddr *)&at, &length), 0);
	(void)snprintf(door->address, sizeof(door->address), "127.0.0.1:%u", ntohs(at.sin_port));
	assert_int_equal(pthread_create(&door->thread, NULL, open_door, door), 0);
}

static void door_close(struct door *door)
{
	atomic_store(&door->stop, true);
	assert_int_equal(pthread_join(door->thread, NULL), 0);
	(void)close(door->fd);
}

static tr_status measure(struct door *door, struct tls_context *tls, uint64_t token,
    struct probe_figures *figures, struct tr_error *error)
{
	atomic_bool stop = false;
	door_open(door);
	tr_status st = probe_dial(&(struct probe_target){ door->address, tls, { token, 12 }, false },
	    &stop, figures, error);
	door_close(door);
	return st;
}

static void figures_are_there(const struct probe_figures *figures)
{
	assert_true(figures->round_trip_s > 0 && figures->round_trip_s < 1);
	assert_true(figures->there_bytes_per_s > 1e6 && figures->back_bytes_per_s > 1e6);
}

/* Reads so much a millisecond, in the mean. */
#define PACED_BYTES 20000u

struct paced {
	int fd;
	atomic_bool stop;
};

static void *read_paced(void *arg)
{
	struct paced *paced = arg;
	static uint8_t bytes[PACED_BYTES];
	uint64_t from_us = probe_now_us(), taken = 0;
	while (!atomic_load(&paced->stop)) {
		if (taken >= (probe_now_us() - from_us) / 1000 * PACED_BYTES) {
			(void)poll(NULL, 0, 1);
			continue;
		}
		ssize_t n = recv(paced->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		taken += n > 0 ? (size_t)n : 0;
		if (n <= 0)
			(void)poll(NULL, 0, 1);
	}
	return NULL;
}

/* Without end by what it may take, it ends when its rate has settled; else it is overdue. */
static void who_gives_ends_when_the_rate_has_settled(void **state)
{
	(void)state;
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(at);
	int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
	    out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 128 << 10;
	assert_int_equal(setsockopt(door, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
	assert_int_equal(bind(door, (struct sockaddr *)&at, length), 0);
	assert_int_equal(listen(door, 1), 0);
	assert_int_equal(getsockname(door, (struct sockaddr *)&at, &length), 0);
	assert_int_equal(connect(out, (struct sockaddr *)&at, length), 0);
	struct paced paced = { .fd = accept(door, NULL, NULL) };
	pthread_t thread;
	assert_int_equal(fcntl(out, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(pthread_create(&thread, NULL, read_paced, &paced), 0);
	atomic_bool stop = false;
	struct tr_error error = { 0 };
	const struct probe_io io = { .stream = { out, NULL },
		.until_us = probe_now_us() + 60000000,
		.stop = &stop,
		.error = &error };
	if (probe_give(&io, UINT64_MAX, UINT64_MAX, false) != TR_OK)
		fail_msg("%s", error.text);
	atomic_store(&paced.stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	(void)close(paced.fd);
	(void)close(out);
	(void)close(door);
}

static void a_way_is_measured(void **state)
{
	(void)state;
	struct door door = { .token = { 11, 12 } };
	struct probe_figures figures = { 0 };
	struct tr_error error = { 0 };
	if (measure(&door, NULL, 11, &figures, &error) != TR_OK)
		fail_msg("%s", error.text);
	figures_are_there(&figures);
	assert_int_equal(door.served, TR_OK);
}

static void a_way_is_measured_with_tls(void **state)
{
	(void)state;
	struct tls_files files;
	struct probe_figures figures = { 0 };
	struct tr_error error = { 0 };
	tls_files_make(&files);
	struct tls_context *ours = tls_files_node(&files, "ours"),
	                   *theirs = tls_files_node(&files, "theirs");
	struct door door = { .token = { 11, 12 }, .tls = theirs };
	if (measure(&door, ours, 11, &figures, &error) != TR_OK)
		fail_msg("%s", error.text);
	figures_are_there(&figures);
	/* who speaks plainly where TLS is spoken is told so, and does not wait */
	struct door strict = { .token = { 11, 12 }, .tls = theirs };
	assert_int_equal(measure(&strict, NULL, 11, &figures, &error), TR_EIO);
	tls_context_release(ours);
	tls_context_release(theirs);
	tls_files_end(&files);
}

static void another_token_is_refused(void **state)
{
	(void)state;
	struct door door = { .token = { 11, 12 } };
	struct probe_figures figures;
	struct tr_error error = { 0 };
	assert_int_equal(measure(&door, NULL, 13, &figures, &error), TR_EIO);
	assert_non_null(strstr(error.text, "it refuses to be measured"));
	assert_non_null(strstr(error.text, door.address));
	assert_int_equal(door.served, TR_EREFUSED);
}

static void who_goes_in_the_middle_is_named(void **state)
{
	(void)state;
	struct probe_figures figures;
	struct tr_error error = { 0 };
	struct door closes = { .odd = CLOSES }, garbage = { .odd = SPEAKS_GARBAGE };
	assert_int_equal(measure(&closes, NULL, 11, &figures, &error), TR_EIO);
	assert_non_null(strstr(error.text, closes.address));
	assert_int_equal(measure(&garbage, NULL, 11, &figures, &error), TR_EPROTO);
	assert_non_null(strstr(error.text, "a probe's message of kind"));
}

static void who_is_not_there_is_unreachable(void **state)
{
	(void)state;
	struct door door = { 0 };
	struct probe_figures figures;
	struct tr_error error = { 0 };
	atomic_bool stop = false;
	door_open(&door);
	(void)shutdown(door.fd, SHUT_RDWR);
	door_close(&door); /* its port is nobody's now */
	assert_int_equal(probe_dial(&(struct probe_target){ door.address, NULL, { 1, 2 }, false },
	                     &stop, &figures, &error),
	    TR_EUNAVAILABLE);
	assert_non_null(strstr(error.text, "cannot reach 127.0.0.1:"));
	assert_int_equal(probe_dial(&(struct probe_target){ "unix:/tmp/x", NULL, { 1, 2 }, false },
	                     &stop, &figures, &error),
	    TR_EUNAVAILABLE);
}

struct ending {
	atomic_bool stop;
};

static void *end_soon(void *arg)
{
	struct ending *ending = arg;
	(void)poll(NULL, 0, 50);
	atomic_store(&ending->stop, true);
	return NULL;
}

static void a_daemon_that_ends_waits_for_nobody(void **state)
{
	(void)state;
	struct door door = { .odd = GOES_SILENT };
	struct probe_figures figures;
	struct tr_error error = { 0 };
	struct ending ending = { false };
	pthread_t thread;
	door_open(&door);
	assert_int_equal(pthread_create(&thread, NULL, end_soon, &ending), 0);
	assert_int_equal(probe_dial(&(struct probe_target){ door.address, NULL, { 11, 12 }, false },
	                     &ending.stop, &figures, &error),
	    TR_EIO);
	assert_non_null(strstr(error.text, "this daemon ends"));
	assert_int_equal(pthread_join(thread, NULL), 0);
	door_close(&door);
}

/* (Time, and whether we are to stop, were looked at only while nothing came: who said ever more held a thread, and the end of its
 * daemon, for ever.) */
static void who_says_ever_more_holds_nobody(void **state)
{
	enum { MESSAGES = 16 };
	static const uint64_t token[2] = { 11, 12 };
	(void)state;
	uint8_t bytes[MESSAGES * PROBE_MESSAGE_BYTES], answer;
	struct tr_error error = { 0 };
	atomic_bool stop = true;
	int fds[2];
	for (unsigned i = 0; i < MESSAGES; i++)
		probe_message_put(&(struct probe_message){ i == 0 ? PROBE_OPEN : PROBE_ECHO,
		                      { token[0], token[1] } },
		    bytes + i * PROBE_MESSAGE_BYTES);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
	assert_int_equal(write(fds[1], bytes, sizeof(bytes)), sizeof(bytes));
	assert_int_equal(probe_serve((struct stream){ fds[0], NULL }, token, &stop, &error), TR_OK);
	assert_true(recv(fds[1], &answer, 1, MSG_DONTWAIT) <= 0);
	assert_string_equal(error.text, "this daemon ends");
	(void)close(fds[1]);
}

static void what_a_host_shares(void **state)
{
	(void)state;
	struct probe_figures figures = { 0 };
	assert_int_equal(probe_memory(&figures, NULL), TR_OK);
	figures_are_there(&figures);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rates_of_ways),
		cmocka_unit_test(rates_that_settle),
		cmocka_unit_test(rates_beside_others),
		cmocka_unit_test(rates_of_nothing),
		cmocka_unit_test(messages),
		cmocka_unit_test(who_gives_ends_when_the_rate_has_settled),
		cmocka_unit_test(a_way_is_measured),
		cmocka_unit_test(a_way_is_measured_with_tls),
		cmocka_unit_test(another_token_is_refused),
		cmocka_unit_test(who_goes_in_the_middle_is_named),
		cmocka_unit_test(who_is_not_there_is_unreachable),
		cmocka_unit_test(a_daemon_that_ends_waits_for_nobody),
		cmocka_unit_test(who_says_ever_more_holds_nobody),
		cmocka_unit_test(what_a_host_shares),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
