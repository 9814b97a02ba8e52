#include "daemon/plan/dealing.h"

#include <assert.h>
#include <string.h>

#include "daemon/plan/job_mesh.h"

static void copy(uint32_t *to, const uint32_t *from, size_t count)
{
	for (size_t i = 0; i < count && i < TR_GROUP_PEERS_MAX; i++)
		to[i] = from[i];
}

void dealing_of_job(const Traind__V1__Mesh *m, struct dealing *dealing)
{
	*dealing = (struct dealing){ .mesh = job_mesh(m) };
	if (m == NULL)
		return;
	copy(dealing->shares, m->shares, m->n_shares);
	copy(dealing->layers, m->layers, m->n_layers);
}

void dealing_on(const struct dealing *dealing, const struct mesh *mesh, struct dealing *other)
{
	struct dealing made = { .mesh = *mesh };

	if (mesh->size[MESH_DP] == dealing->mesh.size[MESH_DP])
		copy(made.shares, dealing->shares, mesh->size[MESH_DP]);
	if (mesh->size[MESH_PP] == dealing->mesh.size[MESH_PP])
		copy(made.layers, dealing->layers, mesh->size[MESH_PP]);
	*other = made;
}

bool dealing_equal(const struct dealing *a, const struct dealing *b)
{
	return mesh_equal(&a->mesh, &b->mesh) &&
	    memcmp(a->shares, b->shares, sizeof(a->shares)) == 0 &&
	    memcmp(a->layers, b->layers, sizeof(a->layers)) == 0 && a->chunks == b->chunks;
}

bool dealing_is_even(const struct dealing *dealing)
{
	for (uint32_t i = 1; i < dealing->mesh.size[MESH_DP]; i++)
		if (dealing->shares[i] != dealing->shares[0])
			return false;
	return true;
}

const uint32_t *dealing_layers(const struct dealing *dealing)
{
	return dealing->layers[0] > 0 ? dealing->layers : NULL;
}

/* 0: all have equally much, 1. */
static uint64_t weight_of(const struct dealing *dealing, uint32_t replica)
{
	return dealing->shares[replica] > 0 ? dealing->shares[replica] : 1;
}

void dealing_share(const struct dealing *dealing, const uint32_t *replicas, uint32_t count,
    uint32_t index, uint64_t batch, uint64_t *first, uint64_t *last)
{
	uint64_t before = 0, all = 0;

	for (uint32_t i = 0; i < count; i++) {
		before += i < index ? weight_of(dealing, replicas[i]) : 0;
		all += weight_of(dealing, replicas[i]);
	}
	assert(index < count && all > 0);
	*first = batch * before / all;
	*last = batch * (before + weight_of(dealing, replicas[index])) / all;
}

uint64_t dealing_least(const struct dealing *dealing, uint64_t batch)
{
	uint64_t least = UINT64_MAX, all = 0;

	for (uint32_t i = 0; i < dealing->mesh.size[MESH_DP]; i++) {
		uint64_t weight = weight_of(dealing, i);
		least = weight < least ? weight : least;
		all += weight;
	}
	assert(all > 0);
	return batch * least / all; /* of whole numbers, so no part is less than it rounded down */
}
