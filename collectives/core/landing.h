/* Results that are received where they belong, in the op's memory, instead of being copied there.
 *
 * While its bytes come in, the segment is not sealed, but an input in place is no longer whole. So a result lands only
 *  * where the input is apart (out of place, or saved for POLICY_UNIFORM), or
 *  * with POLICY_REPLAY from a contributor: it has sealed what it sends. If it lives on, so does the result, and is served in the
 *    next view; if it dies, a contributor was lost, and the round goes on only with segments that are whole at some survivor
 *    (docs/architecture.md, "View changes, exactly", 7). Either way nobody asks for our input again. With POLICY_KEEP they do.
 *
 * The memory is the caller's. So when sends are dropped (a proposal freezes the view, the member fails) or the ops go,
 * whatever is under way is revoked: the rest of the frame is received into the buffer that stands behind each landing, and
 * then dropped as stale.
 */
#ifndef TR_COLLECTIVES_CORE_LANDING_H
#define TR_COLLECTIVES_CORE_LANDING_H

#include <stdint.h>

#include "proto/segment.h"

struct group_buffer;
struct group_core;
struct op_segment;

/* Memory for the payload whose header has come: the op's own, if a result may be received there. One reference; NULL: out of
 * memory. */
struct group_buffer *landing_take(struct group_core *core, uint64_t from,
    const struct segment_header *header);
/* What comes from now on is received elsewhere and is part of nothing. */
void landing_revoke(struct op_segment *segment);
void landing_revoke_all(struct group_core *core);
/* The frame is whole, or will never be. */
void landing_end(struct group_core *core, struct group_buffer *buffer);

#endif
