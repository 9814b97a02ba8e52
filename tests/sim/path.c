/* The core's own paths, which copy results of large ops past the cache: here of ops that are as large as the simulator's can be. */
#define PAST_CACHE_BYTES_MIN 512u
#include "collectives/core/path.c" /* NOLINT(bugprone-suspicious-include) */
