/* What people and memberd may ask: how far, waiting for whom, whose data is in. */
#include <string.h>

#include "collectives/core/bits.h"
#include "collectives/core/member.h"
#include "collectives/core/scope.h"
#include "collectives/kernels/reduce.h"

#define WAITS_MAX (sizeof(((struct group_core_progress *)0)->waits_for) / sizeof(uint64_t))

static void progress_add(struct group_core_progress *progress, uint64_t peer)
{
	for (size_t i = 0; i < progress->waits_for_count; i++)
		if (progress->waits_for[i] == peer)
			return;
	if (progress->waits_for_count < WAITS_MAX)
		progress->waits_for[progress->waits_for_count++] = peer;
}

static void progress_segment(const struct op *op, uint32_t s, struct group_core_progress *progress)
{
	const struct roster *roster = op->roster;
	const struct op_segment *segment = &op->segment[s];

	if (segment->server != ROSTER_NONE) {
		progress_add(progress, roster->peers[segment->server]);
		return;
	}
	struct route_of of;
	struct route route;
	if (!path_route_of(op, s, &of))
		return;
	route_find(&of, roster->me, &route);
	bool waits = false;
	for (unsigned i = 0; i < roster->n && !segment->passed; i++)
		if (bits_get(route.children, i) &&
		    !(segment->fold && bits_get(segment->fold->got, i))) {
			progress_add(progress, roster->peers[i]);
			waits = true;
		}
	if (!waits && route.down_from != ROSTER_NONE)
		progress_add(progress, roster->peers[route.down_from]);
}

static void progress_votes(const struct group_core *core, struct group_core_progress *progress)
{
	const struct roster *roster = &core->roster;

	if (roster->me != roster->hub) {
		progress_add(progress, roster->peers[roster->hub]);
		return;
	}
	for (unsigned i = 0; i < roster->n; i++)
		if (i != roster->me && !commit_has_vote(core, roster->peers[i]))
			progress_add(progress, roster->peers[i]);
}

/* First those for whom all wait, who may be none of ours. */
static void progress_lacks(const struct group_core *core, struct group_core_progress *progress)
{
	uint8_t lacks[TR_GROUP_PEERS_MAX / 8];
	bool known = lack_names(core, lacks);

	for (unsigned i = 0; known && i < core->roster.n; i++)
		if (bits_get(lacks, i))
			progress_add(progress, core->roster.peers[i]);
	progress->lack_count = progress->waits_for_count;
}

static void progress_waits(const struct group_core *core, struct group_core_progress *progress)
{
	if (core->needs_state)
		progress_add(progress, core->donor);
	if (!core->needs_state)
		progress_lacks(core, progress);
	if (core->voted) {
		progress_votes(core, progress);
		return;
	}
	for (size_t i = 0; i < core->op_count; i++) {
		const struct op *op = core->ops[i];
		uint32_t s = 0;
		while (s < op->segments &&
		    (op->segment[s].sealed || !path_needs(op, s, op->roster->me)))
			s++;
		if (s < op->segments)
			progress_segment(op, s, progress);
	}
}

void group_core_progress(const struct group_core *core, bool caller_waits,
    struct group_core_progress *progress)
{
	*progress = (struct group_core_progress){
		.view = core->view.number,
		.round = core->round,
		.committed = core->committed,
		.waiting = core->state == ROUND_CLOSED || core->begin_wanted || caller_waits,
	};
	/* Frozen or stuck: it waits for memberd, for no peer. */
	if ((core->state == ROUND_CLOSED || (caller_waits && round_active(core))) &&
	    core->proposal == 0 && !core->stuck)
		progress_waits(core, progress);
}

tr_status group_core_explain(const struct group_core *core, const struct group_submit *op,
    enum tr_algorithm *algorithm, char *reason, size_t reason_bytes)
{
	if (core->view.number == 0)
		return TR_EUNAVAILABLE;
	*algorithm = window_explain(core,
	    &(struct window_wish){ .algorithm = op->algorithm,
	        .collective = op->collective,
	        .kind = op_kind_of(op),
	        .codec = op->codec,
	        .bytes = op->count * reduce_element_bytes(op->dtype) },
	    reason, reason_bytes);
	return TR_OK;
}

const struct group_core_counters *group_core_counters(const struct group_core *core)
{
	return &core->counters;
}

bool group_core_may_defer(const struct group_core *core)
{
	return handover_may_defer(core);
}

/* After TR_ERESTART the same round begins again, from the same state. What was declared counts once a view has taken it for the group's. */
bool group_core_state(const struct group_core *core, uint64_t *round)
{
	bool begun = round_active(core) || core->state == ROUND_ABANDONED || core->begin_wanted;

	if (!core->ready || core->needs_state || core->state == ROUND_FAILED || !begun ||
	    core->view.number == 0)
		return false;
	*round = core->state_round;
	return true;
}

/* Of the last round: the contributor with that bit in the op's sets; 0: there is none. */
static uint64_t progress_contributor(const struct group_core *core, const struct op *op,
    unsigned bit)
{
	uint32_t at = scope_outer(&op->scope, bit);

	return at < core->last_contributor_count ? core->last_contributors[at] : 0;
}

const uint64_t *group_core_round_contributors(const struct group_core *core, unsigned *count)
{
	*count = core->roster.contributor_count;
	return core->roster.contributors;
}

uint64_t group_core_round_attempt(const struct group_core *core)
{
	return core->begun_attempt;
}

/* Of the round committed last; NULL: there is none of more elements than `element`. */
static const struct op *last_op(const struct group_core *core, uint32_t tag, uint64_t element)
{
	for (size_t i = 0; i < core->last_op_count; i++)
		if (core->last_ops[i]->tag == tag && element < core->last_ops[i]->signature.count)
			return core->last_ops[i];
	return NULL;
}

size_t group_core_segment_elements(const struct group_core *core, uint32_t tag)
{
	const struct op *op = last_op(core, tag, 0);

	return op != NULL ? op->cut.segment_elements : 0;
}

tr_status group_core_contributors(const struct group_core *core, uint32_t tag, uint64_t element,
    uint64_t *peers, size_t max, size_t *count)
{
	const struct op *op = last_op(core, tag, element);
	uint32_t s = op != NULL ? cut_segment(&op->cut, element) : 0;

	if (op == NULL || !op->segment[s].sealed)
		return TR_ENOTFOUND; /* or somebody else's block */
	const uint8_t *set = op_set(op, s);
	size_t found = 0;
	for (unsigned b = 0; b < 8 * op->set_bytes; b++) {
		uint64_t peer = bits_get(set, b) ? progress_contributor(core, op, b) : 0;
		if (peer == 0)
			continue;
		if (found < max)
			peers[found] = peer;
		found++;
	}
	*count = found;
	return TR_OK;
}
