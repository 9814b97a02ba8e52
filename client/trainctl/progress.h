/* How a training job goes, as one line: a bar that fits the terminal, or plain words. Pure. */
#ifndef TR_CLIENT_TRAINCTL_PROGRESS_H
#define TR_CLIENT_TRAINCTL_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "traind/v1/trainer.pb-c.h"

#define PROGRESS_LINE_MAX  1024
#define PROGRESS_SPARK_MAX 64

/* Losses for the sparkline: at most PROGRESS_SPARK_MAX, neighbours are averaged when it is full. */
struct progress_history {
	double loss[PROGRESS_SPARK_MAX];
	size_t count;
	unsigned per_entry, in_last; /* updates averaged in an entry; in the last one */
	uint64_t step;               /* of the newest update */
};
void progress_remember(struct progress_history *history, const Traind__V1__Job *job);

struct progress_style {
	unsigned width; /* columns that may be used */
	bool color, utf8;
};

/* Both write at most PROGRESS_LINE_MAX bytes; progress_bar returns the columns it takes. */
size_t progress_bar(const Traind__V1__Job *job, const struct progress_history *history,
    const struct progress_style *style, char line[PROGRESS_LINE_MAX]);
void progress_plain(const Traind__V1__Job *job, char line[PROGRESS_LINE_MAX]);

unsigned progress_live_peers(const Traind__V1__Job *job);
/* Merges that the job comes to; 0: not known, or it has more by now; also where it went on from a checkpoint: its schedule began anew there, and how many it has from before does not say where. */
uint64_t progress_merges(const Traind__V1__Job *job);
uint64_t progress_steps(const Traind__V1__Job
        *job); /* in all; of one that has not said it, as it was asked for; 0: not known */
double progress_eta_s(const Traind__V1__Job *job); /* NaN: not known */

#endif
