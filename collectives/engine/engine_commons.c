/* Commons of the engine's groups (transport/commons.h): one for all workers of a group that are here. The engine deals out seats and looks at nothing in it. */
#include <stdlib.h>
#include <unistd.h>

#include "collectives/engine/engine_internal.h"

struct engine_commons {
	struct engine_commons *next;
	uint64_t group;
	int fd;
	unsigned members;
	uint64_t taken; /* seats, by bit */
};

static struct engine_commons **find(struct engine *engine, uint64_t group)
{
	struct engine_commons **link = &engine->commons;
	while (*link != NULL && (*link)->group != group)
		link = &(*link)->next;
	return link;
}

static struct engine_commons *make(uint64_t group)
{
	struct engine_commons *made = calloc(1, sizeof(*made));
	if (made == NULL || commons_create(&made->fd, NULL) != TR_OK) {
		free(made);
		return NULL;
	}
	made->group = group;
	return made;
}

struct channel_seat engine_commons_take(struct engine *engine, uint64_t group)
{
	struct channel_seat none = { -1, COMMONS_NO_SEAT }, seat = none;
	if (engine->links.alone || engine->links.transport == TR_TRANSPORT_TCP)
		return none;
	pthread_mutex_lock(&engine->lock);
	struct engine_commons **link = find(engine, group);
	if (*link == NULL)
		*link = make(group);
	struct engine_commons *commons = *link;
	if (commons != NULL && commons->taken != UINT64_MAX) {
		seat = (struct channel_seat){ commons->fd,
			(unsigned)__builtin_ctzll(~commons->taken) };
		commons->taken |= UINT64_C(1) << seat.seat;
		commons->members++;
	}
	pthread_mutex_unlock(&engine->lock);
	return seat;
}

void engine_commons_give_back(struct engine *engine, uint64_t group,
    const struct channel_seat *seat, bool unused)
{
	if (seat->seat == COMMONS_NO_SEAT)
		return;
	pthread_mutex_lock(&engine->lock);
	struct engine_commons **link = find(engine, group), *commons = *link;
	if (unused)
		commons->taken &= ~(UINT64_C(1) << seat->seat);
	if (--commons->members == 0) {
		*link = commons->next;
		(void)close(commons->fd);
		free(commons);
	}
	pthread_mutex_unlock(&engine->lock);
}

void engine_commons_leave(struct member *member, bool dead)
{
	struct channel_seat seat = { -1, member->host->seat };
	member->host->seat = COMMONS_NO_SEAT;
	engine_commons_give_back(member->engine, member->group, &seat, dead);
}
