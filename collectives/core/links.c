/* Figures of the links, as all members have them: by these they choose algorithms and shares, so all need the same ones at the same time.
 *
 * A view has those that memberd knew when it was made, and a group may live in one view for days. So each vote says what its sender has measured of its own
 * long links (GROUP_LINKS), and the hub's decision says what is so from the next round on, where that differs from what is in force by more than noise. Who
 * takes part in the next round of this view has got that decision first; in a newer view all have that view's figures. Hence routes change between
 * two rounds only, and at all members alike. It costs no freeze, no message and no trip.
 *
 * While somebody in the view does not take part yet, the decisions do not reach it: the figures stay as they are.
 */
#include "collectives/core/member.h"

/* Less than this factor up or down is noise, and no reason to go another way. */
#define LINKS_DIFFER 1.25
/* No way is longer. */
#define LINKS_LATENCY_MOST_US 60000000u

void links_measured(struct group_core *core, uint32_t latency_us, uint64_t bandwidth_bytes_per_s)
{
	core->measured.latency_us = latency_us;
	core->measured.bandwidth_bytes_per_s = bandwidth_bytes_per_s;
}

static bool links_differ(double now, double then)
{
	return now * LINKS_DIFFER < then || then * LINKS_DIFFER < now;
}

/* Who has not measured anything leaves what is known. */
static bool links_bandwidth(struct group_core *core)
{
	bool news = false;

	for (unsigned i = 0; i < core->view.count; i++) {
		const Traind__Peer__Vote *vote = commit_vote_of(core, core->view.peers[i].peer);
		double known = core->view.peers[i].bandwidth_bytes_per_s;
		uint64_t said = vote ? vote->bandwidth_bytes_per_s : 0;
		core->said_bandwidth[i] = said > 0 ? said : (uint64_t)known;
		news = news || (said > 0 && links_differ((double)said, known));
	}
	return news;
}

static uint32_t links_latency_us(const struct group_core *core)
{
	uint32_t worst = 0;

	for (unsigned i = 0; i < core->view.count; i++) {
		const Traind__Peer__Vote *vote = commit_vote_of(core, core->view.peers[i].peer);
		if (vote && vote->latency_us > worst && vote->latency_us <= LINKS_LATENCY_MOST_US)
			worst = vote->latency_us;
	}
	return worst;
}

void links_decide(struct group_core *core, Traind__Peer__Commit *commit)
{
	double known_us = 1e6 * core->view.latency_s;
	uint32_t said_us = links_latency_us(core);
	bool later = said_us > 0 && links_differ(said_us, known_us);

	if (core->roster.n != core->view.count || (!links_bandwidth(core) && !later))
		return;
	commit->latency_us = said_us > 0 ? said_us : known_us < UINT32_MAX ? (uint32_t)known_us : 0;
	commit->bandwidth_bytes_per_s = core->said_bandwidth;
	commit->n_bandwidth_bytes_per_s = core->view.count;
}

tr_status links_check(const struct group_core *core, const Traind__Peer__Commit *commit,
    struct tr_error *error)
{
	size_t count = commit->n_bandwidth_bytes_per_s;

	if (count == 0 || (count == core->view.count && core->roster.n == core->view.count))
		return TR_OK;
	return tr_error_set(error, TR_EPROTO, "a decision with %zu figures of links, of %u peers",
	    count, core->view.count);
}

void links_take(struct group_core *core, const Traind__Peer__Commit *commit)
{
	if (commit->n_bandwidth_bytes_per_s == 0)
		return;
	view_measured(&core->view, commit->latency_us, commit->bandwidth_bytes_per_s);
}
