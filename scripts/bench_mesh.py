#!/usr/bin/env python3
"""What splitting a model over two workers costs: two workers of one thread each (data, tensor or pipeline parallel) against one worker
of two threads, same model, same global batch, same files. Real daemons; the kinds of job take turns (forwards, then backwards), and the
ratios are those of one turn. Times are those in the jobs' metrics.jsonl, from one step to another far behind it. The time needs two free
cores; the CPU a step is nearly the same beside other work.

	build/venv/bin/python scripts/bench_mesh.py [--build DIR] [--turns N] [--steps N] [--case WORD] [--kind WORD] [--apart]
"""
import argparse
import os
import pathlib
import statistics
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
WARM_STEPS = 4
ALONE = "one worker of two threads"
# what mesh.* says; batch and micro-batch are the case's
KINDS = {
    ALONE: {"threads": 2},
    "dp 2": {"threads": 1},
    "tp 2": {"threads": 1, "tp": 2},
    "pp 2": {"threads": 1, "pp": 2},
}
# name: model, tokens a step, sequences of a micro-batch, steps measured
CASES = {
    "4 layers, 128 wide, context 128": ({"preset": "gpt2", "layers": 4, "width": 128, "heads": 4, "context": 128}, 4096, 2, 60),
    "4 layers, 128 wide, context 128, large micro-batches": ({"preset": "gpt2", "layers": 4, "width": 128, "heads": 4, "context": 128}, 4096, 16, 60),
    "12 layers, 256 wide, context 256": ({"preset": "gpt2", "layers": 12, "width": 256, "heads": 8, "context": 256}, 8192, 2, 6),
}


def step_ms(cluster, folder, case, kind, apart, steps):
    """(wall, CPU) milliseconds a step, over so many steps after the first WARM_STEPS. CPU: of workers and traind."""
    model, batch_tokens, micro, _ = CASES[case]
    spec = job_spec(folder, 1, 1, 10 * (WARM_STEPS + steps), batch_tokens)
    spec.name = "bench-" + kind.replace(" ", "-")
    spec.train.model.MergeFrom(pb.Model(**model))
    spec.train.optimizer.micro_sequences = micro
    workers = 1 if kind == ALONE else 2
    layout = {"nodes": workers} if apart else {"nodes": 1, "workers_per_node": workers}
    spec.mesh.MergeFrom(pb.Mesh(**layout, **KINDS[kind]))
    job = cluster.submit(spec)
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
    return f"{statistics.median(values):.1f} {unit} ({min(values):.1f} to {max(values):.1f})"


def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=ROOT / "build")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=0, help="of each job; 0: what the case has")
    parser.add_argument("--case", default="", help="only cases with this in their name")
    parser.add_argument("--kind", default="", help="only kinds with this in their name, beside one worker")
    parser.add_argument("--apart", action="store_true", help="workers on a node each, which talk over TCP, instead of one node's two slots")
    return parser.parse_args()


def measure(cluster, folder, case, options):
    kinds = [kind for kind in KINDS if kind == ALONE or options.kind in kind]
    steps = options.steps or CASES[case][3]
    took = {kind: [] for kind in kinds}
    for turn in range(options.turns):
        for kind in kinds[::-1 if turn % 2 else 1]:
            took[kind].append(step_ms(cluster, folder / f"{len(case)}-{turn}-{kind.replace(' ', '')}", case, kind, options.apart, steps))
    print(f"{case}: {CASES[case][1]} tokens a step in all kinds, micro-batches of {CASES[case][2]}; {steps} steps of each job after the first "
          f"{WARM_STEPS}; medians of {options.turns} jobs (least to most)")
    for kind, values in took.items():
        wall, cpu = zip(*values)
        print(f"  {kind}: {described(wall, 'ms a step')}, {described(cpu, 'ms of CPU')}")
    for kind in kinds[1:]:
        for index, what in enumerate(("tokens a second", "by CPU, of workers and traind")):
            ratios = [alone[index] / split[index] for alone, split in zip(took[ALONE], took[kind])]
            print(f"  {kind} beside one worker, {what}: {100 * statistics.median(ratios):.1f} % (median of {len(ratios)} turns, "
                  f"{100 * min(ratios):.1f} to {100 * max(ratios):.1f})")


def main(options, folder):
    nodes = {"nodes": 2} if options.apart else {"nodes": 1, "slots": 2}
    where = "a node each" if options.apart else "two slots of one node"
    print(f"two workers ({where}) beside one; {os.cpu_count()} cores")
    with Cluster(folder / "cluster", **nodes) as cluster:
        for case in CASES:
            if options.case in case:
                measure(cluster, folder, case, options)


if __name__ == "__main__":
    OPTIONS = parsed()
    os.environ["TRAIND_BUILD"] = str(OPTIONS.build)  # for what is imported now
    from bench_cluster import Cluster, cpu_s, job_spec, pb, rows, wait_step
    with tempfile.TemporaryDirectory(prefix="traind-bench-") as made:
        main(OPTIONS, pathlib.Path(made))
