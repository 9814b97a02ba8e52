/* Curves of losses as one SVG: over steps, and beside it over what was sent, if that is known. Light and dark readers' own backgrounds
 * are not relied on: it has its own. Pure but for the stream.
 *
 * Of each run: the training loss as a thin line (means of neighbours, at most PLOT_POINTS_MAX of them), validation losses as a thick one with dots.
 */
#ifndef TR_CLIENT_TRAINCTL_PLOT_H
#define TR_CLIENT_TRAINCTL_PLOT_H

#include <stdbool.h>
#include <stdio.h>

#include "client/trainctl/metrics_file.h"

#define PLOT_RUNS_MAX   8
#define PLOT_POINTS_MAX 400

struct plot_run {
	const char *name;
	const struct metrics_file *metrics;
};

/* `runs`: 1 to PLOT_RUNS_MAX. False: the stream took no more. */
bool plot_write(FILE *stream, const struct plot_run *runs, size_t count);

#endif
