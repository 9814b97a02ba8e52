/* Bugs planted on purpose (plant.c). */
#ifndef TR_TESTS_SIM_PLANT_H
#define TR_TESTS_SIM_PLANT_H

#include <stdbool.h>
#include <stddef.h>

struct sim;
struct sim_message;
struct group_event;

enum sim_plant {
	PLANT_NONE,
	PLANT_CORRUPT,    /* a result is changed after the vote: I1 */
	PLANT_TWICE,      /* a sum counts a contributor twice: I2 */
	PLANT_FORGET,     /* a segment is lost without a word: I3 */
	PLANT_HIDE,       /* a mismatch is noticed and nobody is told: I4 */
	PLANT_ARRIVAL,    /* deterministic: members add in another order: I5 */
	PLANT_APPLY,      /* a worker applies a round that was abandoned: I6 */
	PLANT_STALE_VIEW, /* an engine takes an older view: I6 */
	PLANT_LATE_STATE, /* a donor serves the state after the wrong round: I7 */
	PLANT_LANDING, /* the rest of a frame goes where its first half went, whoever has that memory now: I2 */
	PLANT_FLAP, /* a member says with every heartbeat that its links are lost, and they are not: I8 */
	PLANT_UNREAD,    /* reports do not say that a result was read: I9 */
	PLANT_DEAF,      /* nobody hears what others have submitted: I3 */
	PLANT_UNCOUNTED, /* a member's vote leaves out what its caller took back: it fails */
	PLANT_REUSED,    /* a member forgets with each view which tags were taken back: it fails */
	PLANT_RUSH, /* a member sends more of an op than its receiver keeps before it has submitted it: I10 */
	PLANT_SPOILT, /* a joiner takes a damaged piece of its state for what the others have: I7 */
	PLANT_COUNT
};

enum sim_plant plant_parse(const char *name); /* PLANT_COUNT: no such */
const char *plant_name(enum sim_plant plant);
void plant_message(struct sim *sim, unsigned to, struct sim_message *message);
void plant_heartbeat(struct sim *sim, unsigned node);
size_t plant_ahead(const struct sim *sim, unsigned node); /* group_core_options */
void plant_step(struct sim *sim, unsigned node, const struct group_event *event);
bool plant_forgets(struct sim *sim, const struct sim_message *message);

#endif
