#!/usr/bin/env python3
"""How much longer a step takes in which a checkpoint begins, and the steps in which it is written: of one job, so that both kinds of step have the same machine. Real daemons; times are
`step_s` of the job's metrics.jsonl; all of it together is what those steps took longer that lie up to half way to the next checkpoint. A step takes in the state's copy if the round before it ended with a multiple of checkpoint.every. And the most that each worker had resident (VmHWM): one of them writes.

	build/venv/bin/python scripts/bench_checkpoint.py [--build DIR] [--case WORD] [--kind WORD] [--checkpoints N] [--sharded]
"""
import argparse
import os
import pathlib
import re
import statistics
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
WARM_STEPS = 10
# name: model, tokens a step, steps from one checkpoint to the next
CASES = {
    "4 layers, 128 wide": ({"preset": "gpt2", "layers": 4, "width": 128, "heads": 4, "context": 128}, 4096, 16),
    "12 layers, 256 wide": ({"preset": "gpt2", "layers": 12, "width": 256, "heads": 8, "context": 256}, 1024, 8),
}
KINDS = {"one worker": (1, {}), "dp 2": (2, {}), "tp 2": (2, {"tp": 2}), "pp 2": (2, {"pp": 2})}


def most_resident_mib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))


WORDS = re.compile(r"training waited ([0-9.]+) ms for it; ([0-9.]+) ms of a core, ([0-9.]+) ms to the disk")


def own_words(log, usual_s):
    """What the workers say that their checkpoints cost them, over all of them."""
    told = [tuple(map(float, words.groups())) for words in WORDS.finditer(log)]
    waited, cpu, took = (statistics.median(column) for column in zip(*told))
    most = max(row[0] for row in told)
    return (f"training waited {waited:.2f} ms for one (median of {len(told)}; at most {most:.2f}), {waited / 10 / usual_s:.2f} % of a step; "
            f"{cpu:.1f} ms of a core, {took:.0f} ms to the disk")


def measure(cluster, folder, case, kind, checkpoints, sharded):
    model, batch_tokens, every = CASES[case]
    workers, mesh = KINDS[kind]
    steps = WARM_STEPS + every * checkpoints
    spec = job_spec(folder, 1, 1, 10 * steps, batch_tokens)
    spec.train.model.MergeFrom(pb.Model(**model))
    spec.train.optimizer.micro_sequences = 2
    spec.train.checkpoint.every, spec.train.checkpoint.sharded = every, sharded
    spec.mesh.MergeFrom(pb.Mesh(nodes=1, workers_per_node=workers, threads=1, **mesh))
    job = cluster.submit(spec)
    wait_step(cluster, job, folder, steps)
    resident = ", ".join(f"{most_resident_mib(peer.pid):.0f}" for peer in cluster.job(job).peers if peer.state == "active")
    log = cluster.logs(job).decode(errors="replace")
    cluster.api().CancelJob(pb.CancelJobRequest(job_id=job))
    cluster.wait_job(job, "CANCELLED")
    took = {row["step"]: row["step_s"] for row in metrics(folder) if row["step_s"] and row["step"] > WARM_STEPS}
    begun = [s for step, s in took.items() if step % every == 1]
    beside = [s for step, s in took.items() if step % every == 2]
    calm = [s for step, s in took.items() if step % every > every // 2 or step % every == 0]
    usual = statistics.median(calm)
    extra = sum(statistics.median(s for step, s in took.items() if step % every == offset) / usual - 1 for offset in range(1, every // 2 + 1))
    spread = [statistics.quantiles(calm, n=10)[i] / usual for i in (0, 8)]
    print(f"{case}, {kind}, {batch_tokens} tokens a step: a step takes {1e3 * usual:.1f} ms (tenths {spread[0]:.2f} to {spread[1]:.2f} of that); one in which a checkpoint begins "
          f"{100 * (statistics.median(begun) / usual - 1):+.1f} %, the next one {100 * (statistics.median(beside) / usual - 1):+.1f} %, all of it together {100 * extra:+.1f} % of a step (medians of {len(begun)}); "
          f"{own_words(log, usual)}; MiB resident at most, of each worker: {resident}", flush=True)


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=ROOT / "build")
    parser.add_argument("--case", default="", help="only cases with this in their name")
    parser.add_argument("--kind", default="", help="only kinds with this in their name")
    parser.add_argument("--sharded", action="store_true", help="checkpoint.sharded, of kinds that are split")
    parser.add_argument("--checkpoints", type=int, default=20, help="of each job")
    return parser.parse_args()


def main(options, folder):
    with Cluster(folder / "cluster", nodes=1, slots=2) as cluster:
        for i, (case, kind) in enumerate((case, kind) for case in CASES for kind in KINDS if options.case in case and options.kind in kind and (not options.sharded or KINDS[kind][1])):
            measure(cluster, folder / str(i), case, kind, options.checkpoints, options.sharded)


if __name__ == "__main__":
    OPTIONS = parsed()
    os.environ["TRAIND_BUILD"] = str(OPTIONS.build)  # for what is imported now
    from bench_cluster import Cluster, job_spec, metrics, pb, wait_step
    with tempfile.TemporaryDirectory(prefix="traind-bench-") as made:
        main(OPTIONS, pathlib.Path(made))
