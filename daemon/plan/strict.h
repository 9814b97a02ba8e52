/* Strict arithmetic (train.strict): the same bits whatever the layout. A sum of floating-point numbers depends on its order, and a matrix product on the shape that the library is called with; so
 * both are cut the same way wherever they are computed. The width of a model and the sequences of a batch are cut into equal parts, a power of two of them that follows from the
 * job alone; each part is computed by itself, and sums of parts are a binary tree. A worker of a mesh has so many neighbouring parts of each, all of them where there is one
 * worker: a subtree, whose result goes to the levels above, between workers. Those add two numbers each, which has no order.
 *
 * That the shards of a model are more than the workers, and computed one after the other by those that there are, is the virtual nodes of VirtualFlow (Or et al., arXiv 2009.09523). Pure.
 */
#ifndef TR_DAEMON_PLAN_STRICT_H
#define TR_DAEMON_PLAN_STRICT_H

#include "daemon/plan/model_config.h"

/* At most: dp and tp up to 8. More would be more and smaller products for one worker, which pays for each layout that could be; each further doubling also takes an array of gradients. */
#define STRICT_PARTS_MAX 8u
/* Into so many the work inside a part is cut for threads: more than these are of no use. */
#define STRICT_THREADS 4u

/* Parts of the width: divide heads, hidden channels, vocabulary and context. Of a filled config. */
uint32_t strict_width_parts(const struct model_config *config);
/* Parts of a batch of so many sequences. */
uint32_t strict_batch_parts(uint64_t sequences);
/* The largest power of two that is at most `most` (at least 1). */
uint32_t strict_power_of_two(uint32_t most);

#endif
