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

struct metrics_file {
	struct metrics_point *points; /* ascending by step */
	size_t count;
};

/* TR_EIO: it cannot be read; TR_EINVAL: no line of it is a step; TR_ENOMEM. */
tr_status metrics_file_read(const char *path, struct metrics_file *file, struct tr_error *error);
uint64_t metrics_file_last(const struct metrics_file *file); /* step */
void metrics_file_finish(struct metrics_file *file);

#endif
