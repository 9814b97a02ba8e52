#include "collectives/sync/alone.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/sync/drift.h"
#include "collectives/sync/late.h"
#include "common/error.h"

#define KEPT_MAGIC   UINT64_C(0x3354504b43525454) /* "TTRCKPT3" */
#define KEPT_NOTHING UINT64_MAX
#define KEEP_MOST    1e6 /* periods */

/* ---- waiting, and going on ---- */

bool alone_may(const struct tr_sync *s)
{
	bool last = s->options.steps > 0 && s->progress.step >= s->options.steps;

	return s->trains && s->alone < s->options.alone_steps && !last && !sync_leasing_is_dry(s);
}

/* What is left of its patience with this merge. */
static uint32_t patience_ms(const struct tr_sync *s)
{
	double left = s->options.alone_after_seconds - (sync_monotonic_s() - s->merge_since_s);

	return s->trains_alone || left <= 0 ? 0 : (uint32_t)(1e3 * left);
}

tr_status alone_wait(struct tr_sync *s, uint32_t tag, struct tr_error *error)
{
	tr_status status = tr_wait_for(s->group, tag, patience_ms(s), error);

	s->trains_alone = s->trains_alone || status == TR_ETIMEDOUT;
	return status;
}

tr_status alone_commit(struct tr_sync *s, const struct tr_commit *close, struct tr_error *error)
{
	struct tr_round committed = s->round;
	tr_status status = tr_round_commit_for(s->group, close, &committed, patience_ms(s), error);

	s->trains_alone = s->trains_alone || status == TR_ETIMEDOUT;
	return status;
}

/* Of the others, without who is missing; 0: not known. */
static double period_s(const struct tr_sync_options *o, const struct pace_agreed *agreed)
{
	if (o->inner_seconds > 0)
		return o->inner_seconds;
	if (o->grace_seconds > 0)
		return agreed->quorum_s;
	return o->by_speed ? (double)o->inner_steps * agreed->fastest_s : 0;
}

uint64_t alone_keep_rounds(const struct tr_sync_options *o, const struct pace_agreed *agreed,
    double slowest_s)
{
	double alone = (double)o->alone_steps, period = period_s(o, agreed), periods = 0;

	if (period > 0 && slowest_s > 0)
		periods = alone * slowest_s / period;
	else if (o->inner_steps > 0)
		periods = alone / (double)o->inner_steps;
	return (uint64_t)(o->fragments * (8 + 2 * (periods < KEEP_MOST ? periods : KEEP_MOST)));
}

/* ---- what is kept ---- */

static size_t on_way_count(const struct tr_sync *s, uint64_t fragment)
{
	return fragment == KEPT_NOTHING ? 0 : sync_fragment_count(s, (unsigned)fragment);
}

static struct sync_kept facts_of(const struct tr_sync *s)
{
	const struct lease_account *account = sync_leasing_account(s);
	uint64_t peer = tr_peer_id(s->group);
	/* Samples too, of which nothing was learned (drift.h). */
	bool on_way = s->taken && !s->committed &&
	    (s->given.weight > 0 || s->given_lost + s->given.samples > 0);
	struct sync_kept kept = { .magic = KEPT_MAGIC,
		.parameters = s->first[s->options.fragments],
		.fragments = s->options.fragments,
		.tensors = s->tensor_count,
		.peer = peer,
		.was = alone_was(s),
		.first = lease_at(account, peer, 0),
		.first_after = KEPT_NOTHING,
		.fragment = on_way ? s->slot.fragment : KEPT_NOTHING,
		.samples = s->samples,
		.lost = s->lost };

	memcpy(kept.tokens, s->tokens, sizeof(kept.tokens));
	memcpy(kept.steps, s->steps, sizeof(kept.steps));
	if (!on_way)
		return kept;
	kept.on_way_tokens = s->given.tokens;
	kept.on_way_steps = s->given_steps;
	kept.on_way_samples = s->given.samples;
	kept.on_way_lost = s->given_lost;
	kept.first_after = lease_at(account, peer, (uint64_t)(s->given_lost + s->given.samples));
	return kept;
}

size_t tr_sync_kept_bytes(const tr_sync *s)
{
	return sizeof(struct sync_kept) +
	    (s->first[s->options.fragments] + sync_fragment_largest(s)) * sizeof(float);
}

/* What it reckons its movement from is what it was. */
static bool is_sound(const struct tr_sync *s)
{
	return tr_sync_sound(s) && (s->start || drift_holds_outer(s)) &&
	    (!late_apart(s) || drift_holds_momentum(s));
}

size_t tr_sync_keep(const tr_sync *s, void *into)
{
	if (s->brought) { /* it did not come to begin with it: for the next one */
		memcpy(into, s->brought, s->brought_bytes);
		return s->brought_bytes;
	}
	if (!s->leases || !s->trains || s->finished || s->outcast || s->apart || !is_sound(s))
		return 0;
	struct sync_kept kept = facts_of(s);
	size_t on_way = on_way_count(s, kept.fragment), first = s->first[s->slot.fragment];
	float *movement = (float *)((char *)into + sizeof(kept)),
	      *sent = movement + kept.parameters;
	const float *from = s->start ? s->start : s->outer;
	float scale = s->given.weight > 0 ? (float)(1 / s->given.weight) : 0;

	memcpy(into, &kept, sizeof(kept));
	for (size_t t = 0; t < s->tensor_count; t++) {
		const struct sync_tensor *tensor = &s->tensors[t];
		/* As its merge would have it. */
		bool unmerged = s->committed && !s->start && sync_in_slot(s, t),
		     carried = unmerged && s->recalled;
		float part = unmerged && !carried ? (float)s->options.alpha : 1;
		const float *base = carried ? s->delta + tensor->offset - first
		                            : from + tensor->offset;
		for (size_t i = 0; i < tensor->count; i++)
			movement[tensor->offset + i] = part * (base[i] - tensor->data[i]);
	}
	bool apart = late_apart(s);
	if (apart)
		late_since(s, movement);
	for (size_t i = 0; i < on_way; i++) {
		sent[i] = s->delta[i] * scale;
		if (!s->start && !apart) /* else training went on from beyond it */
			movement[first + i] -= sent[i];
	}
	return sizeof(kept) + (kept.parameters + on_way) * sizeof(float);
}

/* ---- what is brought ---- */

static bool is_amount(double number, bool whole)
{
	return number >= 0 && number < (double)LEASE_SAMPLE_MAX &&
	    (!whole || number == floor(number));
}

static bool amounts_fit(const struct sync_kept *kept)
{
	bool fit = is_amount(kept->on_way_tokens, false) && is_amount(kept->on_way_steps, true) &&
	    is_amount(kept->on_way_samples, true) && is_amount(kept->on_way_lost, true) &&
	    is_amount(kept->samples, true) && is_amount(kept->lost, true);

	for (unsigned f = 0; f < SYNC_FRAGMENTS_MAX; f++)
		fit = fit && is_amount(kept->tokens[f], false) && is_amount(kept->steps[f], true);
	return fit;
}

static bool fits(const struct tr_sync *s, const struct sync_kept *kept, size_t bytes)
{
	return kept->magic == KEPT_MAGIC && kept->parameters == s->first[s->options.fragments] &&
	    kept->fragments == s->options.fragments && kept->tensors == s->tensor_count &&
	    (kept->fragment == KEPT_NOTHING || kept->fragment < kept->fragments) &&
	    amounts_fit(kept) &&
	    bytes ==
	    sizeof(*kept) + (kept->parameters + on_way_count(s, kept->fragment)) * sizeof(float);
}

tr_status tr_sync_bring(tr_sync *s, const void *kept, size_t bytes, struct tr_error *error)
{
	struct sync_kept facts = { 0 };

	if (bytes >= sizeof(facts))
		memcpy(&facts, kept, sizeof(facts));
	if (!s->leases || s->started || s->brought)
		return tr_error_set(error, TR_EINVAL, "sync: %s",
		    !s->leases       ? "only with a batch is it known what was merged"
		        : s->started ? "what was kept is brought before tr_sync_start"
		                     : "what was kept is brought once");
	if (!fits(s, &facts, bytes))
		return tr_error_set(error, TR_EINVAL,
		    "sync: what was kept is of another model, other fragments or another version: "
		    "leave it out");
	s->brought = malloc(bytes);
	if (!s->brought)
		return tr_error_set(error, TR_ENOMEM, "sync: no memory: %zu MiB", bytes >> 20);
	memcpy(s->brought, kept, bytes);
	s->brought_bytes = bytes;
	s->was = facts.peer;
	s->was_before = facts.was;
	return TR_OK;
}

uint64_t alone_was(const struct tr_sync *s)
{
	bool known = s->was_before == 0 || lease_have(s->leases, s->was) > 0;

	return known ? s->was : s->was_before;
}

static void move_back(struct tr_sync *s, const float *movement, size_t first, size_t count)
{
	for (size_t t = 0; t < s->tensor_count; t++) {
		const struct sync_tensor *tensor = &s->tensors[t];
		if (tensor->offset < first || tensor->offset >= first + count)
			continue;
		for (size_t i = 0; i < tensor->count; i++)
			tensor->data[i] -= movement[tensor->offset - first + i];
	}
}

/* True: what was on its way is in the outer parameters. */
static bool apply(struct tr_sync *s, const struct sync_kept *kept, bool counted)
{
	const float *movement = (const float *)((const char *)s->brought + sizeof(*kept));
	bool on_way = kept->fragment != KEPT_NOTHING;

	move_back(s, movement, 0, kept->parameters);
	memcpy(s->tokens, kept->tokens, sizeof(s->tokens));
	memcpy(s->steps, kept->steps, sizeof(s->steps));
	s->samples = kept->samples;
	s->lost = kept->lost;
	if (!on_way || counted)
		return on_way;
	move_back(s, movement + kept->parameters, s->first[kept->fragment],
	    on_way_count(s, kept->fragment));
	s->tokens[kept->fragment] += kept->on_way_tokens;
	s->steps[kept->fragment] += kept->on_way_steps;
	s->samples += kept->on_way_samples;
	s->lost += kept->on_way_lost;
	return false;
}

void alone_begin(struct tr_sync *s)
{
	struct sync_kept kept;

	if (!s->brought)
		return;
	memcpy(&kept, s->brought, sizeof(kept));
	uint64_t first = s->finished ? UINT64_MAX
	                             : lease_at(sync_leasing_account(s), tr_peer_id(s->group), 0);
	bool waits = first != UINT64_MAX && first == kept.first,
	     counted = first != UINT64_MAX && first == kept.first_after;
	if (waits || counted) {
		bool merged = apply(s, &kept, counted);
		(void)snprintf(s->event, sizeof(s->event),
		    "peer %" PRIu64 " is back: what it learned as peer %" PRIu64
		    " in %.0f samples goes into its first merge%s",
		    tr_peer_id(s->group), kept.peer, s->samples,
		    merged ? "; those before were merged already" : "");
	} else {
		/* What it took over all the same are samples that no merge has, and that it uses as any others. */
		if (lease_have(s->leases, alone_was(s)) == 0)
			s->was = s->was_before = 0;
		(void)snprintf(s->event, sizeof(s->event),
		    "peer %" PRIu64 " is back too late: what it learned as peer %" PRIu64
		    " in %.0f samples is dropped, they were given to others",
		    tr_peer_id(s->group), kept.peer, kept.samples + kept.on_way_samples);
	}
	alone_destroy(s);
}

void alone_destroy(struct tr_sync *s)
{
	free(s->brought);
	s->brought = NULL;
}
