#!/usr/bin/env python3
"""What `trainctl plan` predicts beside what a job takes: the time of a step, and the memory of each worker, of the same job file, for one worker and for two (data, tensor and pipeline parallel) on a node's slots
(real daemons). Predicted is what `trainctl plan --as-is` says from layers that are measured here just before; measured are the median step of the job (and its mean: what the machine did besides is in that), and what each worker's process had
resident at most (VmHWM). It needs two free cores: what other work takes of one is waited for by the other. A row says where layers had less than a core while they were measured: what is planned from these is too long.
With --links workers are on machines of their own, with a cable each (bench_machines.py; root), which the nodes measure just before, too (`trainctl plan --measure`).

	build/venv/bin/python scripts/bench_plan.py [--links] [--build DIR] [--seconds N] [--turns N] [--case WORD]
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SMALL = "{preset: gpt2, layers: 4, width: 128, heads: 4, context: 128, vocab: bytes}"
LARGE = "{preset: gpt2, layers: 12, width: 256, heads: 8, context: 256, vocab: bytes}"
LLAMA = "{preset: llama, layers: 12, width: 256, heads: 8, kv_heads: 4, context: 256, vocab: bytes}"
STEPS_LEAST = 3
ALONE, DP, TP, PP = "workers_per_node: 1", "workers_per_node: 2", "workers_per_node: 2, tp: 2", "workers_per_node: 2, pp: 2"
DILOCO, STREAMING = "{mode: diloco, inner_steps: 4, codec: int4}", "{mode: streaming, inner_steps: 4, fragments: 2, overlap: 1}"
# name: model, tokens a step, sequences of a microbatch, what mesh.* says; what sync.* does, if replicas train apart
CASES = {
    "4 x 128, dp 1": (SMALL, 4096, 2, ALONE),
    "4 x 128, dp 2": (SMALL, 4096, 2, DP),
    "4 x 128, tp 2": (SMALL, 4096, 2, TP),
    "4 x 128, pp 2": (SMALL, 4096, 2, PP),
    "12 x 256, dp 1": (LARGE, 8192, 2, ALONE),
    "12 x 256, dp 1, recomputed": (LARGE, 8192, 2, f"{ALONE}, recompute: true"),
    "12 x 256, dp 2": (LARGE, 8192, 2, DP),
    "12 x 256, dp 2, two owners": (LARGE, 8192, 2, f"{DP}, zero_owners: 2"),
    "12 x 256, tp 2": (LARGE, 8192, 2, TP),
    "12 x 256, tp 2, sequence parallel": (LARGE, 8192, 2, f"{TP}, sequence_parallel: true"),
    "12 x 256, pp 2": (LARGE, 8192, 2, PP),
    "Llama, 12 x 256, dp 2": (LLAMA, 8192, 2, DP),
    "Llama, 12 x 256, tp 2": (LLAMA, 8192, 2, TP),
    "Llama, 12 x 256, pp 2, recomputed": (LLAMA, 8192, 2, f"{PP}, recompute: true"),
    "12 x 256, dp 2, diloco": (LARGE, 8192, 2, DP, DILOCO),
    "12 x 256, tp 2, diloco": (LARGE, 8192, 2, TP, DILOCO),
    "12 x 256, dp 2, streaming": (LARGE, 8192, 2, DP, STREAMING),
    "12 x 256, pp 2, streaming": (LARGE, 8192, 2, PP, STREAMING),
}


def job_file(folder, case, nodes):
    model, tokens, micro, words, *sync = case
    path = folder / "job.yaml"
    path.write_text(f"""name: planned
model: {model}
data: {{text: [{TEXT}], validation: 1%}}
train: {{steps: 100000, batch_tokens: {tokens}, lr: 1e-3, clip: 1.0, seed: 1, micro_sequences: {micro}}}
mesh: {{nodes: {nodes}, threads: 1, {"" if sync else 'balance: "off", '}{words}}}
{"sync: " + sync[0] if sync else ""}
checkpoint: {{dir: {folder}/run}}
""")
    return path


def resident_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    raise SystemExit(f"bench: process {pid} is gone")


def measured(cluster, file, run, seconds):
    """(seconds of a step: median and mean; bytes of each worker by rank)"""
    job = int(trainctl(cluster, "launch", "--detach", file).split("job ")[1].split()[0])
    first = wait_step(cluster, job, run, WARM_STEPS)
    time.sleep(seconds)
    wait_step(cluster, job, run, first + STEPS_LEAST)
    at = sorted((step, when) for step, when in dict(rows(run)).items() if step >= first)
    steps = [(when - before) / (step - earlier) for (earlier, before), (step, when) in zip(at, at[1:])]
    resident = [resident_bytes(peer.pid) for peer in sorted(cluster.job(job).peers, key=lambda peer: peer.id)]
    trainctl(cluster, "cancel", job)
    cluster.wait_job(job, "CANCELLED")
    return statistics.median(steps), (at[-1][1] - at[0][1]) / (at[-1][0] - at[0][0]), resident


def compared(cluster, folder, case, seconds, nodes=1, more=()):
    """Predicted and measured: seconds of a step; the mean; the least and the largest of predicted memory by resident memory; and what the plan says that layers had of a core while they were measured, where that was too little."""
    folder.mkdir(parents=True)
    file = job_file(folder, case, nodes)
    plan = json.loads(trainctl(cluster, "plan", file, "--as-is", "--json", *more))
    step_s, mean_s, resident = measured(cluster, file, folder / "run", seconds)
    planned = [worker["memory_bytes"] for worker in plan["ranks"]]
    ratios = [wanted / found for wanted, found in zip(planned, resident, strict=True)]
    busy = re.search(r"a thread that measured had (\S+) of a core", plan["layers_by"])
    return plan["step_s"], step_s, mean_s, min(ratios), max(ratios), float(busy.group(1)) if busy else 1


def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=ROOT / "build")
    parser.add_argument("--seconds", type=int, default=10, help="of each job, or more, until some steps have ended")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--case", default="", help="only the case of this name, or those with this in their names")
    parser.add_argument("--links", action="store_true", help="over cables between machines, whose links the nodes measure (bench_machines.py), instead of on one node's slots")
    return parser.parse_args()


def of_one_host(found, options, folder):
    """(case, what was compared), all cases in each turn."""
    with Cluster(folder / "cluster", nodes=1, slots=2) as cluster:
        for turn in range(options.turns):
            for number, case in enumerate(found):
                yield case, compared(cluster, folder / f"{turn}-{number}", CASES[case], options.seconds)


def of_machines(found, options, folder):
    """The same, of machines that are made for each."""
    for turn in range(options.turns):
        for number, case in enumerate(found):
            rate, nodes, job = CASES[case]
            place = folder / f"{turn}-{number}"
            place.mkdir()
            with Machines(place, nodes, rate) as machines:
                yield case, compared(machines, place / "job", job, options.seconds, nodes, ["--measure"])


def main(options, folder):
    print(f"medians of {options.turns} turns; {os.cpu_count()} cores")
    print(f"{'':46}{'step, ms':>10}{'mean':>9}{'planned':>9}{'ratio (least to most)':>24}{'memory, ratio':>16}")
    found = {case: [] for case in CASES if options.case == case or (options.case in case and options.case not in CASES)}
    for case, turn in (of_machines if options.links else of_one_host)(found, options, folder):
        found[case].append(turn)
    for case, turns in found.items():
        ratios = [planned / step for planned, step, *_ in turns]
        least, most, core = min(turn[3] for turn in turns), max(turn[4] for turn in turns), min(turn[5] for turn in turns)
        print(f"{case:46}{1e3 * statistics.median(turn[1] for turn in turns):10.1f}{1e3 * statistics.median(turn[2] for turn in turns):9.1f}{1e3 * statistics.median(turn[0] for turn in turns):9.1f}"
              f"{f'{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})':>24}{f'{least:.2f} to {most:.2f}':>16}"
              f"{'' if core == 1 else f'  (busy: layers were measured with {core:.2f} of a core)'}", flush=True)


if __name__ == "__main__":
    OPTIONS = parsed()
    os.environ["TRAIND_BUILD"] = str(OPTIONS.build)  # for what is imported now
    import bench_bubble
    from bench_cluster import BIN, TEXT, Cluster, rows, wait_step
    bench_bubble.BIN, WARM_STEPS = BIN, bench_bubble.WARM_STEPS
    trainctl = bench_bubble.trainctl
    if OPTIONS.links:
        from bench_machines import CASES, Machines
        trainctl = Machines.said
    with tempfile.TemporaryDirectory(prefix="traind-bench-") as made:
        main(OPTIONS, pathlib.Path(made))
