"""How much of the communication streaming and eager hide behind inner steps, beside DiLoCo, which waits for all of it: two nodes at two sites of a
laboratory (docs/wanlab.md; root), 150 ms there and back, 20 Mbit/s.

    build/venv/bin/python scripts/experiments/hidden.py [--only large] [--out docs/results/hidden.json]

What is in that file of other sizes stays.
Computation is paced (variants/paced.patch), so that a merge of DiLoCo takes about 0.8 of the time of its inner steps. A row of metrics.jsonl is
written at each merge: times are medians over rounds, the first left out; `hidden` is what the job's status said before its last step, at which all that is left is merged with nothing to hide behind. Alone: one node with half the batch; its rounds are computation only.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "system"))

import execute  # noqa: E402
import plan  # noqa: E402
import store  # noqa: E402
import variants  # noqa: E402
from harness import wait_for  # noqa: E402
from sites import Sites  # noqa: E402
from stubs import BUILD  # noqa: E402
from studies.overlap import EAGER, STREAMING  # noqa: E402
from studies.quality import DILOCO_2  # noqa: E402
from wan_lab import WanLab, missing  # noqa: E402

TOPOLOGY = "site a\nsite b\nlink a b delay=75ms rate=20mbit queue=400ms"
TEXT = "/usr/share/doc/jargon-text/jargon.txt.gz"
CONTEXT = 32
PERIOD, FRAGMENTS = STREAMING.sync["inner_steps"], STREAMING.sync["fragments"]
# A sequence's time, so that communication is about 0.8 of a round's computation.
MODELS = {"small": ({**plan.MODEL, "context": CONTEXT}, 75.0), "middle": ({**plan.MODEL, "width": 320, "context": CONTEXT}, 292.0),
          "large": ({**plan.MODEL, "width": 480, "context": CONTEXT}, 660.0)}
SYNC = {"alone": DILOCO_2.sync, "diloco": DILOCO_2.sync, "streaming": STREAMING.sync, "eager": EAGER.sync}  # as the losses are of


def round_s(rows, mode):
    """Seconds that PERIOD inner steps take, by merges of whole periods."""
    merges = FRAGMENTS if mode == "streaming" else 1
    at = [rows[step]["unix_ms"] / 1000 for step in sorted(rows)][merges:-1]  # what is left at the last step is merged there
    return statistics.median(later - before for before, later in zip(at, at[merges:]))


def measure(sites, model, mode, rounds):
    nodes = 1 if mode == "alone" else 2
    train = {**plan.TRAIN, "steps": PERIOD * rounds, "batch_tokens": nodes * CONTEXT, "micro_sequences": 1, "warmup": 1, "seed": 1}
    folder = sites.folder / mode
    number = sites.launch({"name": mode, "model": model, "data": {"text": [TEXT]}, "train": train, "mesh": {"nodes": nodes, "min_nodes": nodes, "threads": 1},
                           "sync": SYNC[mode], "checkpoint": {"dir": str(folder)}})
    wait_for(lambda: sites.ended(number), f"{mode} to end", 900)
    rows = execute.rows_of(folder)
    told = sites.job(number)["merges"] or {"count": 0}
    found = {"round_s": round(round_s(rows, mode), 3), "hidden": rows[sorted(rows)[-2]]["hidden"], "merges": told["count"]}
    print(f"hidden: {mode}: {found}", file=sys.stderr, flush=True)
    return found


def of_model(name, rounds):
    model, sequence_ms = MODELS[name]
    with tempfile.TemporaryDirectory(prefix="hidden-") as folder, WanLab(TOPOLOGY) as lab:
        program = variants.paced(folder, sequence_ms)
        with Sites(lab, folder, arguments=["--trainworker", program]) as sites:
            found = {mode: measure(sites, model, mode, rounds) for mode in SYNC}
    alone = found.pop("alone")["round_s"]
    for arm in found.values():
        arm["of_alone"] = round(alone / arm["round_s"], 4)
    return {"commit": store.commit_of(BUILD.parent), "model": model, "parameters": plan.parameters_of(model), "sequence_ms": sequence_ms, "alone_round_s": alone,
            "communication": round(found["diloco"]["round_s"] / alone - 1, 3), "modes": found}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "results" / "hidden.json")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", action="append", choices=sorted(MODELS))
    options = parser.parse_args()
    if missing():
        sys.exit(f"no laboratory: {missing()}")
    sizes = json.loads(options.out.read_text())["sizes"] if options.out.exists() else {}
    sizes.update({name: of_model(name, options.rounds) for name in options.only or MODELS})
    result = {"machine": store.machine(), "topology": TOPOLOGY, "sync": SYNC, "sizes": {name: sizes[name] for name in MODELS if name in sizes}}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
