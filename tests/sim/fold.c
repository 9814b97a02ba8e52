/* The core's own fold, which hashes what it adds up block by block: with blocks that are shorter than the simulator's segments. */
#define HASHED_BYTES 16u
#include "collectives/core/fold.c" /* NOLINT(bugprone-suspicious-include) */
