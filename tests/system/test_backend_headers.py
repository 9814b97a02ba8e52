"""The few names of NCCL and of the CUDA runtime that collectives/backend/nccl_abi.h declares by itself, against the real headers:
values, layouts, and the type of every function. Looks in NCCL_INCLUDE, in the usual folders and in wheels of this Python."""
import os
import pathlib
import subprocess
import sys

import pytest

from stubs import ROOT

SOURCE = """
#define NCCL_ABI_VERIFY
#include "collectives/backend/nccl_abi.h"
#define SAME(result, name, parameters) \
	_Static_assert(__builtin_types_compatible_p(result(*) parameters, __typeof__(&name)), #name);
NCCL_CALLS(SAME)
CUDA_CALLS(SAME)
#define VALUE(ours, theirs) _Static_assert((int)ours == (int)theirs, #theirs);
VALUE(NCCL_OK, ncclSuccess) VALUE(NCCL_IN_PROGRESS, ncclInProgress) VALUE(NCCL_INVALID_ARGUMENT, ncclInvalidArgument) VALUE(6, ncclRemoteError)
VALUE(NCCL_UINT8, ncclUint8) VALUE(NCCL_INT32, ncclInt32) VALUE(NCCL_INT64, ncclInt64) VALUE(NCCL_FLOAT16, ncclFloat16)
VALUE(NCCL_FLOAT32, ncclFloat32) VALUE(NCCL_FLOAT64, ncclFloat64) VALUE(NCCL_BFLOAT16, ncclBfloat16)
VALUE(NCCL_SUM, ncclSum) VALUE(NCCL_PROD, ncclProd) VALUE(NCCL_MAX, ncclMax) VALUE(NCCL_MIN, ncclMin)
VALUE(CUDA_OK, cudaSuccess) VALUE(CUDA_NOT_READY, cudaErrorNotReady)
VALUE(CUDA_HOST_TO_DEVICE, cudaMemcpyHostToDevice) VALUE(CUDA_DEVICE_TO_HOST, cudaMemcpyDeviceToHost)
VALUE(CUDA_DEVICE_TO_DEVICE, cudaMemcpyDeviceToDevice) VALUE(CUDA_STREAM_NON_BLOCKING, cudaStreamNonBlocking) VALUE(CUDA_EVENT_DISABLE_TIMING, cudaEventDisableTiming)
VALUE(CUDA_HOST_ALLOC_DEFAULT, cudaHostAllocDefault) VALUE(CUDA_HOST_REGISTER_DEFAULT, cudaHostRegisterDefault)
VALUE(sizeof(nccl_id), 128) VALUE(sizeof(nccl_result), sizeof(int)) VALUE(sizeof(nccl_dtype), sizeof(int))
VALUE(sizeof(nccl_reduce), sizeof(int)) VALUE(sizeof(cuda_error), sizeof(int)) VALUE(sizeof(cuda_copy), sizeof(int))
#define FIELD(name) VALUE(offsetof(struct nccl_config, name), offsetof(ncclConfig_t, name)) \
	VALUE(sizeof(((struct nccl_config *)0)->name), sizeof(((ncclConfig_t *)0)->name))
FIELD(size) FIELD(magic) FIELD(version) FIELD(blocking)
_Static_assert(NCCL_CONFIG_MAGIC == NCCL_API_MAGIC && NCCL_CONFIG_VERSION == NCCL_VERSION(2, 14, 0), "config");
"""


def folder_with(header, variable, usual):
    candidates = [os.environ[variable]] if variable in os.environ else []
    candidates += usual + [f"{base}/nvidia/{part}/include" for base in sys.path for part in ("nccl", "cu13", "cuda_runtime")]
    return next((folder for folder in candidates if (pathlib.Path(folder) / header).exists()), None)


def test_our_declarations_are_theirs(tmp_path):
    nccl = folder_with("nccl.h", "NCCL_INCLUDE", ["/usr/include", "/usr/local/include"])
    cuda = folder_with("cuda_runtime_api.h", "CUDA_INCLUDE", ["/usr/local/cuda/include", "/usr/include"])
    if nccl is None or cuda is None:
        pytest.skip(f"no {'nccl.h (NCCL_INCLUDE says where)' if nccl is None else 'CUDA headers (CUDA_INCLUDE says where)'}")
    source = tmp_path / "verify.c"
    source.write_text(SOURCE)
    done = subprocess.run(["gcc", "-std=gnu11", "-fsyntax-only", "-Werror", f"-I{ROOT}", "-isystem", nccl, "-isystem", cuda, source],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
