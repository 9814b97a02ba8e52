/* Streams of random numbers in the trainer (common/rng.h), so that no two uses draw the same bits.
 */
#ifndef TR_DAEMON_WORKER_RANDOM_H
#define TR_DAEMON_WORKER_RANDOM_H

enum random_stream {
	RANDOM_INIT = 100,
	RANDOM_SHIFT = 101,
	RANDOM_SAMPLE = 102,
	RANDOM_DROPOUT = 103
};

#endif
