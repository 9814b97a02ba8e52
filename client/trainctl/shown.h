/* How far each worker's output was shown, so that a stream that was begun again repeats nothing and leaves nothing out. By position,
 * since it begins at the oldest byte that is still kept.
 */
#ifndef TR_CLIENT_TRAINCTL_SHOWN_H
#define TR_CLIENT_TRAINCTL_SHOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "traind/v1/trainer.pb-c.h"

struct shown_peer {
	uint64_t peer;
	uint64_t end; /* position behind what was shown */
	uint64_t at;  /* of the stream's next byte, where its pieces do not say */
	bool fresh;   /* its next piece may begin anywhere */
};

struct shown {
	struct shown_peer *peers;
	size_t count;
	bool anywhere; /* a peer's first piece may begin late: that was asked for */
};

struct shown_piece {
	size_t skip;      /* bytes of it that were shown before */
	uint64_t missing; /* between what was shown and this piece */
};

/* What of this piece is new; it counts as shown then. Zeroed at first. */
struct shown_piece shown_add(struct shown *shown, const Traind__V1__LogChunk *chunk);
/* The stream was begun again. */
void shown_begin_again(struct shown *shown);
void shown_finish(struct shown *shown);

#endif
