#include "daemon/membership/core/ledger.h"

#include <stdlib.h>
#include <string.h>

#include "common/limits.h"

/* Contributor sets change with views only, so each is kept once. */
struct set {
	uint64_t *peers;
	size_t count;
};

struct row {
	uint64_t round, view, attempt, samples;
	struct tr_digest digest;
	uint32_t set;
	bool partial;
};

struct ledger {
	struct row *rows; /* ascending by round */
	size_t count, capacity;
	struct set *sets;
	size_t sets_count;
	uint64_t recorded, samples, partial, replayed, newest, frontier;
	struct tr_digest digest; /* of the newest */
};

struct ledger *ledger_create(void)
{
	return calloc(1, sizeof(struct ledger));
}

void ledger_destroy(struct ledger *ledger)
{
	if (ledger == NULL)
		return;
	for (size_t i = 0; i < ledger->sets_count; i++)
		free(ledger->sets[i].peers);
	free(ledger->sets);
	free(ledger->rows);
	free(ledger);
}

/* The first row at or after `round`. */
static size_t ledger_find(const struct ledger *ledger, uint64_t round)
{
	size_t low = 0, high = ledger->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (ledger->rows[middle].round < round)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool set_equal(const struct set *set, const uint64_t *peers, size_t count)
{
	return set->count == count && memcmp(set->peers, peers, count * sizeof(*peers)) == 0;
}

static bool set_add(struct ledger *ledger, const uint64_t *peers, size_t count)
{
	struct set *grown = realloc(ledger->sets, (ledger->sets_count + 1) * sizeof(*grown));
	if (grown == NULL)
		return false;
	ledger->sets = grown;
	uint64_t *copy = malloc(count * sizeof(*copy));
	if (copy == NULL)
		return false;
	memcpy(copy, peers, count * sizeof(*copy));
	ledger->sets[ledger->sets_count++] = (struct set){ .peers = copy, .count = count };
	return true;
}

/* UINT32_MAX: out of memory. */
static uint32_t ledger_set(struct ledger *ledger, const uint64_t *peers, size_t count)
{
	for (size_t i = ledger->sets_count; i-- > 0;)
		if (set_equal(&ledger->sets[i], peers, count))
			return (uint32_t)i;
	return set_add(ledger, peers, count) ? (uint32_t)(ledger->sets_count - 1) : UINT32_MAX;
}

/* Of rows that are gone: where nodes come and go each view has brought another one, for months. Without memory they stay. */
static void forget_sets(struct ledger *ledger)
{
	uint32_t *places = calloc(ledger->sets_count + 1, sizeof(*places));
	uint32_t kept = 0;
	if (places == NULL)
		return;
	for (size_t i = 0; i < ledger->count; i++)
		places[ledger->rows[i].set] = 1;
	for (size_t i = 0; i < ledger->sets_count; i++) {
		if (places[i] == 0) {
			free(ledger->sets[i].peers);
			continue;
		}
		ledger->sets[kept] = ledger->sets[i];
		places[i] = kept++;
	}
	ledger->sets_count = kept;
	for (size_t i = 0; i < ledger->count; i++)
		ledger->rows[i].set = places[ledger->rows[i].set];
	free(places);
}

static bool record_valid(const struct ledger *ledger, const Traind__Peer__RoundCommit *record)
{
	if (record->round == 0 || record->n_contributors == 0 ||
	    record->n_contributors > TR_GROUP_PEERS_MAX)
		return false;
	uint64_t top = ledger->newest > ledger->frontier ? ledger->newest : ledger->frontier;
	if (record->round > top && record->round - top > TR_ROUND_AHEAD_MAX)
		return false;
	for (size_t i = 0; i < record->n_contributors; i++)
		if (record->contributors[i] == 0 ||
		    (i > 0 && record->contributors[i] <= record->contributors[i - 1]))
			return false;
	return true;
}

enum ledger_verdict ledger_look(const struct ledger *ledger, const Traind__Peer__RoundCommit *record)
{
	if (!record_valid(ledger, record))
		return LEDGER_BAD;
	size_t at = ledger_find(ledger, record->round);
	if (at == ledger->count || ledger->rows[at].round != record->round)
		return record->round <= ledger->frontier ? LEDGER_KNOWN : LEDGER_NEW;
	const struct row *row = &ledger->rows[at];
	/* A round that was decided again after its hub died has another view but the same result.
	 */
	bool same = row->digest.low == record->digest_low &&
	    row->digest.high == record->digest_high &&
	    set_equal(&ledger->sets[row->set], record->contributors, record->n_contributors);
	return same ? LEDGER_KNOWN : LEDGER_CONTRADICTS;
}

static bool ledger_room(struct ledger *ledger)
{
	if (ledger->count >= TR_ROUND_RECORDS_MAX) {
		/* The oldest sixteenth goes; what was before the new first row counts as known. A snapshot may hold more. */
		size_t gone = ledger->count - TR_ROUND_RECORDS_MAX / 16 * 15;
		uint64_t before = ledger->rows[gone].round - 1;
		memmove(ledger->rows, ledger->rows + gone,
		    (ledger->count - gone) * sizeof(*ledger->rows));
		ledger->count -= gone;
		if (ledger->frontier < before)
			ledger->frontier = before;
		forget_sets(ledger);
	}
	if (ledger->count < ledger->capacity)
		return true;
	size_t capacity = ledger->capacity > 0 ? 2 * ledger->capacity : 16;
	struct row *grown = realloc(ledger->rows, capacity * sizeof(*grown));
	if (grown == NULL)
		return false;
	ledger->rows = grown;
	ledger->capacity = capacity;
	return true;
}

static void ledger_advance(struct ledger *ledger)
{
	for (size_t at = ledger_find(ledger, ledger->frontier + 1);
	     at < ledger->count && ledger->rows[at].round == ledger->frontier + 1; at++)
		ledger->frontier++;
}

enum ledger_verdict ledger_add(struct ledger *ledger, const Traind__Peer__RoundCommit *record)
{
	enum ledger_verdict verdict = ledger_look(ledger, record);
	if (verdict != LEDGER_NEW)
		return verdict;
	if (!ledger_room(ledger)) /* it numbers the sets anew */
		return LEDGER_NOMEM;
	uint32_t set = ledger_set(ledger, record->contributors, record->n_contributors);
	if (set == UINT32_MAX)
		return LEDGER_NOMEM;
	size_t at = ledger_find(ledger, record->round);
	memmove(&ledger->rows[at + 1], &ledger->rows[at],
	    (ledger->count - at) * sizeof(*ledger->rows));
	ledger->count++;
	ledger->rows[at] = (struct row){
		.round = record->round,
		.view = record->view,
		.attempt = record->attempt,
		.samples = record->samples,
		.digest = { .low = record->digest_low, .high = record->digest_high },
		.set = set,
		.partial = record->partial,
	};
	ledger->recorded++;
	ledger->samples += record->samples;
	ledger->partial += record->partial ? 1 : 0;
	if (record->round > ledger->newest) {
		ledger->newest = record->round;
		ledger->digest = ledger->rows[at].digest;
	}
	ledger_advance(ledger);
	return LEDGER_NEW;
}

void ledger_replayed(struct ledger *ledger)
{
	ledger->replayed++;
}

void ledger_forget_from(struct ledger *ledger, uint64_t round)
{
	size_t at = ledger_find(ledger, round);
	for (size_t i = at; i < ledger->count; i++) {
		ledger->recorded--;
		ledger->samples -= ledger->rows[i].samples;
		ledger->partial -= ledger->rows[i].partial ? 1 : 0;
	}
	ledger->count = at;
	if (ledger->newest >= round) {
		ledger->newest = at > 0 ? ledger->rows[at - 1].round : 0;
		ledger->digest = at > 0 ? ledger->rows[at - 1].digest : (struct tr_digest){ 0 };
	}
	if (ledger->frontier >= round)
		ledger->frontier = round > 0 ? round - 1 : 0;
}

void ledger_start_at(struct ledger *ledger, uint64_t round)
{
	if (round > 0 && ledger->frontier < round - 1)
		ledger->frontier = round - 1;
	ledger_advance(ledger);
}

void ledger_close(struct ledger *ledger)
{
	free(ledger->rows);
	ledger->rows = NULL;
	ledger->count = ledger->capacity = 0;
	for (size_t i = 0; i < ledger->sets_count; i++)
		free(ledger->sets[i].peers);
	free(ledger->sets);
	ledger->sets = NULL;
	ledger->sets_count = 0;
	if (ledger->frontier < ledger->newest)
		ledger->frontier = ledger->newest;
}

uint64_t ledger_newest(const struct ledger *ledger)
{
	return ledger->newest;
}

uint64_t ledger_frontier(const struct ledger *ledger)
{
	return ledger->frontier;
}

uint64_t ledger_recorded(const struct ledger *ledger)
{
	return ledger->recorded;
}

void ledger_account(const struct ledger *ledger, Traind__V1__RoundAccount *account,
    char digest_hex[TR_DIGEST_HEX_MAX])
{
	account->committed = ledger->newest;
	account->recorded = ledger->recorded;
	account->samples = ledger->samples;
	account->partial_rounds = ledger->partial;
	account->replayed_rounds = ledger->replayed;
	digest_hex[0] = '\0';
	if (ledger->recorded > 0)
		(void)tr_digest_hex(ledger->digest, digest_hex);
	account->last_digest = digest_hex;
}

/* Rows as varints: round less the one before, view, attempt, samples, set * 2 + partial; then 16
 * bytes of digest. */
#define ROW_BYTES_MAX (5 * 10 + 16)

static uint8_t *varint_put(uint8_t *at, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		*at++ = (uint8_t)(value | 0x80);
	*at++ = (uint8_t)value;
	return at;
}

static uint8_t *word_put(uint8_t *at, uint64_t value)
{
	for (int i = 0; i < 8; i++)
		*at++ = (uint8_t)(value >> (8 * i));
	return at;
}

static uint8_t *rows_put(const struct ledger *ledger, uint8_t *at)
{
	uint64_t before = 0;
	for (size_t i = 0; i < ledger->count; i++) {
		const struct row *row = &ledger->rows[i];
		at = varint_put(at, row->round - before);
		at = varint_put(at, row->view);
		at = varint_put(at, row->attempt);
		at = varint_put(at, row->samples);
		at = varint_put(at, (uint64_t)row->set * 2 + (row->partial ? 1 : 0));
		at = word_put(at, row->digest.low);
		at = word_put(at, row->digest.high);
		before = row->round;
	}
	return at;
}

static Traind__Peer__ContributorSet *set_pack(const struct set *set)
{
	Traind__Peer__ContributorSet *packed = malloc(sizeof(*packed));
	if (packed == NULL)
		return NULL;
	traind__peer__contributor_set__init(packed);
	packed->peers = malloc((set->count + 1) * sizeof(*packed->peers));
	if (packed->peers == NULL) {
		free(packed);
		return NULL;
	}
	memcpy(packed->peers, set->peers, set->count * sizeof(*packed->peers));
	packed->n_peers = set->count;
	return packed;
}

Traind__Peer__SnapshotLedger *ledger_pack(const struct ledger *ledger)
{
	Traind__Peer__SnapshotLedger *packed = malloc(sizeof(*packed));
	if (packed == NULL)
		return NULL;
	traind__peer__snapshot_ledger__init(packed);
	packed->recorded = ledger->recorded;
	packed->samples = ledger->samples;
	packed->partial = ledger->partial;
	packed->replayed = ledger->replayed;
	packed->newest = ledger->newest;
	packed->frontier = ledger->frontier;
	packed->digest_low = ledger->digest.low;
	packed->digest_high = ledger->digest.high;
	packed->rows_count = ledger->count;
	packed->sets = calloc(ledger->sets_count + 1, sizeof(*packed->sets));
	packed->rows.data = malloc(ledger->count * ROW_BYTES_MAX + 1);
	if (packed->sets == NULL || packed->rows.data == NULL)
		goto fail;
	for (size_t i = 0; i < ledger->sets_count; i++) {
		packed->sets[i] = set_pack(&ledger->sets[i]);
		if (packed->sets[i] == NULL)
			goto fail;
		packed->n_sets++;
	}
	packed->rows.len = (size_t)(rows_put(ledger, packed->rows.data) - packed->rows.data);
	return packed;
fail:
	traind__peer__snapshot_ledger__free_unpacked(packed, NULL);
	return NULL; /* NOLINT(clang-analyzer-unix.Malloc): it was freed just now */
}

struct reader {
	const uint8_t *at, *end;
	bool failed;
};

static uint64_t varint_get(struct reader *reader)
{
	uint64_t value = 0;
	for (unsigned shift = 0; shift < 64; shift += 7) {
		if (reader->at == reader->end)
			break;
		uint8_t byte = *reader->at++;
		value |= (uint64_t)(byte & 0x7f) << shift;
		if ((byte & 0x80) == 0)
			return value;
	}
	reader->failed = true;
	return 0;
}

static uint64_t word_get(struct reader *reader)
{
	if (reader->end - reader->at < 8) {
		reader->failed = true;
		return 0;
	}
	uint64_t value = 0;
	for (int i = 0; i < 8; i++)
		value |= (uint64_t)*reader->at++ << (8 * i);
	return value;
}

static bool rows_get(struct ledger *ledger, const Traind__Peer__SnapshotLedger *packed)
{
	/* A row takes at least 21 bytes, so the count cannot make us allocate more than the bytes
	 * that came. */
	if (packed->rows_count > packed->rows.len / 21 || packed->rows_count > TR_ROUND_AHEAD_MAX)
		return false;
	ledger->capacity = packed->rows_count;
	ledger->rows = calloc(ledger->capacity + 1, sizeof(*ledger->rows));
	if (ledger->rows == NULL)
		return false;
	struct reader reader = { .at = packed->rows.data,
		.end = packed->rows.len == 0 ? packed->rows.data
		                             : packed->rows.data + packed->rows.len };
	uint64_t before = 0;
	for (; ledger->count < packed->rows_count; ledger->count++) {
		struct row *row = &ledger->rows[ledger->count];
		uint64_t step = varint_get(&reader);
		row->round = before + step;
		row->view = varint_get(&reader);
		row->attempt = varint_get(&reader);
		row->samples = varint_get(&reader);
		uint64_t set = varint_get(&reader);
		row->set = (uint32_t)(set / 2);
		row->partial = set % 2 != 0;
		row->digest.low = word_get(&reader);
		row->digest.high = word_get(&reader);
		if (reader.failed || step == 0 || row->round < before ||
		    set / 2 >= ledger->sets_count)
			return false;
		before = row->round;
	}
	return reader.at == reader.end;
}

struct ledger *ledger_unpack(const Traind__Peer__SnapshotLedger *packed)
{
	struct ledger *ledger = ledger_create();
	if (ledger == NULL)
		return NULL;
	ledger->recorded = packed->recorded;
	ledger->samples = packed->samples;
	ledger->partial = packed->partial;
	ledger->replayed = packed->replayed;
	ledger->newest = packed->newest;
	ledger->frontier = packed->frontier;
	ledger->digest = (struct tr_digest){ .low = packed->digest_low,
		.high = packed->digest_high };
	for (size_t i = 0; i < packed->n_sets; i++) {
		const Traind__Peer__ContributorSet *set = packed->sets[i];
		if (set->n_peers == 0 || set->n_peers > TR_GROUP_PEERS_MAX ||
		    !set_add(ledger, set->peers, set->n_peers))
			goto fail;
	}
	if (!rows_get(ledger, packed))
		goto fail;
	return ledger;
fail:
	ledger_destroy(ledger);
	return NULL;
}
