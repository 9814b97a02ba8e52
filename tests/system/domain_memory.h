/* Memory that a backend's collectives work on, for domain_peer and domainbench: the host's ("mpi"), or a GPU's with a mirror in
 * pinned host memory ("nccl").
 *
 *	memory_domain(&m, &options, &why);
 *	float *x = memory_new(&m, bytes);              // what the program reads and writes
 *	memory_put(&m, x);                             // to the device, on m.stream; does not wait
 *	tr_domain_allreduce(domain, 0, memory_place(&m, x), ...);
 *	memory_get(&m, x);                             // from the device; waits
 */
#ifndef TR_TESTS_SYSTEM_DOMAIN_MEMORY_H
#define TR_TESTS_SYSTEM_DOMAIN_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "collectives/domain.h"

#define MEMORY_BLOCKS 16

struct memory {
	void *library; /* NULL: the host's */
	void *stream;  /* all copies are on it */
	struct {
		void *host, *device;
		size_t bytes;
	} blocks[MEMORY_BLOCKS];
	unsigned count;
	int (*host_alloc)(void **, size_t, unsigned);
	int (*device_alloc)(void **, size_t);
	int (*copy)(void *, const void *, size_t, int, void *);
	int (*wait)(void *);
	int (*set_device)(int);
	int (*new_stream)(void **, unsigned);
};

/* Says in `options` which domain this process is of: backend "nccl" if the environment has DOMAIN_PLACE="RANK SIZE ADDRESS DEVICE
 * DEADLINE_MS WAIT_MS", NCCL_LIBRARY and CUDA_LIBRARY, else "mpi". false: *why says what is missing */
bool memory_domain(struct memory *m, struct tr_domain_options *options, const char **why);
/* Zeroes, on both sides. Ends the program when there is no memory. */
void *memory_new(struct memory *m, size_t bytes);
/* `host` may point into a block: from there to its end. */
void *memory_place(const struct memory *m, void *host);
void memory_put(const struct memory *m, const void *host);
void memory_wait(const struct memory *m);
void memory_get(const struct memory *m, void *host);

#endif
