#!/usr/bin/env python3
"""All-reduce of memory of the GPU between two processes, as two nodes with a GPU each have it: a traind domain of one (copied to the
host, the group's all-reduce, copied back; over TCP and over shared memory), PyTorch with gloo, and NCCL itself over sockets. Where there
is one GPU both use it. The contenders take turns; medians.

	python3 scripts/bench_nccl.py [--build DIR] [--turns N] [--only BYTES]

Needs a GPU; for PyTorch and NCCL a Python whose torch has CUDA (what is missing is said, and left out). NCCL_LIBRARY and CUDA_LIBRARY
as tests/system/gpu.py says.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZES = (4, 1 << 16, 1 << 20, 16 << 20, 64 << 20, 256 << 20)
PEERS = 2


def rounds_of(size):
    return 10 if size >= 64 << 20 else 30 if size > 1 << 20 else 300


def answers(processes):
    outputs = [process.communicate(timeout=120) for process in processes]
    for process, (_, said) in zip(processes, outputs):
        if process.returncode != 0:
            raise RuntimeError(said[-2000:])
    return next(json.loads(out.splitlines()[-1]) for out, _ in outputs if out.strip())


def started(command, environment):
    return subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, **environment})


def device_of(peer):
    return peer if gpu.devices()[0] >= PEERS else 0


def traind(cluster, transport, size):
    group = new_group()
    command = [ROOT / BUILD / "bin" / "domainbench", cluster.memberd.address, group, PEERS, transport, size, rounds_of(size)]
    return answers([started(command, {**gpu.libraries()[0], "DOMAIN_PLACE": f"0 1 @{group}-{peer} {device_of(peer)} 30000 60000"})
                    for peer in range(PEERS)])


def torch(cluster, backend, size):
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, ROOT / "tests" / "bench" / "peers" / "torch_cuda.py", backend]
        environment = gpu.WAYS["sockets"] if backend == "nccl" else lambda domain, rank: {"GLOO_SOCKET_IFNAME": "lo"}
        return answers([started([*command, peer, PEERS, f"{folder}/meet", size, rounds_of(size)], environment(0, peer)) for peer in range(PEERS)])


OURS = {
    "traind, TCP": (traind, "tcp"),
    "traind, shared memory": (traind, "auto"),
}
THEIRS = {
    "PyTorch gloo": (torch, "gloo"),
    "NCCL over sockets": (torch, "nccl"),
}


def torch_has_cuda():
    asked = subprocess.run([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"], capture_output=True)
    if asked.returncode != 0:
        print(f"{' and '.join(THEIRS)}: not measured: {sys.executable} has no PyTorch with CUDA")
    return asked.returncode == 0


def main():
    contenders = {**OURS, **THEIRS} if torch_has_cuda() else OURS
    with tempfile.TemporaryDirectory() as folder, Cluster(folder, nodes=0) as cluster:
        print(f"all-reduce, f32, sum, of the GPU's memory, {PEERS} processes on {min(PEERS, gpu.devices()[0])} GPU(s), NCCL {gpu.libraries()[1]}; "
              f"medians of {arguments.turns} turns, milliseconds (and times traind over TCP)")
        for size in SIZES:
            if arguments.only not in (None, size):
                continue
            times = {name: [] for name in contenders}
            for turn in range(arguments.turns):
                for name in list(contenders)[::1 - turn % 2 * 2]:
                    call, what = contenders[name]
                    answer = call(cluster, what, size)
                    assert answer["members"] == PEERS, (name, answer)
                    times[name].append(answer["ms"])
            medians = {name: statistics.median(values) for name, values in times.items()}
            ours = medians["traind, TCP"]
            print(f"{size:>10} bytes: " + ", ".join(f"{name} {ms:.3f} ({ms / ours:.2f}x)" for name, ms in medians.items()), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", type=int)
    arguments = parser.parse_args()
    os.environ.setdefault("TRAIND_BUILD", str(ROOT / arguments.build))
    sys.path.insert(0, str(ROOT / "tests" / "system"))
    import gpu
    from domains import new_group
    from harness import Cluster
    from stubs import BUILD
    if gpu.missing() is not None:
        print(f"not measured: {gpu.missing()}")
    else:
        main()
