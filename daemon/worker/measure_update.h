/* What an update of the parameters costs on this machine, and an addition, for the planner (measure.h): one layer of the model with embedding and head is updated several times, the shortest counts; where memory is lacking, a part of it.
 *
 *	st = measure_update(pool, &config, stdout, &error);
 *	update 1.2e-09          seconds of one parameter
 *	add 2.5e-10             of adding one number to another
 */
#ifndef TR_DAEMON_WORKER_MEASURE_UPDATE_H
#define TR_DAEMON_WORKER_MEASURE_UPDATE_H

#include <stdio.h>

#include "common/error.h"
#include "daemon/plan/model_config.h"
#include "daemon/worker/pool.h"

/* Both lines go to `to`. beside: so many others do the same meanwhile. TR_EINVAL: no such model; TR_ENOMEM. */
tr_status measure_update(struct pool *pool, const struct model_config *config, unsigned beside,
    FILE *to, struct tr_error *error);

#endif
