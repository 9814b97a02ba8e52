/* The shape of a model, and what sets the architectures apart. Pure.
 *
 * Counts of heads and of hidden channels are explicit, and nothing else follows from the width: a shard of a tensor-parallel
 * model is a model_config with its own, smaller counts.
 */
#ifndef TR_DAEMON_PLAN_MODEL_CONFIG_H
#define TR_DAEMON_PLAN_MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum model_preset { MODEL_GPT2, MODEL_LLAMA, MODEL_PRESETS };

struct model_architecture {
	const char *name; /* of `model.preset` */
	bool biases; /* of linear layers and norms. Norms without are RMSNorm, with: LayerNorm */
	bool rotary; /* positions turn queries and keys; else they are learned and added */
	bool gated;  /* SwiGLU; else GELU */
	bool out_in; /* linear weights are stored [out, in]; else [in, out] */
};

const struct model_architecture *model_architecture(enum model_preset preset);
/* False: no such preset. */
bool model_preset_find(const char *name, enum model_preset *preset);

struct model_config {
	enum model_preset preset;
	uint32_t layers;
	uint32_t width;      /* C: channels of the residual stream */
	uint32_t heads;      /* of queries */
	uint32_t kv_heads;   /* of keys and values: divides heads. 0: heads */
	uint32_t head_width; /* channels of a head. 0: width / heads */
	uint32_t hidden;     /* F: channels inside the MLP. 0: see model_config_fill */
	uint32_t context;    /* most tokens of a sequence */
	uint32_t vocab;      /* V */
	bool untied;         /* the head has a matrix of its own; else it is the token embedding */
	double rope_theta;   /* 0: 10000 if rotary */
	double norm_eps;     /* 0: 1e-5 */
};

/* Puts defaults where 0 is. hidden: 4 width, gated 8/3 width rounded up to a multiple of 64 (so that a gated MLP has as many
 * parameters; Shazeer, 2002.05202). Call model_config_check first. */
void model_config_fill(struct model_config *config);
/* Whether such a model can be built; what is 0 has its default. The error begins with the key of the job file. */
tr_status model_config_check(const struct model_config *config, struct tr_error *error);
/* Whether weights of `found` are those of `wanted` (both filled): all but the context, which the weights themselves tell of, or which is
 * free. The error names the key of the job file. */
tr_status model_config_same(const struct model_config *found, const struct model_config *wanted,
    struct tr_error *error);
/* Of a filled config. */
uint64_t model_config_parameters(const struct model_config *config);

/* Columns of an activation: queries (and what attention gives), keys (or values), all three, what goes into the activation
 * function. */
static inline size_t model_queries(const struct model_config *c)
{
	return (size_t)c->heads * c->head_width;
}
static inline size_t model_keys(const struct model_config *c)
{
	return (size_t)c->kv_heads * c->head_width;
}
static inline size_t model_qkv(const struct model_config *c)
{
	return model_queries(c) + 2 * model_keys(c);
}
static inline size_t model_up(const struct model_config *c)
{
	return (model_architecture(c->preset)->gated ? 2 : 1) * (size_t)c->hidden;
}

#endif
