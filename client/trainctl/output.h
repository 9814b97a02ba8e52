/* What ranks write, onto stdout: whole lines behind "[rank] ", or raw. */
#ifndef TR_CLIENT_TRAINCTL_OUTPUT_H
#define TR_CLIENT_TRAINCTL_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"

#define OUTPUT_LINE_MAX 4096 /* longer lines are broken */

struct output_line {
	char *text; /* OUTPUT_LINE_MAX bytes, or NULL */
	size_t length;
};

struct output {
	bool raw, color;
	char last;                 /* raw: what was written last, or 0 */
	struct output_line *lines; /* by rank */
	size_t ranks;
	int failed; /* why stdout takes no more, as errno; nothing is written then */
};

/* May be called from the start with zeroed memory but for raw and color. */
void output_write(struct output *output, uint32_t rank, const uint8_t *data, size_t bytes);
/* So many bytes of the rank's output are not to be had: said on a line of its own. 0: nothing. */
void output_gap(struct output *output, uint32_t rank, uint64_t bytes);
void output_flush(struct output *output); /* lines without an end */
/* After any writes to stdout, before which errno was 0: flushes; *failed, if it is 0, becomes why not all was taken. */
void output_check(int *failed);
/* Flushes; 0, or why not all could be written (errno): EPIPE where the reader has left. */
int output_finish(struct output *output);

#endif
