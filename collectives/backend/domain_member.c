#include <stdio.h>
#include <string.h>

#include "collectives/backend/domain_internal.h"
#include "common/error.h"

/* What may come at any time is done here; a word that is waited for stops the reading. */
void member_hear(struct tr_domain *d)
{
	struct domain_message message;
	while (d->ended == TR_OK && !d->has_word) {
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
			(void)domain_end(d,
			    message.status < 0 ? (tr_status)message.status : TR_EINTERNAL, "%s",
			    message.text);
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
		if (word->kind == DOMAIN_BUILD) {
			member_build(d);
		} else if (word->kind == DOMAIN_SHARE ||
		    (word->kind == DOMAIN_DECIDED && word->status == TR_OK)) {
			if (word->kind == DOMAIN_DECIDED)
				d->round = word->round;
			member_share(d);
		} else if (word->kind == DOMAIN_DECIDED) {
			return tr_error_set(error, (tr_status)word->status, "%s", word->text);
		} else if (word->kind == until) {
			if (until == DOMAIN_BEGIN)
				d->round = word->round;
			return TR_OK;
		} else {
			(void)domain_end(d, TR_EPROTO, "the domain's leader spoke out of turn (%u)",
			    word->kind);
		}
	}
}
