/* What a followed job shows: on a terminal lines that stay and one that moves below them, elsewhere lines only, not more than
 * one of progress every two seconds.
 */
#ifndef TR_CLIENT_TRAINCTL_SCREEN_H
#define TR_CLIENT_TRAINCTL_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/trainctl/config.h"
#include "client/trainctl/progress.h"

struct screen {
	const struct config *config;
	struct progress_history history;
	size_t drawn;      /* columns of the moving line; 0: none is there */
	uint64_t plain_ms; /* when the last plain line of progress was printed */
	uint64_t plain_step;
	char last_event[256]; /* printed so far: its time and text */
	uint64_t last_event_ms;
	char last_state[256];
	bool shown_any;
	int failed; /* why stdout has not taken all, as errno */
};

/* A message of the job: new events, then progress. `now_ms` is monotonic. */
void screen_show(struct screen *screen, const Traind__V1__Job *job, uint64_t now_ms);
void screen_redraw(struct screen *screen, const Traind__V1__Job *job); /* after a resize */
/* A line that stays, above the moving one. */
void screen_say(struct screen *screen, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Leaves the last state of the progress as a line. */
void screen_end(struct screen *screen, const Traind__V1__Job *job);

/* Of the terminal that stdout is; 0: it is none, or does not say. */
unsigned screen_columns(void);

#endif
