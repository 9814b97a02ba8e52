/* Whether a replica more has made steps shorter. What a join saves is reckoned at best (worthwhile.h: as if each replica did in proportion more); who has come may be slow, or far, and since all wait for each other steps then become
 * longer. So the first steps with it are held against those before, and if they are longer it is taken back: the replicas that there were go on alone, and its workers are spares until somebody comes or goes.
 * Nothing moves for that. Pure: all contributors of a round know the same.
 *
 *	trial_begin(&trial, &pace, &before);                 // committed: a step of more replicas, of the same peers
 *	trial_note(&trial, &pace, TRIAL_STEPS);               // every committed step after it
 *	if (trial_failed(&trial)) ...                         // the next table is ranks_next_at of trial.places
 *	trial_end(&trial);                                    // workers came or went, or the mesh is another one
 */
#ifndef TR_DAEMON_PLAN_TRIAL_H
#define TR_DAEMON_PLAN_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/plan/pace.h"
#include "daemon/plan/ranks.h"

/* That are looked at, behind those that a pace leaves out. */
#define TRIAL_STEPS 8u
/* The same where shares and layers follow speeds, which takes three looks of ten steps (balance.h): what they change begins the trial's steps anew. At most as many as a pace has. */
#define TRIAL_BALANCED_STEPS 30u
/* Steps are longer if they are so much longer than before: one look differs so much from the next. */
#define TRIAL_PERCENT 10

/* Common state of a group; zeros: nothing is tried. */
struct trial {
	uint64_t before_ns; /* of a step without what is tried */
	uint64_t longer_ns; /* they took so long with it, and it was taken back; 0: not */
	uint64_t places[RANKS_PLACES_WORDS]; /* of the replicas before */
};

/* `pace` is of steps before; if it knows none of so many replicas, nothing is tried. Where the last trial has seen no step yet, both are one. */
void trial_begin(struct trial *trial, const struct pace *pace, const struct ranks *before);
void trial_note(struct trial *trial, const struct pace *pace, uint64_t steps);
bool trial_failed(const struct trial *trial);
void trial_end(struct trial *trial);

#endif
