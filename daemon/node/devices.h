/* What this machine has, found once at start with hwloc. */
#ifndef TR_DAEMON_NODE_DEVICES_H
#define TR_DAEMON_NODE_DEVICES_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define DEVICES_MAX      32
#define DEVICES_NAME_MAX 96

struct devices {
	unsigned cores; /* hardware threads that we may run on */
	uint64_t memory_bytes;
	size_t count;
	char names[DEVICES_MAX][DEVICES_NAME_MAX]; /* "cpu: AMD EPYC 9B45, 2 cores", "gpu: ..." */
};

/* Never fails: what hwloc cannot say is asked of the kernel. */
void devices_detect(struct devices *devices);

#endif
