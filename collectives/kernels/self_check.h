/* Does a form of the kernels give the bits of "plain" on this machine? Some thousand elements through each kernel, type and operation: 0.7 ms
 * of a processor here, once in a process. The unit tests look at far more, but were not run on every processor that there is.
 */
#ifndef TR_COLLECTIVES_KERNELS_SELF_CHECK_H
#define TR_COLLECTIVES_KERNELS_SELF_CHECK_H

#include <stdbool.h>
#include <stddef.h>

#include "collectives/kernels/variant.h"

/* false: `what` gets the first kernel that differs. Any thread. */
bool self_check_variant(const struct variant *variant, char *what, size_t what_bytes);

#endif
