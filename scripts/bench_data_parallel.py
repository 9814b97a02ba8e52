#!/usr/bin/env python3
"""What data parallelism costs: two workers of one thread against one worker of two threads, same model, same global batch. Real
daemons; the two kinds of job take turns, and the ratio of each pair is taken. Needs two free cores: with fewer the figure means nothing.

	build/venv/bin/python scripts/bench_data_parallel.py [--build DIR] [--pairs N] [--steps N]
"""
import argparse
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "system"))
TEXT = "/usr/share/doc/jargon-text/jargon.txt.gz"
WARM_STEPS = 5


def steps_per_s(cluster, folder, nodes, threads, steps):
    """Of the quickstart's model, from the first steps to the last one, by the job's own progress."""
    spec = pb.JobSpec(name=f"bench-{nodes}x{threads}")
    spec.train.model.MergeFrom(pb.Model(preset="gpt2", layers=4, width=128, heads=4, context=128, vocab="bytes"))
    spec.train.data.MergeFrom(pb.Data(text=[TEXT]))
    spec.train.optimizer.MergeFrom(pb.Optimizer(steps=steps, batch_tokens=4096, micro_sequences=4, lr=1e-3, clip=1.0, seed=1))
    spec.train.checkpoint.MergeFrom(pb.Checkpoint(dir=str(folder / "checkpoints"), keep=1))
    spec.mesh.MergeFrom(pb.Mesh(nodes=nodes, threads=threads))
    job = cluster.submit(spec)
    wait_for(lambda: cluster.job(job).progress.step >= WARM_STEPS, "the first steps")
    first, began = cluster.job(job).progress.step, time.monotonic()
    wait_for(lambda: cluster.job(job).progress.step >= steps, "the last step", 300)
    took = time.monotonic() - began
    cluster.wait_job(job, "DONE")
    return (steps - first) / took


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="traind-bench-"))
    one, two = [], []
    with Cluster(folder / "cluster", nodes=2) as cluster:
        for _ in range(options.pairs):
            one.append(steps_per_s(cluster, folder, 1, 2, options.steps))
            two.append(steps_per_s(cluster, folder, 2, 1, options.steps))
    shutil.rmtree(folder, ignore_errors=True)
    overhead = statistics.median(a / b - 1 for a, b in zip(one, two))
    print(f"data parallel: one worker of two threads {statistics.median(one):.2f} steps/s, two workers of one thread "
          f"{statistics.median(two):.2f}: overhead {100 * overhead:.1f} % ({os.cpu_count()} cores)")


if __name__ == "__main__":
    # Before harness, which looks for the programs when it is imported.
    os.environ.setdefault("TRAIND_BUILD", str(ROOT / "build"))
    from harness import Cluster, wait_for
    from stubs import pb
    main()
