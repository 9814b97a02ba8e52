#include "daemon/plan/model_config.h"

#include <math.h>
#include <string.h>

#define HIDDEN_MULTIPLE 64

static const struct model_architecture architectures[MODEL_PRESETS] = {
	[MODEL_GPT2] = { .name = "gpt2", .biases = true },
	[MODEL_LLAMA] = { .name = "llama", .rotary = true, .gated = true, .out_in = true },
};

const struct model_architecture *model_architecture(enum model_preset preset)
{
	return &architectures[preset];
}

bool model_preset_find(const char *name, enum model_preset *preset)
{
	for (size_t i = 0; i < MODEL_PRESETS; i++) {
		if (strcmp(name, architectures[i].name) == 0) {
			*preset = (enum model_preset)i;
			return true;
		}
	}
	return false;
}

static uint32_t default_hidden(const struct model_config *c)
{
	if (!architectures[c->preset].gated)
		return 4 * c->width;
	uint32_t hidden = (8 * c->width + 2) / 3;
	return (hidden + HIDDEN_MULTIPLE - 1) / HIDDEN_MULTIPLE * HIDDEN_MULTIPLE;
}

void model_config_fill(struct model_config *c)
{
	if (c->kv_heads == 0)
		c->kv_heads = c->heads;
	if (c->head_width == 0)
		c->head_width = c->width / c->heads;
	if (c->hidden == 0)
		c->hidden = default_hidden(c);
	if (c->rope_theta == 0 && architectures[c->preset].rotary)
		c->rope_theta = 10000;
	if (c->norm_eps == 0)
		c->norm_eps = 1e-5;
}

/* What only some architectures have. */
static tr_status check_preset(const struct model_config *c, struct tr_error *error)
{
	const struct model_architecture *a = &architectures[c->preset];
	if (!a->rotary && c->rope_theta != 0)
		return tr_error_set(error, TR_EINVAL,
		    "model.rope_theta: found %g, allowed: none, since the positions of %s are "
		    "learned",
		    c->rope_theta, a->name);
	if (c->rope_theta != 0 && !(c->rope_theta >= 1 && c->rope_theta <= 1e9))
		return tr_error_set(error, TR_EINVAL,
		    "model.rope_theta: found %g, allowed: a number from 1 to 1e9", c->rope_theta);
	if (c->preset == MODEL_GPT2 && c->untied)
		return tr_error_set(error, TR_EINVAL,
		    "model.tied: found false, allowed: true, since the head of gpt2 is its token "
		    "embedding");
	if (c->preset == MODEL_GPT2 && c->kv_heads != 0 && c->kv_heads != c->heads)
		return tr_error_set(error, TR_EINVAL,
		    "model.kv_heads: found %u, allowed: model.heads, which is %u, since gpt2 has "
		    "keys "
		    "and values for each head",
		    c->kv_heads, c->heads);
	return TR_OK;
}

tr_status model_config_check(const struct model_config *c, struct tr_error *error)
{
	if (c->layers == 0 || c->width == 0 || c->heads == 0 || c->context == 0 || c->vocab == 0)
		return tr_error_set(error, TR_EINVAL,
		    "model.width: found %u layers, width %u, heads %u, context %u, vocabulary %u, "
		    "allowed: all of them positive",
		    c->layers, c->width, c->heads, c->context, c->vocab);
	tr_status status = check_preset(c, error);
	if (status != TR_OK)
		return status;
	if (c->head_width == 0 && c->width % c->heads != 0)
		return tr_error_set(error, TR_EINVAL,
		    "model.width: found %u, allowed: a multiple of model.heads, which is %u",
		    c->width, c->heads);
	if (c->kv_heads != 0 && c->heads % c->kv_heads != 0)
		return tr_error_set(error, TR_EINVAL,
		    "model.kv_heads: found %u, allowed: a divisor of model.heads, which is %u",
		    c->kv_heads, c->heads);
	uint32_t head = c->head_width != 0 ? c->head_width : c->width / c->heads;
	if (architectures[c->preset].rotary && head % 2 != 0)
		return tr_error_set(error, TR_EINVAL,
		    "model.heads: found %u, which makes heads of %u channels, allowed: heads of an "
		    "even "
		    "number of channels, since positions turn them in pairs",
		    c->heads, head);
	return TR_OK;
}

static tr_status check_same(const char *key, double found, double wanted, struct tr_error *error)
{
	if (fabs(found - wanted) <= 1e-7 * fabs(found)) /* config.json has nine digits */
		return TR_OK;
	return tr_error_set(error, TR_EINVAL,
	    "model.%s: found %.9g, allowed: %.9g, as the weights are", key, wanted, found);
}

tr_status model_config_same(const struct model_config *found, const struct model_config *wanted,
    struct tr_error *error)
{
	const struct {
		const char *key;
		double found, wanted;
	} rows[] = { { "layers", found->layers, wanted->layers },
		{ "width", found->width, wanted->width }, { "heads", found->heads, wanted->heads },
		{ "kv_heads", found->kv_heads, wanted->kv_heads },
		{ "hidden", found->hidden, wanted->hidden },
		{ "vocab", found->vocab, wanted->vocab },
		{ "rope_theta", found->rope_theta, wanted->rope_theta },
		{ "norm_eps", found->norm_eps, wanted->norm_eps } };
	if (found->preset != wanted->preset)
		return tr_error_set(error, TR_EINVAL,
		    "model.preset: found %s, allowed: %s, as the weights are",
		    architectures[wanted->preset].name, architectures[found->preset].name);
	if (found->untied != wanted->untied)
		return tr_error_set(error, TR_EINVAL,
		    "model.tied: found %s, allowed: %s, as the weights are",
		    wanted->untied ? "false" : "true", found->untied ? "false" : "true");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		tr_status status = check_same(rows[i].key, rows[i].found, rows[i].wanted, error);
		if (status != TR_OK)
			return status;
	}
	return TR_OK;
}

uint64_t model_config_parameters(const struct model_config *c)
{
	const struct model_architecture *a = &architectures[c->preset];
	uint64_t width = c->width, norm = (a->biases ? 2 : 1) * width;
	uint64_t queries = model_queries(c), qkv = model_qkv(c), up = model_up(c);
	uint64_t block = width * (qkv + queries + up + c->hidden) + 2 * norm;
	if (a->biases)
		block += qkv + up + 2 * width;
	uint64_t positions = a->rotary ? 0 : c->context;
	return c->layers * block + (c->vocab + positions) * width + norm +
	    (c->untied ? c->vocab * width : 0);
}
