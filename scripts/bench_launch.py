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
sys.path.insert(0, str(ROOT / "tests" / "system"))
TEXT = "/usr/share/doc/jargon-text/jargon.txt.gz"


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


def launch(cluster, times):
    trainctl = [str(BIN / "trainctl"), "--address", cluster.memberd.address, "launch", "-n", "4", "--", "true"]
    rows = [("trainctl launch -n 4 -- true", median_ms(trainctl, times))]
    if shutil.which("mpirun"):
        mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4", "true"]
        rows.append(("mpirun -n 4 true", median_ms(mpirun, times)))
    torch = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0
    if torch:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", "--no-python", "true"]
        rows.append(("torch.distributed.run, 4 x true", median_ms(torchrun, 2)))
    ours = rows[0][1]
    for name, taken in rows:
        if taken is not None and ours is not None:
            print(f"launch: {name}: {taken:.1f} ms, {taken / ours:.2f} x trainctl")


def idle_memory(cluster):
    time.sleep(2)  # after the start's own work
    for daemon, name in ((cluster.memberd, "memberd"), (cluster.nodes[0], "traind")):
        print(f"idle RSS: {name}: {daemon.rss_kib() / 1024:.1f} MiB")


def idle_cpu(cluster, seconds=5.0):
    daemons = [cluster.memberd, *cluster.nodes]
    before = [daemon.cpu_s() for daemon in daemons]
    time.sleep(seconds)
    used = [100 * (daemon.cpu_s() - was) / seconds for daemon, was in zip(daemons, before)]
    print(f"idle CPU: memberd {used[0]:.2f} %, traind {max(used[1:]):.2f} % of a core")


def cpu_per_step(cluster, folder, steps):
    """CPU of the busiest traind (its own threads, no workers) per step of the quickstart's model on two nodes."""
    spec = pb.JobSpec(name="bench")
    spec.train.model.MergeFrom(pb.Model(preset="gpt2", layers=4, width=128, heads=4, context=128, vocab="bytes"))
    spec.train.data.MergeFrom(pb.Data(text=[TEXT], validation=0.05))
    spec.train.optimizer.MergeFrom(pb.Optimizer(steps=steps, batch_tokens=8192, lr=1e-3, warmup=10, clip=1.0, seed=1))
    spec.train.checkpoint.MergeFrom(pb.Checkpoint(dir=str(folder / "checkpoints"), keep=1))
    spec.mesh.MergeFrom(pb.Mesh(nodes=2, threads=1))
    job = cluster.submit(spec)
    wait_for(lambda: cluster.job(job).progress.step >= 2, "the first steps")
    first, before, began = cluster.job(job).progress.step, [n.cpu_s() for n in cluster.nodes], time.monotonic()
    wait_for(lambda: cluster.job(job).progress.step >= steps - 1, "the last steps", 300)
    last, after, took = cluster.job(job).progress.step, [n.cpu_s() for n in cluster.nodes], time.monotonic() - began
    per_step = max(b - a for a, b in zip(before, after)) / (last - first)
    print(f"traind CPU per step: {per_step * 1e3:.3f} ms = {per_step * 10 * 100:.2f} % of a core at 10 steps/s "
          f"({(last - first) / took:.1f} steps/s here, 2 nodes, 3.2 MB of gradients)")
    cluster.wait_job(job, "DONE")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="traind-bench-"))
    with Cluster(folder / "launch", nodes=1, slots=4) as cluster:
        idle_memory(cluster)
        idle_cpu(cluster)
        launch(cluster, options.times)
    with Cluster(folder / "steps", nodes=2) as cluster:
        cpu_per_step(cluster, folder, options.steps)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    os.environ.setdefault("TRAIND_BUILD", str(ROOT / "build"))
    from harness import BIN, Cluster, wait_for
    from stubs import pb
    main()
