/* Angles of rotary positions. Token t turns pair i by t theta^(-2i / head), in f32 step by step as Hugging Face's Llama does, so that
 * far positions have its angles too; the functions are exact_math's, so that every machine gives the same bits.
 */
#ifndef TR_DAEMON_WORKER_ROPE_H
#define TR_DAEMON_WORKER_ROPE_H

#include <stddef.h>

#include "daemon/worker/real.h"

/* cos, sin [context, head / 2]. */
void rope_tables(size_t context, size_t head, double theta, real *cos, real *sin);

#endif
