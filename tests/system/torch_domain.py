"""One member of a domain of NCCL inside a program of PyTorch's, for test_backend_nccl.py: tensors of CUDA are summed by the libraries that
PyTorch has loaded, on its current stream, without waiting for what that holds.

    python3 tests/system/torch_domain.py LIBTRAINCOLL RANK SIZE ADDRESS
"""
import ctypes
import json
import sys

import torch

ALL_REDUCE, F32, BF16, SUM = 0, 1, 6, 1


class Options(ctypes.Structure):
    """struct tr_domain_options"""
    _fields_ = [("size_of", ctypes.c_size_t), ("backend", ctypes.c_char_p), ("address", ctypes.c_char_p), ("rank", ctypes.c_uint),
                ("size", ctypes.c_uint), ("policy", ctypes.c_int), ("deadline_ms", ctypes.c_uint32), ("wait_ms", ctypes.c_uint32),
                ("device", ctypes.c_int), ("stream", ctypes.c_void_p), ("nccl_library", ctypes.c_char_p), ("cuda_library", ctypes.c_char_p)]


class Op(ctypes.Structure):
    """struct tr_domain_op"""
    _fields_ = [("size_of", ctypes.c_size_t), ("collective", ctypes.c_int), ("dtype", ctypes.c_int), ("reduce", ctypes.c_int),
                ("unused", ctypes.c_uint), ("input", ctypes.c_void_p), ("output", ctypes.c_void_p), ("count", ctypes.c_size_t)]


class Error(ctypes.Structure):
    """struct tr_error, and room for more"""
    _fields_ = [("status", ctypes.c_int), ("text", ctypes.c_char * 4096)]


def main(path, rank, size, address):
    library, error, domain = ctypes.CDLL(path), Error(), ctypes.c_void_p()
    torch.cuda.set_device(rank if torch.cuda.device_count() >= size else 0)
    torch.cuda.init()
    stream = torch.cuda.Stream()
    options = Options(ctypes.sizeof(Options), b"nccl", address.encode(), rank, size, 0, 30_000, 60_000, torch.cuda.current_device(),
                      stream.cuda_stream, None, None)
    if library.tr_domain_open(ctypes.byref(options), ctypes.byref(domain), ctypes.byref(error)) != 0:
        sys.exit(error.text.decode())
    runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")  # PyTorch's
    wrong = left_behind = 0
    with torch.cuda.stream(stream):
        for dtype, ours in ((torch.float32, F32), (torch.bfloat16, BF16)):
            # what the tensor is comes late: the sum must wait for it
            slow = torch.randn(4096, 4096, device="cuda")
            for _ in range(20):
                slow = slow @ slow * 1e-3
            tensor = (torch.arange(1_000_003, device="cuda") % 50 + rank + 0 * slow.sum().nan_to_num(0, 0, 0)).to(dtype)
            op = Op(ctypes.sizeof(Op), ALL_REDUCE, ours, SUM, 0, tensor.data_ptr(), tensor.data_ptr(), tensor.numel())
            if library.tr_domain_inside(domain, ctypes.byref(op), ctypes.byref(error)) != 0:
                sys.exit(error.text.decode())
            left_behind += runtime.cudaGetLastError() != 0
            right = size * (torch.arange(1_000_003, device="cuda") % 50) + size * (size - 1) // 2
            wrong += int((tensor.float() != right.float()).sum())
    library.tr_domain_close(domain)
    with open("/proc/self/maps") as maps:
        loaded = sorted({line.split()[-1] for line in maps if "libnccl" in line or "libcudart" in line})
    print(json.dumps({"wrong": wrong, "left_behind": left_behind, "loaded": loaded, "nccl": ".".join(map(str, torch.cuda.nccl.version()))}))


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
