/* Loads NCCL and the CUDA runtime at run time, once per process. */
#ifndef TR_COLLECTIVES_BACKEND_NCCL_LOAD_H
#define TR_COLLECTIVES_BACKEND_NCCL_LOAD_H

#include "collectives/backend/nccl_abi.h"
#include "common/error.h"

/* NULL: the usual names. TR_EUNAVAILABLE: one line that names the missing library, function, version or device. `calls` is
 * written on success only and valid for ever; libraries that another part of the process has loaded are shared with it. */
tr_status nccl_load(const char *nccl_library, const char *cuda_library, struct nccl_calls *calls,
    struct tr_error *error);

#endif
