#include <math.h>

#include "collectives/sync/sync_internal.h"
#include "collectives/engine/sized.h"
#include "common/error.h"

#define SECONDS_MOST 1e6
#define BATCH_MOST   1000000000
#define ALONE_MOST   1000000
#define STEPS_MOST   (UINT64_C(1) << 53) /* members tell each other their steps as doubles */

static double double_or(double value, bool given, double otherwise)
{
	return given ? value : otherwise;
}

static tr_status refuse(struct tr_error *error, const char *option, double found,
    const char *allowed)
{
	return tr_error_set(error, TR_EINVAL, "sync.%s: found %g, allowed: %s", option, found,
	    allowed);
}

static tr_status check_alone(const struct tr_sync_options *o, struct tr_error *error)
{
	if (!(o->alone_after_seconds >= 0 && o->alone_after_seconds <= 1e5))
		return refuse(error, "alone_after_seconds", o->alone_after_seconds, "0 to 1e5");
	if (o->alone_steps > ALONE_MOST)
		return refuse(error, "alone_steps", (double)o->alone_steps, "0 to 1e6");
	if (o->alone_after_seconds > 0 && o->alone_steps == 0)
		return refuse(error, "alone_after_seconds", o->alone_after_seconds,
		    "nothing without alone_steps");
	return TR_OK;
}

static tr_status check_counts(const struct tr_sync_options *o, unsigned layers,
    struct tr_error *error)
{
	if (layers == 0)
		return refuse(error, "layers", 0, "at least 1");
	if (o->steps > STEPS_MOST && !sync_schedule_is_over(o->steps))
		return refuse(error, "steps", (double)o->steps, "0 (without end) to 2^53");
	if (o->inner_steps > STEPS_MOST)
		return refuse(error, "inner_steps", (double)o->inner_steps, "0 to 2^53");
	return TR_OK;
}

/* A NaN is none of the negative numbers that ask for the default: it is refused later. */
static void complete(struct tr_sync_options *o, unsigned layers)
{
	bool streaming = o->mode == TR_SYNC_STREAMING, hdet = o->mode == TR_SYNC_HDET;
	bool average = o->mode == TR_SYNC_LOCAL_SGD || hdet;

	if (o->inner_steps == 0 && !(o->inner_seconds > 0))
		o->inner_steps = streaming ? 100 : hdet ? 1000 : 500;
	o->outer_lr = double_or(o->outer_lr, o->outer_lr != 0, average ? 1 : streaming ? 0.4 : 0.7);
	o->outer_momentum = double_or(o->outer_momentum, !(o->outer_momentum < 0),
	    average ? 0 : 0.9);
	if (o->fragments == 0)
		o->fragments = !streaming ? 1 : layers < 8 ? layers : 8;
	if (o->overlap < 0)
		o->overlap = o->mode == TR_SYNC_EAGER ? (int64_t)o->inner_steps : streaming;
	o->alpha = double_or(o->alpha, !(o->alpha < 0), streaming && !o->carry ? 0.5 : 0);
	if (o->peers_most == 0)
		o->peers_most = TR_GROUP_PEERS_MAX;
	if (o->alone_steps > 0 && o->alone_after_seconds == 0)
		o->alone_after_seconds = 5;
	o->feedback = double_or(o->feedback, !(o->feedback < 0),
	    o->codec == TR_CODEC_INT2 ? 0.95 : 0);
	if (!hdet)
		return;
	o->lr_spread = double_or(o->lr_spread, o->lr_spread != 0, 1.0 / 9);
	if (o->lr_search && o->lr_race_steps == 0)
		o->lr_race_steps = (uint64_t)ceil(0.03 * (double)o->steps);
	if (o->lr_search)
		return;
	o->lr_momentum = double_or(o->lr_momentum, !(o->lr_momentum < 0), 0.9);
	o->lr_step = double_or(o->lr_step, !(o->lr_step < 0), 0.5);
	o->lr_temperature = double_or(o->lr_temperature, o->lr_temperature != 0, 0.002);
}

/* Given, before defaults are filled in. */
static tr_status check_search(const struct tr_sync_options *o, struct tr_error *error)
{
	static const char nothing[] = "nothing beside lr_search";

	if (!o->lr_search)
		return o->lr_race_steps == 0 ? TR_OK
		                             : refuse(error, "lr_race_steps",
		                                   (double)o->lr_race_steps, "0 without lr_search");
	if (o->steps > 0 && o->lr_race_steps > 1 && (double)o->lr_race_steps > (double)o->steps / 5)
		return refuse(error, "lr_race_steps", (double)o->lr_race_steps,
		    "at most a fifth of all steps");
	if (o->mode != TR_SYNC_HDET)
		return refuse(error, "lr_search", 1, "0 (false) unless the mode is hdet");
	if (o->lr_momentum >= 0)
		return refuse(error, "lr_momentum", o->lr_momentum, nothing);
	if (o->lr_step >= 0)
		return refuse(error, "lr_step", o->lr_step, nothing);
	if (o->lr_decay != 0)
		return refuse(error, "lr_decay", o->lr_decay, nothing);
	if (o->lr_temperature != 0)
		return refuse(error, "lr_temperature", o->lr_temperature, nothing);
	if (o->outer_lr != 0 && o->outer_lr != 1)
		return refuse(error, "outer_lr", o->outer_lr, "1 beside lr_search");
	if (o->outer_momentum > 0)
		return refuse(error, "outer_momentum", o->outer_momentum, "0 beside lr_search");
	return TR_OK;
}

/* Settings of learning rates that each peer has its own of. */
static tr_status check_rates(const struct tr_sync_options *o, struct tr_error *error)
{
	static const char only[] = "nothing unless the mode is hdet";

	if (o->mode != TR_SYNC_HDET) {
		if (o->lr_spread != 0)
			return refuse(error, "lr_spread", o->lr_spread, only);
		if (o->lr_momentum > 0)
			return refuse(error, "lr_momentum", o->lr_momentum, only);
		if (o->lr_step > 0)
			return refuse(error, "lr_step", o->lr_step, only);
		if (o->lr_decay != 0)
			return refuse(error, "lr_decay", o->lr_decay, only);
		if (o->lr_temperature != 0)
			return refuse(error, "lr_temperature", o->lr_temperature, only);
		return TR_OK;
	}
	if (!(o->lr_spread > 0 && o->lr_spread < 1))
		return refuse(error, "lr_spread", o->lr_spread, "more than 0, less than 1");
	if (o->overlap != 0)
		return refuse(error, "overlap", (double)o->overlap,
		    "none in hdet mode: the learning rates change at the merge");
	if (o->lr_search)
		return TR_OK;
	if (!(o->lr_momentum < 1))
		return refuse(error, "lr_momentum", o->lr_momentum, "0 to less than 1");
	if (!(o->lr_step <= 10))
		return refuse(error, "lr_step", o->lr_step, "0 to 10");
	if (!(o->lr_decay >= 0 && o->lr_decay < 1))
		return refuse(error, "lr_decay", o->lr_decay, "0 to less than 1");
	if (!(o->lr_temperature > 0))
		return refuse(error, "lr_temperature", o->lr_temperature, "more than 0");
	return TR_OK;
}

static tr_status check_pace(const struct tr_sync_options *o, struct tr_error *error)
{
	if (!(o->inner_seconds >= 0 && o->inner_seconds <= SECONDS_MOST))
		return refuse(error, "inner_seconds", o->inner_seconds, "0 to 1e6");
	if (!(o->grace_seconds >= 0 && o->grace_seconds <= SECONDS_MOST))
		return refuse(error, "grace_seconds", o->grace_seconds, "0 to 1e6");
	if (o->inner_seconds > 0 && o->inner_steps > 0)
		return refuse(error, "inner_seconds", o->inner_seconds,
		    "nothing beside inner_steps: one of the two");
	if (o->inner_seconds > 0 && o->by_speed)
		return refuse(error, "by_speed", 1,
		    "0 (false) beside inner_seconds: one of the two");
	if (o->share_by_speed && (o->inner_seconds > 0 || o->by_speed))
		return refuse(error, "share_by_speed", 1,
		    o->by_speed ? "0 (false) beside by_speed: one of the two"
		                : "0 (false) beside inner_seconds: one of the two");
	if (o->share_by_speed && o->batch == 0)
		return refuse(error, "share_by_speed", 1, "0 (false) without a batch");
	if (o->inner_seconds > 0 && o->grace_seconds > 0)
		return refuse(error, "grace_seconds", o->grace_seconds,
		    "nothing beside inner_seconds: by time nobody is late by more than a step");
	if (o->quorum > 0 && !(o->grace_seconds > 0))
		return refuse(error, "quorum", o->quorum, "nothing without grace_seconds");
	if (o->quorum > TR_GROUP_PEERS_MAX)
		return refuse(error, "quorum", o->quorum, "at most 256 peers");
	if (o->peers_most > TR_GROUP_PEERS_MAX)
		return refuse(error, "peers_most", o->peers_most, "at most 256");
	return TR_OK;
}

tr_status sync_options_complete(struct tr_sync_options *o, unsigned layers, struct tr_error *error)
{
	if (o->mode < TR_SYNC_LOCAL_SGD || o->mode > TR_SYNC_HDET)
		return refuse(error, "mode", o->mode, "a value of enum tr_sync_mode");
	if (o->batch > BATCH_MOST)
		return refuse(error, "batch", (double)o->batch, "0 to 1e9");
	if (o->codec < TR_CODEC_NONE || o->codec > TR_CODEC_INT2)
		return refuse(error, "codec", o->codec, "a value of enum tr_codec");
	if (o->weights != TR_SYNC_WEIGHTS_ROOT && o->weights != TR_SYNC_WEIGHTS_TOKENS)
		return refuse(error, "weights", o->weights, "a value of enum tr_sync_weights");
	tr_status first = check_counts(o, layers, error);
	if (first == TR_OK)
		first = check_alone(o, error);
	if (first == TR_OK)
		first = check_search(o, error);
	if (first != TR_OK)
		return first;
	complete(o, layers);
	unsigned most = layers < SYNC_FRAGMENTS_MAX ? layers : SYNC_FRAGMENTS_MAX;
	if (!(o->outer_lr > 0 && o->outer_lr <= 10))
		return refuse(error, "outer_lr", o->outer_lr, "more than 0, at most 10");
	if (!(o->outer_momentum < 1))
		return refuse(error, "outer_momentum", o->outer_momentum, "0 to less than 1");
	if (!(o->alpha < 1))
		return refuse(error, "alpha", o->alpha, "0 to less than 1");
	if (o->mode == TR_SYNC_EAGER && o->alpha > 0)
		return refuse(error, "alpha", o->alpha,
		    "nothing in eager mode, which keeps all of its own");
	if (o->codec == TR_CODEC_NONE && o->feedback > 0)
		return refuse(error, "feedback", o->feedback, "nothing without a codec");
	if (o->carry && o->alpha > 0)
		return refuse(error, "alpha", o->alpha, "nothing beside carry: one of the two");
	if (o->carry && (o->overlap == 0 || o->mode == TR_SYNC_EAGER))
		return refuse(error, "carry", 1,
		    o->overlap == 0 ? "0 (false) without an overlap" : "0 (false) in eager mode");
	if (o->scratch && pace_overlaps(o))
		return tr_error_set(error, TR_EINVAL,
		    "sync.scratch: found one, allowed: none with an overlap or alone_steps, or in "
		    "eager mode, where a sum is on its way while the caller works");
	if (!(o->feedback <= 1))
		return refuse(error, "feedback", o->feedback, "0 to 1");
	if (o->mode != TR_SYNC_STREAMING && o->fragments != 1)
		return refuse(error, "fragments", o->fragments, "1 unless the mode is streaming");
	if (o->fragments > most)
		return tr_error_set(error, TR_EINVAL,
		    "sync.fragments: found %u, allowed: 1 to %u, since fragments are whole layers",
		    o->fragments, most);
	tr_status status = check_pace(o, error);
	if (status != TR_OK)
		return status;
	if (o->mode == TR_SYNC_EAGER && (uint64_t)o->overlap != o->inner_steps)
		return refuse(error, "overlap", (double)o->overlap,
		    "inner_steps in eager mode: leave it out");
	if (o->inner_seconds > 0)
		return check_rates(o, error);
	if (o->inner_steps < o->fragments)
		return tr_error_set(error, TR_EINVAL,
		    "sync.inner_steps: found %llu, allowed: at least one a fragment, %u",
		    (unsigned long long)o->inner_steps, o->fragments);
	if ((uint64_t)o->overlap > o->inner_steps / o->fragments)
		return tr_error_set(error, TR_EINVAL,
		    "sync.overlap: found %lld, allowed: 0 to %llu, inner_steps / fragments",
		    (long long)o->overlap, (unsigned long long)(o->inner_steps / o->fragments));
	return check_rates(o, error);
}

/* Of a program that may know less of the struct, or more. */
static tr_status read_options(const struct tr_sync_options *given, struct tr_sync_options *known,
    struct tr_error *error)
{
	return sized_read("sync options", given, SYNC_OPTIONS_LEAST, known, sizeof(*known), error);
}

tr_status tr_sync_complete(struct tr_sync_options *given, unsigned layers, struct tr_error *error)
{
	struct tr_sync_options o;
	tr_status status = read_options(given, &o, error);
	if (status == TR_OK)
		status = sync_options_complete(&o, layers, error);
	return status == TR_OK
	    ? sized_write("sync options", &o, sizeof(o), SYNC_OPTIONS_LEAST, given, error)
	    : status;
}

uint64_t tr_sync_merges(const struct tr_sync_options *given)
{
	struct tr_sync_options o;
	if (read_options(given, &o, NULL) != TR_OK || o.steps == 0 || o.inner_steps == 0 ||
	    o.fragments == 0 || pace_decides(&o) || o.lr_search)
		return 0;
	return sync_schedule_rounds(&(struct sync_schedule){ .steps = o.steps,
	    .period = o.inner_steps,
	    .overlap = (uint64_t)o.overlap,
	    .fragments = o.fragments });
}
