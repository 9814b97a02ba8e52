#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectives/backend/domain_internal.h"
#include "collectives/engine/sized.h"
#include "collectives/kernels/reduce.h"

#define DOMAIN_OPTIONS_LEAST sizeof(struct tr_domain_options)
#define DOMAIN_OP_LEAST      sizeof(struct tr_domain_op)
#define DOMAIN_DEADLINE_MS   30000
#define DOMAIN_WAIT_MS       600000
#define DOMAIN_WAIT_MS_MAX   (1u << 30) /* twice it still counts in 32 bits */
#define DOMAIN_DIAL_NAP_US   5000

/* ---- open and close */

static tr_status domain_read_options(struct tr_domain *d, const struct tr_domain_options *options,
    struct tr_error *error)
{
	struct tr_domain_options known;
	tr_status st = sized_read("tr_domain_options", options, DOMAIN_OPTIONS_LEAST, &known,
	    sizeof(known), error);
	if (st != TR_OK)
		return st;
	const char *address = known.address != NULL ? known.address : "";
	if (strlen(address) >= sizeof(d->place.address))
		return tr_error_set(error, TR_EINVAL, "a domain's address has at most %zu bytes",
		    sizeof(d->place.address) - 1);
	(void)snprintf(d->place.address, sizeof(d->place.address), "%s", address);
	d->deadline_ms = known.deadline_ms != 0 ? known.deadline_ms : DOMAIN_DEADLINE_MS;
	d->wait_ms = known.wait_ms != 0 ? known.wait_ms : DOMAIN_WAIT_MS;
	if (d->deadline_ms > DOMAIN_WAIT_MS_MAX || d->wait_ms > DOMAIN_WAIT_MS_MAX)
		return tr_error_set(error, TR_EINVAL, "a domain waits for at most %u ms",
		    DOMAIN_WAIT_MS_MAX);
	d->policy = known.policy;
	d->place.rank = known.rank;
	d->place.size = known.size;
	d->place.deadline_ms = d->deadline_ms;
	d->place.device = known.device;
	d->place.stream = known.stream;
	d->place.nccl_library = known.nccl_library;
	d->place.cuda_library = known.cuda_library;
	st = backend_find(known.backend, &d->backend, error);
	return st != TR_OK ? st : d->backend->enter(&d->place, error);
}

static uint64_t domain_now_ms(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Leader: until all are there. Member: until the leader lets it in. */
static tr_status domain_meet(struct tr_domain *d, struct tr_error *error)
{
	uint64_t until = domain_now_ms() + d->wait_ms;
	tr_status st = TR_OK;
	if (domain_leads(d))
		st = domain_link_listen(&d->link, d->place.address, d->place.size, error);
	if (st != TR_OK)
		return st;
	for (;;) {
		if (domain_leads(d)) {
			st = domain_link_accept(&d->link, 100, error);
		} else {
			st = domain_link_dial(&d->link, d->place.address, d->number, d->deadline_ms,
			    error);
			if (st == TR_EAGAIN)
				domain_link_wait(&d->link, DOMAIN_DIAL_NAP_US);
		}
		if (st != TR_EAGAIN)
			return st;
		if (domain_now_ms() > until)
			return error->status = TR_ETIMEDOUT; /* in the words of the last try */
	}
}

tr_status tr_domain_open(const struct tr_domain_options *options, tr_domain **domain,
    struct tr_error *error)
{
	struct tr_error local = { 0 };
	tr_domain *d = calloc(1, sizeof(*d));
	if (error == NULL)
		error = &local;
	if (d == NULL)
		return tr_error_set(error, TR_ENOMEM, "out of memory");
	domain_link_init(&d->link);
	d->clean = true;
	tr_status st = domain_read_options(d, options, error);
	if (st != TR_OK)
		goto fail;
	d->entered = true;
	d->number = d->place.rank;
	if (d->place.size == 0 || d->place.size > TR_DOMAIN_MEMBERS_MAX ||
	    d->place.rank >= d->place.size) {
		st = tr_error_set(error, TR_EINVAL, "rank %u of %u: a domain has 1 to %d members",
		    d->place.rank, d->place.size, TR_DOMAIN_MEMBERS_MAX);
		goto fail;
	}
	st = domain_meet(d, error);
	if (st != TR_OK)
		goto fail;
	if (domain_leads(d)) {
		for (unsigned i = 1; i < d->link.members; i++)
			d->members[i].here = true;
		st = lead_build(d);
		if (st != TR_OK)
			(void)domain_error(d, error);
		else
			lead_tell_all(d, &(struct domain_message){ .kind = DOMAIN_READY });
	} else {
		st = member_obey(d, DOMAIN_HELLO, DOMAIN_READY, error);
	}
	if (st != TR_OK)
		goto fail;
	*domain = d;
	return TR_OK;
fail:
	d->clean = false;
	tr_domain_close(d);
	return st;
}

tr_status tr_domain_lead(tr_domain *d, tr_group *group, struct tr_error *error)
{
	if (!domain_leads(d))
		return tr_error_set(error, TR_EINVAL,
		    "member %u does not lead its domain, member 0 does", d->number);
	if (d->group != NULL || group == NULL)
		return tr_error_set(error, TR_EINVAL, "a domain's leader is given one group, once");
	d->group = group;
	return TR_OK;
}

void tr_domain_close(tr_domain *d)
{
	if (d == NULL)
		return;
	/* The others are not listened to: they close theirs, too. */
	if (d->comm != NULL && !d->in_round && d->backend->poll(d->comm, &d->done, NULL) == TR_OK) {
		d->backend->close(d->comm);
	} else {
		domain_link_close(&d->link); /* tells them, so that they abort too */
		domain_abort_comm(d);
	}
	domain_buffers_close(d);
	domain_link_close(&d->link);
	if (d->entered)
		d->backend->leave(d->clean);
	free(d);
}

unsigned tr_domain_rank(const tr_domain *d)
{
	return d->place.rank;
}

unsigned tr_domain_size(const tr_domain *d)
{
	return d->place.size;
}

/* ---- calls */

/* Notes a call, so that the leader can compare. */
static void domain_note(struct tr_domain *d, const struct domain_call *call)
{
	d->log[d->calls % DOMAIN_CALLS_KEPT] = *call;
	if (!domain_leads(d))
		(void)domain_link_send(&d->link, 0,
		    &(struct domain_message){ .kind = DOMAIN_OP,
		        .view = d->view,
		        .index = d->calls,
		        .call = *call });
	d->calls++;
}

static tr_status domain_check(const struct tr_domain *d, enum tr_dtype dtype, enum tr_reduce reduce,
    size_t count, struct tr_error *error)
{
	size_t bytes = reduce_element_bytes(dtype);
	if (reduce == TR_AVG)
		return tr_error_set(error, TR_EINVAL,
		    "a domain does not average: sum, and divide by a count that is summed too");
	if (bytes == 0 || !d->backend->supports(dtype, reduce))
		return tr_error_set(error, TR_EINVAL, "backend %s cannot reduce type %d by %d",
		    d->backend->name, (int)dtype, (int)reduce);
	if (count > (SIZE_MAX / 2) / bytes / TR_DOMAIN_MEMBERS_MAX)
		return tr_error_set(error, TR_EINVAL, "%zu elements are too many", count);
	return TR_OK;
}

tr_status tr_domain_round_begin(tr_domain *d, struct tr_round *round, struct tr_error *error)
{
	if (d->ended != TR_OK)
		return domain_error(d, error);
	if (d->in_round)
		return tr_error_set(error, TR_EINVAL, "the round before was not committed");
	tr_status st = domain_leads(d) ? lead_begin(d, error)
	                               : member_obey(d, DOMAIN_AT_BEGIN, DOMAIN_BEGIN, error);
	if (st != TR_OK)
		return st;
	d->in_round = true;
	d->ops_count = 0;
	*round = d->round;
	return TR_OK;
}

tr_status tr_domain_allreduce(tr_domain *d, uint32_t tag, void *data, size_t count,
    enum tr_dtype dtype, enum tr_reduce reduce, struct tr_error *error)
{
	struct domain_op *op = &d->ops[d->ops_count];
	tr_status st = domain_check(d, dtype, reduce, count, error);
	if (st != TR_OK)
		return st;
	if (d->ended != TR_OK || d->broken)
		return domain_error(d, error);
	if (!d->in_round)
		return tr_error_set(error, TR_EINVAL, "tr_domain_round_begin first");
	if (d->ops_count == TR_DOMAIN_OPS_MAX)
		return tr_error_set(error, TR_ELIMIT, "a round has at most %d ops",
		    TR_DOMAIN_OPS_MAX);
	for (unsigned i = 0; i < d->ops_count; i++)
		if (d->ops[i].call.tag == tag)
			return tr_error_set(error, TR_EINVAL, "tag %u is used twice in a round",
			    tag);
	*op = (struct domain_op){ .data = data,
		.call = { .collective = TR_ALL_REDUCE,
		    .tag = tag,
		    .dtype = (uint32_t)dtype,
		    .reduce = (uint32_t)reduce,
		    .count = count } };
	if (domain_leads(d) && (st = lead_prepare(d, op, error)) != TR_OK)
		return st;
	domain_note(d, &op->call);
	if (d->round.index < d->round.contributors) {
		st = domain_start(d,
		    &(struct backend_op){ .kind = BACKEND_REDUCE,
		        .dtype = dtype,
		        .reduce = reduce,
		        .in = data,
		        .host = op->host,
		        .pinned = op->pinned,
		        .count = count });
		if (st != TR_OK)
			return domain_error(d, error);
		op->sequence = d->started;
	}
	d->ops_count++;
	domain_poll(d);
	return TR_OK; /* what the poll found is told by the commit */
}

bool tr_domain_progress(tr_domain *d)
{
	domain_poll(d);
	return !d->broken && d->ended == TR_OK && (d->group == NULL || tr_progress(d->group));
}

tr_status tr_domain_commit(tr_domain *d, const struct tr_commit *commit, struct tr_round *round,
    struct tr_error *error)
{
	if (d->ended != TR_OK)
		return domain_error(d, error);
	if (!d->in_round)
		return tr_error_set(error, TR_EINVAL, "tr_domain_round_begin first");
	tr_status st = domain_leads(d) ? lead_commit(d, commit, error)
	                               : member_obey(d, DOMAIN_AT_COMMIT, DOMAIN_DONE, error);
	d->in_round = false;
	if (st == TR_OK && round != NULL)
		*round = d->round;
	return st;
}

static bool domain_idle_or_broken(const struct tr_domain *d)
{
	return d->idle || d->broken;
}

static bool domain_kind_of(enum tr_collective collective, enum backend_kind *kind)
{
	switch (collective) {
	case TR_ALL_REDUCE:
		*kind = BACKEND_ALL_REDUCE;
		return true;
	case TR_REDUCE_SCATTER:
		*kind = BACKEND_REDUCE_SCATTER;
		return true;
	case TR_ALL_GATHER:
		*kind = BACKEND_ALL_GATHER;
		return true;
	case TR_BROADCAST:
		*kind = BACKEND_BROADCAST;
		return true;
	default:
		return false;
	}
}

tr_status tr_domain_inside(tr_domain *d, const struct tr_domain_op *given, struct tr_error *error)
{
	struct tr_domain_op op;
	enum backend_kind kind;
	tr_status st = sized_read("tr_domain_op", given, DOMAIN_OP_LEAST, &op, sizeof(op), error);
	if (st != TR_OK)
		return st;
	if (!domain_kind_of(op.collective, &kind))
		return tr_error_set(error, TR_EINVAL, "a domain has no collective %d",
		    (int)op.collective);
	if (kind == BACKEND_BROADCAST || kind == BACKEND_ALL_GATHER)
		op.reduce = TR_SUM; /* not looked at */
	st = domain_check(d, op.dtype, op.reduce, op.count, error);
	if (st != TR_OK)
		return st;
	if (d->ended != TR_OK || d->broken)
		return domain_error(d, error);
	struct domain_call call = { .collective = (uint32_t)op.collective,
		.dtype = (uint32_t)op.dtype,
		.reduce = (uint32_t)op.reduce,
		.count = op.count };
	domain_note(d, &call);
	st = domain_start(d,
	    &(struct backend_op){ .kind = kind,
	        .dtype = op.dtype,
	        .reduce = op.reduce,
	        .in = op.in,
	        .out = op.out,
	        .count = op.count });
	if (st == TR_OK && domain_leads(d))
		lead_finish(d);
	else if (st == TR_OK &&
	    domain_wait(d, domain_idle_or_broken, 2 * d->wait_ms) == TR_ETIMEDOUT)
		domain_break(d,
		    "a collective inside did not finish within %u ms (seen by member %u)",
		    2 * d->wait_ms, d->number);
	return d->ended != TR_OK || d->broken ? domain_error(d, error) : TR_OK;
}
