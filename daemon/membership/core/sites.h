/* Which hosts are at one site, and what the cable of a site carries: reckoned from links that were measured. Pure.
 *
 * Hosts of a site are much nearer to each other than to all others: by how long it takes to send each other a message of 1 MiB, both ways. Where that leaves a doubt there are no sites: one that
 * holds all. Whether a site's hosts share a cable follows from what they send at the same time, each to a host elsewhere: if that is clearly less than what each
 * of these streams has alone, it is what the cable carries.
 *
 * A link between two sites is as fast as the fastest one that was seen between these, which was measured alone, as far as the cards at its ends let it (each as fast as its host's fastest link):
 * it was itself measured while others crossed the cable.
 */
#ifndef TR_MEMBERSHIP_CORE_SITES_H
#define TR_MEMBERSHIP_CORE_SITES_H

#include "common/limits.h"
#include "daemon/membership/core/tournament.h"
#include "daemon/plan/flow.h"

struct sites {
	uint32_t hosts, count;
	uint32_t of[TR_PROBE_HOSTS_MAX];   /* number of a host's site */
	uint32_t size[TR_PROBE_SITES_MAX]; /* hosts at each */
	double card_out[TR_PROBE_HOSTS_MAX], card_in[TR_PROBE_HOSTS_MAX]; /* fastest links */
	double fastest[TR_PROBE_SITES_MAX][TR_PROBE_SITES_MAX]; /* from one site to another */
	double cable_out[TR_PROBE_SITES_MAX],
	    cable_in[TR_PROBE_SITES_MAX]; /* 0: nothing is known to be shared */
	struct flow_link links[]; /* [hosts * hosts], from * hosts + to; a bandwidth of 0: not known */
};

/* Of hosts and links the rest; one site: there is nothing more to measure. */
void sites_find(struct sites *sites);
/* A link was measured again. */
void sites_relink(struct sites *sites, uint32_t from, uint32_t to, double bytes_per_s);

/* Those to measure alone, of disjoint sites each turn: the fastest between two sites that a cable may hold back. Turns are those of tournament_turns(count). */
uint32_t sites_alone(const struct sites *sites, uint32_t turn, struct tournament_pair *pairs);

/* Those to measure at the same time, each host in one at most: all that a site can send elsewhere. None: it has one host, or there is one elsewhere; or two sites, and the other one's tell the same. */
uint32_t sites_together(const struct sites *sites, uint32_t site, struct tournament_pair *pairs);

/* What all pairs of sites_together carried together, from the site and to it. Sets its cable, of two sites of one. */
void sites_take(struct sites *sites, uint32_t site, double out_bytes_per_s, double in_bytes_per_s);

/* What one stream from one host to another has alone. */
double sites_lone(const struct sites *sites, uint32_t from, uint32_t to);
/* A link over a cable that is known, so that it was measured with others on it. */
bool sites_crosses(const struct sites *sites, uint32_t from, uint32_t to);

#endif
