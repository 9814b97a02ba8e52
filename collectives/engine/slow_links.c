/* Which links of a member are the slowest: what people are shown of them goes to memberd with heartbeats, and a group may have hundreds. */
#include <string.h>

#include "collectives/engine/engine_internal.h"
#include "collectives/engine/peer_link.h"

/* Heartbeats that say it again cost bytes, on slow links too. */
#define TELL_MS 1000

/* What is not known is not called slow. */
static bool is_slower(const struct engine_link *a, const struct engine_link *b)
{
	if ((a->bytes_per_s > 0) != (b->bytes_per_s > 0))
		return a->bytes_per_s > 0;
	return a->bytes_per_s != b->bytes_per_s ? a->bytes_per_s < b->bytes_per_s
	                                        : a->rtt_us > b->rtt_us;
}

size_t slow_links_put(struct engine_link links[TR_PEER_LINKS_MAX], size_t count,
    const struct engine_link *link)
{
	size_t at = count < TR_PEER_LINKS_MAX ? count : TR_PEER_LINKS_MAX - 1;
	if (count == TR_PEER_LINKS_MAX && !is_slower(link, &links[at]))
		return count;
	for (; at > 0 && is_slower(link, &links[at - 1]); at--)
		links[at] = links[at - 1];
	links[at] = *link;
	return count < TR_PEER_LINKS_MAX ? count + 1 : count;
}

static size_t find(const struct member *member, struct engine_link links[TR_PEER_LINKS_MAX])
{
	size_t count = 0;
	for (const struct peer_link *link = member->links; link != NULL; link = link->next) {
		/* Memory is no link, and has no round trip. */
		if (link->closing || link->near || link->rtt_us == 0 || link->acked_bytes == 0)
			continue;
		const struct engine_link is = { .group = member->group,
			.peer = member->peer,
			.to = link->peer,
			.bytes_per_s = (uint64_t)rate_newest_middle(&link->lately, RATE_FEW),
			.sent_bytes = link->acked_bytes,
			.rtt_us = link->rtt_us };
		count = slow_links_put(links, count, &is);
	}
	return count;
}

void slow_links_look(struct member *member)
{
	struct engine_link links[TR_PEER_LINKS_MAX];
	uint64_t now_ms = uv_hrtime() / 1000000;
	if (member->links_told_ms != 0 && now_ms - member->links_told_ms < TELL_MS)
		return;
	member->links_told_ms = now_ms;
	size_t count = find(member, links);
	pthread_mutex_lock(&member->engine->lock);
	memcpy(member->row.links, links, count * sizeof(*links));
	member->row.link_count = count;
	pthread_mutex_unlock(&member->engine->lock);
}

size_t engine_links(struct engine *engine, struct engine_link *links, size_t max)
{
	size_t count = 0;
	pthread_mutex_lock(&engine->lock);
	struct member_row **at = &engine->rows, *told = NULL, **told_tail = &told;
	while (*at != NULL) {
		struct member_row *row = *at;
		if (row->link_count == 0 || row->link_count > max - count) {
			at = &row->next;
			continue;
		}
		memcpy(links + count, row->links, row->link_count * sizeof(*links));
		count += row->link_count;
		row->link_count = 0;
		*at = row->next;
		*told_tail = row;
		told_tail = &row->next;
	}
	/* Behind those that were not: where there is never room for all, their turn comes too. */
	*told_tail = NULL;
	*at = told;
	pthread_mutex_unlock(&engine->lock);
	return count;
}

void engine_link_say(const struct engine_link *link, Traind__Peer__LinkProgress *row)
{
	traind__peer__link_progress__init(row);
	row->to = link->to;
	row->bytes_per_s = link->bytes_per_s;
	row->rtt_us = link->rtt_us;
	row->sent_bytes = link->sent_bytes;
}
