/* launch's own cluster: started when none is running, ended with the job. */
#ifndef TR_CLIENT_TRAINCTL_EMBEDDED_H
#define TR_CLIENT_TRAINCTL_EMBEDDED_H

#include "client/trainctl/config.h"
#include "client/trainctl/rpc.h"

/* Starts it (or finds that another trainctl just did: then *started is false) and sets config->address. On an error nothing runs that did not before, and *started is false. */
tr_status embedded_start(struct config *config, size_t nodes, unsigned slots, bool *started,
    struct tr_error *error);
/* Ends it, unless it has jobs that have not ended, or does not say whether it has (rpc NULL: it cannot be asked): then it stays, and stderr says so. One that
 * was ended meanwhile, or has another memberd than config->address, is not ours any more. */
tr_status embedded_stop(struct config *config, struct rpc *rpc, struct tr_error *error);

#endif
