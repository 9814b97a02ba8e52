#!/usr/bin/env python3
"""What data parallelism costs: two workers of one thread against one worker of two threads, same model, same global batch, same
files. Real daemons; the two kinds of job take turns (A B, B A, A B, ...), and the ratio of each pair is taken. Times are those
in the jobs' metrics.jsonl, from one step to another far behind it. The time needs two free cores; the CPU a step is nearly the same
beside other work.

	build/venv/bin/python scripts/bench_data_parallel.py [--build DIR] [--pairs N] [--steps N]
"""
import argparse
import os
import pathlib
import statistics
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
WARM_STEPS = 20
BATCH_TOKENS = 4096
KINDS = {"one worker of two threads": (1, 2), "two workers of one thread": (2, 1)}


def step_ms(cluster, folder, nodes, threads, steps):
    """(wall, CPU) milliseconds a step, over so many steps after the first WARM_STEPS. CPU: of workers and traind."""
    job = cluster.submit(job_spec(folder, nodes, threads, 10 * (WARM_STEPS + steps), BATCH_TOKENS))
    first = wait_step(cluster, job, folder, WARM_STEPS)
    pids = [node.pid for node in cluster.nodes] + [peer.pid for peer in cluster.job(job).peers]
    before = sum(map(cpu_s, pids))
    last = wait_step(cluster, job, folder, first + steps)
    used = sum(map(cpu_s, pids)) - before
    cluster.api().CancelJob(pb.CancelJobRequest(job_id=job))
    cluster.wait_job(job, "CANCELLED")
    at = dict(rows(folder))
    return 1e3 * (at[last] - at[first]) / (last - first), 1e3 * used / (last - first)


def described(values, unit):
    return f"{statistics.median(values):.2f} {unit} ({min(values):.2f} to {max(values):.2f})"


def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=ROOT / "build")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=150)
    return parser.parse_args()


def main(options, folder):
    took = {kind: [] for kind in KINDS}
    with Cluster(folder / "cluster", nodes=2) as cluster:
        for pair in range(options.pairs):
            for kind in list(KINDS)[::-1 if pair % 2 else 1]:
                took[kind].append(step_ms(cluster, folder / f"{pair}-{KINDS[kind][0]}", *KINDS[kind], options.steps))
    print(f"data parallel: {MODEL}, {BATCH_TOKENS} tokens a step in both kinds; {options.steps} steps of each job after the first "
          f"{WARM_STEPS}; medians of {options.pairs} jobs (least to most)")
    for kind, values in took.items():
        wall, cpu = zip(*values)
        print(f"  {kind}: {described(wall, 'ms a step')}, {described(cpu, 'ms of CPU')}")
    for index, what in enumerate(("time", "CPU, of workers and traind,")):
        more = [100 * (two[index] / one[index] - 1) for one, two in zip(*took.values())]
        print(f"  two workers beside one, {what} a step: {statistics.median(more):+.1f} % (median of {len(more)} pairs, "
              f"{min(more):+.1f} to {max(more):+.1f}; {os.cpu_count()} cores)")


if __name__ == "__main__":
    OPTIONS = parsed()
    os.environ["TRAIND_BUILD"] = str(OPTIONS.build)  # for what is imported now
    from bench_cluster import MODEL, Cluster, cpu_s, job_spec, pb, rows, wait_step
    with tempfile.TemporaryDirectory(prefix="traind-bench-") as made:
        main(OPTIONS, pathlib.Path(made))
