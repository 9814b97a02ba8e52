#include "collectives/sync/parity.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/limits.h"

enum {
	NAMED_MAX = 4 /* tensors of a peer in a text */,
	FLAT_WORDS = 4,
	TAG_FLAT = 0,
	TAG_SAID = 1,
	TAG_FRESH = 2
};
enum { RECORD_WORDS = sizeof(struct parity_record) / sizeof(uint64_t) };

_Static_assert(sizeof(struct parity_record) == RECORD_WORDS * sizeof(uint64_t), "words alone");

void *parity_room(tr_group *group, struct parity_room *room, size_t bytes)
{
	if (room->bytes >= bytes)
		return room->data;
	void *data = tr_alloc(group, bytes); /* what was smaller stays with the group */
	if (data)
		*room = (struct parity_room){ data, bytes };
	return data;
}

static tr_status no_memory(struct tr_error *error, size_t bytes)
{
	return tr_error_set(error, TR_ENOMEM, "sync: no memory: %zu MiB to mend a peer's state",
	    bytes >> 20);
}

tr_status parity_create(struct parity *p, tr_group *group, uint32_t tag, struct tr_error *error)
{
	*p = (struct parity){ .group = group, .tag = tag };
	p->extremes = tr_alloc(group, FLAT_WORDS * sizeof(p->extremes[0]));
	return p->extremes ? TR_OK : no_memory(error, 0);
}

static bool contributes(const struct parity *p)
{
	return p->index < p->contributors;
}

static struct tr_digest digest_all(const struct parity *p)
{
	struct tr_digest all = { 0, 0 };

	for (size_t i = 0; i < p->count; i++)
		all = tr_digest_fold(all, p->parts[i].digest);
	return all;
}

tr_status parity_submit(struct parity *p, const struct tr_round *round, struct tr_error *error)
{
	p->round = round->round;
	p->index = round->index;
	p->contributors = round->contributors;
	p->drifted = p->undecided = false;
	for (size_t i = 0; i < p->count; i++) {
		p->parts[i].differs = false;
		if (contributes(p)) /* a joiner's memory is being written */
			p->parts[i].digest = tr_digest_of(p->parts[i].data, p->parts[i].bytes);
	}
	struct tr_digest all = digest_all(p);
	p->extremes[0] = (int64_t)all.low;
	p->extremes[1] = (int64_t)all.high;
	p->extremes[2] = (int64_t)~all.low;
	p->extremes[3] = (int64_t)~all.high;
	return tr_allreduce(p->group, p->tag + TAG_FLAT, p->extremes, FLAT_WORDS, TR_I64, TR_MAX,
	    contributes(p) ? TR_CONTRIBUTE : 0, error);
}

/* ---- who is right ---- */

/* Of each contributor one in which its id stands for a digest, then one for each part. */
static size_t stride_of(const struct parity *p)
{
	return 1 + p->count;
}

static struct parity_record *said_by(const struct parity *p, unsigned member)
{
	return (struct parity_record *)p->said.data + member * stride_of(p);
}

static const struct parity_record *record_of(const struct parity *p, unsigned member, size_t part)
{
	return said_by(p, member) + 1 + part;
}

uint64_t parity_peer(const struct parity *p, unsigned member)
{
	return said_by(p, member)->digest.low;
}

static bool same(const struct parity_record *a, const struct parity_record *b)
{
	return tr_digest_equal(a->digest, b->digest);
}

bool parity_is_wrong(const struct parity *p, unsigned member, size_t part)
{
	const struct parity_part *of = &p->parts[part];
	const struct parity_record *record = record_of(p, member, part);

	return of->differs && record->state != PARITY_ABSENT &&
	    !same(record, record_of(p, of->right, part));
}

/* How many of those in the same state hold what `member` holds. */
static unsigned holders(const struct parity_record *records, size_t stride, unsigned contributors,
    unsigned member)
{
	unsigned count = 0;

	for (unsigned i = 0; i < contributors; i++)
		count += records[i * stride].state == records[member * stride].state &&
		    same(&records[i * stride], &records[member * stride]);
	return count;
}

unsigned parity_right(const struct parity_record *records, size_t stride, unsigned contributors)
{
	unsigned right = 0, most = 0;
	uint64_t best = PARITY_ABSENT;

	for (unsigned i = 0; i < contributors; i++)
		if (records[i * stride].state > best)
			best = records[i * stride].state;
	for (unsigned i = 0; i < contributors; i++) {
		if (records[i * stride].state != best)
			continue;
		unsigned count = holders(records, stride, contributors, i);
		if (count > most) {
			most = count;
			right = i;
		}
	}
	return right;
}

static void fill_said(struct parity *p)
{
	static const struct tr_digest unknown = { 0, 0 };
	struct parity_record *mine = said_by(p, p->index);

	mine[0] = (struct parity_record){ { tr_peer_id(p->group), 0 }, 0 };
	for (size_t i = 0; i < p->count; i++) {
		const struct parity_part *part = &p->parts[i];
		bool known = !tr_digest_equal(part->written, unknown);
		mine[1 + i] = (struct parity_record){ part->digest,
			known && !tr_digest_equal(part->written, part->digest) ? PARITY_SPOILT
			                                                       : PARITY_SOUND };
	}
}

static tr_status say(struct parity *p, struct tr_error *error)
{
	size_t words = stride_of(p) * RECORD_WORDS;
	size_t bytes = p->contributors * words * sizeof(uint64_t);

	if (!parity_room(p->group, &p->said, bytes))
		return no_memory(error, bytes);
	memset(p->said.data, 0, bytes);
	if (contributes(p))
		fill_said(p);
	tr_status status = tr_allgather(p->group, p->tag + TAG_SAID, NULL, p->said.data,
	    p->contributors * words, TR_I64, error);
	return status == TR_OK ? tr_wait(p->group, p->tag + TAG_SAID, error) : status;
}

/* ---- what is right ---- */

/* Who differ from the right one, and whether it is one if there has to be a majority. */
static void compare(struct parity *p, size_t part)
{
	struct parity_part *of = &p->parts[part];
	unsigned wrong = 0, present = 0;

	of->right = parity_right(record_of(p, 0, part), stride_of(p), p->contributors);
	of->differs = true;
	for (unsigned m = 0; m < p->contributors; m++) {
		wrong += parity_is_wrong(p, m, part);
		present += record_of(p, m, part)->state != PARITY_ABSENT;
	}
	of->differs = wrong > 0;
	if (p->majority && of->differs && 2 * wrong >= present)
		p->undecided = true;
}

/* Parts that differ get their places, those of one holder beside each other; how many bytes they are. */
static size_t decide(struct parity *p)
{
	size_t end = 0;

	for (size_t i = 0; i < p->count; i++)
		compare(p, i);
	for (unsigned m = 0; m < p->contributors; m++)
		for (size_t i = 0; i < p->count; i++) {
			struct parity_part *part = &p->parts[i];
			if (!part->differs || part->right != m)
				continue;
			part->at = end;
			end += part->bytes;
		}
	return end;
}

/* Bytes of what contributor `member` broadcasts, from *first on. */
static size_t held_by(const struct parity *p, unsigned member, size_t *first)
{
	size_t bytes = 0;

	for (size_t i = 0; i < p->count; i++) {
		const struct parity_part *part = &p->parts[i];
		if (!part->differs || part->right != member)
			continue;
		if (bytes == 0)
			*first = part->at;
		bytes += part->bytes;
	}
	return bytes;
}

static void fill_fresh(struct parity *p)
{
	for (size_t i = 0; i < p->count; i++) {
		const struct parity_part *part = &p->parts[i];
		if (part->differs && part->right == p->index)
			memcpy((char *)p->fresh.data + part->at, part->data, part->bytes);
	}
}

static tr_status broadcast(struct parity *p, struct tr_error *error)
{
	tr_status status = TR_OK;
	size_t first = 0;

	for (unsigned m = 0; status == TR_OK && m < p->contributors; m++) {
		size_t bytes = held_by(p, m, &first);
		if (bytes > 0)
			status = tr_broadcast(p->group, p->tag + TAG_FRESH + m,
			    (char *)p->fresh.data + first, bytes, TR_U8, m, error);
	}
	for (unsigned m = 0; status == TR_OK && m < p->contributors; m++)
		if (held_by(p, m, &first) > 0)
			status = tr_wait(p->group, p->tag + TAG_FRESH + m, error);
	return status;
}

/* Under the policy keep a broadcast whose source died leaves memory as it was, and is no error. */
static bool all_came(const struct parity *p)
{
	for (size_t i = 0; i < p->count; i++) {
		const struct parity_part *part = &p->parts[i];
		const void *fresh = (const char *)p->fresh.data + part->at;
		if (part->differs &&
		    !tr_digest_equal(tr_digest_of(fresh, part->bytes),
		        record_of(p, part->right, i)->digest))
			return false;
	}
	return true;
}

tr_status parity_settle(struct parity *p, struct tr_error *error)
{
	tr_status status = tr_wait(p->group, p->tag + TAG_FLAT, error);

	if (status != TR_OK)
		return status;
	p->drifted = p->extremes[0] != ~p->extremes[2] || p->extremes[1] != ~p->extremes[3];
	if (!p->drifted)
		return TR_OK;
	status = say(p, error);
	if (status != TR_OK)
		return status;
	size_t bytes = decide(p);
	if (p->undecided)
		return TR_OK;
	if (bytes == 0) /* somebody said two things: the salt has the last word */
		return TR_OK;
	if (!parity_room(p->group, &p->fresh, bytes))
		return no_memory(error, bytes);
	fill_fresh(p);
	status = broadcast(p, error);
	p->undecided = status == TR_OK && !all_came(p);
	return status;
}

/* Without a verdict nobody sent anything, or what was sent did not come: each goes by its own data. */
static bool is_mended(const struct parity *p, size_t part)
{
	return !p->undecided && p->parts[part].differs &&
	    (!contributes(p) || parity_is_wrong(p, p->index, part));
}

static void digest_again(struct parity *p, size_t i)
{
	struct parity_part *part = &p->parts[i];
	const void *data = is_mended(p, i) ? (const char *)p->fresh.data + part->at : part->data;

	part->digest = tr_digest_of(data, part->bytes);
}

uint64_t parity_salt(struct parity *p)
{
	for (size_t i = 0; i < p->count; i++)
		digest_again(p, i);
	return digest_all(p).low;
}

uint64_t parity_salt_compared(struct parity *p)
{
	for (size_t i = 0; i < p->count; i++)
		if (!contributes(p) || is_mended(p, i))
			digest_again(p, i);
	return digest_all(p).low;
}

uint64_t parity_salt_agreed(const struct parity *p)
{
	struct tr_digest all = { 0, 0 };

	if (!p->drifted)
		return (uint64_t)p->extremes[0];
	for (size_t i = 0; i < p->count; i++)
		all = tr_digest_fold(all, record_of(p, p->parts[i].right, i)->digest);
	return all.low;
}

bool parity_has_changed(const struct parity *p, size_t part)
{
	const struct parity_part *of = &p->parts[part];

	return !tr_digest_equal(of->digest, tr_digest_of(of->data, of->bytes));
}

void parity_mend(struct parity *p)
{
	for (size_t i = 0; i < p->count; i++)
		if (is_mended(p, i))
			memcpy(p->parts[i].data, (const char *)p->fresh.data + p->parts[i].at,
			    p->parts[i].bytes);
}

static void add_text(char *text, size_t text_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add_text(char *text, size_t text_bytes, const char *format, ...)
{
	size_t used = strlen(text);
	va_list values;

	va_start(values, format);
	(void)vsnprintf(text + used, text_bytes - used, format, values);
	va_end(values);
}

bool parity_tell(const struct parity *p, unsigned member, char *text, size_t text_bytes)
{
	unsigned wrong = 0;

	for (size_t i = 0; i < p->count; i++) {
		const struct parity_part *part = &p->parts[i];
		if (!parity_is_wrong(p, member, i))
			continue;
		if (wrong == 0)
			add_text(text, text_bytes,
			    "%sround %" PRIu64 ": peer %" PRIu64 " held other", text[0] ? "; " : "",
			    p->round, parity_peer(p, member));
		if (wrong++ >= NAMED_MAX)
			continue;
		add_text(text, text_bytes, "%s %s%s%s (%s peer %" PRIu64 ")", wrong > 1 ? "," : "",
		    part->what, part->tensor ? " of " : "", part->tensor ? part->tensor : "",
		    p->undecided ? "than" : "put right by", parity_peer(p, part->right));
	}
	if (wrong > NAMED_MAX)
		add_text(text, text_bytes, " and %u more", wrong - NAMED_MAX);
	return wrong > 0;
}
