#!/usr/bin/env python3
"""The pipeline's bubble, measured beside predicted: two stages of one thread each on a node's two slots (real daemons), for the schedules and some numbers of microbatches. Predicted is what `trainctl plan
--as-is` says of the same job file, from layers that are measured here just before; measured are the time of a step and the share of it that the busiest worker waits until the last one's list of forwards and
backwards has ended, as the plan counts it. The workers' logs say what each of them waited (daemon/worker/waits.h); what the last one to end waits after its list is the end of a step, for the norm's sum and the
commit, and no bubble: it is taken from the other's waiting, and printed by itself. Between the two bubbles: their difference in hundred parts of a step, and the planned one by the measured one: "within 5 %" may be
said of either. It needs two free cores: what other work takes of one is waited for by the other.

	build/venv/bin/python scripts/bench_bubble.py [--build DIR] [--seconds N] [--case WORD]
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = "{preset: gpt2, layers: 12, width: 256, heads: 8, context: 256, vocab: bytes}"
CONTEXT, MICRO = 256, 2
SAYS = re.compile(r"\[(\d+)\].*steps: (\d+), ([\d.]+) ms each; waited ([\d.]+) ms for others of the replica, ([\d.]+) ms in all calls")
EVERY_S = 10  # WAITS_EVERY_S of daemon/worker/waits.h
SCHEDULES = {"1f1b": "schedule: 1f1b", "gpipe": "schedule: gpipe", "interleaved, 2 chunks": "schedule: interleaved, chunks: 2"}
MICROBATCHES = (4, 8, 16)
CASES = {f"{name}, {count} microbatches": (words, count) for count in MICROBATCHES for name, words in SCHEDULES.items()}


def job_file(folder, words, count):
    path = folder / "job.yaml"
    path.write_text(f"""name: bubble
model: {MODEL}
data: {{text: [{TEXT}], validation: 1%}}
train: {{steps: 100000, batch_tokens: {count * MICRO * CONTEXT}, lr: 1e-3, clip: 1.0, seed: 1, micro_sequences: {MICRO}}}
mesh: {{nodes: 1, workers_per_node: 2, pp: 2, threads: 1, balance: "off", {words}}}
checkpoint: {{dir: {folder}/run}}
""")
    return path


def trainctl(cluster, *words):
    done = subprocess.run([BIN / "trainctl", *map(str, words)], env={**cluster.environment, "TRAIND_ADDRESS": cluster.memberd.address}, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"bench: trainctl {words[0]}: {done.stderr}")
    return done.stdout


def said(cluster, job):
    """By rank what its log says of each part of its time: (steps, ms of each, waited for others of the replica, waited in all)."""
    found = {}
    for line in trainctl(cluster, "logs", job).splitlines():
        if (match := SAYS.search(line)):
            found.setdefault(int(match[1]), []).append(tuple(map(float, match.groups()[1:])))
    return found


def measured(cluster, file, run, seconds):
    """(seconds of a step, of these waited in the pipeline by who is busiest, and at the step's end). The first part is not counted: memory is new then."""
    job = int(trainctl(cluster, "launch", "--detach", file).split("job ")[1].split()[0])
    parts = 1 + max(1, seconds // EVERY_S)
    wait_step(cluster, job, run, 1)
    time.sleep(EVERY_S * parts + 1)  # who asks takes a core from them
    wait_for(lambda: len(by_rank := said(cluster, job)) == 2 and min(map(len, by_rank.values())) >= parts, "what workers wait for", deadline_s=60 + 2 * EVERY_S * parts)
    workers = []
    for rank in said(cluster, job).values():
        steps = sum(part[0] for part in rank[1:parts])
        workers.append([sum(part[0] * part[i] for part in rank[1:parts]) / steps / 1e3 for i in (1, 2, 3)])
    trainctl(cluster, "cancel", job)
    cluster.wait_job(job, "CANCELLED")
    end = min(calls - inside for _, inside, calls in workers)
    return sum(worker[0] for worker in workers) / len(workers), min(calls for _, _, calls in workers) - end, end


def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=ROOT / "build")
    parser.add_argument("--seconds", type=int, default=20, help="of each job, after its first ten")
    parser.add_argument("--case", default="", help="only cases with this in their name")
    return parser.parse_args()


def main(options, folder):
    print(f"two stages of 12 layers x 256, microbatches of {MICRO} x {CONTEXT} tokens; {os.cpu_count()} cores")
    print(f"{'':38}{'step, ms':>10}{'planned':>9}{'ratio':>7}{'its end':>9}{'bubble':>9}{'planned':>9}{'apart':>8}{'ratio':>7}")
    with Cluster(folder / "cluster", nodes=1, slots=2) as cluster:
        for number, (name, (words, count)) in enumerate(CASES.items()):
            if options.case not in name:
                continue
            place = folder / str(number)
            place.mkdir()
            file = job_file(place, words, count)
            plan = json.loads(trainctl(cluster, "plan", file, "--as-is", "--json"))
            step_s, waited_s, end_s = measured(cluster, file, place / "run", options.seconds)
            idle, waits = plan["times"]["idle_s"] / plan["step_s"], waited_s / step_s
            print(f"{name:38}{1e3 * step_s:10.0f}{1e3 * plan['step_s']:9.0f}{plan['step_s'] / step_s:7.2f}{1e3 * end_s:9.1f}{100 * waits:8.1f}%{100 * idle:8.1f}%{100 * (idle - waits):+8.1f}{idle / waits:7.2f}", flush=True)


if __name__ == "__main__":
    OPTIONS = parsed()
    os.environ["TRAIND_BUILD"] = str(OPTIONS.build)  # for what is imported now
    from bench_cluster import BIN, TEXT, Cluster, wait_for, wait_step
    with tempfile.TemporaryDirectory(prefix="traind-bench-") as made:
        main(OPTIONS, pathlib.Path(made))
