"""Tokens a second of four workers at speeds 1 : 1.3 : 2.6 : 5.7, with fixed H, with parts of the batch and with steps in proportion to speed. A run of its own, on a
machine that does nothing else: the modes take turns, and the ratio counts.

    build/venv/bin/python scripts/experiments/timing.py [--out docs/results/timing.json] [--seconds 10] [--turns 2]

Speeds are made by throttle.py. Tokens and time are from the second merge to the last: before the first nobody knows of any speed.
"""
import argparse
import json
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "system"))

import execute  # noqa: E402
import plan  # noqa: E402
import store  # noqa: E402
import throttle  # noqa: E402
from harness import Cluster, trainctl_json, wait_for  # noqa: E402
from stubs import BUILD, pb  # noqa: E402
from studies.stragglers import BY_SPEED, DILOCO_4, SHARES  # noqa: E402

TEXT = "/usr/share/doc/jargon-text/jargon.txt.gz"
MODES = {"fixed": DILOCO_4, "shares": SHARES, "by_speed": BY_SPEED}
PERIOD, BATCH = 16, 512  # shorter rounds than in earnest: more of them in the time


def job_of(arm, folder):
    return {"name": arm.name, "model": plan.MODEL, "data": {"text": [TEXT]}, "mesh": {"nodes": 4, "min_nodes": 4, "threads": 1},
            "train": {**plan.TRAIN, "steps": 10**6, "batch_tokens": BATCH, "micro_sequences": 1, "seed": 1},
            "sync": {**arm.sync, "inner_steps": PERIOD}, "checkpoint": {"dir": str(folder)}}


def rate(looks):
    """[(seconds, samples)] at each look -> tokens a second, from the second change of samples to the last."""
    changes = [look for before, look in zip(looks, looks[1:]) if look[1] != before[1]][1:]
    if len(changes) < 3:
        raise SystemExit("timing: fewer than four merges in the time: more --seconds")
    (first_s, first), (last_s, last) = changes[0], changes[-1]
    return (last - first) * plan.MODEL["context"] / (last_s - first_s)


def measure(arm, folder, seconds):
    run = plan.Run(BY_SPEED, 1, {})  # all have its speeds
    with Cluster(folder / "cluster", nodes=4, traind=execute.STOPPED_FOR_EVER) as cluster:
        path = folder / "job.yaml"
        path.write_text(execute.yaml_of(job_of(arm, folder / "checkpoints")))
        job = trainctl_json("--address", cluster.memberd.address, "launch", path, "--detach")["id"]
        with throttle.Throttle(run, lambda: cluster.job(job).peers):
            wait_for(lambda: cluster.job(job).rounds.samples > 0, "the first merge", 120)
            looks, until = [], time.monotonic() + seconds
            while time.monotonic() < until:
                looks.append((time.monotonic(), cluster.job(job).rounds.samples))
                time.sleep(0.05)
        cluster.api().CancelJob(pb.CancelJobRequest(job_id=job))
    return rate(looks)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "results" / "timing.json")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--turns", type=int, default=2)
    options = parser.parse_args()
    commit, rates = store.commit_of(BUILD.parent), {name: [] for name in MODES}
    if options.out.exists():  # turns are added to those of the same commit
        before = json.loads(options.out.read_text())
        rates = before["tokens_per_s"] if before["commit"] == commit else rates
    for _ in range(options.turns):
        for name, arm in MODES.items():
            with tempfile.TemporaryDirectory(prefix="timing-") as folder:
                rates[name].append(measure(arm, pathlib.Path(folder), options.seconds))
    result = {"commit": commit, "machine": store.machine(), "slowness": BY_SPEED.slowness, "inner_steps": PERIOD, "batch_tokens": BATCH,
              "tokens_per_s": {name: [round(value) for value in values] for name, values in rates.items()},
              "ratios": {name: [round(fast / slow, 2) for slow, fast in zip(rates["fixed"], rates[name])] for name in ("shares", "by_speed")}}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
