#include <stdio.h>
#include <string.h>

#include "collectives/backend/domain_internal.h"
#include "collectives/kernels/reduce.h"
#include "common/error.h"

#define LEAD_ANSWER_MS 10000 /* for a member that is told of a broken communicator */
#define LEAD_NAME_MS   200   /* for the end of a member whom an error of the backend is due to */

/* ---- speaking and hearing */

void lead_tell_all(struct tr_domain *d, const struct domain_message *message)
{
	for (unsigned i = 1; i < d->link.members; i++)
		if (d->members[i].here) /* one that is gone is found by the next hearing */
			(void)domain_link_send(&d->link, i, message);
}

static void lead_lose(struct tr_domain *d, unsigned number, const char *why)
{
	if (!d->members[number].here)
		return;
	char text[TR_ERROR_TEXT_MAX];
	(void)snprintf(text, sizeof(text), "member %u of the domain (pid %d) %s", number,
	    (int)d->link.pids[number], why);
	d->members[number].here = false;
	domain_link_drop(&d->link, number);
	domain_break(d, "%s", text);
	/* What the backend said of it before names nobody. */
	if (d->ended == TR_OK && !d->named)
		memcpy(d->why, text, sizeof(d->why));
	d->named = true;
}

static void lead_call_text(const struct domain_call *call, char *text, size_t bytes)
{
	static const char *const names[] = { "all-reduce", "reduce-scatter", "all-gather",
		"broadcast" };
	(void)snprintf(text, bytes, "%s tag %u of %llu elements, type %u, reduce %u",
	    call->collective < sizeof(names) / sizeof(*names) ? names[call->collective]
	                                                      : "collective",
	    call->tag, (unsigned long long)call->count, call->dtype, call->reduce);
}

/* A call that the leader has made too, or will never make. */
static void lead_compare(struct tr_domain *d, unsigned number, const struct domain_message *m)
{
	char ours[128] = "commit", theirs[128];
	const struct domain_call *call = &d->log[m->index % DOMAIN_CALLS_KEPT];
	bool made = domain_before(m->index, d->calls);
	if (made &&
	    (d->calls - m->index > DOMAIN_CALLS_KEPT || memcmp(call, &m->call, sizeof(*call)) == 0))
		return;
	lead_call_text(&m->call, theirs, sizeof(theirs));
	if (made)
		lead_call_text(call, ours, sizeof(ours));
	(void)domain_end(d, TR_EMISMATCH,
	    "call %u of the domain: member 0 calls %s, member %u calls %s", m->index, ours, number,
	    theirs);
}

static void lead_take(struct tr_domain *d, unsigned number, const struct domain_message *m)
{
	struct domain_member *member = &d->members[number];
	switch (m->kind) {
	case DOMAIN_OP:
		if (d->broken || m->view != d->view)
			break;
		member->made = m->index + 1;
		if (domain_before(m->index, d->calls) || d->committing) {
			lead_compare(d, number, m);
		} else {
			member->message = *m;
			member->held = true;
		}
		break;
	case DOMAIN_AT_BEGIN:
		member->at_begin = true;
		break;
	case DOMAIN_AT_COMMIT:
		member->at_commit = true;
		member->calls = m->index;
		break;
	case DOMAIN_BUILT:
		member->built = m->view;
		member->built_st = (tr_status)m->status;
		break;
	case DOMAIN_SHARED:
		member->shared = m->view == d->view;
		break;
	case DOMAIN_TROUBLE:
		if (m->view == d->view)
			domain_break(d, "%s", m->text);
		break;
	default:
		lead_lose(d, number, "spoke out of turn");
		break;
	}
}

void lead_hear(struct tr_domain *d)
{
	struct domain_message message;
	for (unsigned i = 1; i < d->link.members; i++) {
		struct domain_member *member = &d->members[i];
		if (member->held &&
		    (d->broken || d->committing || domain_before(member->message.index, d->calls))) {
			member->held = false;
			lead_take(d, i, &member->message);
		}
		for (unsigned heard = 0; heard < TR_DOMAIN_HEARD_MAX && member->here &&
		     !member->held && d->ended == TR_OK;
		     heard++) {
			tr_status st = domain_link_receive(&d->link, i, &message);
			if (st == TR_EAGAIN)
				break;
			if (st == TR_OK)
				lead_take(d, i, &message);
			else
				lead_lose(d, i, "is gone");
		}
		if (member->here && member->held && domain_link_gone(&d->link, i))
			lead_lose(d, i, "is gone");
	}
}

/* ---- conditions */

static bool lead_all(const struct tr_domain *d, bool (*has)(const struct tr_domain *, unsigned))
{
	for (unsigned i = 1; i < d->link.members; i++)
		if (d->members[i].here && !has(d, i))
			return false;
	return true;
}

static bool member_at_begin(const struct tr_domain *d, unsigned i)
{
	return d->members[i].at_begin;
}

static bool member_at_commit(const struct tr_domain *d, unsigned i)
{
	return d->members[i].at_commit;
}

static bool member_called(const struct tr_domain *d, unsigned i)
{
	return !domain_before(d->members[i].made, d->calls);
}

static bool member_built(const struct tr_domain *d, unsigned i)
{
	return d->members[i].built == d->view;
}

static bool member_shared(const struct tr_domain *d, unsigned i)
{
	return d->members[i].shared;
}

static bool lead_all_at_begin(const struct tr_domain *d)
{
	return lead_all(d, member_at_begin);
}

static bool lead_all_at_commit(const struct tr_domain *d)
{
	return lead_all(d, member_at_commit);
}

static bool lead_all_built(const struct tr_domain *d)
{
	return lead_all(d, member_built);
}

static bool lead_built_or_broken(const struct tr_domain *d)
{
	return d->broken || (d->idle && lead_all_built(d));
}

static bool lead_idle_or_broken(const struct tr_domain *d)
{
	return d->broken || d->idle;
}

static bool lead_called_or_done(const struct tr_domain *d)
{
	return d->broken || d->idle || lead_all(d, member_called);
}

static bool lead_all_shared(const struct tr_domain *d)
{
	return lead_all(d, member_shared);
}

static bool lead_named(const struct tr_domain *d)
{
	return d->named;
}

static bool lead_shared_or_broken(const struct tr_domain *d)
{
	return d->broken || (d->idle && lead_all_shared(d));
}

/* As domain_wait, but who has not come by then is lost. Ends well if the domain is not over. */
static tr_status lead_wait_or_lose(struct tr_domain *d, bool (*all)(const struct tr_domain *),
    bool (*has)(const struct tr_domain *, unsigned), uint32_t wait_ms, const char *what)
{
	char why[128];
	if (domain_wait(d, all, wait_ms) != TR_ETIMEDOUT)
		return d->ended;
	(void)snprintf(why, sizeof(why), "did not %s within %u ms", what, wait_ms);
	for (unsigned i = 1; i < d->link.members; i++)
		if (d->members[i].here && !has(d, i))
			lead_lose(d, i, why);
	return d->ended;
}

void lead_finish(struct tr_domain *d)
{
	if (lead_wait_or_lose(d, lead_called_or_done, member_called, d->wait_ms,
	        "make the call that the others made") == TR_OK &&
	    domain_wait(d, lead_idle_or_broken, d->deadline_ms) == TR_ETIMEDOUT)
		domain_break(d, "a collective inside did not finish within %u ms", d->deadline_ms);
}

/* ---- building */

static unsigned lead_members(const struct tr_domain *d)
{
	unsigned count = 1;
	for (unsigned i = 1; i < d->link.members; i++)
		count += d->members[i].here;
	return count;
}

static tr_status lead_build_once(struct tr_domain *d)
{
	struct tr_error error = { 0 };
	unsigned size = lead_members(d), rank = 1;
	for (unsigned i = 1; i < d->link.members; i++)
		d->members[i].made = 0;
	domain_new_view(d, d->view + 1, 0, size);
	if (d->backend->make_id != NULL && d->backend->make_id(&d->place, &error) != TR_OK)
		return domain_end(d, TR_EIO, "%s", error.text);
	struct domain_message build = { .kind = DOMAIN_BUILD, .view = d->view, .size = size };
	memcpy(build.id, d->place.id, sizeof(build.id));
	for (unsigned i = 1; i < d->link.members; i++) {
		build.rank = rank;
		if (d->members[i].here) {
			(void)domain_link_send(&d->link, i, &build);
			rank++;
		}
	}
	if (domain_open_comm(d, &error) != TR_OK)
		domain_break(d, "%s (seen by member 0)", error.text);
	else if (domain_wait(d, lead_built_or_broken, d->deadline_ms) == TR_ETIMEDOUT)
		domain_break(d, "opening the communicator did not finish within %u ms",
		    d->deadline_ms);
	if (d->broken && d->ended == TR_OK) /* who can still speak answers at once */
		(void)lead_wait_or_lose(d, lead_all_built, member_built, LEAD_ANSWER_MS,
		    "answer when the communicator failed");
	return d->ended;
}

/* A try that lost a member does not count: the next one is another. */
tr_status lead_build(struct tr_domain *d)
{
	for (unsigned tries = 0; tries < TR_DOMAIN_BUILDS_MAX;) {
		unsigned before = lead_members(d);
		if (lead_build_once(d) != TR_OK || !d->broken)
			return d->ended;
		tries += lead_members(d) == before;
	}
	return domain_end(d, TR_EUNAVAILABLE, "%d communicators in a row failed; the last: %s",
	    TR_DOMAIN_BUILDS_MAX, d->why);
}

/* ---- rounds */

static void lead_forget_round(struct tr_domain *d)
{
	d->group_round = d->abandoned = false;
	d->sealed_count = 0;
	d->group_error = (struct tr_error){ 0 };
}

tr_status lead_begin(struct tr_domain *d, struct tr_error *error)
{
	struct tr_error cause = { 0 };
	if (d->group == NULL)
		return tr_error_set(error, TR_EINVAL,
		    "the domain's leader has no group: tr_domain_lead first");
	if (lead_wait_or_lose(d, lead_all_at_begin, member_at_begin, d->wait_ms,
	        "begin the round") != TR_OK ||
	    (d->broken && lead_build(d) != TR_OK))
		return domain_error(d, error);
	for (unsigned i = 1; i < d->link.members; i++)
		d->members[i].at_begin = false;
	if (!d->group_round) {
		lead_forget_round(d);
		tr_status st = tr_round_begin(d->group, &d->round, &cause);
		if (st != TR_OK) {
			(void)domain_end(d, st, "%s", cause.text);
			return domain_error(d, error);
		}
		d->group_round = true;
	}
	domain_buffers_free(d);
	domain_buffers_pin(d);
	struct domain_message begin = { .kind = DOMAIN_BEGIN, .round = d->round };
	lead_tell_all(d, &begin);
	return TR_OK;
}

/* The host's memory for an op. In a round that is computed again, what the group has already stays: the op then takes part
 * in the sum inside as all do, into memory that nobody reads. The others make the call meanwhile, so if it fails here the
 * domain is over. */
tr_status lead_prepare(struct tr_domain *d, struct domain_op *op, struct tr_error *error)
{
	size_t bytes = (size_t)op->call.count * reduce_element_bytes((enum tr_dtype)op->call.dtype);
	struct domain_buffer *buffer = domain_buffers_take(d, bytes > 0 ? bytes : 1);
	if (buffer == NULL) {
		(void)domain_end(d, TR_ENOMEM, "out of memory: %zu bytes for an op", bytes);
		return domain_error(d, error);
	}
	op->host = buffer->memory;
	op->pinned = buffer->pinned;
	op->submitted = false;
	for (unsigned i = 0; i < d->sealed_count; i++) {
		if (d->sealed[i].call.tag != op->call.tag)
			continue;
		if (memcmp(&d->sealed[i].call, &op->call, sizeof(op->call)) != 0) {
			(void)domain_end(d, TR_EMISMATCH,
			    "op tag %u is not what it was before the round was computed again",
			    op->call.tag);
			return domain_error(d, error);
		}
		op->submitted = true;
	}
	return TR_OK;
}

static bool lead_all_summed(const struct tr_domain *d)
{
	for (unsigned i = 0; i < d->ops_count; i++)
		if (d->ops[i].sequence > d->done)
			return false;
	return true;
}

void lead_submit(struct tr_domain *d)
{
	bool contributes = d->round.index < d->round.contributors;
	if (!d->in_round || d->broken || d->abandoned || d->group_error.status != TR_OK)
		return;
	if (d->policy != TR_KEEP && !(d->committing && lead_all_summed(d)))
		return;
	for (unsigned i = 0; i < d->ops_count && d->ops[i].sequence <= d->done; i++) {
		struct domain_op *op = &d->ops[i];
		if (op->submitted)
			continue;
		tr_status st = tr_allreduce(d->group, op->call.tag, op->host,
		    (size_t)op->call.count, (enum tr_dtype)op->call.dtype,
		    (enum tr_reduce)op->call.reduce, contributes ? TR_CONTRIBUTE : 0,
		    &d->group_error);
		d->abandoned = st == TR_ERESTART;
		if (st != TR_OK) {
			d->group_error.status = st;
			return;
		}
		d->sealed[d->sealed_count++] = *op;
		op->submitted = true;
	}
}

/* The group has committed: brings its results to all members, however many of them are lost meanwhile. */
static tr_status lead_share(struct tr_domain *d)
{
	struct domain_message word = { .kind = DOMAIN_DECIDED, .round = d->round };
	for (unsigned i = 0; i < d->ops_count; i++)
		for (unsigned k = 0; k < d->sealed_count; k++)
			if (d->sealed[k].call.tag == d->ops[i].call.tag) {
				d->ops[i].host = d->sealed[k].host;
				d->ops[i].pinned = d->sealed[k].pinned;
			}
	if (d->broken && lead_build(d) != TR_OK)
		return d->ended;
	for (unsigned tries = 0;;) {
		unsigned before = lead_members(d);
		for (unsigned i = 1; i < d->link.members; i++)
			d->members[i].shared = false;
		lead_tell_all(d, &word);
		word.kind = DOMAIN_SHARE;
		domain_start_broadcasts(d);
		if (domain_wait(d, lead_idle_or_broken, d->deadline_ms) == TR_ETIMEDOUT ||
		    domain_wait(d, lead_shared_or_broken, d->deadline_ms) == TR_ETIMEDOUT)
			domain_break(d, "the broadcast of the results did not finish within %u ms",
			    d->deadline_ms);
		if (d->ended == TR_OK && d->broken)
			(void)lead_wait_or_lose(d, lead_all_shared, member_shared, LEAD_ANSWER_MS,
			    "answer when the broadcast failed");
		if (d->ended != TR_OK)
			return d->ended;
		if (!d->broken)
			break;
		tries += lead_members(d) == before;
		if (tries == TR_DOMAIN_BUILDS_MAX)
			return domain_end(d, TR_EUNAVAILABLE,
			    "%u broadcasts of the results in a row failed; the last: %s", tries,
			    d->why);
		if (lead_build(d) != TR_OK)
			return d->ended;
	}
	lead_tell_all(d, &(struct domain_message){ .kind = DOMAIN_DONE });
	return TR_OK;
}

/* All members have made their calls, and what they called is summed inside, or the communicator is broken. */
static tr_status lead_gather(struct tr_domain *d)
{
	if (lead_wait_or_lose(d, lead_all_at_commit, member_at_commit, d->wait_ms,
	        "commit the round") != TR_OK)
		return d->ended;
	for (unsigned i = 1; i < d->link.members && !d->broken; i++)
		if (d->members[i].here && d->members[i].calls != d->calls)
			return domain_end(d, TR_EMISMATCH,
			    "member 0 commits after %u calls, member %u after %u", d->calls, i,
			    d->members[i].calls);
	if (!d->broken && domain_wait(d, lead_idle_or_broken, d->deadline_ms) == TR_ETIMEDOUT)
		domain_break(d, "the sums inside the domain did not finish within %u ms",
		    d->deadline_ms);
	return d->ended;
}

tr_status lead_commit(struct tr_domain *d, const struct tr_commit *commit, struct tr_error *error)
{
	struct domain_message decided = { .kind = DOMAIN_DECIDED };
	struct tr_error cause = { 0 };
	d->committing = true;
	tr_status st = lead_gather(d);
	d->committing = false;
	if (st != TR_OK)
		return domain_error(d, error);
	for (unsigned i = 1; i < d->link.members; i++)
		d->members[i].at_commit = false;
	if (d->broken) {
		(void)domain_wait(d, lead_named, LEAD_NAME_MS);
		if (d->ended != TR_OK)
			return domain_error(d, error);
		decided.status = TR_ERESTART;
		(void)snprintf(decided.text, sizeof(decided.text), "%s", d->why);
	} else if (d->group_error.status != TR_OK && !d->abandoned) {
		(void)domain_end(d, d->group_error.status, "%s", d->group_error.text);
		return domain_error(d, error);
	} else {
		st = tr_round_commit(d->group, commit, &d->round, &cause);
		if (st == TR_OK && lead_share(d) == TR_OK) {
			lead_forget_round(d);
			return TR_OK;
		}
		if (st != TR_ERESTART) { /* or the sharing ended the domain, with its own words */
			(void)domain_end(d, st, "%s", cause.text);
			return domain_error(d, error);
		}
		lead_forget_round(d);
		decided.status = TR_ERESTART;
		(void)snprintf(decided.text, sizeof(decided.text), "%s", cause.text);
	}
	lead_tell_all(d, &decided);
	return tr_error_set(error, TR_ERESTART, "%s", decided.text);
}
