/* What a group does, for those who look: questions to its engine (channel.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/coll.h"
#include "collectives/engine/coll_group.h"
#include "collectives/engine/sized.h"

#define STATS_LEAST (offsetof(struct tr_stats, waited_us) + sizeof(uint64_t))
#define LINK_LEAST  (offsetof(struct tr_link, received_bytes) + sizeof(uint64_t))

static tr_status ask(const struct tr_group *group, const struct channel_question *question,
    struct channel_told *told, struct tr_link *links, struct tr_error *error)
{
	tr_status st = coll_own(group, error);
	return st == TR_OK ? channel_worker_ask(group->channel, question, told, links, error) : st;
}

tr_status tr_explain(tr_group *group, const struct tr_op *op, enum tr_algorithm *algorithm,
    char *text, size_t text_bytes, struct tr_error *error)
{
	struct tr_op known;
	struct channel_told told;
	tr_status st = sized_read("op", op, COLL_OP_LEAST, &known, sizeof(known), error);
	if (st != TR_OK)
		return st;
	const struct channel_question question = { .kind = CHANNEL_EXPLAIN,
		.collective = (uint32_t)known.collective,
		.dtype = (uint32_t)known.dtype,
		.codec = (uint32_t)known.codec,
		.algorithm = (uint32_t)known.algorithm,
		.count = known.count };
	st = ask(group, &question, &told, NULL, error);
	if (st != TR_OK)
		return st;
	if (algorithm != NULL)
		*algorithm = (enum tr_algorithm)told.algorithm;
	if (text != NULL && text_bytes > 0)
		(void)snprintf(text, text_bytes, "%s", told.text);
	return TR_OK;
}

tr_status tr_stats_get(tr_group *group, struct tr_stats *stats, struct tr_error *error)
{
	const struct channel_question question = { .kind = CHANNEL_STATS };
	struct channel_told told;
	tr_status st = ask(group, &question, &told, NULL, error);
	if (st != TR_OK)
		return st;
	return sized_write("stats", &told.stats, sizeof(told.stats), STATS_LEAST, stats, error);
}

static void terminate(struct tr_link *link)
{
	link->node[sizeof(link->node) - 1] = '\0';
	link->address[sizeof(link->address) - 1] = '\0';
	link->congestion[sizeof(link->congestion) - 1] = '\0';
}

/* An array of a program that may know another length of the struct. */
static tr_status give_links(struct tr_link *found, size_t count, struct tr_link *links, size_t max,
    struct tr_error *error)
{
	if (links == NULL || max == 0)
		return max == 0 ? TR_OK : tr_error_set(error, TR_EINVAL, "links: NULL");
	size_t stride = links->size_of;
	tr_status st = TR_OK;
	for (size_t i = 0; i < count && i < max && st == TR_OK; i++) {
		void *at = (uint8_t *)links + i * stride;
		terminate(&found[i]);
		if (i > 0)
			memcpy(at, &stride, sizeof(stride));
		st = sized_write("links", &found[i], sizeof(found[i]), LINK_LEAST, at, error);
	}
	return st;
}

tr_status tr_links(tr_group *group, struct tr_link *links, size_t max, size_t *count,
    struct tr_error *error)
{
	const struct channel_question question = { .kind = CHANNEL_LINKS };
	struct channel_told told;
	struct tr_link *found = calloc(TR_GROUP_PEERS_MAX, sizeof(*found));
	if (found == NULL)
		return tr_error_set(error, TR_ENOMEM, "no memory for the links");
	tr_status st = ask(group, &question, &told, found, error);
	if (st == TR_OK)
		st = give_links(found, told.count, links, max, error);
	if (st == TR_OK)
		*count = told.count;
	free(found);
	return st;
}
