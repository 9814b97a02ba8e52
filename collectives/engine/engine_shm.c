/* What the engine has to do with shared memory: what its members show to peers of this host, what it keeps mapped of theirs,
 * and when it looks at its rings instead of sleeping. See collectives/transport/shm_hub.h.
 *
 * Why nobody reads what changed meanwhile. A frame of shared memory says where a body lies. Its reader acts on it only in a
 * step of the frame's own view and round; others are dropped by their headers. What it reads is one of two:
 *
 *   - The caller's memory (stable): the input of an op until it is sealed, its result afterwards. The core writes the result
 *     over the input only when the segment's result has come, so after its owner has read the input. The caller gets its
 *     memory back when the round is decided: everyone has voted, so everyone has all results and needs nothing more; or when
 *     it releases the op: all its members have the result, and a frame of it that still comes is dropped unread (core/release.h); or when
 *     it is given up, with a view that was installed after everyone had frozen; or when the member is over: then its writes
 *     are no longer seen by others (channel_worker.c, make_private).
 *   - Staging: the core gives it back when the reader has gone past the frame (shm_ring_collect). When the view freezes, or a
 *     lane is closed with frames in its ring, a reader that has not frozen yet may still act on them, and hand on, as sealed,
 *     what it read. So that staging is not used again before the next view is installed (`retired`): memberd installs it
 *     when all its members have reported, a member reports after its step, and a frozen member reads nothing. When the member is over its
 *     staging is unmapped and nobody's any more (staging.h).
 *
 * What a board shows is neither: it is copied, and the stamp tells afterwards whether it was whole (board.h).
 *
 * A reader that memberd gave up may read anything: it stood still, the others went on in a later view, and what it finds when it wakes are frames of its own view and memory of theirs. Nobody takes its
 * results; but votes for its round may be among those frames, and with its own it could commit to its caller what it read. So before it votes it looks at the view that each peer of this host says in
 * its staging: if one is later, memory may have changed before it was read, and it does not vote.
 *
 * And the other way round: a peer's memory stays mapped while the core may have pointers into it (member_keep_import): a lane
 * that ends with its process takes nothing from us.
 */
#include "collectives/engine/engine_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/peer_link.h"
#include "common/log.h"

/* ---- the hub ---- */

static void on_accepted(void *arg, struct lane *lane)
{
	inbound_accept_lane(arg, lane);
}

static bool on_admits(void *arg, const struct shm_claim *claim)
{
	struct engine *engine = arg;
	return !engine->stopping && engine->links.transport != TR_TRANSPORT_TCP &&
	    inbound_door_admits(engine, claim);
}

/* Somebody waits for what a peer is about to say. */
static bool on_busy(void *arg)
{
	const struct engine *engine = arg;
	for (const struct member *member = engine->members; member != NULL; member = member->next)
		if (member->call.id != 0 && !member->over)
			return true;
	return false;
}

static bool on_look(void *arg)
{
	const struct engine *engine = arg;
	bool moved = false;
	for (struct member *member = engine->members; member != NULL; member = member->next)
		moved |= member_board_look(member);
	return moved;
}

static bool on_pending(void *arg)
{
	const struct engine *engine = arg;
	for (struct member *member = engine->members; member != NULL; member = member->next)
		if (member_board_pending(member))
			return true;
	return false;
}

/* What a source has staged is in rings; nothing comes back to it but the buffers. */
static bool on_starved(void *arg)
{
	const struct engine *engine = arg;
	const struct member *member = engine->members;
	while (member != NULL && (member->over || !group_core_starved(member->core)))
		member = member->next;
	return member != NULL;
}

static void on_closed(void *arg)
{
	struct engine *engine = arg;
	engine->shm = NULL;
}

void engine_shm_start(struct engine *engine)
{
	static const struct shm_hub_callbacks callbacks = { .accepted = on_accepted,
		.admits = on_admits,
		.busy = on_busy,
		.look = on_look,
		.pending = on_pending,
		.starved = on_starved,
		.closed = on_closed };
	struct tr_error error;
	host_identity(engine->host);
	if (engine->host[0] == '\0')
		return;
	if (shm_hub_create(&engine->loop, &callbacks, engine, &engine->shm, &error) == TR_OK) {
		(void)snprintf(engine->shm_address, sizeof(engine->shm_address), "%s",
		    shm_hub_address(engine->shm));
		return;
	}
	log_warn("engine", "no shared memory between processes: %s", error.text);
	engine->host[0] = '\0';
}

void engine_shm_stop(struct engine *engine)
{
	shm_hub_close(engine->shm);
}

const char *engine_host(const struct engine *engine)
{
	return engine->host;
}

const char *engine_local_address(const struct engine *engine)
{
	return engine->links.transport == TR_TRANSPORT_TCP ? "" : engine->shm_address;
}

/* ---- what a member shows ---- */

static bool member_lent_intact(void *arg, uint64_t view);

tr_status member_shm_start(struct member *member, struct group_core_options *options)
{
	staging_init(&member->staging);
	options->memory = (struct group_memory){ .get = staging_get,
		.put = staging_put,
		.arg = &member->staging };
	gather_init(&member->gather, staging_board(&member->staging), BOARD_ENTRIES);
	options->spreads = true;
	options->lent = (struct group_lent){ .intact = member_lent_intact, .arg = member };
	if (member->staging.fd < 0)
		return TR_OK;
	return shm_exports_add(&member->exports, member->staging.fd, member->staging.base,
	    STAGING_BYTES, false);
}

void member_shm_show(struct member *member)
{
	const struct channel_host *host = member->host;
	if (member->staging.fd < 0)
		return; /* nowhere to say our view: all bodies are copied */
	for (; member->arenas_shown < host->arena_count; member->arenas_shown++) {
		const struct channel_arena *arena = &host->arenas[member->arenas_shown];
		size_t left = TR_PREFAULT_BYTES_MOST - member->prefaulted_bytes;
		size_t bytes = arena->bytes < left ? arena->bytes : left;
		member->prefaulted_bytes += bytes;
		if (member->engine->shm != NULL)
			shm_hub_prefault(member->engine->shm, arena->base, bytes);
		if (arena->fd >= 0)
			(void)shm_exports_add(&member->exports, arena->fd, arena->base,
			    arena->bytes, true); /* else its bodies are copied */
	}
}

/* ---- what peers show ---- */

struct kept_import {
	struct kept_import *next;
	uint64_t from;
	struct shm_import *import;
};

void member_keep_import(struct member *member, uint64_t from, struct shm_import *import)
{
	struct kept_import *kept = member->kept_imports;
	while (kept != NULL && kept->import != import)
		kept = kept->next;
	if (import == NULL)
		return;
	if (kept != NULL) {
		shm_import_release(import);
		return;
	}
	kept = malloc(sizeof(*kept));
	if (kept == NULL)
		return; /* it stays mapped for ever: better than to read what is not there */
	kept->from = from;
	kept->import = import;
	kept->next = member->kept_imports;
	member->kept_imports = kept;
}

bool member_import_intact(const struct shm_import *import, uint64_t view)
{
	bool arena; /* the first piece is its staging */
	const void *head = shm_import_at(import, 0, 0, STAGING_HEAD_BYTES, &arena);
	return head == NULL || arena || !staging_says_later(head, view);
}

static bool member_lent_intact(void *arg, uint64_t view)
{
	const struct member *member = arg;
	for (const struct kept_import *kept = member->kept_imports; kept != NULL; kept = kept->next)
		if (!member_import_intact(kept->import, view))
			return false;
	return inbound_lent_intact(member, view);
}

unsigned member_kept_imports(const struct member *member, uint64_t from)
{
	unsigned count = 0;
	for (const struct kept_import *kept = member->kept_imports; kept != NULL; kept = kept->next)
		count += kept->from == from;
	return count;
}

void member_shm_settle(struct member *member)
{
	while (member->kept_imports != NULL) {
		struct kept_import *kept = member->kept_imports;
		member->kept_imports = kept->next;
		shm_import_release(kept->import);
		free(kept);
	}
	while (member->retired != NULL) {
		struct outgoing *out = member->retired;
		member->retired = out->next;
		outgoing_free(out);
	}
}

void member_shm_finish(struct member *member)
{
	for (unsigned i = 0; i < member->arenas_shown && member->engine->shm != NULL; i++)
		shm_hub_prefault_end(member->engine->shm, member->host->arenas[i].base);
	shm_exports_finish(&member->exports);
	staging_finish(&member->staging);
}
