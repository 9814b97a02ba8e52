/* Peers whose outer state differs, found at a merge and put right in its round (parity.h). Not for others than sync.c. */
#ifndef TR_COLLECTIVES_SYNC_DRIFT_H
#define TR_COLLECTIVES_SYNC_DRIFT_H

#include "collectives/sync/sync_internal.h"

tr_status drift_create(struct tr_sync *s, struct tr_error *error);
void drift_destroy(struct tr_sync *s);

/* Between the round's ops and its commit: hands over what peers compare; waits for it and all that it calls for. A movement that began at wrong outer
 * parameters, or in HDET was made at a wrong learning rate, counts nothing: then s->result is what the others' come to. */
tr_status drift_submit(struct tr_sync *s, struct tr_error *error);
tr_status drift_settle(struct tr_sync *s, struct tr_error *error);

/* After the commit, before the outer step: this peer's state is right again, s->event says what was wrong with whom. */
void drift_mend(struct tr_sync *s);

/* Before the outer step: what changed in memory since it was compared (inner steps go on meanwhile) makes a wrong one, which is for others to put right at the next merge. */
void drift_look_again(struct tr_sync *s);
/* After the outer step: what this peer knows of its own to be right. */
void drift_remember(struct tr_sync *s);
/* Whether the outer parameters of all fragments, the momentum of the one under way, are what this peer wrote; where that is not known, too. Reads all of them; the log names what is not. */
bool drift_holds_outer(const struct tr_sync *s);
bool drift_holds_momentum(const struct tr_sync *s);
/* This peer's movement does not count, and it goes on as one that has just joined: to be called when it is known, at the take or after the commit. Its parameters are the caller's to set. */
void drift_start_afresh(struct tr_sync *s);
/* Before training: the outer parameters will not change until then; or what is not known. */
void drift_remember_first(struct tr_sync *s);

#endif
