/* metrics.jsonl, as daemon/worker/metrics.h describes it: one line a step, as a trainer's checkpoint folder has it. A run that went back to a
 * checkpoint wrote some steps twice: the later line counts. Lines that are cut short or hold something else are passed over.
 */
#ifndef TR_CLIENT_TRAINCTL_METRICS_FILE_H
#define TR_CLIENT_TRAINCTL_METRICS_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct metrics_point {
	uint64_t step;
	double loss, val_loss; /* NaN: none */
	double sent_bytes;     /* NaN: not known */
};

/* A job, as a row says whose it is (daemon/worker/metrics.h). */
struct metrics_job {
	uint64_t id, submitted_unix_ms; /* 0: it does not say */
};

struct metrics_file {
	struct metrics_point *points; /* ascending by step */
	size_t count;
	/* Where a job was asked for: how many lines are its own and how many say nothing, and the last one's who is another. */
	size_t own, unknown;
	struct metrics_job other;
};

/* Of `job` (NULL: everything): its lines, and those before its first one, from which it may have gone on. TR_EIO: it cannot be read; TR_EINVAL: no line of it is a
 * step; TR_ENOMEM. */
tr_status metrics_file_read(const char *path, const struct metrics_job *job,
    struct metrics_file *file, struct tr_error *error);
uint64_t metrics_file_last(const struct metrics_file *file); /* step */
void metrics_file_finish(struct metrics_file *file);

#endif
