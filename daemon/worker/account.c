/* The account of samples (collectives/sync/lease.h) in a job: with ddp a round's batch is counted when it is committed; in the other modes it is
 * tr_sync's, which gives out leases. memberd is told in whole, so that the newest word is enough: a worker that dies before it has said its last one
 * leaves the account with the others.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "daemon/plan/job_sync.h"
#include "daemon/worker/trainer_inside.h"

#define TELL_EVERY_S 0.5

/* An old checkpoint does not say; its order is the same if the whole of it is. */
bool trainer_account_differs(const struct trainer *t, const struct manifest *manifest)
{
	if (manifest->order[0] != '\0')
		return strcmp(manifest->order, t->order_digest) != 0;
	return manifest->spec[0] != '\0' && strcmp(manifest->spec, t->spec_digest) != 0;
}

void trainer_account_resume(struct trainer *t, const struct manifest *manifest)
{
	*t->account = manifest->account;
	if (t->account->cursor == 0) /* of a version that kept none: whole batches, in order */
		t->account->cursor = manifest->step * t->batch;
	if (trainer_account_differs(t, manifest))
		t->account->anew = t->account->cursor;
	if (!job_sync_is_rare(t->spec->sync))
		lease_drop_free(t->account);
	t->account->begun = lease_counted(t->account);
	t->account->round = 0; /* the numbers of rounds begin again */
}

/* ---- ddp ---- */

static bool among(const uint64_t *peers, size_t count, double peer)
{
	for (size_t i = 0; i < count; i++)
		if ((double)peers[i] == peer)
			return true;
	return false;
}

/* Counted are those whose loss is in the round's sum; of the gradient some segments may hold more, or fewer (arrived.c). */
static tr_status drop_missing(struct trainer *t, const struct tr_round *round, uint64_t batch,
    struct tr_error *error)
{
	uint64_t peers[TR_GROUP_PEERS_MAX];
	size_t count = 0;
	tr_status status = tr_contributors(t->group, TAG_LOSS, 0, peers, TR_GROUP_PEERS_MAX, &count);
	if (status != TR_OK)
		return tr_error_set(error, status,
		    "round %llu: who contributed to its loss is not known",
		    (unsigned long long)round->round);
	for (unsigned i = 0; i < round->contributors; i++) {
		uint64_t first, last;
		double peer = t->sums->roster[2 * i]; /* 0: it died before it said who it is */
		samples_share(t->batch, i, round->contributors, &first, &last);
		if (among(peers, count, peer))
			continue;
		lease_drop(t->account,
		    (struct lease_dropped){ .from = batch + first,
		        .to = batch + last,
		        .count = last - first,
		        .peer = (uint64_t)peer,
		        .round = round->round,
		        .cause = LEASE_DIED });
	}
	return TR_OK;
}

tr_status trainer_account_batch(struct trainer *t, const struct tr_round *round, bool alike,
    struct tr_error *error)
{
	uint64_t batch = lease_batch(t->account, t->batch, round->round), first, last;
	if (trainer_contributes(round)) {
		samples_share(t->batch, round->index, round->contributors, &first, &last);
		trainer_account_note(t, round->round, (size_t)(last - first));
	}
	if (!alike) {
		lease_drop(t->account,
		    (struct lease_dropped){ .from = batch,
		        .to = batch + t->batch,
		        .count = t->batch,
		        .round = round->round,
		        .cause = LEASE_DRIFTED });
		return TR_OK;
	}
	return round->partial ? drop_missing(t, round, batch, error) : TR_OK;
}

/* ---- memberd ---- */

static int by_number(const void *a, const void *b)
{
	const Traind__V1__SampleRange *one = a, *other = b;
	return one->from < other->from ? -1 : one->from > other->from;
}

/* Adjacent ranges become one. */
static size_t join(Traind__V1__SampleRange *rows, size_t count)
{
	size_t kept = 0;
	qsort(rows, count, sizeof(*rows), by_number);
	for (size_t i = 0; i < count; i++) {
		if (kept > 0 && rows[kept - 1].to == rows[i].from)
			rows[kept - 1].to = rows[i].to;
		else
			rows[kept++] = rows[i];
	}
	return kept;
}

static Traind__V1__SampleRange row(uint64_t from, uint64_t to)
{
	Traind__V1__SampleRange range = TRAIND__V1__SAMPLE_RANGE__INIT;
	range.from = from;
	range.to = to;
	return range;
}

/* In words, for people: protobuf's strings are not written to. */
static char *cause_of(const struct lease_dropped *dropped)
{
	static char words[][40] = { "several", "it died", "its state was wrong",
		"there was no room in the account", "a job of another mode had not used them" };
	return words[dropped->cause < sizeof(words) / sizeof(words[0]) ? dropped->cause : 0];
}

/* Of the next step's batch, or of those up to the next merge of replicas that train apart, which take what is free first. */
static uint64_t next_samples(const struct trainer *t)
{
	uint64_t free = 0, all;
	if (t->outer.sync != NULL || t->counters->step >= t->steps)
		return 0;
	if (t->sharded == NULL || t->sharded->apart == NULL)
		return t->batch;
	for (size_t i = 0; i < t->account->free_count; i++)
		free += t->account->free[i].to - t->account->free[i].from;
	all = t->batch * sharded_apart_steps(t);
	return all > free ? all - free : 0;
}

/* `rows`: [LEASE_HELD_MAX + LEASE_FREE_MAX + LEASE_DROPPED_MAX + 1], as `places`. Points into both. */
static void fill(const struct trainer *t, Traind__V1__SampleRange *rows,
    Traind__V1__SampleRange **places, Traind__V1__SampleAccount *account)
{
	const struct lease_account *a = t->account;
	size_t count = 0;
	account->round = a->round;
	account->per_epoch = t->samples.per_epoch;
	account->given = a->cursor;
	account->anew = a->anew;
	account->beginning_case = TRAIND__V1__SAMPLE_ACCOUNT__BEGINNING_BEGUN;
	account->begun = a->begun;
	account->last = t->steps * t->batch;
	for (; count < a->held_count; count++)
		rows[count] = row(a->held[count].from, a->held[count].to);
	uint64_t next = next_samples(t); /* not handed out before */
	if (next > 0)
		rows[count++] = row(a->cursor, a->cursor + next);
	account->given += next;
	account->held = places;
	account->n_held = count = join(rows, count);
	account->returned = places + count;
	account->n_returned = a->free_count;
	for (size_t i = 0; i < a->free_count; i++)
		rows[count++] = row(a->free[i].from, a->free[i].to);
	account->dropped = places + count;
	account->n_dropped = a->dropped_count;
	for (size_t i = 0; i < a->dropped_count; i++) {
		const struct lease_dropped *d = &a->dropped[i];
		rows[count] = row(d->from, d->to);
		rows[count].count = d->count;
		rows[count].peer = d->peer;
		rows[count].cause = cause_of(d);
		rows[count++].round = d->round;
	}
	for (size_t i = 0; i < count; i++)
		places[i] = &rows[i];
}

static void say(struct trainer *t, const Traind__V1__SampleAccount *account)
{
	size_t bytes = traind__v1__sample_account__get_packed_size(account);
	uint8_t *packed = malloc(bytes + 1);
	struct tr_report report = { .samples = packed, .samples_bytes = bytes };
	if (packed == NULL)
		return;
	(void)traind__v1__sample_account__pack(account, packed);
	bool failed = tr_report(t->group, &report) != TR_OK;
	if (failed && !t->account_failed)
		log_warn("trainer",
		    "the account of samples could not be told (%zu bytes); training goes on",
		    bytes);
	t->account_failed = failed;
	free(packed);
}

static void tell(struct trainer *t)
{
	enum { ROWS = LEASE_HELD_MAX + LEASE_FREE_MAX + LEASE_DROPPED_MAX + 1 };
	Traind__V1__SampleAccount account = TRAIND__V1__SAMPLE_ACCOUNT__INIT;
	Traind__V1__SampleRange *rows = calloc(ROWS, sizeof(*rows)),
	                        **places = calloc(ROWS, sizeof(Traind__V1__SampleRange *));
	struct tr_assignment assignment = { 0 };
	if (rows != NULL && places != NULL) {
		(void)tr_assignment_get(t->group, &assignment);
		account.run = assignment.restarts;
		fill(t, rows, places, &account);
		say(t, &account);
	}
	free(places);
	free(rows);
}

void trainer_account_tell(struct trainer *t, const struct tr_round *round, bool last)
{
	double now = trainer_monotonic_s();
	bool first = t->account->round ==
	    0; /* what a restart begins with is told before anything is added to it */
	if (round->index != 0 || !trainer_contributes(round) ||
	    (!last && !first && t->account_told_s > 0 && now - t->account_told_s < TELL_EVERY_S))
		return;
	t->account_told_s = now;
	tell(t);
}

/* ---- for those who check ---- */

tr_status trainer_log_samples(struct trainer *t, const char *folder, struct tr_error *error)
{
	char path[CHECKPOINT_PATH_MAX];
	(void)snprintf(path, sizeof(path), "%s/peer-%llu", folder,
	    (unsigned long long)tr_peer_id(t->group));
	t->samples_log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (t->samples_log < 0)
		return tr_error_set(error, TR_EIO, "TRAIND_SAMPLES_LOG: %s cannot be written", path);
	return TR_OK;
}

/* One write a line, before the samples are used: what a killed worker consumed is there. */
void trainer_account_note(struct trainer *t, uint64_t round, size_t count)
{
	char line[4096];
	int used = snprintf(line, sizeof(line), "%llu", (unsigned long long)round);
	if (t->samples_log < 0)
		return;
	t->samples_noted = lseek(t->samples_log, 0, SEEK_END);
	for (size_t i = 0, next; i < count && used < (int)sizeof(line) - 64; i = next) {
		for (next = i + 1; next < count && t->numbers[next] == t->numbers[next - 1] + 1;)
			next++;
		used += snprintf(line + used, sizeof(line) - (size_t)used, " %llu-%llu",
		    (unsigned long long)t->numbers[i],
		    (unsigned long long)t->numbers[next - 1] + 1);
	}
	line[used++] = '\n';
	if (write(t->samples_log, line, (size_t)used) != used)
		log_warn("trainer", "TRAIND_SAMPLES_LOG: a line could not be written");
}

void trainer_account_unnote(const struct trainer *t)
{
	if (t->samples_log >= 0 && ftruncate(t->samples_log, t->samples_noted) != 0)
		log_warn("trainer", "TRAIND_SAMPLES_LOG: a line could not be taken back");
}
