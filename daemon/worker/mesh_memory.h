/* Memory of a group (tr_alloc) that can be given back, for what is made anew in the middle of a job. tr_alloc keeps its memory for good; what was given back here is handed out
 * again, and its pages are the system's until then. One caller thread.
 *
 *	float *numbers = mesh_memory_take(&memory, count * sizeof(float));   // zeroed
 *	...                                                                  // ops; a round that is decided or begun again: none of them uses it any more
 *	mesh_memory_give(&memory, numbers);
 */
#ifndef TR_DAEMON_WORKER_MESH_MEMORY_H
#define TR_DAEMON_WORKER_MESH_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "collectives/coll.h"

struct mesh_memory_area {
	void *data;
	size_t bytes;
	bool taken;
};

struct mesh_memory {
	tr_group *group;
	struct mesh_memory_area *areas;
	size_t count, room;
};

void mesh_memory_init(tr_group *group, struct mesh_memory *memory);
/* The table alone: what was taken stays the group's. */
void mesh_memory_finish(struct mesh_memory *memory);
/* Zeroed, 64-byte aligned. NULL: there is none. */
void *mesh_memory_take(struct mesh_memory *memory, size_t bytes);
void mesh_memory_give(struct mesh_memory *memory, void *data); /* accepts NULL */
/* Of a part of what was taken: it reads as zeros, and its whole pages are the system's until it is written, or read. */
void mesh_memory_clear(void *data, size_t bytes);
/* All that was ever asked of the group. */
size_t mesh_memory_bytes(const struct mesh_memory *memory);

#endif
