/* metrics.jsonl and the picture made of it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/trainctl/plot.h"

static tr_status read_text(const char *text, struct metrics_file *file, struct tr_error *error)
{
	char path[] = "/tmp/test-plot-XXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	(void)close(fd);
	tr_status status = metrics_file_read(path, NULL, file, error);
	(void)unlink(path);
	return status;
}

/* As its writer has it; cut short in mid line; from a run that went back to step 2. */
static void test_lines(void **state)
{
	(void)state;
	struct metrics_file file;
	struct tr_error error;
	assert_int_equal(read_text("{\"step\":1,\"loss\":5.5,\"val_loss\":null,\"grad_norm\":1.2,"
	                           "\"sent_bytes\":null}\n"
	                           "{\"step\":2,\"loss\":5e0,\"val_loss\":4.75,\"sent_bytes\":1.5e+"
	                           "06}\n"
	                           "{\"step\":3,\"loss\":9}\n"
	                           "not json\n"
	                           "{\"step\":3,\"loss\":-4.5,\"more\":{\"a\":[1,2]}}\n"
	                           "{\"step\":4,\"lo",
	                     &file, &error),
	    TR_OK);
	assert_int_equal(file.count, 3);
	assert_true(file.points[0].step == 1 && file.points[0].loss == 5.5);
	assert_true(isnan(file.points[0].val_loss) && isnan(file.points[0].sent_bytes));
	assert_true(file.points[1].val_loss == 4.75 && file.points[1].sent_bytes == 1.5e6);
	assert_true(file.points[2].step == 3 && file.points[2].loss == -4.5);
	metrics_file_finish(&file);
	assert_int_equal(read_text("{\"loss\":1}\n", &file, &error), TR_EINVAL);
	assert_non_null(strstr(error.text, "no line of it is a training step"));
	assert_int_equal(metrics_file_read("/nowhere/metrics.jsonl", NULL, &file, &error), TR_EIO);
	assert_non_null(strstr(error.text, "/nowhere/metrics.jsonl: No such file"));
}

/* A job's own, of a file that several used, and what it went on from. */
static void test_lines_of_jobs(void **state)
{
	(void)state;
#define ROW(step, loss, job) \
	"{\"step\":" #step ",\"loss\":" #loss ",\"job\":" #job ",\"submitted_unix_ms\":7}\n"
	static const char text[] = "{\"step\":1,\"loss\":9}\n{\"step\":2,\"loss\":8}\n" ROW(2, 7, 1)
	    ROW(3, 6, 1) ROW(1, 5, 2) ROW(4, 4, 1) ROW(2, 3, 2);
	struct metrics_file file;
	struct metrics_job job = { 1, 7 };
	char path[] = "/tmp/test-plot-XXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	(void)close(fd);
	assert_int_equal(metrics_file_read(path, &job, &file, NULL), TR_OK);
	assert_true(file.count == 4 && file.own == 3 && file.unknown == 2 && file.other.id == 2);
	static const double losses[] = { 9, 7, 6, 4 };
	for (size_t i = 0; i < 4; i++)
		assert_true(file.points[i].step == i + 1 && file.points[i].loss == losses[i]);
	metrics_file_finish(&file);
	job.id = 2;
	assert_int_equal(metrics_file_read(path, &job, &file, NULL), TR_OK);
	assert_true(file.count == 2 && file.own == 2);
	assert_true(file.points[0].loss == 5 && file.points[1].loss == 3);
	metrics_file_finish(&file);
	/* Another cluster's job 2. */
	job.submitted_unix_ms = 8;
	assert_int_equal(metrics_file_read(path, &job, &file, NULL), TR_OK);
	assert_true(file.own == 0 && file.other.id == 2 && file.other.submitted_unix_ms == 7);
	metrics_file_finish(&file);
	(void)unlink(path);
}

static char *draw(const struct plot_run *runs, size_t count)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *stream = open_memstream(&text, &bytes);
	assert_non_null(stream);
	assert_true(plot_write(stream, runs, count));
	(void)fclose(stream);
	return text;
}

static unsigned count_of(const char *text, const char *what)
{
	unsigned found = 0;
	while ((text = strstr(text, what)) != NULL) {
		found++;
		text += strlen(what);
	}
	return found;
}

static void test_picture(void **state)
{
	(void)state;
	struct metrics_point points[2000];
	for (unsigned i = 0; i < 2000; i++)
		points[i] = (struct metrics_point){ .step = i + 1,
			.loss = 5 - 0.002 * i,
			.val_loss = i % 500 == 499 ? 5 - 0.002 * i : NAN,
			.sent_bytes = NAN };
	struct metrics_file file = { .points = points, .count = 2000 };
	const struct plot_run runs[] = { { "a <b> & c", &file }, { "second", &file } };
	char *svg = draw(runs, 1);
	/* One panel: nobody knows what was sent. */
	assert_int_equal(count_of(svg, "loss over"), 1);
	assert_int_equal(count_of(svg, "<circle"), 4);
	assert_int_equal(count_of(svg, "a &lt;b&gt; &amp; c"), 1);
	/* Neighbours were averaged, and everything lies in the panel. */
	const char *train = strstr(svg, "class=\"train\"");
	assert_non_null(train);
	unsigned drawn = 0;
	double x, y, last = 0;
	int used;
	for (const char *at = strstr(train, "points=\"") + 8;
	     sscanf(at, "%lf,%lf%n", &x, &y, &used) == 2; at += used, drawn++) {
		assert_true(x >= last && y > 0 && y < 400);
		last = x;
	}
	assert_in_range(drawn, 200, PLOT_POINTS_MAX);
	free(svg);
	for (unsigned i = 10; i < 2000; i++)
		points[i].sent_bytes = 3e6 * i;
	svg = draw(runs, 2);
	assert_int_equal(count_of(svg, "loss over"), 2);
	assert_int_equal(count_of(svg, ">GB<"), 1);
	assert_int_equal(count_of(svg, "class=\"val\""), 4);
	assert_int_equal(count_of(svg, "nan") + count_of(svg, "inf"), 0);
	free(svg);
	/* Folders may be called anything, of which XML takes little. */
	const struct plot_run odd[] = { { "caf\xe9 ]]>\x1b \xc3\xa9\xef\xbf\xbf", &file } };
	svg = draw(odd, 1);
	assert_int_equal(count_of(svg, ">caf\xef\xbf\xbd ]]&gt; \xc3\xa9\xef\xbf\xbd</text>"), 1);
	free(svg);
	/* A single point has no curve, and a picture all the same. */
	file.count = 1;
	svg = draw(runs, 1);
	assert_non_null(strstr(svg, "</svg>"));
	free(svg);
}

/* A run that blew up: as large as numbers get, and several in one point of the curve. */
static void test_huge_losses(void **state)
{
	(void)state;
	static const double losses[] = { 5, 1.79e308, 1.7e308, 1e308 };
	enum { COUNT = 3 * PLOT_POINTS_MAX };
	static struct metrics_point points[COUNT];
	for (unsigned i = 0; i < COUNT; i++)
		points[i] = (struct metrics_point){ .step = i + 1,
			.loss = losses[i % 4],
			.val_loss = losses[(i + 1) % 4],
			.sent_bytes = 1.79e308 / COUNT * (i + 1) };
	struct metrics_file file = { .points = points, .count = COUNT };
	const struct plot_run run = { "huge", &file };
	char *svg = draw(&run, 1);
	assert_int_equal(count_of(svg, "nan") + count_of(svg, "inf"), 0);
	assert_int_equal(count_of(svg, ">1.5e+308</text>"), 2);
	for (const char *line = svg; (line = strstr(line, "points=\"")) != NULL;) {
		double x, y;
		int used;
		unsigned drawn = 0;
		for (line += 8; sscanf(line, "%lf,%lf%n", &x, &y, &used) == 2; line += used, drawn++)
			assert_true(x >= 0 && x < 1100 && y >= 40 && y <= 360);
		assert_true(drawn >= PLOT_POINTS_MAX / 2);
	}
	free(svg);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_lines),
		cmocka_unit_test(test_lines_of_jobs), cmocka_unit_test(test_picture),
		cmocka_unit_test(test_huge_losses) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
