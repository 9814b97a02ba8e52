/* The arithmetic of low-communication training, element by element on f32: the same bits on every machine. d is a pseudo-gradient: where
 * training started minus where it got to. `out` may be any input. Any thread.
 *
 * Formulas: DiLoCo, arXiv 2311.08105, algorithm 1, with Nesterov momentum as in torch.optim.SGD; Streaming DiLoCo, arXiv 2501.18512, equation
 * 3; eager updates, arXiv 2502.12996.
 */
#ifndef TR_COLLECTIVES_SYNC_OUTER_H
#define TR_COLLECTIVES_SYNC_OUTER_H

#include <stdbool.h>
#include <stddef.h>

#include "collectives/sync.h"

/* Whether all are numbers that can be trained on: less than 2^64 in size, so that their squares are f32. False for NaN and infinities. A flipped top bit of the exponent makes more than that of any
 * number from 2^-63 on. */
bool outer_sound(const float *numbers, size_t count);

/* By which a movement of so many tokens in so many steps counts in a merge (struct tr_sync_options, weights). 0: there was no step. */
double outer_weight(enum tr_sync_weights weights, double tokens, double steps);

/* out = (from - to) * weight */
void outer_delta(float *out, const float *from, const float *to, float weight, size_t count);

/* v = mu v + d scale; theta -= eta (d scale + mu v). v NULL: mu is 0. */
void outer_step(float *theta, float *v, const float *d, float scale, float eta, float mu,
    size_t count);

/* local = alpha local + (1 - alpha) outer. alpha = 0: a copy. */
void outer_merge(float *local, const float *outer, float alpha, size_t count);

/* out = from - d scale: where the parameters were when d was taken. scale: one over its weight */
void outer_recall(float *out, const float *from, const float *d, float scale, size_t count);

/* out = what outer_step would make of theta, if all had moved by d scale. Changes neither theta nor v. */
void outer_foresee(float *out, const float *theta, const float *v, const float *d, float scale,
    float eta, float mu, size_t count);

/* local += rest (outer - base): what a late merge changes (late.h) */
void outer_carry(float *local, const float *outer, const float *base, float rest, size_t count);

/* local = outer + lead: where eager trains from */
void outer_add(float *local, const float *outer, const float *lead, size_t count);

/* out = from - to - d scale: eager, a movement in place of the one before it */
void outer_newer(float *out, const float *from, const float *to, const float *d, float scale,
    size_t count);

#endif
