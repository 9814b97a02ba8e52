/* What test programs ask of the fake NCCL and CUDA runtime (fake_nccl.c), through dlsym. */
#ifndef TR_TESTS_FAKE_NCCL_H
#define TR_TESTS_FAKE_NCCL_H

enum fake_trouble {
	FAKE_NONE,
	FAKE_INIT_HANGS, /* the next `times` communicators never open */
	FAKE_ASYNC_ERROR, /* the launch number `at` of rank `rank` (from 0, any communicator) ends in ncclRemoteError */
	FAKE_KERNEL_HANGS, /* that launch never runs */
	FAKE_CANNOT_PIN,   /* memory of the host */
	FAKE_NEVER_RESTS, /* FAKE_KERNEL_HANGS, and an aborted communicator's stream stands still until another is opened */
	FAKE_NO_MEMORY,       /* the next `times` calls of cudaMalloc fail */
	FAKE_BROADCAST_FAILS, /* each of rank `rank` ends in ncclRemoteError */
};

struct fake_calls {
	void (*reset)(void);
	void (*inject)(enum fake_trouble trouble, unsigned rank, unsigned at, unsigned times);
	const char *(*violation)(void);      /* the first broken rule, NULL: none */
	unsigned (*calls)(const char *name); /* of a function, by its name */
	unsigned (*live)(void); /* communicators, streams, events and blocks of memory not freed */
	unsigned long (*copied)(void); /* bytes from device to host */
};

#endif
