"""An ordinary PyTorch script, written for torchrun: data-parallel training over gloo, nothing of ours in it."""
import json
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH, WIDTH = 5, 8, 16


def make_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 1)).double()


def train(model, rank, world):
    data = torch.Generator().manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        inputs = torch.randn(BATCH, WIDTH, generator=data, dtype=torch.float64)
        mine = inputs[rank * BATCH // world:(rank + 1) * BATCH // world]
        loss = (model(mine) - mine.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [value for parameter in model.parameters() for value in parameter.detach().flatten().tolist()]


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    trained = train(DistributedDataParallel(make_model()), dist.get_rank(), dist.get_world_size())
    alone = train(make_model(), 0, 1)
    print(json.dumps({"rank": dist.get_rank(), "world": dist.get_world_size(), "local": int(os.environ["LOCAL_RANK"]),
                      "difference": max(abs(a - b) for a, b in zip(trained, alone)), "first": trained[0].hex(),
                      "last": trained[-1].hex()}), flush=True)
    dist.destroy_process_group()
