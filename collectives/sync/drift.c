#include "collectives/sync/drift.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/log.h"

tr_status drift_create(struct tr_sync *s, struct tr_error *error)
{
	s->parity.parts = NULL;
	tr_status status = parity_create(&s->parity, s->group, SYNC_TAG_PARITY, error);

	if (status != TR_OK)
		return status;
	s->parity.parts = calloc(2 * s->tensor_count + 2, sizeof(s->parity.parts[0]));
	if (!s->parity.parts)
		return tr_error_set(error, TR_ENOMEM, "sync: no memory for a table of tensors");
	return TR_OK;
}

void drift_destroy(struct tr_sync *s)
{
	free(s->parity.parts);
}

/* ---- what this peer wrote ---- */

/* Of nothing: it says that what is there is not what this peer wrote. */
static const struct tr_digest SPOILT = { UINT64_MAX, UINT64_MAX };

static struct tr_digest of_tensor(const float *all, const struct sync_tensor *t)
{
	return tr_digest_of(all + t->offset, t->count * sizeof(float));
}

static struct tr_digest of_counters(const struct tr_sync *s)
{
	return tr_digest_of(s->counters, sizeof(*s->counters));
}

static void remember(struct tr_sync *s, size_t tensor)
{
	const struct sync_tensor *t = &s->tensors[tensor];

	s->written[tensor].outer = of_tensor(s->outer, t);
	if (s->momentum)
		s->written[tensor].momentum = of_tensor(s->momentum, t);
}

/* Of what is no tensor: the counters, and in the other place the account of samples. */
static void remember_rest(struct tr_sync *s)
{
	struct sync_written *rest = &s->written[s->tensor_count];

	rest->outer = of_counters(s);
	if (s->leases)
		rest->momentum = tr_digest_of(s->leases, sizeof(*s->leases));
}

/* Wrong momentum makes wrong parameters, not the other way round. */
static void forget_changed(struct tr_sync *s)
{
	const struct parity_part *part = s->parity.parts;
	bool *spoilt = &s->spoilt[s->slot.fragment];

	*spoilt = false;
	for (size_t i = 0; i < s->parity.count; i++)
		*spoilt = *spoilt || part[i].changed;
	for (size_t i = 0; i < s->tensor_count && *spoilt; i++) {
		if (!sync_in_slot(s, i))
			continue;
		bool outer = part++->changed, momentum = s->momentum && part++->changed;
		if (outer || momentum)
			s->written[i].outer = SPOILT;
		if (momentum)
			s->written[i].momentum = SPOILT;
	}
	part = &s->parity.parts[s->parity.count - 1];
	if (part->changed)
		s->written[s->tensor_count].outer = SPOILT;
	if (s->leases && part[-1].changed)
		s->written[s->tensor_count].momentum = SPOILT;
}

void drift_remember(struct tr_sync *s)
{
	for (size_t i = 0; i < s->tensor_count; i++)
		if (sync_in_slot(s, i))
			remember(s, i);
	remember_rest(s);
	if (s->parity.count > 0)
		forget_changed(s);
}

void drift_remember_first(struct tr_sync *s)
{
	for (size_t i = 0; i < s->tensor_count; i++)
		remember(s, i);
	remember_rest(s);
}

static bool holds(const struct tr_sync *s, const char *what, struct tr_digest written,
    const float *all, const struct sync_tensor *t)
{
	static const struct tr_digest unknown = { 0, 0 };

	if (tr_digest_equal(written, unknown) || tr_digest_equal(written, of_tensor(all, t)))
		return true;
	log_warn("sync", "round %" PRIu64 ": %s of %s changed in memory since they were written",
	    s->round.round, what, t->name);
	return false;
}

bool drift_holds_outer(const struct tr_sync *s)
{
	bool all = true;

	for (size_t i = 0; i < s->tensor_count; i++)
		all = holds(s, "outer parameters", s->written[i].outer, s->outer, &s->tensors[i]) &&
		    all;
	return all;
}

bool drift_holds_momentum(const struct tr_sync *s)
{
	bool all = true;

	for (size_t i = 0; s->momentum && i < s->tensor_count; i++)
		if (sync_in_slot(s, i))
			all = holds(s, "outer momentum", s->written[i].momentum, s->momentum,
			          &s->tensors[i]) &&
			    all;
	return all;
}

/* ---- what all compare ---- */

/* A joiner's memory is not read: it is being written. */
static void add_part(struct tr_sync *s, const char *what, const char *tensor, void *data,
    size_t bytes, const struct tr_digest *written)
{
	struct parity *p = &s->parity;
	struct parity_part *part = &p->parts[p->count++];

	*part = (struct parity_part){ .what = what, .tensor = tensor, .data = data, .bytes = bytes };
	if (s->round.index < s->round.contributors)
		part->written = *written;
}

/* Those of the fragment under way, then the account of samples and the counters. */
static void fill_parts(struct tr_sync *s)
{
	s->parity.count = 0;
	for (size_t i = 0; i < s->tensor_count; i++) {
		const struct sync_tensor *t = &s->tensors[i];
		size_t bytes = t->count * sizeof(float);
		if (t->fragment != s->slot.fragment)
			continue;
		add_part(s, "outer parameters", t->name, s->outer + t->offset, bytes,
		    &s->written[i].outer);
		if (s->momentum)
			add_part(s, "outer momentum", t->name, s->momentum + t->offset, bytes,
			    &s->written[i].momentum);
	}
	if (s->leases)
		add_part(s, "account of samples", NULL, s->leases, sizeof(*s->leases),
		    &s->written[s->tensor_count].momentum);
	add_part(s, "outer counters", NULL, s->counters, sizeof(*s->counters),
	    &s->written[s->tensor_count].outer);
}

tr_status drift_submit(struct tr_sync *s, struct tr_error *error)
{
	if (s->compared)
		return TR_OK;
	s->compared = true;
	s->redone = s->outcast = false;
	s->result = (struct sync_result){ s->sum, s->residual_next, s->totals };
	if (s->residual)
		s->result.residual_next += s->first[s->slot.fragment];
	fill_parts(s);
	return parity_submit(&s->parity, &s->round, error);
}

/* ---- whose movement counts ---- */

/* Momentum has no part in a movement; of the counters only the base of the learning rates has. Who goes by another account of samples may have used
 * those of others. */
static bool spoils_movement(const struct tr_sync *s, size_t part)
{
	if (part + 1 == s->parity.count)
		return s->options.mode == TR_SYNC_HDET;
	return !s->momentum || part % 2 == 0; /* outer parameters, outer momentum, ...,
	                                              account of samples */
}

static bool is_outcast(const struct tr_sync *s, unsigned member)
{
	for (size_t i = 0; i < s->parity.count; i++)
		if (spoils_movement(s, i) && parity_is_wrong(&s->parity, member, i))
			return true;
	return false;
}

static tr_status submit_sum_again(struct tr_sync *s, float *sum, float *residual_next,
    unsigned flags, struct tr_error *error)
{
	size_t first = s->first[s->slot.fragment];
	struct tr_op op = TR_OP_INIT;

	op.tag = SYNC_TAG_FRAGMENT_AGAIN;
	op.input = s->outcast ? NULL : s->delta;
	op.output = sum;
	op.count = sync_fragment_count(s, s->slot.fragment);
	op.codec = s->options.codec;
	op.flags = flags;
	if (s->outcast)
		memset(sum, 0, op.count * sizeof(float));
	if (s->residual) {
		op.residual = s->residual + first;
		op.residual_next = residual_next;
		op.beta = (float)s->options.feedback;
	}
	return tr_submit(s->group, &op, error);
}

/* All give once more what they gave, but for the outcast, who give nothing. */
static tr_status submit_again(struct tr_sync *s, struct tr_error *error)
{
	size_t count = sync_fragment_count(s, s->slot.fragment);
	size_t bytes = (s->residual ? 2 : 1) * count * sizeof(float);
	unsigned flags = s->round.index < s->round.contributors ? TR_CONTRIBUTE : 0;
	struct sync_totals *totals = parity_room(s->group, &s->again, sizeof(*totals) + bytes);

	if (!totals)
		return tr_error_set(error, TR_ENOMEM, "sync: no memory: %zu MiB to merge again",
		    bytes >> 20);
	float *sum = (float *)(totals + 1);
	*totals = s->outcast ? (struct sync_totals){ .costs = s->given.costs } : s->given;
	tr_status status = submit_sum_again(s, sum, sum + count, flags, error);
	if (status == TR_OK)
		status = tr_allreduce(s->group, SYNC_TAG_TOTALS_AGAIN, totals, SYNC_TOTALS, TR_F64,
		    TR_SUM, flags, error);
	s->result = (struct sync_result){ sum, sum + count, totals };
	return status == TR_OK ? tr_wait(s->group, SYNC_TAG_TOTALS_AGAIN, error) : status;
}

tr_status drift_settle(struct tr_sync *s, struct tr_error *error)
{
	tr_status status = parity_settle(&s->parity, error);

	if (status != TR_OK || !s->parity.drifted)
		return status;
	for (unsigned m = 0; m < s->parity.contributors; m++) {
		bool outcast = is_outcast(s, m);
		s->redone = s->redone || outcast;
		s->outcast = s->outcast || (outcast && m == s->parity.index);
	}
	return s->redone ? submit_again(s, error) : TR_OK;
}

/* ---- after the commit ---- */

/* What was learned beside wrong parameters is given up, that of other fragments too: so the samples that are dropped for it, since the take and
 * since then, are in no result. This peer goes on as one that has just joined. */
void drift_start_afresh(struct tr_sync *s)
{
	size_t all = s->first[s->options.fragments] * sizeof(float);

	memset(&s->given, 0, sizeof(s->given));
	memset(s->tokens, 0, sizeof(s->tokens));
	memset(s->steps, 0, sizeof(s->steps));
	s->lost += s->samples;
	s->samples = s->given_lost = 0;
	s->raced_late = true; /* it has had less time than the others of the race */
	if (!s->lead)
		return;
	memset(s->lead, 0, all);
	memset(s->lead_momentum, 0, all);
	memset(s->delta, 0, sync_fragment_count(s, s->slot.fragment) * sizeof(float));
}

bool tr_sync_sound(const tr_sync *s)
{
	for (unsigned f = 0; f < s->options.fragments; f++)
		if (s->spoilt[f])
			return false;
	return true;
}

void drift_look_again(struct tr_sync *s)
{
	for (size_t i = 0; i < s->parity.count; i++) {
		struct parity_part *part = &s->parity.parts[i];
		part->changed = parity_has_changed(&s->parity, i);
		if (part->changed)
			log_warn("sync",
			    "round %" PRIu64 ": %s%s%s changed in memory after they were compared: "
			    "to be put right at the next merge",
			    s->round.round, part->what, part->tensor ? " of " : "",
			    part->tensor ? part->tensor : "");
	}
}

void drift_mend(struct tr_sync *s)
{
	if (!s->parity.drifted)
		return;
	size_t before = strlen(s->event);
	for (unsigned m = 0; m < s->parity.contributors; m++) {
		bool wrong = parity_tell(&s->parity, m, s->event, sizeof(s->event));
		if (!wrong || !is_outcast(s, m))
			continue;
		size_t used = strlen(s->event);
		(void)snprintf(s->event + used, sizeof(s->event) - used,
		    "; its movement does not count");
		if (s->reports)
			s->reports[m].lr_scale = 0; /* nobody's, for the base of the rates */
		if (s->told)
			s->told[m].asked = 0;
		if (s->leases)
			s->said[m].lost = s->said[m].consumed; /* nothing was learned from them */
	}
	if (s->event[before])
		log_warn("sync", "%s", s->event + before);
	parity_mend(&s->parity);
	if (s->outcast)
		drift_start_afresh(s);
}
