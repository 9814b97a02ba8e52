#include "daemon/worker/alike.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "daemon/worker/trainer_inside.h"

enum { ARRAYS = 3, TEXT_BYTES = 512, MORE_BYTES = 128 };

static void add(struct parity *p, const char *what, const struct layout_tensor *tensor, float *data)
{
	p->parts[p->count++] = (struct parity_part){ .what = what,
		.tensor = tensor->name,
		.data = data,
		.bytes = layout_numbers(tensor) * sizeof(float) };
}

static void add_whole(struct trainer *t)
{
	struct parity *p = &t->alike.parity;
	t->alike.arrays = ARRAYS;
	for (size_t i = 0; i < t->layout.tensor_count; i++) {
		const struct layout_tensor *tensor = &t->layout.tensors[i];
		add(p, "parameters", tensor, t->arrays.params + tensor->offset);
		add(p, "first moments", tensor, t->arrays.first + tensor->offset);
		add(p, "second moments", tensor, t->arrays.second + tensor->offset);
	}
}

/* What is written of a sync mode is tr_sync's; moments are each worker's own. */
static void add_outer(struct trainer *t)
{
	struct parity *p = &t->alike.parity;
	t->alike.arrays = tr_sync_momentum(t->outer.sync, 0) != NULL ? 2 : 1;
	for (size_t i = 0; i < t->layout.tensor_count; i++) {
		const struct layout_tensor *tensor = &t->layout.tensors[i];
		add(p, "parameters", tensor, tr_sync_outer_memory(t->outer.sync, i));
		if (t->alike.arrays == 2)
			add(p, "outer momentum", tensor, tr_sync_momentum(t->outer.sync, i));
	}
}

tr_status alike_create(struct trainer *t, struct tr_error *error)
{
	struct parity *p = &t->alike.parity;
	tr_status status = parity_create(p, t->group, TAG_PARITY, error);
	if (status != TR_OK)
		return status;
	p->majority = true;
	p->parts = calloc(ARRAYS * t->layout.tensor_count + 2, sizeof(p->parts[0]));
	if (p->parts == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for a table of tensors");
	if (t->outer.sync != NULL)
		add_outer(t);
	else
		add_whole(t);
	p->parts[p->count++] = (struct parity_part){ .what = "account of samples",
		.data = t->account,
		.bytes = sizeof(*t->account) };
	if (t->outer.sync == NULL) /* else tokens of merges that a joiner did not see are reckoned */
		p->parts[p->count++] = (struct parity_part){ .what = "counters",
			.data = t->counters,
			.bytes = sizeof(*t->counters) };
	return TR_OK;
}

void alike_destroy(struct trainer *t)
{
	free(t->alike.parity.parts);
}

static uint64_t every(const struct trainer *t)
{
	return t->spec->checkpoint != NULL ? t->spec->checkpoint->every : 0;
}

/* Of a sync mode: no merge compares what was read. */
static bool has_all_steps(const struct trainer *t)
{
	return t->outer.sync != NULL && t->counters->start >= t->steps;
}

static bool is_last(const struct trainer *t, uint64_t round)
{
	return t->outer.sync != NULL ? has_all_steps(t) : round > t->steps;
}

/* What is to be saved, before it is. The same on all, a joiner that has no state yet included. */
static bool is_looked_at(const struct trainer *t, uint64_t round)
{
	bool saves = every(t) > 0 && round % every(t) == 0;
	return is_last(t, round) || (t->outer.sync == NULL && (round == 1 || saves));
}

/* Whether a job that ends in that round begins again at a checkpoint of its own, of a round before it. */
static bool can_go_back(const struct trainer *t, uint64_t round)
{
	struct tr_assignment assignment = { 0 };
	(void)tr_assignment_get(t->group, &assignment);
	uint64_t before = is_last(t, round) ? t->steps - 1 : round - 1, start = t->counters->start;
	bool saved = every(t) > 0 && before / every(t) > start / every(t);
	return t->folder.dir[0] != '\0' && ((assignment.restarts > 0 && start > 0) || saved);
}

/* Nothing was done with what was read, or with what all begin with. */
static bool begins(const struct trainer *t, uint64_t round)
{
	return has_all_steps(t) || round <= t->counters->start + 1;
}

/* All that was trained would be lost with it. What is written of it, as contributor 0 holds it, is what a later look goes back to. */
static bool is_taken_as_it_is(const struct trainer *t)
{
	const struct parity *p = &t->alike.parity;
	return p->undecided && !begins(t, p->round) && !can_go_back(t, p->round);
}

bool alike_may_write(const struct trainer *t)
{
	return !t->alike.parity.drifted || is_taken_as_it_is(t);
}

static void add_beginning(const struct trainer *t, uint64_t round, char *text, size_t size)
{
	size_t length = strlen(text);
	if (begins(t, round) && t->counters->start > 0)
		(void)snprintf(text + length, size - length,
		    ": they began with different checkpoints of step %llu: delete all but one",
		    (unsigned long long)t->counters->start);
}

void alike_tell_beginning(struct trainer *t, const struct tr_round *round)
{
	char text[TEXT_BYTES] = "workers hold different parameters";
	if (t->alike.parity.undecided || !begins(t, round->round) || t->counters->start == 0)
		return; /* it was said, or was not so from the beginning */
	add_beginning(t, round->round, text, sizeof(text));
	log_error("trainer", "%s", text);
	trainer_report_event(t, text);
}

tr_status alike_settle(struct trainer *t, const struct tr_round *round, struct tr_error *error)
{
	struct parity *p = &t->alike.parity;
	p->drifted = p->undecided = false;
	if (!is_looked_at(t, round->round))
		return TR_OK;
	tr_status status = parity_submit(p, round, error);
	if (status == TR_OK)
		status = parity_settle(p, error);
	if (status != TR_OK || !p->undecided || round->index != 0)
		return status;
	char text[TEXT_BYTES + MORE_BYTES] = "";
	for (unsigned m = 0; m < p->contributors; m++)
		(void)parity_tell(p, m, text, TEXT_BYTES);
	(void)trainer_end_save(t); /* of a round before: the job goes back to it */
	add_beginning(t, round->round, text, sizeof(text));
	size_t length = strlen(text);
	if (is_taken_as_it_is(t))
		(void)snprintf(text + length, sizeof(text) - length,
		    "; there is no checkpoint to go back to: the %s one has what peer %llu holds",
		    is_last(t, round->round) ? "last" : "first",
		    (unsigned long long)tr_peer_id(t->group));
	trainer_report_event(t, text); /* before the commit that fails */
	return TR_OK;
}

uint64_t alike_salt(struct trainer *t, const struct tr_round *round)
{
	/* After a start from a checkpoint too; a joiner knows `start` by now, it is part of the state. */
	bool salted = t->outer.sync == NULL && round->round == t->counters->start + 1;
	if (is_looked_at(t, round->round) && is_taken_as_it_is(t))
		return 0;
	return salted || is_looked_at(t, round->round) ? parity_salt(&t->alike.parity) : 0;
}

bool alike_mend(struct trainer *t, const struct tr_round *round)
{
	struct parity *p = &t->alike.parity;
	char text[TEXT_BYTES] = "";
	bool params_wrong = false;
	if (!p->drifted)
		return true;
	for (unsigned m = 0; m < p->contributors; m++) {
		(void)parity_tell(p, m, text, sizeof(text));
		for (size_t i = 0; i < p->count; i += t->alike.arrays)
			params_wrong = params_wrong ||
			    (i + 1 < p->count && parity_is_wrong(p, m, i)); /* or the account */
	}
	/* Without a verdict it was said before the commit. */
	if (text[0] != '\0' && round->index == 0 && !p->undecided)
		trainer_report_event(t, text);
	parity_mend(p);
	return !params_wrong;
}
