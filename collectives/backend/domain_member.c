#include <stdio.h>
#include <string.h>

#include "collectives/backend/domain_internal.h"
#include "common/error.h"

/* Of a failure; the list ends with TR_EINTERNAL. */
static tr_status member_status(int32_t status)
{
	return status < TR_OK && status >= TR_EINTERNAL ? (tr_status)status : TR_EINTERNAL;
}

/* What may come at any time is done here; a word that is waited for stops the reading. */
void member_hear(struct tr_domain *d)
{
	struct domain_message message;
	for (unsigned heard = 0; heard < TR_DOMAIN_HEARD_MAX && d->ended == TR_OK && !d->has_word;
	     heard++) {
		tr_status st = domain_link_receive(&d->link, 0, &message);
		if (st == TR_EAGAIN)
			return;
		if (st != TR_OK) {
			(void)domain_end(d, TR_EPEERLOST,
			    "the domain's leader (pid %d) is gone, and the domain with it",
			    (int)d->link.pids[0]);
			return;
		}
		switch (message.kind) {
		case DOMAIN_BREAK:
			domain_break(d, "%s", message.text);
			break;
		case DOMAIN_END:
			(void)domain_end(d, member_status(message.status), "%s", message.text);
			return;
		default:
			d->word = message;
			d->has_word = true;
			break;
		}
	}
}

static bool member_has_word(const struct tr_domain *d)
{
	return d->has_word;
}

static bool member_idle_or_broken(const struct tr_domain *d)
{
	return d->broken || d->idle;
}

static void member_answer(struct tr_domain *d, enum domain_kind kind, uint32_t view, tr_status st,
    const char *text)
{
	struct domain_message message = { .kind = kind,
		.status = st,
		.view = view,
		.index = d->calls };
	(void)snprintf(message.text, sizeof(message.text), "%s", text);
	(void)domain_link_send(&d->link, 0, &message);
}

/* Until nothing is under way, by the deadline. A breaking is told to the leader by itself. */
static tr_status member_finish(struct tr_domain *d, const char *what)
{
	if (domain_wait(d, member_idle_or_broken, d->deadline_ms) == TR_ETIMEDOUT)
		domain_break(d, "%s did not finish within %u ms (seen by member %u)", what,
		    d->deadline_ms, d->number);
	return d->broken ? TR_ERESTART : TR_OK;
}

static void member_build(struct tr_domain *d)
{
	struct tr_error error = { 0 };
	const struct domain_message word = d->word;
	/* A domain only shrinks. */
	if (word.rank == 0 || word.rank >= word.size || word.size > d->place.size) {
		(void)domain_end(d, TR_EPROTO,
		    "the domain's leader gives this member the place %u of %u, which is none",
		    word.rank, word.size);
		return;
	}
	domain_new_view(d, word.view, word.rank, word.size);
	memcpy(d->place.id, word.id, sizeof(d->place.id));
	tr_status st = domain_open_comm(d, &error);
	if (st != TR_OK)
		domain_break(d, "%s (seen by member %u)", error.text, d->number);
	else
		st = member_finish(d, "opening the communicator");
	if (d->ended == TR_OK)
		member_answer(d, DOMAIN_BUILT, word.view, st, st != TR_OK ? d->why : "");
}

static void member_share(struct tr_domain *d)
{
	if (!d->broken)
		domain_start_broadcasts(d);
	tr_status st = d->broken ? TR_ERESTART : member_finish(d, "the broadcast of the results");
	if (d->ended == TR_OK)
		member_answer(d, DOMAIN_SHARED, d->view, st, "");
}

/* The caller gets it as it is: what is no bool in it would be undefined there. */
static bool member_takes_round(struct tr_domain *d)
{
	uint8_t receive_state, partial;
	memcpy(&receive_state, &d->word.round.receive_state, 1);
	memcpy(&partial, &d->word.round.partial, 1);
	if (receive_state > 1 || partial > 1) {
		(void)domain_end(d, TR_EPROTO, "the domain's leader says what is no round");
		return false;
	}
	d->round = d->word.round;
	return true;
}

/* What is due now. While no round is committed the caller has its memory back, and before a communicator was built there is nothing to begin with. */
static bool member_is_told(const struct tr_domain *d, enum domain_kind until)
{
	switch (d->word.kind) {
	case DOMAIN_BUILD:
		return true;
	case DOMAIN_SHARE:
		return until == DOMAIN_DONE;
	case DOMAIN_DECIDED:
		return until == DOMAIN_DONE &&
		    (d->word.status == TR_OK || d->word.status == TR_ERESTART);
	default:
		return d->word.kind == until && (d->comm != NULL || d->broken);
	}
}

tr_status member_obey(struct tr_domain *d, enum domain_kind kind, enum domain_kind until,
    struct tr_error *error)
{
	if (kind != DOMAIN_HELLO && d->ended == TR_OK)
		member_answer(d, kind, d->view, TR_OK, "");
	for (;;) {
		/* The leader waits for the slowest member, and then for the other domains. */
		if (domain_wait(d, member_has_word, 2 * d->wait_ms) == TR_ETIMEDOUT)
			(void)domain_end(d, TR_ETIMEDOUT,
			    "the domain's leader (pid %d) said nothing for %u ms",
			    (int)d->link.pids[0], 2 * d->wait_ms);
		if (d->ended != TR_OK)
			return domain_error(d, error);
		d->has_word = false;
		const struct domain_message *word = &d->word;
		if (!member_is_told(d, until))
			(void)domain_end(d, TR_EPROTO, "the domain's leader spoke out of turn (%u)",
			    word->kind);
		else if (word->kind == DOMAIN_BUILD)
			member_build(d);
		else if (word->kind == DOMAIN_DECIDED && word->status != TR_OK)
			return tr_error_set(error, TR_ERESTART, "%s", word->text);
		else if (word->kind == DOMAIN_SHARE ||
		    (word->kind == DOMAIN_DECIDED && member_takes_round(d)))
			member_share(d);
		else if (word->kind == until && (until != DOMAIN_BEGIN || member_takes_round(d)))
			return TR_OK;
	}
}
