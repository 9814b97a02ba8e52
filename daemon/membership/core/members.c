/* Who is to be in the next view of a group, and why there is to be one. */
#include <stdio.h>
#include <string.h>

#include "daemon/membership/core/state.h"

struct survey {
	struct peer *members[TR_GROUP_PEERS_MAX]; /* live: of the view, or ready to enter it */
	size_t count;
	size_t room;    /* for those who enter: members of the view have their places */
	size_t kept;    /* of the view */
	size_t unready; /* live, not ready, and waited for by founders */
	size_t nodes;   /* that host the members */
	bool founders;  /* some founder lives */
	bool full;      /* somebody is ready to enter, and there is no room */
	bool away;      /* a member's node is not connected (just after a restart) */
	const struct peer *lost, *finished, *joiner; /* one of each in or for the view */
};

static void survey_peer(const struct membership *m, const struct group *group, struct peer *peer,
    struct survey *survey)
{
	bool in = state_view_peer(group, peer->id) != NULL;
	if (!state_peer_live(peer)) {
		if (in && (peer->state == PEER_FINISHED || peer->soft.fate == PEER_FINISHED))
			survey->finished = peer;
		else if (in)
			survey->lost = peer;
		return;
	}
	survey->founders |= peer->founder;
	const struct node *node = state_node(m, peer->node);
	if (node == NULL || node->soft.conn == 0)
		survey->away = true;
	if (!in && !peer->soft.ready) {
		survey->unready += group->view == NULL ? 1 : 0;
		return;
	}
	if (in) {
		survey->kept++;
	} else {
		if (survey->room == 0) {
			survey->full = true;
			return;
		}
		survey->room--;
		survey->joiner = peer;
	}
	bool fresh = true;
	for (size_t i = 0; i < survey->count; i++)
		fresh = fresh && survey->members[i]->node != peer->node;
	survey->nodes += fresh ? 1 : 0;
	survey->members[survey->count++] = peer;
}

static size_t room_beside_members(const struct list *peers, const struct group *group)
{
	size_t room = TR_GROUP_PEERS_MAX;
	for (size_t i = 0; i < peers->count; i++) {
		const struct peer *peer = peers->items[i];
		if (peer->group == group->id && state_peer_live(peer) &&
		    state_view_peer(group, peer->id) != NULL)
			room--;
	}
	return room;
}

/* Replacements do not hold up founders: they can join. */
static bool founders_wait(const struct list *peers, const struct group *group,
    const struct survey *survey)
{
	if (survey->unready == 0 || !survey->founders)
		return survey->unready > 0;
	for (size_t i = 0; i < peers->count; i++) {
		const struct peer *peer = peers->items[i];
		if (peer->group == group->id && peer->founder && state_peer_live(peer) &&
		    !peer->soft.ready)
			return true;
	}
	return false;
}

size_t members_least_nodes(const struct membership *m, const struct group *group)
{
	const struct job *job = group->job != 0 ? state_job(m, group->job) : NULL;
	if (job == NULL || job->spec->mesh == NULL || job->spec->mesh->min_nodes == 0)
		return 1;
	uint32_t nodes = state_job_nodes(job);
	return job->spec->mesh->min_nodes < nodes ? job->spec->mesh->min_nodes : nodes;
}

static size_t wait_for(struct membership *m, struct group *group, const char *text)
{
	struct job *job = group->job != 0 ? state_job(m, group->job) : NULL;
	if (strcmp(group->soft.waiting, text) == 0)
		return 0;
	copy_text(group->soft.waiting, sizeof(group->soft.waiting), text);
	if (text[0] != '\0')
		action_log(m, false, "group %llu: no new view yet: %s",
		    (unsigned long long)group->id, text);
	if (job != NULL)
		action_changed(m, job->id);
	return 0;
}

static size_t founding(struct membership *m, struct group *group, const struct survey *survey,
    char reason[REASON_MAX])
{
	char text[REASON_MAX];
	if (survey->count == 0)
		return wait_for(m, group, "");
	if (founders_wait(state_peers(m, group), group, survey)) {
		(void)snprintf(text, sizeof(text), "%zu ready, %zu still starting", survey->count,
		    survey->unready);
		return wait_for(m, group, text);
	}
	if (group->job == 0 && survey->count < group->founder->size) {
		(void)snprintf(text, sizeof(text), "%zu of %u founders are ready", survey->count,
		    group->founder->size);
		return wait_for(m, group, text);
	}
	(void)snprintf(reason, REASON_MAX, "founded");
	return survey->count;
}

static const char *end_words(const struct peer *peer)
{
	return peer->soft.reason[0] != '\0' ? peer->soft.reason : peer->reason;
}

/* The finished leave without a word as long as the others finish too; who does not is not to wait
 * for them. */
static bool finishers_left(struct membership *m, struct group *group, const struct survey *survey)
{
	if (survey->finished == NULL)
		return false;
	if (group->job == 0)
		return true; /* a library peer that leaves says so: the others go on at once */
	if (group->soft.finished_ms == 0)
		group->soft.finished_ms = m->now_ms;
	return m->now_ms - group->soft.finished_ms >= m->options.heartbeat_timeout_ms;
}

static size_t changing(struct membership *m, struct group *group, const struct survey *survey,
    char reason[REASON_MAX])
{
	if (survey->lost != NULL)
		(void)snprintf(reason, REASON_MAX, "peer p%llu on %s was lost: %.150s",
		    (unsigned long long)survey->lost->id, survey->lost->node_name,
		    end_words(survey->lost));
	else if (finishers_left(m, group, survey))
		(void)snprintf(reason, REASON_MAX, "peer p%llu on %s left",
		    (unsigned long long)survey->finished->id, survey->finished->node_name);
	else if (group->soft.repair)
		(void)snprintf(reason, REASON_MAX, "%s", group->soft.repair_reason);
	else if (survey->joiner != NULL && survey->finished == NULL)
		(void)snprintf(reason, REASON_MAX, "peer p%llu on %s enters",
		    (unsigned long long)survey->joiner->id, survey->joiner->node_name);
	else
		return wait_for(m, group,
		    survey->full ? "a group has at most 256 members: others enter when one goes"
		                 : "");
	/* Without a member that holds the state there is nothing to enter; the job or group is
	 * ended elsewhere. */
	return survey->kept > 0 ? survey->count : 0;
}

size_t members_wanted(struct membership *m, struct group *group, struct peer **members,
    char reason[REASON_MAX])
{
	struct survey survey = { 0 };
	const struct list *peers = state_peers(m, group);
	survey.room = room_beside_members(peers, group);
	for (size_t i = 0; i < peers->count; i++) {
		struct peer *peer = peers->items[i];
		if (peer->group == group->id)
			survey_peer(m, group, peer, &survey);
	}
	size_t count = group->view == NULL ? founding(m, group, &survey, reason)
	                                   : changing(m, group, &survey, reason);
	if (count == 0)
		return 0;
	if (survey.away)
		return wait_for(m, group, "members' nodes have not come back yet");
	if (survey.nodes < members_least_nodes(m, group)) {
		char text[REASON_MAX];
		(void)snprintf(text, sizeof(text), "%zu node%s of at least %zu (mesh.min_nodes)",
		    survey.nodes, survey.nodes == 1 ? "" : "s", members_least_nodes(m, group));
		return wait_for(m, group, text);
	}
	(void)wait_for(m, group, "");
	memcpy(members, survey.members, count * sizeof(*members));
	return count;
}
