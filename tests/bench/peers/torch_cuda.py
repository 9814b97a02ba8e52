#!/usr/bin/env python3
"""torch.distributed's all_reduce of a CUDA tensor, for scripts/bench_nccl.py: as tests/bench/domainbench.c measures.

    python3 tests/bench/peers/torch_cuda.py BACKEND RANK WORLD MEETING_FILE BYTES ROUNDS
"""
import json
import statistics
import sys
import time

import torch
import torch.distributed

WARM_ROUNDS = 2
backend, rank, world, meeting, size, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]), int(sys.argv[6])
torch.cuda.set_device(rank if torch.cuda.device_count() >= world else 0)
torch.distributed.init_process_group(backend, init_method=f"file://{meeting}", rank=rank, world_size=world)
source = (1 + torch.arange(size // 4, device="cuda") % 7).float()
times = []
for _ in range(rounds + WARM_ROUNDS):
    tensor = source.clone()
    torch.cuda.synchronize()
    start = time.monotonic()
    torch.distributed.all_reduce(tensor)
    torch.cuda.synchronize()
    times.append(1e3 * (time.monotonic() - start))
if rank == 0:
    print(json.dumps({"ms": statistics.median(times[WARM_ROUNDS:]), "members": tensor[0].item()}), flush=True)
torch.distributed.destroy_process_group()
