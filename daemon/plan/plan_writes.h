/* What of checkpoints a job writes, and so who writes them has to have room for. */
#ifndef TR_DAEMON_PLAN_PLAN_WRITES_H
#define TR_DAEMON_PLAN_PLAN_WRITES_H

#include "traind/v1/trainer.pb-c.h"

enum plan_writes {
	PLAN_WRITES_NOTHING, /* or not counted */
	PLAN_WRITES_LAST,
	PLAN_WRITES_MEANWHILE, /* while training goes on, too */
	PLAN_WRITES_SHARDS /* each worker its own, of which it has a copy (checkpoint.sharded) */
};

/* checkpoint NULL: a job that says nothing of it. */
enum plan_writes plan_writes_of(const Traind__V1__Checkpoint *checkpoint);

#endif
