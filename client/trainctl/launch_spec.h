/* What `launch` submits, from its arguments. */
#ifndef TR_CLIENT_TRAINCTL_LAUNCH_SPEC_H
#define TR_CLIENT_TRAINCTL_LAUNCH_SPEC_H

#include "client/trainctl/args.h"
#include "traind/v1/trainer.pb-c.h"

/* A validated spec, or one line for the user. Free with free_unpacked. */
tr_status launch_spec_read(const struct args *args, Traind__V1__JobSpec **spec,
    struct tr_error *error);

#endif
