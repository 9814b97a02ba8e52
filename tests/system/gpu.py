"""What this machine has for NCCL: GPUs, libraries, and how several ranks share one GPU.

NCCL_LIBRARY and CUDA_LIBRARY say where libnccl.so.2 and libcudart are; else they are looked for in wheels of this Python and where the
dynamic linker looks. Several ranks on one GPU, which NCCL refuses, are possible in two ways: NCCL 2.30 and later are told so
("shared": the ranks speak through memory), and any NCCL takes processes that name different hosts for such ("sockets": over loopback).
"""
import ctypes
import functools
import os
import pathlib
import sys

WAYS = {
    "devices": lambda domain, rank: {},
    "shared": lambda domain, rank: {"NCCL_MULTI_RANK_GPU_ENABLE": "1"},
    "sockets": lambda domain, rank: {"NCCL_HOSTID": f"{domain}-{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_NET": "Socket"},
}


def candidates(variable, folders, names):
    if variable in os.environ:
        return [os.environ[variable]]
    in_wheels = [pathlib.Path(base) / "nvidia" / folder / "lib" / name for base in sys.path for folder in folders for name in names]
    return [str(path) for path in in_wheels if path.exists()] + list(names)


def first_that_loads(paths):
    why = None
    for path in paths:
        try:
            return path, ctypes.CDLL(path), None
        except OSError as error:
            why = why or str(error)
    return None, None, why


@functools.cache
def devices():
    """(how many GPUs, why none)"""
    _, cuda, why = first_that_loads(["libcuda.so.1"])
    if cuda is None:
        return 0, why
    count = ctypes.c_int(0)
    code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
    return count.value, f"the CUDA driver says {code}" if code else "the CUDA driver has no device"


@functools.cache
def libraries():
    """({variable: path}, NCCL's version, why none)"""
    cuda, _, why = first_that_loads(candidates("CUDA_LIBRARY", ["cu13", "cuda_runtime"], ["libcudart.so.13", "libcudart.so.12"]))
    if cuda is None:
        return {}, 0, why
    nccl, library, why = first_that_loads(candidates("NCCL_LIBRARY", ["nccl"], ["libnccl.so.2"]))
    if nccl is None:
        return {}, 0, why
    version = ctypes.c_int(0)
    library.ncclGetVersion(ctypes.byref(version))
    return {"CUDA_LIBRARY": cuda, "NCCL_LIBRARY": nccl}, version.value, None


def missing():
    """Why NCCL cannot run here; None: it can."""
    count, why = devices()
    return f"no GPU: {why}" if count == 0 else libraries()[2]


def ways(ranks):
    """How so many ranks can be placed here, the best first. One entry even where none can."""
    if missing() is not None:
        return ["devices"]
    if devices()[0] >= ranks:
        return ["devices"]
    return ["shared", "sockets"] if libraries()[1] >= 23000 else ["sockets"]
