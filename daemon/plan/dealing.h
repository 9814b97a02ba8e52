/* How the work of a step is dealt over a mesh: which part of the global batch each replica computes, and which layers each stage has. Pure.
 *
 * Shares are in proportion: of replicas that are there one with 3 computes three times as many sequences as one with 1, so that the batch stays whole whoever is missing. Every
 * replica sums over its sequences and the sum of all is divided once by the tokens of the batch, so a share changes no gradient but its rounding.
 *
 *	struct dealing dealing;
 *	dealing_of_job(spec->mesh, &dealing);
 *	dealing_share(&dealing, replicas, count, 1, batch, &first, &last);    // of the second of those replicas[count] that are there
 */
#ifndef TR_DAEMON_PLAN_DEALING_H
#define TR_DAEMON_PLAN_DEALING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "daemon/plan/mesh.h"
#include "traind/v1/trainer.pb-c.h"

/* The largest of a list of shares. */
#define DEALING_SHARE_MAX 65536

struct dealing {
	struct mesh mesh;
	uint32_t shares[TR_GROUP_PEERS_MAX]; /* by place along dp; all 0: equal ones */
	uint32_t
	    layers[TR_GROUP_PEERS_MAX]; /* of each pipeline rank; all 0: as job_mesh_stages deals them */
	uint32_t
	    chunks; /* of each stage, of shards that were made by it: other shares, by which there could be more, leave them as they are; 0: none were */
};

/* Of a validated section (NULL: one worker). */
void dealing_of_job(const Traind__V1__Mesh *mesh, struct dealing *dealing);
/* What of a dealing another mesh can have: shares if dp is as large, layers if pp is. */
void dealing_on(const struct dealing *dealing, const struct mesh *mesh, struct dealing *other);
bool dealing_equal(const struct dealing *a, const struct dealing *b);

bool dealing_is_even(const struct dealing *dealing); /* shares are equal */
/* [pp]; NULL: as job_mesh_stages deals them. */
const uint32_t *dealing_layers(const struct dealing *dealing);

/* The part [*first, *last) of a batch that the `index`-th of the replicas that are there computes: replicas[count], places along dp. All parts together are the batch. */
void dealing_share(const struct dealing *dealing, const uint32_t *replicas, uint32_t count,
    uint32_t index, uint64_t batch, uint64_t *first, uint64_t *last);
/* Fewest sequences of a replica, whoever is missing. */
uint64_t dealing_least(const struct dealing *dealing, uint64_t batch);

#endif
