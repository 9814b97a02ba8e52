"""Bytes on the wire of DiLoCo with H = 64 and int4, or int2, against data parallel in f32: two sites of a laboratory (docs/wanlab.md; root), memberd at one of
them. Everything between them is counted by the kernel, at the far site's interface, both ways: TCP's and IP's headers and acknowledgements, the
group's headers, votes and signs of life, the nodes' heartbeats, the job's start and end.

    build/venv/bin/python scripts/experiments/wire.py [--out docs/results/wire.json]

What a step costs is the difference of two jobs that differ in nothing else, so short jobs say it exactly, and it is then put together for the whole run. Signs of
life go by time, so DiLoCo is measured with quick and with slow steps (smaller batches: what is sent does not depend on them). What is packed depends on how much alike a
movement's numbers are, so int4 is measured again from a checkpoint of a job that has trained for long (LATE steps of the quick ones).
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "system"))

import plan  # noqa: E402
import store  # noqa: E402
from sites import Sites  # noqa: E402
from stubs import BUILD  # noqa: E402
from studies.few_bytes import FEW_BYTES, FEWER_BYTES  # noqa: E402
from wan_lab import WanLab, missing  # noqa: E402

TOPOLOGY = "site a\nsite b\nlink a b delay=75ms rate=20mbit queue=400ms"
TEXT = "/usr/share/doc/jargon-text/jargon.txt.gz"
QUICK, SLOW = 256, 1536  # tokens of a batch
LATE = 8192
PERIOD = FEW_BYTES.sync["inner_steps"]
DDP = {"mode": "ddp"}


def counted(lab):
    """Bytes that the far site's interface has received and sent."""
    done = subprocess.run(lab.command("b", ["cat", "/proc/net/dev"]), env=lab.environment, capture_output=True, text=True, check=True)
    rows = [line.split(":") for line in done.stdout.splitlines() if ":" in line]
    values = [row[1].split() for row in rows if row[0].strip() != "lo"]
    return sum(int(value[0]) + int(value[8]) for value in values)


def name_of(sync, steps, batch):
    return "-".join(map(str, (sync["mode"], *([sync["codec"]] if "codec" in sync else []), steps, batch)))


class Jobs(Sites):
    """A memberd and a node at site a, a node at b."""

    def begin(self, sync, steps, batch, resume=None):
        """The job's number."""
        name = name_of(sync, steps, batch)
        train = {**plan.TRAIN, "steps": steps, "batch_tokens": batch, "warmup": 1, "seed": 1}
        return self.launch({"name": name, "model": plan.MODEL, "data": {"text": [TEXT]}, "train": train,
                            "mesh": {"nodes": 2, "min_nodes": 2, "threads": 1}, "sync": sync,
                            "checkpoint": {"dir": str(self.folder / name), **({"resume": str(resume)} if resume else {})}})

    def trained(self, sync):
        """The folder of its checkpoints."""
        self.await_end(self.begin(sync, LATE, QUICK))
        return self.folder / name_of(sync, LATE, QUICK)

    def job_of(self, sync, steps, batch, resume=None):
        """Of one job from its start to its end: bytes, seconds. `resume`: behind the LATE steps of that one."""
        before, began = counted(self.lab), time.monotonic()
        after = LATE if resume else 0
        self.await_end(self.begin(sync, after + steps, batch, resume))
        row = {"mode": sync["mode"], "codec": sync.get("codec", "none"), "after": after, "steps": steps, "batch_tokens": batch, "bytes": counted(self.lab) - before, "s": round(time.monotonic() - began, 2)}
        print("wire:", row, file=sys.stderr, flush=True)
        return row


def costs(short, long):
    """Bytes a step, and once a job; of two jobs that differ in steps."""
    steps = long["steps"] - short["steps"]
    step = (long["bytes"] - short["bytes"]) / steps
    return {"codec": short["codec"], "after": short["after"], "step_s": round((long["s"] - short["s"]) / steps, 3), "step": step, "once": short["bytes"] - step * short["steps"]}


def measure(sites):
    """[(short, long)]: data parallel, then DiLoCo with quick and with slow steps, of each codec, and late ones of int4."""
    jobs = [(DDP, (4, 16), QUICK), *((arm.sync, (PERIOD, 4 * PERIOD), batch) for arm in (FEW_BYTES, FEWER_BYTES) for batch in (QUICK, SLOW))]
    pairs = [tuple(sites.job_of(sync, count, batch) for count in steps) for sync, steps, batch in jobs]
    trained = sites.trained(FEW_BYTES.sync)
    return [*pairs, tuple(sites.job_of(FEW_BYTES.sync, count, QUICK, trained) for count in (PERIOD, 4 * PERIOD))]


def summary(pairs):
    """How many times fewer bytes DiLoCo takes, by how long its steps take; the whole run's steps, start and end included."""
    steps = plan.TRAIN["steps"]
    every, *rare = [costs(*pair) for pair in pairs]
    def whole(cost):
        return cost["once"] + cost["step"] * steps
    return {"steps": steps, "parameters": plan.parameters_of(plan.MODEL), "data_parallel": every,
            "few_bytes": [{**cost, "ratio": whole(every) / whole(cost)} for cost in rare]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "results" / "wire.json")
    options = parser.parse_args()
    if missing():
        sys.exit(f"no laboratory: {missing()}")
    with tempfile.TemporaryDirectory(prefix="wire-") as folder, WanLab(TOPOLOGY) as lab, Jobs(lab, folder) as sites:
        pairs = measure(sites)
    result = {"commit": store.commit_of(BUILD.parent), "machine": store.machine(), "topology": TOPOLOGY, "jobs": [job for pair in pairs for job in pair],
              **summary(pairs)}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
