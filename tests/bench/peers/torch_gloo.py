#!/usr/bin/env python3
"""torch.distributed's all_reduce, backend gloo, one thread a process, measured as collbench measures.

    LD_PRELOAD=build/bench/cubic_preload.so build/venv/bin/python tests/bench/peers/torch_gloo.py --world 4 --bytes 67108864
"""
import os
import tempfile

import torch
import torch.distributed

import peer

os.environ["GLOO_SOCKET_IFNAME"] = "lo"
meeting_point = tempfile.mktemp(prefix="torch_gloo-")


def body(rank, case, meet):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting_point}", rank=rank, world_size=case.world)
    return peer.measure(case, rank, meet, lambda array, slot: torch.distributed.all_reduce(torch.from_numpy(array)))


peer.run("PyTorch gloo", "gloo", body)
if os.path.exists(meeting_point):
    os.unlink(meeting_point)
