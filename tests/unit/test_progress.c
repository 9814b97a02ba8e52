#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "client/trainctl/print.h"
#include "client/trainctl/progress.h"

struct fixture {
	Traind__V1__Job job;
	Traind__V1__JobSpec spec;
	Traind__V1__TrainSpec train;
	Traind__V1__Optimizer optimizer;
	Traind__V1__Progress progress;
	Traind__V1__Peer peer[3];
	Traind__V1__Peer *peers[3];
	Traind__V1__PeerLink link[3], *links[3];
	Traind__V1__Merges merges;
	Traind__V1__Sync sync;
	Traind__V1__Model model;
};

static char umlauts[] = "n\xc3\xb6\xc3\xb6\xc3\xb6\xc3\xb6";
static char active[] = "active", lost[] = "lost", empty[] = "",
            waits[] = "needs 3 slots, 2 are free";

static void make(struct fixture *fixture)
{
	traind__v1__job__init(&fixture->job);
	traind__v1__job_spec__init(&fixture->spec);
	traind__v1__train_spec__init(&fixture->train);
	traind__v1__optimizer__init(&fixture->optimizer);
	traind__v1__progress__init(&fixture->progress);
	fixture->job.spec = &fixture->spec;
	fixture->spec.train = &fixture->train;
	fixture->train.optimizer = &fixture->optimizer;
	fixture->optimizer.batch_tokens = 8192;
	fixture->job.progress = &fixture->progress;
	fixture->job.state = TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING;
	fixture->job.reason = empty;
	fixture->job.view = 4;
	fixture->progress.step = 312;
	fixture->progress.steps = 600;
	fixture->progress.loss = 2.1341;
	fixture->progress.val_loss = NAN;
	fixture->progress.tokens_per_s = 41234;
	for (size_t i = 0; i < 3; i++) {
		traind__v1__peer__init(&fixture->peer[i]);
		fixture->peer[i].state = i == 2 ? lost : active;
		fixture->peers[i] = &fixture->peer[i];
	}
	fixture->job.peers = fixture->peers;
	fixture->job.n_peers = 3;
}

/* Of three merges in all. Its first two peers have measured links, to each other; the first one has another, of which only the round trip is known. The second one is slow. */
static void make_far(struct fixture *fixture)
{
	static char diloco[] = "diloco";
	make(fixture);
	traind__v1__merges__init(&fixture->merges);
	traind__v1__sync__init(&fixture->sync);
	traind__v1__model__init(&fixture->model);
	fixture->merges.count = 2;
	fixture->merges.sent_bytes = 5000000;
	fixture->merges.dense_bytes = 2060000000;
	fixture->merges.hidden = 0.934;
	fixture->progress.merges = &fixture->merges;
	fixture->sync.mode = diloco;
	fixture->sync.inner_steps = 250;
	fixture->model.layers = fixture->model.context = 8;
	fixture->train.sync = &fixture->sync;
	fixture->train.model = &fixture->model;
	for (size_t i = 0; i < 3; i++) {
		traind__v1__peer_link__init(&fixture->link[i]);
		fixture->links[i] = &fixture->link[i];
		fixture->peer[i].id = 5 + i;
	}
	fixture->link[0].peer = 6;
	fixture->link[0].bandwidth_bytes_per_s = 2.5 * (1 << 20);
	fixture->link[0].rtt_s = 0.02;
	fixture->link[1].peer = 7;
	fixture->link[1].rtt_s = 0.3;
	fixture->link[2].peer = 5;
	fixture->link[2].bandwidth_bytes_per_s = 1.25 * (1 << 20);
	fixture->link[2].rtt_s = 0.045;
	fixture->peer[0].links = fixture->links;
	fixture->peer[0].n_links = 2;
	fixture->peer[1].links = fixture->links + 2;
	fixture->peer[1].n_links = 1;
	fixture->peer[1].slow = 1;
}

static size_t columns(const char *text)
{
	size_t count = 0;
	for (; *text != '\0'; text++) {
		if (*text == '\033') {
			text = strchr(text, 'm');
			continue;
		}
		count += ((unsigned char)*text & 0xc0) != 0x80;
	}
	return count;
}

static void test_plain(void **state)
{
	(void)state;
	struct fixture fixture;
	char line[PROGRESS_LINE_MAX];
	make(&fixture);
	progress_plain(&fixture.job, line);
	assert_string_equal(line,
	    "step 312/600  loss 2.134  val -  tokens/s 41.2k  peers 2  view 4  eta 0:57");
	fixture.progress.val_loss = 2.2;
	fixture.progress.tokens_per_s = 0;
	progress_plain(&fixture.job, line);
	assert_string_equal(line,
	    "step 312/600  loss 2.134  val 2.200  tokens/s -  peers 2  view 4  eta -");
}

static void test_bar(void **state)
{
	(void)state;
	struct fixture fixture;
	struct progress_history history = { 0 };
	struct progress_style style = { .width = 100 };
	char line[PROGRESS_LINE_MAX];
	make(&fixture);
	size_t said = progress_bar(&fixture.job, &history, &style, line);
	assert_int_equal(said, columns(line));
	assert_string_equal(line,
	    "312/600  ####################-------------------  loss 2.134  41.2k tok/s  "
	    "2 peers  view 4  eta 0:57");
}

/* In no width, with no figures, does the line take more columns than it may or than it says. */
static void test_bar_fits_every_width(void **state)
{
	(void)state;
	struct fixture fixture;
	struct progress_history history = { 0 };
	char line[PROGRESS_LINE_MAX];
	make_far(&fixture);
	for (uint64_t step = 1; step <= 600; step++) {
		fixture.progress.step = step;
		fixture.progress.loss = 5.0 - (double)step / 200;
		fixture.progress.val_loss = step > 100 ? 4.2 : NAN;
		progress_remember(&history, &fixture.job);
		for (unsigned width = 8; width < 240; width += (unsigned)(step % 7) + 1) {
			struct progress_style style = { .width = width,
				.color = step % 2,
				.utf8 = step % 3 };
			size_t said = progress_bar(&fixture.job, &history, &style, line);
			if (said != columns(line) || said > width)
				fail_msg("width %u: says %zu, is %zu: %s", width, said,
				    columns(line), line);
		}
	}
}

static void test_waiting_job_says_why(void **state)
{
	(void)state;
	struct fixture fixture;
	struct progress_history history = { 0 };
	char line[PROGRESS_LINE_MAX];
	make(&fixture);
	fixture.job.progress = NULL;
	fixture.job.state = TRAIND__V1__JOB_STATE__JOB_STATE_QUEUED;
	fixture.job.reason = waits;
	(void)progress_bar(&fixture.job, &history, &(struct progress_style){ .width = 80 }, line);
	assert_string_equal(line, "queued: needs 3 slots, 2 are free");
	assert_int_equal(progress_bar(&fixture.job, &history,
	                     &(struct progress_style){ .width = 10 }, line),
	    10);
	assert_string_equal(line, "queued: ne");
	/* Letters are cut off whole, and counted as columns. */
	struct progress_style style = { .width = 11 };
	fixture.job.reason = umlauts;
	assert_int_equal(progress_bar(&fixture.job, &history, &style, line), 11);
	assert_string_equal(line, "queued: n\xc3\xb6\xc3\xb6");
	style.width = 0;
	assert_int_equal(progress_bar(&fixture.job, &history, &style, line), 0);
	fixture.job.reason = waits;
	progress_plain(&fixture.job, line);
	assert_string_equal(line, "queued: needs 3 slots, 2 are free");
}

static void test_history_averages(void **state)
{
	(void)state;
	struct fixture fixture;
	struct progress_history history = { 0 };
	make(&fixture);
	for (uint64_t step = 1; step <= 1000; step++) {
		fixture.progress.step = step;
		fixture.progress.loss = (double)step;
		progress_remember(&history, &fixture.job);
		progress_remember(&history, &fixture.job); /* the same step again counts once */
	}
	assert_true(history.count <= PROGRESS_SPARK_MAX && history.count >= PROGRESS_SPARK_MAX / 2);
	assert_int_equal(history.per_entry, 16);
	assert_true(history.loss[0] == 8.5); /* of 1 to 16 */
	for (size_t i = 1; i < history.count; i++)
		assert_true(history.loss[i] > history.loss[i - 1]);
}

/* Training that talks rarely says what that saves. */
static void test_merges(void **state)
{
	(void)state;
	struct fixture fixture;
	char line[PROGRESS_LINE_MAX];
	Traind__V1__Merges merges = TRAIND__V1__MERGES__INIT;
	make(&fixture);
	merges.count = 12;
	merges.sent_bytes = 5000000;
	merges.dense_bytes = 2060000000;
	merges.hidden = 0.934;
	fixture.progress.merges = &merges;
	progress_plain(&fixture.job, line);
	assert_non_null(strstr(line, "  merges 12  bytes 1/412  hidden 93%"));
	(void)progress_bar(&fixture.job, &(struct progress_history){ .count = 0 },
	    &(struct progress_style){ .width = 160 }, line);
	assert_non_null(strstr(line, "1/412 of ddp's bytes"));
	assert_non_null(strstr(line, "93% hidden"));
}

/* The outer step, who is slow, and what the slowest link carries. */
static void test_what_sets_the_pace(void **state)
{
	(void)state;
	struct fixture fixture;
	struct progress_history history = { 0 };
	char line[PROGRESS_LINE_MAX], folder[] = "/runs/before";
	Traind__V1__Checkpoint went_on = TRAIND__V1__CHECKPOINT__INIT;
	went_on.resume = folder;
	make_far(&fixture);
	progress_plain(&fixture.job, line);
	assert_string_equal(line,
	    "step 312/600  loss 2.134  val -  tokens/s 41.2k  peers 2  view 4  eta 0:57  merges "
	    "2/3  "
	    "bytes 1/412  hidden 93%  slow peer 6  slowest link 6 to 5, 1.2 MiB/s, 45 ms");
	(void)progress_bar(&fixture.job, &history, &(struct progress_style){ .width = 200 }, line);
	assert_non_null(strstr(line,
	    "  merge 2/3  1/412 of ddp's bytes  93% hidden  slow: peer 6  slowest link 6 to 5, 1.2 "
	    "MiB/s, 45 ms  view 4  eta 0:57"));
	/* The narrower the line, the less of it. */
	(void)progress_bar(&fixture.job, &history, &(struct progress_style){ .width = 85 }, line);
	assert_non_null(strstr(line, "  41.2k tok/s  2 peers  merge 2/3  slow: peer 6"));
	assert_null(strstr(line, "ddp"));
	(void)progress_bar(&fixture.job, &history, &(struct progress_style){ .width = 130 }, line);
	assert_non_null(strstr(line, "% hidden"));
	assert_null(strstr(line, "slowest"));
	/* What was not measured is not said, nor how many merges there will be where it goes by time, or went on from a checkpoint. */
	fixture.peer[0].slow = 1;
	fixture.peer[1].n_links = 0;
	fixture.link[0] = fixture.link[1];
	fixture.sync.inner_steps = 0;
	fixture.sync.inner_seconds = 30;
	progress_plain(&fixture.job, line);
	assert_non_null(strstr(line,
	    "  merges 2  bytes 1/412  hidden 93%  slow 2 peers  slowest link 5 to 7, 300 ms"));
	fixture.sync.inner_steps = 250;
	fixture.sync.inner_seconds = 0;
	progress_plain(&fixture.job, line);
	assert_non_null(strstr(line, "  merges 2/3  "));
	fixture.job.restarts = 1;
	progress_plain(&fixture.job, line);
	assert_non_null(strstr(line, "  merges 2  "));
	fixture.job.restarts = 0;
	fixture.train.checkpoint = &went_on;
	progress_plain(&fixture.job, line);
	assert_non_null(strstr(line, "  merges 2  "));
	fixture.peer[0].n_links = 0;
	fixture.peer[0].slow = fixture.peer[1].slow = 0;
	progress_plain(&fixture.job, line);
	assert_null(strstr(line, "slow"));
}

static void test_figures(void **state)
{
	(void)state;
	char text[PRINT_FIGURE_MAX];
	assert_string_equal(print_duration(59.4, text), "0:59");
	assert_string_equal(print_duration(59.6, text), "1:00");
	assert_string_equal(print_duration(3725, text), "1:02:05");
	assert_string_equal(print_duration(NAN, text), "-");
	assert_string_equal(print_rate(999, text), "999");
	assert_string_equal(print_rate(999949, text), "999.9k");
	assert_string_equal(print_rate(999951, text), "1.00M");
	assert_string_equal(print_part(1, 500, text), "1/500");
	assert_string_equal(print_part(3, 4, text), "0.75");
	assert_string_equal(print_part(0, 4, text), "-");
	assert_string_equal(print_latency(85e-6, text), "85 us");
	assert_string_equal(print_latency(1.25e-3, text), "1.2 ms");
	assert_string_equal(print_latency(0.15, text), "150 ms");
	assert_string_equal(print_latency(0, text), "-");
	assert_string_equal(print_bytes(0, text), "0 B");
	assert_string_equal(print_bytes(16777216, text), "16.0 MiB");
	assert_string_equal(print_bytes(UINT64_MAX, text), "16.0 EiB");
	assert_string_equal(print_clock(0, text), "--:--:--");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain),
		cmocka_unit_test(test_bar),
		cmocka_unit_test(test_bar_fits_every_width),
		cmocka_unit_test(test_waiting_job_says_why),
		cmocka_unit_test(test_history_averages),
		cmocka_unit_test(test_merges),
		cmocka_unit_test(test_what_sets_the_pace),
		cmocka_unit_test(test_figures),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
