/* Layers over pipeline stages, in order, so that the slowest stage takes as little time as possible: exact, by dynamic programming over
 * (stage, layers given out). What comes before the first layer (the embedding) and behind the last (the head and the loss) counts with
 * the first stage and the last, which therefore get fewer layers; so do stages on slow workers, and those with little memory. Pure.
 *
 *	uint32_t layers[4];
 *	double worst_s;
 *	st = split_layers(&(struct split_input){ .layers = 12, .stages = 4, .layer_s = 1, .head_s = 2.5 }, layers, &worst_s, &error);
 *	// 4, 4, 3 and 1, in 4 s; 3 each would take 5.5
 */
#ifndef TR_DAEMON_PLAN_SPLIT_H
#define TR_DAEMON_PLAN_SPLIT_H

#include <stdint.h>

#include "common/error.h"

struct split_input {
	uint32_t layers, stages;
	double layer_s; /* forward and backward of one layer and microbatch, on a worker of speed 1 */
	double embedding_s, head_s;
	const double *stage_speed; /* [stages], above 0; NULL: all 1 */
	const uint32_t *most; /* [stages]: layers that a stage's memory holds; NULL: any number */
	uint32_t least;       /* layers that each stage gets: 0 or 1, as a rule */
};

/* Among equally slow splits: the one whose squared stage times add up to least. `layers_of` gets one number a stage. TR_EINVAL: there is
 * no such split; the words say why. TR_ENOMEM. */
tr_status split_layers(const struct split_input *input, uint32_t *layers_of, double *worst_s,
    struct tr_error *error);

/* Of a stage that has so many layers. */
double split_stage_s(const struct split_input *input, uint32_t stage, uint32_t layers);

#endif
