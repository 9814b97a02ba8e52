/* What tr_sync holds: fragments of whole layers, layer l in fragment l mod P, and memory for them. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/coll_group.h"
#include "collectives/engine/sized.h"
#include "collectives/sync/alone.h"
#include "collectives/sync/drift.h"
#include "collectives/sync/searching.h"

#define REPORTS_BYTES (TR_GROUP_PEERS_MAX * sizeof(struct sync_report))
#define ROSTER_BYTES  (TR_GROUP_PEERS_MAX * sizeof(struct lease_wish))

static tr_status no_memory(struct tr_error *error, size_t bytes)
{
	return tr_error_set(error, TR_ENOMEM, "sync: no memory: %zu MiB", bytes >> 20);
}

/* Numbers layers as they first appear, into `fragment`; how many there are. */
static unsigned number_layers(struct tr_sync *s, const struct tr_sync_tensor *tensors)
{
	unsigned layers = 0;

	for (size_t i = 0; i < s->tensor_count; i++) {
		size_t same = 0;
		while (tensors[same].layer != tensors[i].layer)
			same++;
		s->tensors[i].fragment = same < i ? s->tensors[same].fragment : layers++;
	}
	return layers;
}

/* Fragment by fragment, in the order of the caller. */
static tr_status take_tensors(struct tr_sync *s, const struct tr_sync_tensor *tensors,
    struct tr_error *error)
{
	size_t offset = 0;

	for (unsigned f = 0; f < s->options.fragments; f++) {
		s->first[f] = offset;
		for (size_t i = 0; i < s->tensor_count; i++) {
			struct sync_tensor *t = &s->tensors[i];
			if (t->name || t->fragment % s->options.fragments != f)
				continue;
			*t = (struct sync_tensor){ strdup(tensors[i].name), tensors[i].data,
				tensors[i].count, offset, f };
			if (!t->name)
				return no_memory(error, strlen(tensors[i].name));
			offset += tensors[i].count;
		}
	}
	s->first[s->options.fragments] = offset;
	return TR_OK;
}

static size_t written_bytes(const struct tr_sync *s)
{
	return (s->tensor_count + 1) * sizeof(s->written[0]);
}

static tr_status allocate_leases(struct tr_sync *s, struct tr_error *error)
{
	s->leases = tr_alloc(s->group, sizeof(*s->leases));
	s->roster = tr_alloc(s->group, ROSTER_BYTES);
	s->said = tr_alloc(s->group, TR_GROUP_PEERS_MAX * sizeof(s->said[0]));
	s->early = calloc(1, sizeof(*s->early));
	if (!s->leases || !s->roster || !s->said || !s->early)
		return no_memory(error, 2 * sizeof(*s->leases));
	memset(s->leases, 0, sizeof(*s->leases));
	return TR_OK;
}

/* Else the first merge would end with an op's error. */
static tr_status check_scratch(const struct tr_sync *s, struct tr_error *error)
{
	size_t all = s->first[s->options.fragments];

	if (!s->options.scratch ||
	    coll_is_allocated(s->group, s->options.scratch, all * sizeof(float)))
		return TR_OK;
	return tr_error_set(error, TR_EINVAL,
	    "sync.scratch: found other memory, allowed: %zu floats, as many as the tensors have "
	    "together, of this group's tr_alloc",
	    all);
}

static tr_status allocate(struct tr_sync *s, struct tr_error *error)
{
	size_t all = s->first[s->options.fragments], largest = sync_fragment_largest(s);
	bool eager = s->options.mode == TR_SYNC_EAGER;

	s->outer = tr_alloc(s->group, all * sizeof(float));
	bool has_momentum = s->options.outer_momentum > 0;
	if (has_momentum)
		s->momentum = tr_alloc(s->group, all * sizeof(float));
	s->counters = tr_alloc(s->group, sizeof(*s->counters));
	s->written = tr_alloc(s->group, written_bytes(s));
	s->delta = tr_alloc(s->group, largest * sizeof(float));
	s->sum = s->options.scratch ? s->options.scratch
	                            : tr_alloc(s->group, largest * sizeof(float));
	s->totals = tr_alloc(s->group, sizeof(*s->totals));
	bool reports = s->options.mode == TR_SYNC_HDET || s->options.share_by_speed ||
	    pace_decides(&s->options);
	if (reports)
		s->reports = tr_alloc(s->group, REPORTS_BYTES);
	if (!s->outer || (has_momentum && !s->momentum) || !s->counters || !s->written ||
	    !s->delta || !s->sum || !s->totals || (reports && !s->reports))
		return no_memory(error, (2 * all + 2 * largest) * sizeof(float));
	if (s->options.codec != TR_CODEC_NONE && s->options.feedback > 0) {
		s->residual = tr_alloc(s->group, all * sizeof(float));
		s->residual_next = tr_alloc(s->group, all * sizeof(float));
		if (!s->residual || !s->residual_next)
			return no_memory(error, 2 * all * sizeof(float));
	}
	if (eager) {
		s->start = malloc(all * sizeof(float));
		s->lead = calloc(all, sizeof(float));
		s->lead_momentum = calloc(all, sizeof(float));
		if (!s->start || !s->lead || !s->lead_momentum)
			return no_memory(error, 3 * all * sizeof(float));
	}
	return s->options.batch > 0 ? allocate_leases(s, error) : TR_OK;
}

/* Parameters and their momentum: one is changed by the other. Small ones, since what has come of a unit in part is lost when a round is decided without the rest. */
#define BLOCK_LEAST ((size_t)TR_STATE_CHUNK_BYTES / 4 / sizeof(float))
#define BLOCKS_MOST (TR_STATE_TENSORS_MAX / 2 - 32)

static tr_status declare_block(struct tr_sync *s, uint32_t unit, size_t at, size_t count,
    struct tr_error *error)
{
	size_t bytes = count * sizeof(float);
	char name[64];

	(void)snprintf(name, sizeof(name), "outer parameters from %zu", at);
	tr_status status = tr_state_add_gradual(s->group, name, s->outer + at, bytes, unit, error);
	if (status != TR_OK || !s->momentum)
		return status;
	(void)snprintf(name, sizeof(name), "outer momentum from %zu", at);
	return tr_state_add_gradual(s->group, name, s->momentum + at, bytes, unit, error);
}

static tr_status declare(struct tr_sync *s, struct tr_error *error)
{
	size_t all = s->first[s->options.fragments], block = all / BLOCKS_MOST + 1;
	if (block < BLOCK_LEAST)
		block = BLOCK_LEAST;
	tr_status status = tr_state_add(s->group, "outer counters", s->counters,
	    sizeof(*s->counters), error);

	if (status == TR_OK)
		status = tr_state_add(s->group, "outer digests", s->written, written_bytes(s),
		    error);
	if (status == TR_OK && s->leases)
		status = tr_state_add(s->group, "samples", s->leases, sizeof(*s->leases), error);
	for (size_t at = 0; status == TR_OK && at < all; at += block)
		status = declare_block(s, (uint32_t)(at / block), at,
		    at + block < all ? block : all - at, error);
	return status;
}

static tr_status check_tensors(const struct tr_sync_tensor *tensors, size_t count,
    struct tr_error *error)
{
	size_t left = SIZE_MAX / 64; /* of the elements of all that any memory could have */

	if (count == 0 || !tensors)
		return tr_error_set(error, TR_EINVAL, "sync: no tensors: nothing to train");
	for (size_t i = 0; i < count; i++) {
		const struct tr_sync_tensor *t = &tensors[i];
		if (!sized_unused(t->reserved, SIZED_ROOM(t->reserved)))
			return tr_error_set(error, TR_EINVAL,
			    "sync tensors: the program sets a field that this library is too old "
			    "for, or did not initialise the struct");
		if (!t->name || !t->data || t->count == 0)
			return tr_error_set(error, TR_EINVAL,
			    "sync: tensor %zu (%s): has no name, no data or no elements", i,
			    t->name ? t->name : "");
		if (t->count > left)
			return tr_error_set(error, TR_EINVAL,
			    "sync: tensor %zu (%s): larger than any memory: %zu elements", i,
			    t->name, t->count);
		left -= t->count;
	}
	return TR_OK;
}

static tr_status fill(struct tr_sync *s, const struct tr_sync_tensor *tensors, size_t count,
    struct tr_error *error)
{
	tr_status status = check_tensors(tensors, count, error);

	if (status != TR_OK)
		return status;
	s->tensors = calloc(count, sizeof(s->tensors[0]));
	if (!s->tensors)
		return no_memory(error, count * sizeof(s->tensors[0]));
	s->tensor_count = count;
	status = sync_options_complete(&s->options, number_layers(s, tensors), error);
	if (status == TR_OK)
		status = take_tensors(s, tensors, error);
	if (status == TR_OK)
		status = check_scratch(s, error);
	if (status == TR_OK)
		status = allocate(s, error);
	if (status == TR_OK)
		status = searching_create(s, error);
	if (status == TR_OK)
		status = drift_create(s, error);
	if (status != TR_OK)
		return status;
	for (size_t i = 0; i < count; i++)
		memcpy(s->outer + s->tensors[i].offset, tensors[i].data,
		    tensors[i].count * sizeof(float));
	s->counters->lr_base[0] = 1;
	s->counters->steps = s->options.steps;
	s->counters->race_steps = s->options.lr_race_steps;
	s->schedule = (struct sync_schedule){ .steps = s->options.steps,
		.period = s->options.inner_steps,
		.overlap = (uint64_t)s->options.overlap,
		.fragments = s->options.fragments };
	search_begin(&s->counters->search, &s->options, false);
	drift_remember_first(s);
	return declare(s, error);
}

tr_status tr_sync_create(tr_group *group, const struct tr_sync_options *options,
    const struct tr_sync_tensor *tensors, size_t count, tr_sync **sync, struct tr_error *error)
{
	struct tr_sync *s = calloc(1, sizeof(*s));

	*sync = NULL;
	if (!s)
		return no_memory(error, sizeof(*s));
	s->group = group;
	tr_status status = sized_read("sync options", options, SYNC_OPTIONS_LEAST, &s->options,
	    sizeof(s->options), error);
	if (status == TR_OK && coll_op_deadline_ms(group) > 0)
		status = tr_error_set(error, TR_EINVAL,
		    "sync: op_deadline_ms: found %u, allowed: 0: a merge waits until its members "
		    "answer or are given up",
		    coll_op_deadline_ms(group));
	if (status == TR_OK)
		status = fill(s, tensors, count, error);
	if (status != TR_OK) {
		tr_sync_destroy(s);
		return status;
	}
	*sync = s;
	return TR_OK;
}

void tr_sync_destroy(tr_sync *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->tensor_count; i++)
		free(s->tensors[i].name);
	free(s->tensors);
	drift_destroy(s);
	alone_destroy(s);
	free(s->start);
	free(s->lead);
	free(s->lead_momentum);
	free(s->early);
	free(s);
}

float *tr_sync_momentum(tr_sync *s, size_t tensor)
{
	if (tensor >= s->tensor_count || !s->momentum)
		return NULL;
	if (!s->started) /* the caller may fill it */
		s->written[tensor].momentum = (struct tr_digest){ 0, 0 };
	return s->momentum + s->tensors[tensor].offset;
}

struct lease_account *tr_sync_leases(tr_sync *s)
{
	if (!s->started)
		s->written[s->tensor_count].momentum = (struct tr_digest){ 0, 0 };
	return s->leases;
}

tr_status tr_sync_ready(tr_sync *s, uint64_t round, struct tr_error *error)
{
	if (s->started)
		return tr_error_set(error, TR_EINVAL, "sync: training was started before");
	s->written[s->tensor_count].outer = (struct tr_digest){ 0, 0 };
	s->counters->before = s->schedule.before = round;
	return tr_state_ready(s->group, round, error);
}

double *tr_sync_lr_base(tr_sync *s)
{
	if (!s->started) {
		s->written[s->tensor_count].outer = (struct tr_digest){ 0, 0 };
		search_begin(&s->counters->search, &s->options, true);
	}
	return s->counters->lr_base;
}

struct sync_costs *tr_sync_costs(tr_sync *s)
{
	if (!s->started)
		s->written[s->tensor_count].outer = (struct tr_digest){ 0, 0 };
	return &s->counters->costs;
}

float *tr_sync_outer_memory(tr_sync *s, size_t tensor)
{
	return tensor < s->tensor_count ? s->outer + s->tensors[tensor].offset : NULL;
}

const float *tr_sync_outer(const tr_sync *s, size_t tensor)
{
	return tensor < s->tensor_count ? s->outer + s->tensors[tensor].offset : NULL;
}
