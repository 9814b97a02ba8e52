/* Which samples of a job were used: its workers' newest account, kept beside its progress (soft, noted in the log now and then, durable with the
 * job's end), and what of it people see, epoch by epoch. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/membership/core/state.h"
#include "daemon/plan/sample_account.h"

#define ROWS_MAX 256 /* of an answer */

static uint64_t length_of(Traind__V1__SampleRange *const *rows, size_t count, bool counts)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < count; i++)
		sum += counts ? rows[i]->count : rows[i]->to - rows[i]->from;
	return sum;
}

static uint64_t counted_of(const Traind__V1__SampleAccount *a)
{
	return a->given - length_of(a->held, a->n_held, false) -
	    length_of(a->returned, a->n_returned, false) -
	    length_of(a->dropped, a->n_dropped, true);
}

const Traind__V1__SampleAccount *samples_of(const struct job *job)
{
	if (job->soft.progress != NULL && job->soft.progress->samples != NULL)
		return job->soft.progress->samples;
	return job->progress != NULL ? job->progress->samples : NULL;
}

/* The job was started again, from a checkpoint that knows less: of `now` what it began with, since a round may have been added to it. Of workers that do not say, all that it has: a round too few are said
 * to be lost then, but never more than were. */
static void say_uncounted(struct membership *m, const struct job *job,
    const Traind__V1__SampleAccount *before, const Traind__V1__SampleAccount *now)
{
	char text[REASON_MAX];
	bool says = now->beginning_case == TRAIND__V1__SAMPLE_ACCOUNT__BEGINNING_BEGUN;
	uint64_t counted = counted_of(before), still = says ? now->begun : counted_of(now);
	if (counted <= still)
		return;
	(void)snprintf(text, sizeof(text),
	    "samples: %llu were counted before the restart, after its checkpoint: they count as "
	    "not "
	    "trained on and are given out again",
	    (unsigned long long)(counted - still));
	facts_note(m, job, text);
}

void samples_take(struct membership *m, struct job *job, const Traind__V1__SampleAccount *account)
{
	const Traind__V1__SampleAccount *before = samples_of(job);
	if (!sample_account_valid(account)) {
		action_ignored(m, "an account of samples of job %llu that is not one",
		    (unsigned long long)job->id);
		return;
	}
	if (account->run != job->restarts || !state_job_live(job) ||
	    (before != NULL && before->run == account->run && account->round < before->round))
		return;
	Traind__V1__SampleAccount *now = copy_message(m, &account->base);
	if (now == NULL)
		return;
	if (before != NULL && before->run != now->run)
		say_uncounted(m, job, before, now);
	const Traind__V1__Progress *newest = job->soft.progress != NULL ? job->soft.progress
	                                                                : job->progress;
	Traind__V1__Progress blank = TRAIND__V1__PROGRESS__INIT;
	blank.loss = blank.val_loss = blank.first_loss = NAN;
	Traind__V1__Progress *copy = copy_message(m, newest != NULL ? &newest->base : &blank.base);
	if (copy == NULL) {
		traind__v1__sample_account__free_unpacked(now, NULL);
		return;
	}
	if (copy->samples != NULL)
		traind__v1__sample_account__free_unpacked(copy->samples, NULL);
	copy->samples = now;
	if (job->soft.progress != NULL)
		traind__v1__progress__free_unpacked(job->soft.progress, NULL);
	job->soft.progress = copy;
}

/* ---- for people ---- */

struct epochs {
	const Traind__V1__SampleAccount *account;
	Traind__V1__Samples *answer;
	bool live;
	bool failed;
};

static uint64_t overlap(const Traind__V1__SampleRange *range, uint64_t from, uint64_t to)
{
	uint64_t first = range->from > from ? range->from : from;
	uint64_t last = range->to < to ? range->to : to;
	return first < last ? last - first : 0;
}

static uint64_t overlaps(Traind__V1__SampleRange *const *rows, size_t count, uint64_t from,
    uint64_t to)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < count; i++)
		sum += overlap(rows[i], from, to);
	return sum;
}

/* The first epoch from `epoch` on in which one of the ranges lies. */
static uint64_t touched(Traind__V1__SampleRange *const *rows, size_t count, uint64_t per_epoch,
    uint64_t epoch, uint64_t first)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t from = rows[i]->from / per_epoch;
		if (rows[i]->from >= rows[i]->to || rows[i]->to <= epoch * per_epoch)
			continue;
		from = from > epoch ? from : epoch;
		first = from < first ? from : first;
	}
	return first;
}

static Traind__V1__SampleEpoch *add_row(struct epochs *e, uint64_t from, uint64_t through)
{
	Traind__V1__SampleEpoch *row = malloc(sizeof(*row));
	if (row == NULL) {
		e->failed = true;
		return NULL;
	}
	traind__v1__sample_epoch__init(row);
	row->epoch = from;
	row->through = through;
	e->answer->epochs[e->answer->n_epochs++] = row;
	return row;
}

static char *copy_words(const char *words, bool *failed)
{
	char *copy = strdup(words);
	if (copy == NULL)
		*failed = true;
	return copy != NULL ? copy : (char *)(uintptr_t)protobuf_c_empty_string;
}

/* Numbers of the row that begins at `base`. Joined ranges that cross its end are said where they begin. */
static void add_dropped(struct epochs *e, Traind__V1__SampleEpoch *row, uint64_t base, uint64_t end)
{
	const Traind__V1__SampleAccount *a = e->account;
	row->ranges = calloc(a->n_dropped + 1, sizeof(*row->ranges));
	for (size_t i = 0; row->ranges != NULL && i < a->n_dropped; i++) {
		const Traind__V1__SampleRange *d = a->dropped[i];
		bool whole = d->count == d->to - d->from;
		if (overlap(d, base, end) == 0 || (!whole && d->from < base))
			continue;
		Traind__V1__SampleRange *range = malloc(sizeof(*range));
		if (range == NULL)
			break;
		traind__v1__sample_range__init(range);
		range->peer = d->peer;
		range->round = d->round;
		range->count = d->count;
		range->cause = copy_words(d->cause, &e->failed);
		range->from = (d->from > base ? d->from : base) - base;
		range->to = (d->to < end ? d->to : end) - base;
		if (whole || range->count > range->to - range->from)
			range->count = range->to - range->from;
		row->dropped += range->count;
		row->ranges[row->n_ranges++] = range;
	}
	e->failed = e->failed || row->ranges == NULL;
}

/* One row of all these epochs. */
static void add_epochs(struct epochs *e, uint64_t first, uint64_t through)
{
	const Traind__V1__SampleAccount *a = e->account;
	uint64_t from = first * a->per_epoch, to = (through + 1) * a->per_epoch;
	Traind__V1__SampleEpoch *row = add_row(e, first, through);
	if (row == NULL)
		return;
	uint64_t given = (a->given < to ? a->given : to) - from;
	uint64_t held = overlaps(a->held, a->n_held, from, to);
	uint64_t missing = held + overlaps(a->returned, a->n_returned, from, to);
	add_dropped(e, row, from, to);
	missing += row->dropped;
	row->counted = given > missing ? given - missing : 0;
	row->in_flight = e->live ? held : 0;
	uint64_t known = row->counted + row->in_flight + row->dropped;
	row->left = to - from > known ? to - from - known : 0;
}

static void fill_epochs(struct epochs *e)
{
	const Traind__V1__SampleAccount *a = e->account;
	uint64_t last = a->given > 0 ? (a->given - 1) / a->per_epoch : 0, epoch = 0;
	while (epoch <= last && !e->failed) {
		uint64_t next = a->given % a->per_epoch == 0 && a->given > 0 ? last + 1 : last;
		next = touched(a->held, a->n_held, a->per_epoch, epoch, next);
		next = touched(a->returned, a->n_returned, a->per_epoch, epoch, next);
		next = touched(a->dropped, a->n_dropped, a->per_epoch, epoch, next);
		if (e->answer->n_epochs + 3 > ROWS_MAX && next < last) {
			e->answer->cut = true;
			add_epochs(e, epoch, last - 1);
			epoch = last;
			continue;
		}
		if (next > epoch) {
			Traind__V1__SampleEpoch *row = add_row(e, epoch, next - 1);
			if (row != NULL)
				row->counted = (next - epoch) * a->per_epoch;
		}
		if (next <= last)
			add_epochs(e, next, next);
		epoch = next + 1;
	}
}

Traind__V1__Samples *membership_samples(const struct membership *m, uint64_t id)
{
	const struct job *job = state_job(m, id);
	Traind__V1__Samples *answer = job != NULL ? malloc(sizeof(*answer)) : NULL;
	if (answer == NULL)
		return NULL;
	traind__v1__samples__init(answer);
	answer->job_id = id;
	const Traind__V1__SampleAccount *account = samples_of(job);
	if (account == NULL || account->per_epoch == 0)
		return answer;
	struct epochs e = { .account = account, .answer = answer, .live = state_job_live(job) };
	answer->known = true;
	answer->round = account->round;
	answer->per_epoch = account->per_epoch;
	answer->anew = account->anew;
	answer->epochs = calloc(ROWS_MAX + 1, sizeof(*answer->epochs));
	if (answer->epochs == NULL)
		e.failed = true;
	else
		fill_epochs(&e);
	if (e.failed) {
		traind__v1__samples__free_unpacked(answer, NULL);
		return NULL; /* NOLINT(clang-analyzer-unix.Malloc): it was freed just now */
	}
	return answer;
}
