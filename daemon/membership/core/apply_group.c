/* Entries about groups: founded, proposed, a view, committed rounds. */
#include <stdio.h>
#include <string.h>

#include "daemon/membership/core/state.h"

static bool install_valid(const struct group *group, const Traind__Peer__ViewInstall *install)
{
	const Traind__Peer__View *view = install->view;
	if (install->resume == NULL || view->number <= state_view_number(group) ||
	    view->n_peers == 0 || view->n_peers > TR_GROUP_PEERS_MAX ||
	    view->n_ring != view->n_peers || view->hub >= view->n_peers)
		return false;
	for (size_t i = 1; i < view->n_peers; i++)
		if (view->peers[i]->peer <= view->peers[i - 1]->peer)
			return false;
	return true;
}

void apply_view(struct membership *m, const Traind__Peer__ViewInstall *install, uint64_t unix_ms)
{
	struct group *group = install->view != NULL ? state_group(m, install->view->group) : NULL;
	if (group == NULL || !install_valid(group, install))
		return;
	struct ledger *ledger = state_ledger(m, group);
	struct job *job = group->job != 0 ? state_job(m, group->job) : NULL;
	Traind__Peer__ViewInstall *copy = ledger != NULL ? copy_message(m, &install->base) : NULL;
	if (copy == NULL)
		return;
	if (group->view == NULL) {
		ledger_forget_from(ledger, copy->resume->base_round);
		ledger_start_at(ledger, copy->resume->base_round);
	} else {
		traind__peer__view_install__free_unpacked(group->view, NULL);
	}
	group->view = copy;
	uint64_t reserved = copy->reserved > copy->view->number ? copy->reserved
	                                                        : copy->view->number;
	if (group->proposed < reserved)
		group->proposed = reserved;
	if (copy->resume->abandoned)
		ledger_replayed(ledger);
	if (job != NULL) {
		job->view = copy->view->number;
		if (job->state == TRAIND__V1__JOB_STATE__JOB_STATE_STARTING)
			job->state = TRAIND__V1__JOB_STATE__JOB_STATE_RUNNING;
		char text[TR_ERROR_TEXT_MAX];
		(void)snprintf(text, sizeof(text), "view %llu: %zu peer%s, round %llu %s: %.256s",
		    (unsigned long long)copy->view->number, copy->view->n_peers,
		    copy->view->n_peers == 1 ? "" : "s",
		    (unsigned long long)copy->resume->base_round,
		    copy->resume->finish          ? "goes on"
		        : copy->resume->abandoned ? "is done again"
		                                  : "is next",
		    copy->view->reason);
		apply_event(m, job, unix_ms, text);
		action_changed(m, job->id);
	}
	view_installed(m, group);
}

/* A peer that contributed to a round got over its start. */
static void mark_worked(struct membership *m, struct group *group,
    const Traind__Peer__RoundCommit *round)
{
	struct job *job = group->job != 0 ? state_job(m, group->job) : NULL;
	for (size_t i = 0; i < round->n_contributors; i++) {
		struct peer *peer = state_group_peer(m, group, round->contributors[i]);
		if (peer == NULL || peer->worked)
			continue;
		peer->worked = true;
		if (job != NULL)
			job->fast_deaths = 0;
	}
}

void apply_rounds(struct membership *m, const Traind__Peer__RoundCommits *rounds, uint64_t unix_ms)
{
	struct group *group = state_group(m, rounds->group);
	struct ledger *ledger = group != NULL ? state_ledger(m, group) : NULL;
	struct job *job = group != NULL && group->job != 0 ? state_job(m, group->job) : NULL;
	for (size_t i = 0; ledger != NULL && i < rounds->n_rounds; i++) {
		enum ledger_verdict verdict = ledger_add(ledger, rounds->rounds[i]);
		if (verdict == LEDGER_NOMEM)
			m->oom = true;
		if (verdict == LEDGER_NEW)
			mark_worked(m, group, rounds->rounds[i]);
		if (verdict == LEDGER_CONTRADICTS) {
			char text[REASON_MAX];
			(void)snprintf(text, sizeof(text),
			    "CONTRADICTION: round %llu was recorded with another result "
			    "or other contributors; peer %llu "
			    "reports a second one",
			    (unsigned long long)rounds->rounds[i]->round,
			    (unsigned long long)rounds->peer);
			action_log(m, true, "group %llu: %s", (unsigned long long)group->id, text);
			if (job != NULL)
				apply_event(m, job, unix_ms, text);
		}
	}
	if (job != NULL)
		action_changed(m, job->id);
	if (group != NULL)
		rounds_applied(m, group);
}

void apply_founded(struct membership *m, const Traind__Peer__GroupFounded *founded)
{
	if (founded->group == 0 || founded->founder == NULL ||
	    state_group(m, founded->group) != NULL)
		return;
	struct group *group = apply_add_group(m, founded->group, 0);
	if (group == NULL)
		return;
	group->founder = copy_message(m, &founded->founder->base);
	group->ledger = ledger_create();
	if (group->founder == NULL || group->ledger == NULL) {
		m->oom = true;
		apply_remove_group(m, founded->group);
	}
}

void apply_proposed(struct membership *m, const Traind__Peer__ViewProposed *proposed)
{
	struct group *group = state_group(m, proposed->group);
	if (group == NULL || proposed->number <= group->proposed)
		return;
	group->proposed = proposed->number;
	view_proposed(m, group);
}
