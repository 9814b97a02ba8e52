#include "client/trainctl/metrics_file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_read.h"

static bool read_line(const char *line, size_t length, struct metrics_point *point,
    struct metrics_job *job)
{
	struct json_reader r;
	char key[32];
	*job = (struct metrics_job){ 0 };
	*point = (struct metrics_point){ .loss = NAN, .val_loss = NAN, .sent_bytes = NAN };
	json_read_init(&r, line, length);
	for (json_read_object(&r); json_read_key(&r, key, sizeof(key));) {
		if (strcmp(key, "step") == 0)
			json_read_uint(&r, &point->step);
		else if (strcmp(key, "loss") == 0)
			json_read_double(&r, &point->loss);
		else if (strcmp(key, "val_loss") == 0)
			json_read_double(&r, &point->val_loss);
		else if (strcmp(key, "sent_bytes") == 0)
			json_read_double(&r, &point->sent_bytes);
		else if (strcmp(key, "job") == 0)
			json_read_uint(&r, &job->id);
		else if (strcmp(key, "submitted_unix_ms") == 0)
			json_read_uint(&r, &job->submitted_unix_ms);
		else
			json_read_skip(&r);
	}
	return json_read_end(&r) && point->step > 0;
}

/* What was done after the step to which a run went back was done again. */
static tr_status append(struct metrics_file *file, size_t *room, const struct metrics_point *point)
{
	while (file->count > 0 && file->points[file->count - 1].step >= point->step)
		file->count--;
	if (file->count == *room) {
		size_t more = *room == 0 ? 1024 : 2 * *room;
		struct metrics_point *grown = realloc(file->points, more * sizeof(*grown));
		if (grown == NULL)
			return TR_ENOMEM;
		file->points = grown;
		*room = more;
	}
	file->points[file->count++] = *point;
	return TR_OK;
}

/* Whether a line of `job` is one of those wanted. */
static bool is_wanted(struct metrics_file *file, const struct metrics_job *wanted,
    const struct metrics_job *job)
{
	if (wanted == NULL)
		return true;
	if (job->id == wanted->id && job->submitted_unix_ms == wanted->submitted_unix_ms) {
		file->own++;
		return true;
	}
	if (job->id == 0)
		file->unknown++;
	else
		file->other = *job;
	return file->own == 0;
}

tr_status metrics_file_read(const char *path, const struct metrics_job *wanted,
    struct metrics_file *file, struct tr_error *error)
{
	FILE *stream = fopen(path, "r");
	char *line = NULL;
	size_t line_bytes = 0, room = 0;
	ssize_t length;
	struct metrics_point point;
	struct metrics_job job;
	tr_status status = TR_OK;
	*file = (struct metrics_file){ .points = NULL };
	if (stream == NULL)
		return tr_error_set(error, TR_EIO, "%s: %s", path, strerror(errno));
	while (status == TR_OK && (length = getline(&line, &line_bytes, stream)) > 0)
		if (read_line(line, (size_t)length, &point, &job) && is_wanted(file, wanted, &job))
			status = append(file, &room, &point);
	if (status == TR_OK && ferror(stream))
		status = tr_error_set(error, TR_EIO, "%s: %s", path, strerror(errno));
	else if (status == TR_ENOMEM)
		status = tr_error_set(error, status, "%s: no memory for its lines", path);
	else if (file->count == 0)
		status = tr_error_set(error, TR_EINVAL, "%s: no line of it is a training step",
		    path);
	free(line);
	(void)fclose(stream);
	if (status != TR_OK)
		metrics_file_finish(file);
	return status;
}

uint64_t metrics_file_last(const struct metrics_file *file)
{
	return file->count > 0 ? file->points[file->count - 1].step : 0;
}

void metrics_file_finish(struct metrics_file *file)
{
	free(file->points);
	*file = (struct metrics_file){ .points = NULL };
}
