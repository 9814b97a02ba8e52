#!/usr/bin/env python3
"""Measures what traind costs around the training: time from `trainctl launch -n 4 -- true` to its result beside mpirun and
torch.distributed.run, memory of idle daemons, and CPU of traind per training step. Prints figures and ratios of one run."""
import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BATCH_TOKENS = 2048  # about ten steps a second on two cores
WARM_STEPS = 5


def median_ms(argv, times):
    """Median wall time of a command, after one run that warms the caches; None if it fails."""
    taken = []
    for _ in range(times + 1):
        began = time.perf_counter()
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
        taken.append((time.perf_counter() - began) * 1e3)
        if done.returncode != 0:
            print(f"  {' '.join(map(str, argv[:4]))}...: exit code {done.returncode}: {done.stderr[-200:].decode()}")
            return None
    return statistics.median(taken[1:])


def compare(name, taken, ours):
    if taken is not None:
        print(f"launch: {name}: {taken:.1f} ms, {taken / ours:.1f} times as long")


def launch(cluster, times):
    trainctl = [str(BIN / "trainctl"), "--address", cluster.memberd.address, "launch", "-n", "4", "--", "true"]
    ours = median_ms(trainctl, times)
    if ours is None:
        return
    print(f"launch: trainctl launch -n 4 -- true: {ours:.1f} ms (median of {times})")
    if shutil.which("mpirun"):
        mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4", "true"]
        compare("mpirun -n 4 true", median_ms(mpirun, times), ours)
    else:
        print("launch: mpirun is not installed")
    if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", "--no-python", "true"]
        compare("torch.distributed.run, 4 x true", median_ms(torchrun, 2), ours)
    else:
        print("launch: PyTorch is not installed: `make bench TORCH=1` compares")


def idle_memory(cluster):
    time.sleep(2)  # after the start's own work
    for daemon, name in ((cluster.memberd, "memberd"), (cluster.nodes[0], "traind")):
        print(f"idle RSS: {name}: {daemon.rss_kib() / 1024:.1f} MiB")


def idle_cpu(cluster, seconds=5.0):
    daemons = [cluster.memberd, *cluster.nodes]
    before = [cpu_s(daemon.pid) for daemon in daemons]
    time.sleep(seconds)
    used = [100 * (cpu_s(daemon.pid) - was) / seconds for daemon, was in zip(daemons, before)]
    print(f"idle CPU: memberd {used[0]:.3f} %, traind {max(used[1:]):.3f} % of a core")


def cpu_per_step(cluster, folder, steps):
    """CPU of the busiest traind (its own threads, no workers) per step of the quickstart's model on two nodes."""
    job = cluster.submit(job_spec(folder / "run", 2, 1, 10 * (WARM_STEPS + steps), BATCH_TOKENS))
    first = wait_step(cluster, job, folder / "run", WARM_STEPS)
    before, began = [cpu_s(node.pid) for node in cluster.nodes], time.monotonic()
    last = wait_step(cluster, job, folder / "run", first + steps)
    after, took = [cpu_s(node.pid) for node in cluster.nodes], time.monotonic() - began
    per_step = max(b - a for a, b in zip(before, after)) / (last - first)
    rate = (last - first) / took
    print(f"traind CPU: {100 * per_step * rate:.2f} % of a core at {rate:.1f} steps/s, all of its threads, heartbeats included: "
          f"{per_step * 1e3:.2f} ms a step ({MODEL}, 2 nodes, {GRADIENT_MB} MB of gradients, {last - first} steps)")
    cluster.api().CancelJob(pb.CancelJobRequest(job_id=job))
    cluster.wait_job(job, "CANCELLED")


def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=ROOT / "build")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100)
    return parser.parse_args()


def main(options, folder):
    with Cluster(folder / "launch", nodes=1, slots=4) as cluster:
        idle_memory(cluster)
        idle_cpu(cluster)
        launch(cluster, options.times)
    with Cluster(folder / "steps", nodes=2) as cluster:
        cpu_per_step(cluster, folder, options.steps)


if __name__ == "__main__":
    OPTIONS = parsed()
    os.environ["TRAIND_BUILD"] = str(OPTIONS.build)  # for what is imported now
    from bench_cluster import BIN, GRADIENT_MB, MODEL, Cluster, cpu_s, job_spec, pb, wait_step
    with tempfile.TemporaryDirectory(prefix="traind-bench-") as made:
        main(OPTIONS, pathlib.Path(made))
