/* Broken connections between members. A break loses frames, and cores never send twice within a
 * view: a new view with the same members repairs it. If nothing comes through at all, a new view would
 * change nothing but for one that names a relay (relay.c), which may help those who dialled in vain; else the one that lost the most ways
 * goes, at once if we do not hear it either. */
#include <stdio.h>
#include <string.h>

#include "daemon/membership/core/state.h"

#define LINK_PATIENCE_MS 100u /* the other side's death may be the next thing we hear of */

/* What engines say (peer_link.c, pulse.c), and conn.c of a way that is cut. */
static bool nothing_comes_through(const char *reason)
{
	static const char *const beginnings[] = { "cannot reach", "silent for", "no answer for" };
	for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++)
		if (strncmp(reason, beginnings[i], strlen(beginnings[i])) == 0)
			return true;
	return false;
}

/* The others' complaints come within a heartbeat. */
static uint64_t unreachable_patience_ms(const struct membership *m)
{
	return m->options.heartbeat_timeout_ms / 4;
}

/* Two witnesses need no patience: a member hears nothing of it, and its heartbeats stay away. */
static void both_silent(struct membership *m, struct group *group, const struct complaint *c)
{
	struct peer *about = state_group_peer(m, group, c->about);
	const struct node *node = about != NULL ? state_node(m, about->node) : NULL;
	if (node == NULL || node->soft.conn == 0)
		return;
	uint64_t silent_ms = health_doubt_ms(m, node);
	if (silent_ms == 0)
		return;
	char text[REASON_MAX];
	(void)snprintf(text, sizeof(text), "silent for %.1f s; peer p%llu: %.150s",
	    (double)silent_ms / 1000.0, (unsigned long long)c->from, c->reason);
	peer_end(m, about, PEER_LOST, false, text);
}

/* No link broke, but this view has nothing for that member (`ViewReport.stuck`): the next one begins its round again; or it has got a state that came
 * gradually: from the next one on it contributes. */
static void wants_view(struct membership *m, struct group *group, const Traind__Peer__LinkLost *lost)
{
	if (group->soft.repair)
		return;
	group->soft.repair = true;
	(void)snprintf(group->soft.repair_reason, sizeof(group->soft.repair_reason),
	    "peer p%llu %.220s", (unsigned long long)lost->peer, lost->reason);
	m->dirty = true;
}

void link_lost(struct membership *m, struct node *node, const Traind__Peer__LinkLost *lost)
{
	struct group *group = state_group(m, lost->group);
	const struct peer *from = group != NULL ? state_group_peer(m, group, lost->peer) : NULL;
	if (from == NULL || from->node != node->id ||
	    from->incarnation != node->hello->incarnation ||
	    lost->view != state_view_number(group) || lost->lost == lost->peer ||
	    state_view_peer(group, lost->peer) == NULL ||
	    (lost->lost != 0 && state_view_peer(group, lost->lost) == NULL)) {
		action_ignored(m,
		    "LinkLost p%llu -> p%llu in view %llu of group %llu, which is not "
		    "the present one",
		    (unsigned long long)lost->peer, (unsigned long long)lost->lost,
		    (unsigned long long)lost->view, (unsigned long long)lost->group);
		return;
	}
	if (lost->lost == 0) {
		wants_view(m, group, lost);
		return;
	}
	bool unreachable = nothing_comes_through(lost->reason);
	for (size_t i = 0; i < group->soft.complaints_count; i++) {
		const struct complaint *c = &group->soft.complaints[i];
		if (c->from == lost->peer && c->about == lost->lost && c->unreachable >= unreachable)
			return;
	}
	size_t max = sizeof(group->soft.complaints) / sizeof(group->soft.complaints[0]);
	if (group->soft.complaints_count == max)
		return; /* more would not change what has to be done */
	struct complaint *c = &group->soft.complaints[group->soft.complaints_count++];
	*c = (struct complaint){ .from = lost->peer,
		.about = lost->lost,
		.unreachable = unreachable };
	c->due_ms = m->now_ms + (unreachable ? unreachable_patience_ms(m) : LINK_PATIENCE_MS);
	copy_text(c->reason, sizeof(c->reason), lost->reason);
	if (unreachable && relay_may_help(lost->reason))
		relay_complain(m, group, lost);
	action_log(m, false, "group %llu: link p%llu -> p%llu broke: %.200s",
	    (unsigned long long)group->id, (unsigned long long)c->from,
	    (unsigned long long)c->about, c->reason);
	m->dirty = true;
	if (unreachable)
		both_silent(m, group, c);
}

static bool live(struct membership *m, const struct group *group, uint64_t id)
{
	const struct peer *peer = state_group_peer(m, group, id);
	return peer != NULL && state_peer_live(peer);
}

static bool between(const struct complaint *c, uint64_t a, uint64_t b)
{
	return (c->from == a && c->about == b) || (c->from == b && c->about == a);
}

/* Members with whom `id` has no way, whoever said so; how many of them said it of `id` is the answer's second part. */
static size_t ways_lost(const struct group *group, uint64_t id, size_t *accused)
{
	size_t lost = 0;
	*accused = 0;
	for (size_t i = 0; i < group->soft.complaints_count; i++) {
		const struct complaint *c = &group->soft.complaints[i];
		bool first = c->from == id || c->about == id;
		*accused += c->unreachable && c->about == id ? 1 : 0;
		for (size_t k = 0; first && k < i; k++)
			first = !group->soft.complaints[k].unreachable ||
			    !between(&group->soft.complaints[k], c->from, c->about);
		lost += c->unreachable && first ? 1 : 0;
	}
	return lost;
}

static void evict(struct membership *m, struct group *group, uint64_t id, size_t accused)
{
	struct peer *peer = state_group_peer(m, group, id);
	if (peer == NULL)
		return;
	const struct complaint *first = group->soft.complaints;
	while (!first->unreachable || (accused > 0 ? first->about : first->from) != id)
		first++;
	char text[REASON_MAX];
	const char *what_to_do = relay_may_help(first->reason)
	    ? "; nor does a relay: open its port, or start a traind that both reach"
	    : "";
	if (accused > 0)
		(void)snprintf(text, sizeof(text),
		    "%zu member%s cannot reach it; peer p%llu: %.130s%s", accused,
		    accused == 1 ? "" : "s", (unsigned long long)first->from, first->reason,
		    what_to_do);
	else
		(void)snprintf(text, sizeof(text),
		    "it cannot reach others; of peer p%llu: %.130s%s",
		    (unsigned long long)first->about, first->reason, what_to_do);
	peer_end(m, peer, PEER_LOST, false, text);
}

/* The one that lost the most ways: a member whose own cable is cut complains about all others. Ties: whom most accuse, then the
 * higher id. */
static void evict_most_cut_off(struct membership *m, struct group *group)
{
	uint64_t worst = 0;
	size_t most = 0, accused = 0;
	for (size_t i = 0; i < 2 * group->soft.complaints_count; i++) {
		const struct complaint *c = &group->soft.complaints[i / 2];
		uint64_t id = i % 2 == 0 ? c->about : c->from;
		size_t accusers, lost = ways_lost(group, id, &accusers);
		if (!c->unreachable || lost < most ||
		    (lost == most && (accusers < accused || (accusers == accused && id < worst))))
			continue;
		worst = id;
		most = lost;
		accused = accusers;
	}
	if (worst != 0)
		evict(m, group, worst, accused);
}

/* The connection that one side gave up closes at the other: not a matter of its own. */
static bool part_of_worse(const struct group *group, const struct complaint *c)
{
	for (size_t i = 0; i < group->soft.complaints_count; i++)
		if (group->soft.complaints[i].unreachable &&
		    between(&group->soft.complaints[i], c->from, c->about))
			return true;
	return false;
}

void link_think(struct membership *m, struct group *group)
{
	size_t kept = 0;
	bool unreachable_due = false;
	for (size_t i = 0; i < group->soft.complaints_count; i++) {
		struct complaint c = group->soft.complaints[i];
		/* Whoever is gone needs no arbitration: that is the ordinary kill. */
		if (!live(m, group, c.from) || !live(m, group, c.about))
			continue;
		if (!c.unreachable && part_of_worse(group, &c))
			continue;
		if (c.due_ms <= m->now_ms && !c.unreachable) {
			if (!group->soft.repair)
				(void)snprintf(group->soft.repair_reason,
				    sizeof(group->soft.repair_reason),
				    "link p%llu -> p%llu broke: %.150s", (unsigned long long)c.from,
				    (unsigned long long)c.about, c.reason);
			group->soft.repair = true;
			continue;
		}
		/* Where we stood still for a moment what the others say comes in this very turn. */
		unreachable_due = unreachable_due || (m->all_read && c.due_ms <= m->now_ms);
		group->soft.complaints[kept++] = c;
	}
	group->soft.complaints_count = kept;
	if (!unreachable_due)
		return;
	char reason[REASON_MAX];
	if (relay_find(m, group, reason) == 0) {
		evict_most_cut_off(m, group);
	} else {
		copy_text(group->soft.repair_reason, sizeof(group->soft.repair_reason), reason);
		group->soft.repair = true;
	}
	group->soft.complaints_count = 0;
}

uint64_t link_deadline_ms(const struct group *group)
{
	uint64_t deadline = UINT64_MAX;
	for (size_t i = 0; i < group->soft.complaints_count; i++)
		if (group->soft.complaints[i].due_ms < deadline)
			deadline = group->soft.complaints[i].due_ms;
	return deadline;
}
