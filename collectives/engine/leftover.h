/* What a worker left behind: the memory of its state, when it died in a round whose commit it had not been told, so that its
 * state is that after the round before (coll.h: state does not change between tr_round_begin and tr_round_commit). A worker that follows it on
 * the node declares the same state, says so to memberd (PeerReady.left_round), and when it is asked to begin with the state after
 * just that round it copies it here, once its donor's digests agree with it (state_receive.c).
 *
 * One is kept per (group, rank), TR_LEFTOVERS_MAX in all, until memberd says that the group is over, at most for
 * TR_LEFTOVER_KEEP_MS; pieces of memory without state are given back at once. It costs what the dead worker's state cost. Only of workers of jobs: who joined by itself comes back, if at all, in
 * another process's engine. Engine thread only.
 */
#ifndef TR_COLLECTIVES_ENGINE_LEFTOVER_H
#define TR_COLLECTIVES_ENGINE_LEFTOVER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>
#include <xxhash.h>

struct leftover;
struct engine;
struct member;

struct leftovers {
	struct leftover *first;
	uv_timer_t timer;
};

void leftovers_init(struct engine *engine);
void leftovers_stop(struct engine *engine); /* frees what nobody took */
/* Nobody will follow: frees the group's. A member that claimed one keeps it as long as it lives. */
void leftovers_drop_group(struct engine *engine, uint64_t group);

/* The member's worker is gone, its core does not know yet. True: its state is kept, or that which it had claimed and not
 * come to use. */
bool leftover_keep(struct member *member);
/* The member declared its state: the newest leftover of its group with the same names and sizes is its own from now on. */
void leftover_claim(struct member *member);
void leftover_drop(struct member *member); /* the claimed one, if there is one */

/* Of the claimed one. False: there is none. */
bool leftover_round(const struct member *member, uint64_t *round);
uint64_t leftover_bytes(const struct member *member);
void leftover_copy_begin(struct member *member);
/* At most TR_STATE_TURN_BYTES more into the worker's memory. True: all is there; the digests are of what was copied. */
bool leftover_copy(struct member *member);
const XXH128_hash_t *leftover_digests(const struct member *member);

#endif
