#include "client/trainctl/peer_links.h"

#include <stdio.h>

const Traind__V1__PeerLink *peer_links_slowest(const Traind__V1__Peer *peer)
{
	return peer->n_links > 0 ? peer->links[0] : NULL;
}

/* As memberd sorts those of one peer. */
static bool is_slower(const Traind__V1__PeerLink *a, const Traind__V1__PeerLink *b)
{
	double one = a->bandwidth_bytes_per_s, other = b->bandwidth_bytes_per_s;
	if ((one > 0) != (other > 0))
		return one > 0;
	return one > other || one < other ? one < other : a->rtt_s > b->rtt_s;
}

const char *peer_links_rate(const Traind__V1__PeerLink *link, char text[PRINT_FIGURE_MAX])
{
	char bytes[PRINT_FIGURE_MAX];
	if (!(link->bandwidth_bytes_per_s > 0))
		return "-";
	(void)snprintf(text, PRINT_FIGURE_MAX, "%.16s/s",
	    print_bytes((uint64_t)link->bandwidth_bytes_per_s, bytes));
	return text;
}

bool peer_links_text(const Traind__V1__Job *job, char text[PEER_LINKS_TEXT_MAX])
{
	const Traind__V1__PeerLink *slowest = NULL;
	uint64_t from = 0;
	char rate[PRINT_FIGURE_MAX], rtt[PRINT_FIGURE_MAX];
	for (size_t i = 0; i < job->n_peers; i++) {
		const Traind__V1__PeerLink *link = peer_links_slowest(job->peers[i]);
		if (link == NULL || (slowest != NULL && !is_slower(link, slowest)))
			continue;
		slowest = link;
		from = job->peers[i]->id;
	}
	if (slowest == NULL)
		return false;
	bool measured = slowest->bandwidth_bytes_per_s > 0;
	(void)snprintf(text, PEER_LINKS_TEXT_MAX, "%llu to %llu%s%s, %s", (unsigned long long)from,
	    (unsigned long long)slowest->peer, measured ? ", " : "",
	    measured ? peer_links_rate(slowest, rate) : "", print_latency(slowest->rtt_s, rtt));
	return true;
}

bool peer_links_slow_text(const Traind__V1__Job *job, char text[PRINT_FIGURE_MAX])
{
	unsigned count = 0;
	uint64_t id = 0;
	for (size_t i = 0; i < job->n_peers; i++) {
		count += job->peers[i]->slow ? 1 : 0;
		id = job->peers[i]->slow ? job->peers[i]->id : id;
	}
	if (count == 1)
		(void)snprintf(text, PRINT_FIGURE_MAX, "peer %llu", (unsigned long long)id);
	else
		(void)snprintf(text, PRINT_FIGURE_MAX, "%u peers", count);
	return count > 0;
}
