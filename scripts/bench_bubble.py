#!/usr/bin/env python3
"""The pipeline's bubble, measured beside predicted: two stages of one thread each on a node's two slots (real daemons), for the schedules and some numbers of microbatches. Predicted is what `trainctl plan
--as-is` says of the same job file, from layers that are measured here just before; measured are the time of a step and the share of it that the busiest worker waits for others (`waited_s` of `trainctl status
--json`). Between the two bubbles: their difference in hundred parts of a step, and the planned one by the measured one: "within 5 %" may be said of either. It needs two free cores: what other work takes of one is
waited for by the other.

	build/venv/bin/python scripts/bench_bubble.py [--build DIR] [--seconds N] [--case WORD]
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = "{preset: gpt2, layers: 12, width: 256, heads: 8, context: 256, vocab: bytes}"
CONTEXT, MICRO, WARM_STEPS = 256, 2, 3
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


def waited(cluster, job):
    """Seconds, by peer, that each has waited since it began."""
    return {peer["id"]: peer["waited_s"] for peer in json.loads(trainctl(cluster, "status", job, "--json"))["peers"]}


def measured(cluster, file, run, seconds):
    """(seconds of a step, share of the time that the busiest worker waited)"""
    job = int(trainctl(cluster, "launch", "--detach", file).split("job ")[1].split()[0])
    first, before, begins = wait_step(cluster, job, run, WARM_STEPS), waited(cluster, job), time.monotonic()
    time.sleep(seconds)
    last, after, ends = max(dict(rows(run))), waited(cluster, job), time.monotonic()
    at = dict(rows(run))
    trainctl(cluster, "cancel", job)
    cluster.wait_job(job, "CANCELLED")
    return (at[last] - at[first]) / (last - first), min(after[peer] - before[peer] for peer in before) / (ends - begins)


def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=ROOT / "build")
    parser.add_argument("--seconds", type=int, default=24, help="of each job")
    parser.add_argument("--case", default="", help="only cases with this in their name")
    return parser.parse_args()


def main(options, folder):
    print(f"two stages of 12 layers x 256, microbatches of {MICRO} x {CONTEXT} tokens; {os.cpu_count()} cores")
    print(f"{'':38}{'step, ms':>10}{'planned':>9}{'ratio':>7}{'waits':>9}{'planned':>9}{'apart':>8}{'ratio':>7}")
    with Cluster(folder / "cluster", nodes=1, slots=2) as cluster:
        for number, (name, (words, count)) in enumerate(CASES.items()):
            if options.case not in name:
                continue
            place = folder / str(number)
            place.mkdir()
            file = job_file(place, words, count)
            plan = json.loads(trainctl(cluster, "plan", file, "--as-is", "--json"))
            step_s, waits = measured(cluster, file, place / "run", options.seconds)
            idle = plan["times"]["idle_s"] / plan["step_s"]
            print(f"{name:38}{1e3 * step_s:10.0f}{1e3 * plan['step_s']:9.0f}{plan['step_s'] / step_s:7.2f}{100 * waits:8.1f}%{100 * idle:8.1f}%{100 * (idle - waits):+8.1f}{idle / waits:7.2f}", flush=True)


if __name__ == "__main__":
    OPTIONS = parsed()
    os.environ["TRAIND_BUILD"] = str(OPTIONS.build)  # for what is imported now
    from bench_cluster import BIN, TEXT, Cluster, rows, wait_step
    with tempfile.TemporaryDirectory(prefix="traind-bench-") as made:
        main(OPTIONS, pathlib.Path(made))
