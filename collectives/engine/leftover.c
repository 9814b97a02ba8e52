#include "collectives/engine/leftover.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "collectives/engine/engine_internal.h"
#include "common/log.h"

struct leftover {
	struct leftover *next;
	uint64_t group, peer, round, until_ms;
	uint32_t rank;
	struct leftover_arena {
		uint8_t *base;
		size_t bytes;
	} * arenas;
	unsigned arena_count;
	struct channel_tensor *tensors; /* .data in `arenas` */
	unsigned tensor_count;
	uint64_t bytes;
	/* once claimed */
	unsigned tensor;
	uint64_t offset;
	XXH3_state_t *hash;
	XXH128_hash_t *digests;
};

/* ---- life ---- */

static void leftover_free(struct leftover *leftover)
{
	if (leftover == NULL)
		return;
	for (unsigned i = 0; i < leftover->arena_count; i++)
		(void)munmap(leftover->arenas[i].base, leftover->arenas[i].bytes);
	if (leftover->hash != NULL)
		(void)XXH3_freeState(leftover->hash);
	free(leftover->arenas);
	free(leftover->tensors);
	free(leftover->digests);
	free(leftover);
}

static bool same_tensors(const struct leftover *leftover, const struct channel_host *host)
{
	if (leftover->tensor_count != host->tensor_count)
		return false;
	for (unsigned i = 0; i < host->tensor_count; i++)
		if (leftover->tensors[i].bytes != host->tensors[i].bytes ||
		    strcmp(leftover->tensors[i].name, host->tensors[i].name) != 0)
			return false;
	return true;
}

static bool inside(const struct channel_tensor *tensor, const struct channel_arena *arena)
{
	return tensor->data >= arena->base && tensor->data < arena->base + arena->bytes;
}

/* Takes the tensors that lie in the arena along. */
static tr_status keep_arena(struct leftover *leftover, const struct channel_host *host,
    const struct channel_arena *arena)
{
	uint8_t *base = NULL;
	for (unsigned i = 0; i < host->tensor_count; i++) {
		if (host->tensors[i].bytes == 0 || !inside(&host->tensors[i], arena))
			continue;
		if (base == NULL) {
			/* An old size of 0 makes a second mapping of shared memory: mremap(2). The member's own goes with it,
			 * which may be late, while peers still get frames out of it. */
			void *mapped = mremap(arena->base, 0, arena->bytes, MREMAP_MAYMOVE);
			if (mapped == MAP_FAILED)
				return TR_ENOMEM;
			base = mapped;
			leftover->arenas[leftover->arena_count++] = (struct leftover_arena){
				.base = base,
				.bytes = arena->bytes
			};
		}
		leftover->tensors[i].data = base + (host->tensors[i].data - arena->base);
	}
	return TR_OK;
}

static struct leftover *leftover_make(const struct member *member, uint64_t round)
{
	const struct channel_host *host = member->host;
	struct leftover *made = calloc(1, sizeof(*made));
	if (made == NULL)
		return NULL;
	made->group = member->group;
	made->peer = member->peer;
	made->rank = member->rank;
	made->round = round;
	made->tensor_count = host->tensor_count;
	made->arenas = calloc(host->arena_count + 1u, sizeof(*made->arenas));
	made->tensors = calloc(host->tensor_count, sizeof(*made->tensors));
	made->digests = calloc(host->tensor_count, sizeof(*made->digests));
	made->hash = XXH3_createState();
	tr_status st = made->arenas == NULL || made->tensors == NULL || made->digests == NULL ||
	        made->hash == NULL
	    ? TR_ENOMEM
	    : TR_OK;
	for (unsigned i = 0; st == TR_OK && i < host->tensor_count; i++) {
		made->tensors[i] = host->tensors[i];
		made->bytes += host->tensors[i].bytes;
	}
	for (unsigned i = 0; st == TR_OK && i < host->arena_count; i++)
		st = keep_arena(made, host, &host->arenas[i]);
	if (st == TR_OK)
		return made;
	leftover_free(made);
	return NULL;
}

/* ---- of the engine ---- */

static void on_timer(uv_timer_t *timer);

static void arm(struct engine *engine)
{
	struct leftovers *all = &engine->leftovers;
	uint64_t now = uv_now(&engine->loop), next = UINT64_MAX;
	for (const struct leftover *l = all->first; l != NULL; l = l->next)
		next = l->until_ms < next ? l->until_ms : next;
	if (next == UINT64_MAX)
		(void)uv_timer_stop(&all->timer);
	else
		(void)uv_timer_start(&all->timer, on_timer, next > now ? next - now : 0, 0);
}

static void drop_old(struct engine *engine)
{
	struct leftover **at = &engine->leftovers.first;
	while (*at != NULL) {
		struct leftover *leftover = *at;
		if (leftover->until_ms > uv_now(&engine->loop)) {
			at = &leftover->next;
			continue;
		}
		*at = leftover->next;
		log_info("engine", "the state that peer %" PRIu64 " left is dropped: %s",
		    leftover->peer,
		    leftover->until_ms == 0 ? "its group is over" : "no worker followed it");
		leftover_free(leftover);
	}
	arm(engine);
}

static void on_timer(uv_timer_t *timer)
{
	drop_old(timer->data);
}

void leftovers_init(struct engine *engine)
{
	(void)uv_timer_init(&engine->loop, &engine->leftovers.timer);
	engine->leftovers.timer.data = engine;
}

void leftovers_stop(struct engine *engine)
{
	while (engine->leftovers.first != NULL) {
		struct leftover *next = engine->leftovers.first->next;
		leftover_free(engine->leftovers.first);
		engine->leftovers.first = next;
	}
	uv_close((uv_handle_t *)&engine->leftovers.timer, NULL);
}

void leftovers_drop_group(struct engine *engine, uint64_t group)
{
	for (struct leftover *l = engine->leftovers.first; l != NULL; l = l->next)
		if (l->group == group)
			l->until_ms = 0;
	for (struct member *member = engine->members; member != NULL; member = member->next)
		if (member->group == group && member->leftover != NULL)
			member->leftover->until_ms = 0; /* if it is put back, it goes */
	drop_old(engine);
}

/* Newest first; the rank's earlier one, or the oldest beyond the limit, goes. */
static void put(struct engine *engine, struct leftover *leftover)
{
	unsigned count = 1;
	leftover->next = engine->leftovers.first;
	engine->leftovers.first = leftover;
	for (struct leftover **at = &leftover->next; *at != NULL;) {
		struct leftover *other = *at;
		bool older = other->group == leftover->group && other->rank == leftover->rank;
		if (!older && ++count <= TR_LEFTOVERS_MAX) {
			at = &other->next;
			continue;
		}
		*at = other->next;
		leftover_free(other);
	}
	arm(engine);
}

bool leftover_keep(struct member *member)
{
	struct engine *engine = member->engine;
	uint64_t round = 0;
	if (engine->stopping || member->job == 0)
		return false;
	if (member->leftover != NULL) {
		struct leftover *unused = member->leftover;
		member->leftover = NULL;
		bool wanted = unused->until_ms != 0;
		put(engine, unused);
		return wanted;
	}
	if (member->over || member->host->tensor_count == 0 ||
	    !group_core_state(member->core, &round) || round == 0)
		return false;
	struct leftover *made = leftover_make(member, round);
	if (made == NULL)
		return false;
	made->until_ms = uv_now(&engine->loop) + TR_LEFTOVER_KEEP_MS;
	log_info("engine",
	    "peer %" PRIu64 " of group %" PRIu64 ": its worker left the state after round %" PRIu64
	    ", %.1f MB",
	    member->peer, member->group, round, (double)made->bytes / 1e6);
	put(engine, made);
	return true;
}

void leftover_claim(struct member *member)
{
	struct leftover **best = NULL;
	for (struct leftover **at = &member->engine->leftovers.first; *at != NULL; at = &(*at)->next)
		if ((*at)->group == member->group && same_tensors(*at, member->host) &&
		    (best == NULL || (*at)->round > (*best)->round))
			best = at;
	if (best == NULL)
		return;
	member->leftover = *best;
	*best = member->leftover->next;
	arm(member->engine);
}

/* ---- of the member that claimed it ---- */

void leftover_drop(struct member *member)
{
	leftover_free(member->leftover);
	member->leftover = NULL;
}

bool leftover_round(const struct member *member, uint64_t *round)
{
	if (member->leftover == NULL)
		return false;
	*round = member->leftover->round;
	return true;
}

uint64_t leftover_bytes(const struct member *member)
{
	return member->leftover->bytes;
}

void leftover_copy_begin(struct member *member)
{
	member->leftover->tensor = 0;
	member->leftover->offset = 0;
	(void)XXH3_128bits_reset(member->leftover->hash);
}

bool leftover_copy(struct member *member)
{
	struct leftover *from = member->leftover;
	uint64_t budget = TR_STATE_TURN_BYTES;
	while (from->tensor < from->tensor_count && budget > 0) {
		const struct channel_tensor *tensor = &from->tensors[from->tensor];
		uint64_t left = tensor->bytes - from->offset, n = left < budget ? left : budget;
		uint8_t *to = member->host->tensors[from->tensor].data + from->offset;
		if (n > 0) {
			memcpy(to, tensor->data + from->offset, n);
			(void)XXH3_128bits_update(from->hash, to, n);
		}
		from->offset += n;
		budget -= n;
		if (from->offset < tensor->bytes)
			continue;
		from->digests[from->tensor++] = XXH3_128bits_digest(from->hash);
		from->offset = 0;
		(void)XXH3_128bits_reset(from->hash);
	}
	return from->tensor == from->tensor_count;
}

const XXH128_hash_t *leftover_digests(const struct member *member)
{
	return member->leftover->digests;
}
