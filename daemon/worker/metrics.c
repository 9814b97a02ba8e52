#include "daemon/worker/metrics.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/json.h"
#include "common/json_read.h"

#define LINE_MAX_BYTES 1024
#define PATH_BYTES     (CHECKPOINT_PATH_MAX + 16)

/* The file's last whole line. step 0: there is none. */
struct last_row {
	uint64_t step;
	double loss;
	off_t at;
	size_t length; /* with its newline */
};

static struct last_row last_row(const char *path)
{
	char text[2 * LINE_MAX_BYTES], key[16];
	struct json_reader reader;
	struct last_row row = { .loss = NAN };
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	off_t from = size > (off_t)sizeof(text) ? size - (off_t)sizeof(text) : 0;
	ssize_t length = size <= 0 ? 0 : pread(fd, text, sizeof(text), from);
	if (fd >= 0)
		(void)close(fd);
	const char *end = length <= 0 ? NULL : memrchr(text, '\n', (size_t)length);
	if (end == NULL)
		return row;
	const char *before = memrchr(text, '\n', (size_t)(end - text));
	const char *line = before == NULL ? text : before + 1;
	row.at = from + (line - text);
	row.length = (size_t)(end - line) + 1;
	json_read_init(&reader, line, (size_t)(end - line));
	for (json_read_object(&reader); json_read_key(&reader, key, sizeof(key));) {
		if (strcmp(key, "step") == 0)
			(void)json_read_uint(&reader, &row.step);
		else if (strcmp(key, "loss") == 0)
			(void)json_read_double(&reader, &row.loss);
		else
			(void)json_read_skip(&reader);
	}
	return row;
}

/* Whether the file ends within a row, as where its disk was full. */
static bool ends_torn(int fd)
{
	char last = '\n';
	off_t size = lseek(fd, 0, SEEK_END);
	return size > 0 && pread(fd, &last, 1, size - 1) == 1 && last != '\n';
}

/* NULL: no memory. */
static const char *row_text(struct json *json, const struct metrics_row *row)
{
	json_object(json);
	json_key(json, "step");
	json_uint(json, row->step);
	json_key(json, "unix_ms");
	json_uint(json, row->unix_ms);
	json_key(json, "loss");
	json_double(json, row->loss);
	json_key(json, "val_loss");
	json_double(json, row->val_loss);
	json_key(json, "grad_norm");
	json_double(json, row->grad_norm);
	json_key(json, "lr");
	json_double(json, row->lr);
	json_key(json, "tokens_per_s");
	json_double(json, row->tokens_per_s);
	json_key(json, "contributors");
	json_uint(json, row->contributors);
	json_key(json, "view");
	json_uint(json, row->view);
	json_key(json, "sent_bytes");
	json_double(json, row->sent_bytes);
	json_key(json, "dense_bytes");
	json_double(json, row->dense_bytes);
	json_key(json, "hidden");
	json_double(json, row->hidden);
	json_key(json, "step_s");
	json_double(json, row->step_s);
	json_key(json, "planned_step_s");
	json_double(json, row->planned_step_s);
	if (row->job > 0) {
		json_key(json, "job");
		json_uint(json, row->job);
		json_key(json, "submitted_unix_ms");
		json_uint(json, row->submitted_unix_ms);
	}
	json_end(json);
	return json_text(json);
}

static bool append(const char *path, const struct metrics_row *row)
{
	struct json json = { 0 };
	const char *text = row_text(&json, row);
	bool written = false;
	int fd = text == NULL ? -1 : open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (fd >= 0) {
		char line[LINE_MAX_BYTES];
		int length = snprintf(line, sizeof(line), "%s%s\n", ends_torn(fd) ? "\n" : "", text);
		written = length > 0 && (size_t)length < sizeof(line) &&
		    write(fd, line, (size_t)length) == length;
		(void)close(fd);
	}
	json_finish(&json);
	return written;
}

/* In its place, with one write: spaces fill what the new text lacks. */
static bool write_over(const char *path, const struct last_row *last, const struct metrics_row *row)
{
	struct json json = { 0 };
	const char *text = row_text(&json, row);
	bool written = false;
	int fd = text == NULL ? -1 : open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		char line[LINE_MAX_BYTES];
		int length = snprintf(line, sizeof(line), "%-*s\n", (int)last->length - 1, text);
		written = length > 0 && (size_t)length < sizeof(line) &&
		    pwrite(fd, line, (size_t)length, last->at) == length;
		(void)close(fd);
	}
	json_finish(&json);
	return written;
}

static void path_of(const char *folder, char path[PATH_BYTES])
{
	(void)snprintf(path, PATH_BYTES, "%s/metrics.jsonl", folder);
}

static void keep(struct metrics *m, const struct metrics_row *row)
{
	if (m->count > 0 && row->step <= m->kept[m->count - 1].step)
		m->count = 0; /* back at a checkpoint: those are no longer steps of this job */
	if (m->count == METRICS_KEPT)
		memmove(m->kept, m->kept + 1, --m->count * sizeof(*row));
	m->kept[m->count++] = *row;
}

/* By its loss: one of that step may be there that was undone, or is of another job. */
static bool is_row(const struct last_row *there, const struct metrics_row *row)
{
	bool numbers = isfinite(there->loss) || isfinite(row->loss);
	return there->step == row->step && (!numbers || there->loss == row->loss);
}

/* Of what is kept, the first that the file lacks: the one behind its last row. If that is none of these, it is older, or of steps that were undone. */
static unsigned first_missing(const struct metrics *m, const struct last_row *there)
{
	unsigned first = m->count;
	while (first > 0 && !is_row(there, &m->kept[first - 1]))
		first--;
	return first;
}

/* What the file lacks of what is kept. Of who wrote the row before that are the newest `fresh`. */
static bool bring(struct metrics *m, const char *folder, unsigned fresh, bool writes)
{
	char path[PATH_BYTES];
	bool written = true, wrote = m->writes;

	m->writes = writes && folder[0] != '\0';
	if (!m->writes)
		return true;
	(void)mkdir(folder, 0777);
	path_of(folder, path);
	unsigned first = m->count - fresh;
	if (!wrote) {
		struct last_row there = last_row(path);
		first = first_missing(m, &there);
	}
	for (unsigned i = first; written && i < m->count; i++)
		written = append(path, &m->kept[i]);
	m->writes = written;
	return written;
}

bool metrics_add(struct metrics *m, const char *folder, const struct metrics_row *row, bool writes)
{
	keep(m, row);
	return bring(m, folder, 1, writes);
}

bool metrics_end(struct metrics *m, const char *folder, double val_loss, bool writes)
{
	struct metrics_row *newest = m->count > 0 ? &m->kept[m->count - 1] : NULL;
	char path[PATH_BYTES];
	if (newest != NULL && isfinite(val_loss))
		newest->val_loss = val_loss;
	if (!bring(m, folder, 0, writes))
		return false;
	if (newest == NULL || !m->writes || !isfinite(val_loss))
		return true;
	path_of(folder, path);
	struct last_row last = last_row(path);
	return last.step != newest->step || write_over(path, &last, newest);
}
