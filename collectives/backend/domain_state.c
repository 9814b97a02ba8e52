#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "collectives/backend/domain_internal.h"
#include "common/error.h"

#define STATE_SPINS \
	2000 /* yields before it sleeps: a collective inside is often microseconds away */
#define STATE_NAP_US      50
#define STATE_IDLE_US     20000
#define STATE_PROGRESS_MS 100

static uint64_t state_now_ms(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void domain_abort_comm(struct tr_domain *d)
{
	if (d->comm == NULL)
		return;
	if (!d->backend->abort(d->comm))
		domain_buffers_forget_pinned(d);
	d->comm = NULL;
	d->clean = false;
}

static void state_tell(struct tr_domain *d, const struct domain_message *message)
{
	if (domain_leads(d))
		lead_tell_all(d, message);
	else
		(void)domain_link_send(&d->link, 0, message);
}

/* The first cause is kept; the others know of it already. They are told before the abort, which may wait for theirs (NVIDIA:
 * "all active ranks are required to call" it). */
void domain_break(struct tr_domain *d, const char *format, ...)
{
	struct domain_message message = { .kind = domain_leads(d) ? DOMAIN_BREAK : DOMAIN_TROUBLE,
		.view = d->view };
	va_list arguments;
	if (d->ended != TR_OK)
		return;
	va_start(arguments, format);
	(void)vsnprintf(message.text, sizeof(message.text), format, arguments);
	va_end(arguments);
	if (!d->broken) {
		d->broken = true;
		(void)snprintf(d->why, sizeof(d->why), "%s", message.text);
		if (domain_leads(d) && !d->backend->rebuilds)
			(void)domain_end(d, TR_EPEERLOST, "%s; backend %s cannot go on without it",
			    message.text, d->backend->name);
		else
			state_tell(d, &message);
	}
	domain_abort_comm(d);
}

tr_status domain_end(struct tr_domain *d, tr_status st, const char *format, ...)
{
	struct domain_message message = { .kind = DOMAIN_END, .status = st };
	va_list arguments;
	if (d->ended != TR_OK)
		return d->ended;
	va_start(arguments, format);
	(void)vsnprintf(message.text, sizeof(message.text), format, arguments);
	va_end(arguments);
	d->broken = true;
	d->ended = st;
	(void)snprintf(d->why, sizeof(d->why), "%s", message.text);
	if (domain_leads(d))
		lead_tell_all(d, &message);
	domain_link_close(&d->link); /* a member's end is its death to the leader */
	domain_abort_comm(d);
	return st;
}

tr_status domain_error(const struct tr_domain *d, struct tr_error *error)
{
	return tr_error_set(error, d->ended != TR_OK ? d->ended : TR_ERESTART, "%s", d->why);
}

void domain_poll(struct tr_domain *d)
{
	struct tr_error error = { 0 };
	if (d->ended != TR_OK)
		return;
	if (domain_leads(d))
		lead_hear(d);
	else
		member_hear(d);
	d->idle = true;
	if (d->comm != NULL) {
		tr_status st = d->backend->poll(d->comm, &d->done, &error);
		d->idle = st == TR_OK;
		if (st != TR_OK && st != TR_EAGAIN)
			domain_break(d, "%s (seen by member %u)", error.text, d->number);
	}
	if (domain_leads(d))
		lead_submit(d);
}

tr_status domain_wait(struct tr_domain *d, bool (*condition)(const struct tr_domain *),
    uint32_t wait_ms)
{
	uint64_t start = state_now_ms(), told = start, now = start;
	for (unsigned spins = 0;; spins++) {
		domain_poll(d);
		if (d->ended != TR_OK)
			return d->ended;
		if (condition(d))
			return TR_OK;
		if (now - start > wait_ms)
			return TR_ETIMEDOUT;
		if (!d->idle && (d->backend->spins || spins < STATE_SPINS))
			(void)sched_yield();
		else
			domain_link_wait(&d->link, d->idle ? STATE_IDLE_US : STATE_NAP_US);
		now = state_now_ms();
		if (d->group != NULL && now - told > STATE_PROGRESS_MS) {
			(void)tr_progress(d->group);
			told = now;
		}
	}
}

void domain_new_view(struct tr_domain *d, uint32_t view, unsigned rank, unsigned size)
{
	domain_abort_comm(d);
	d->broken = d->named = false;
	d->view = view;
	d->place.rank = rank;
	d->place.size = size;
	d->calls = 0;
	d->started = d->done = 0;
	d->idle = true;
}

tr_status domain_open_comm(struct tr_domain *d, struct tr_error *error)
{
	tr_status st = d->backend->open(&d->place, &d->comm, error);
	if (st != TR_OK)
		d->comm = NULL;
	d->idle = false;
	return st;
}

tr_status domain_start(struct tr_domain *d, const struct backend_op *op)
{
	struct tr_error error = { 0 };
	tr_status st = d->backend->start(d->comm, op, &error);
	if (st == TR_OK)
		d->started++;
	else
		domain_break(d, "%s (seen by member %u)", error.text, d->number);
	return st;
}

void domain_start_broadcasts(struct tr_domain *d)
{
	for (unsigned i = 0; i < d->ops_count && !d->broken; i++) {
		const struct domain_op *op = &d->ops[i];
		(void)domain_start(d,
		    &(struct backend_op){ .kind = BACKEND_BROADCAST,
		        .dtype = (enum tr_dtype)op->call.dtype,
		        .reduce = (enum tr_reduce)op->call.reduce,
		        .out = op->data,
		        .host = op->host,
		        .pinned = op->pinned,
		        .count = (size_t)op->call.count });
	}
}
