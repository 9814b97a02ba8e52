/* Copies of what is not read again soon. Any thread. */
#ifndef TR_COLLECTIVES_KERNELS_COPY_H
#define TR_COLLECTIVES_KERNELS_COPY_H

#include <stddef.h>

/* As memcpy, but `to` is written past the caches: nothing of it is read first, and nothing that is in use makes room for it. For
 * results of large vectors: two memory transfers a byte instead of three. `to` is not in cache afterwards, `from` is. */
void copy_past_cache(void *to, const void *from, size_t bytes);

#endif
