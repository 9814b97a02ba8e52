#include "daemon/worker/samples.h"

#include <assert.h>

#include "common/rng.h"
#include "daemon/worker/random.h"

tr_status samples_init(const struct text *text, size_t context, uint64_t seed,
    uint64_t validation_windows, struct samples *out, struct tr_error *error)
{
	size_t tail = text->size - text->train_size;
	const char *unit = text->width > 1 ? "tokens" : "bytes";
	struct samples samples = { .text = text, .context = context, .seed = seed };
	/* A shift of up to context - 1 tokens, and one more than the inputs for the last target. */
	if (text->train_size < 2 * context)
		return tr_error_set(error, TR_EINVAL,
		    "data.%s: found %zu %s to train on, allowed: at least %zu, twice "
		    "model.context",
		    text->width > 1 && !text->tokenized ? "tokens" : "text", text->train_size, unit,
		    2 * context);
	samples.per_epoch = (text->train_size - context) / context;
	if (tail > 0 && tail < context + 1)
		return tr_error_set(error, TR_EINVAL,
		    "data.validation: found a held-out tail of %zu %s, allowed: none, or more "
		    "than "
		    "model.context = %zu",
		    tail, unit, context);
	if (tail > 0)
		samples.validation = (tail - 1) / context;
	if (samples.validation > validation_windows)
		samples.validation = validation_windows;
	*out = samples;
	return TR_OK;
}

static void window(const struct samples *s, size_t at, int32_t *inputs, int32_t *targets)
{
	assert(at + s->context < s->text->size);
	for (size_t i = 0; i < s->context; i++) {
		inputs[i] = text_token(s->text, at + i);
		targets[i] = text_token(s->text, at + i + 1);
	}
}

void samples_get(const struct samples *s, uint64_t index, int32_t *inputs, int32_t *targets)
{
	uint64_t epoch = index / s->per_epoch;
	struct rng_key key = rng_key(s->seed, epoch, s->per_epoch);
	uint64_t shift = rng_below(key, RANDOM_SHIFT, 0, s->context);
	uint64_t place = rng_permute(key, s->per_epoch, index % s->per_epoch);
	window(s, (size_t)(place * s->context + shift), inputs, targets);
}

void samples_get_validation(const struct samples *s, uint64_t index, int32_t *inputs,
    int32_t *targets)
{
	size_t tail = s->text->size - s->text->train_size;
	uint64_t windows = (tail - 1) / s->context;
	uint64_t place = index * windows / s->validation;
	window(s, s->text->train_size + (size_t)(place * s->context), inputs, targets);
}
