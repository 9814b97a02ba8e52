#include "daemon/plan/wish.h"

#include <string.h>

#include "daemon/plan/job_mesh.h"
#include "daemon/plan/ranks.h"

/* Words of the head. */
enum { KIND, WHY, WHO, TO, PERCENT, NOW, NEXT, NS_A_BYTE, MESH };

void wish_write(const struct wish *w, uint32_t count, int64_t *words)
{
	words[KIND] = w->kind;
	words[WHY] = w->why;
	words[WHO] = w->who;
	words[TO] = w->to;
	words[PERCENT] = w->percent;
	words[NOW] = (int64_t)w->now_ns;
	words[NEXT] = (int64_t)w->next_ns;
	words[NS_A_BYTE] = (int64_t)w->ns_a_byte;
	for (unsigned axis = 0; axis < MESH_AXES; axis++)
		words[MESH + axis] = w->dealing.mesh.size[axis];
	for (uint32_t i = 0; i < count; i++) {
		int64_t *of = words + WISH_HEAD + 3 * (size_t)i;
		of[0] = w->ranks[i];
		of[1] = w->dealing.shares[i];
		of[2] = w->dealing.layers[i];
	}
}

static void read_lists(const int64_t *words, uint32_t count, struct wish *w)
{
	for (uint32_t i = 0; i < TR_GROUP_PEERS_MAX; i++)
		w->ranks[i] = RANKS_NONE;
	for (uint32_t i = 0; i < count; i++) {
		const int64_t *of = words + WISH_HEAD + 3 * (size_t)i;
		w->ranks[i] = (uint32_t)of[0];
		w->dealing.shares[i] = (uint32_t)of[1];
		w->dealing.layers[i] = (uint32_t)of[2];
	}
}

/* Each rank once; spares beside them. */
static bool are_ranks(const struct wish *w, uint32_t count)
{
	bool seen[TR_GROUP_PEERS_MAX] = { false };
	uint32_t given = 0, workers = mesh_workers(&w->dealing.mesh);

	for (uint32_t i = 0; i < count; i++) {
		if (w->ranks[i] == RANKS_NONE)
			continue;
		if (w->ranks[i] >= workers || seen[w->ranks[i]])
			return false;
		seen[w->ranks[i]] = true;
		given++;
	}
	return given == workers;
}

/* All 0, or of each of the first `count` some; behind them none. */
static bool is_list(const uint32_t *list, uint32_t count, uint32_t most)
{
	for (uint32_t i = 0; i < TR_GROUP_PEERS_MAX; i++)
		if ((list[i] > 0) != (i < count && list[0] > 0) || list[i] > most)
			return false;
	return true;
}

static bool can_be(const struct wish *w, const struct model_config *config, uint32_t count)
{
	const struct dealing *d = &w->dealing;
	uint32_t pp = d->mesh.size[MESH_PP];
	uint64_t layers = 0;

	if (mesh_check(&d->mesh, NULL) != TR_OK || mesh_workers(&d->mesh) > count ||
	    job_mesh_allows(config, &d->mesh, NULL) != TR_OK)
		return false;
	for (uint32_t i = 0; i < pp; i++)
		layers += d->layers[i];
	return are_ranks(w, count) &&
	    is_list(d->shares, d->mesh.size[MESH_DP], DEALING_SHARE_MAX) &&
	    is_list(d->layers, pp, config->layers) &&
	    (d->layers[0] == 0 || layers == config->layers);
}

void wish_read(const int64_t *words, const struct model_config *config, uint32_t count,
    struct wish *w)
{
	memset(w, 0, sizeof(*w));
	w->kind = (uint32_t)words[KIND];
	w->why = (uint32_t)words[WHY];
	w->who = (uint32_t)words[WHO];
	w->to = (uint32_t)words[TO];
	w->percent = (uint32_t)words[PERCENT];
	w->now_ns = (uint64_t)words[NOW];
	w->next_ns = (uint64_t)words[NEXT];
	w->ns_a_byte = (uint64_t)words[NS_A_BYTE];
	if (w->who >= count || w->to >= count)
		w->why = WISH_WHY_UNKNOWN;
	if (w->kind != WISH_CHANGE)
		return;
	for (unsigned axis = 0; axis < MESH_AXES; axis++)
		w->dealing.mesh.size[axis] = (uint32_t)words[MESH + axis];
	read_lists(words, count, w);
	if (!can_be(w, config, count) || w->next_ns >= w->now_ns)
		w->kind = WISH_FAILED;
}
