#!/usr/bin/env python3
"""Trains one job twice over four nodes: undisturbed, and with a node killed (kill -9, its worker dies too) and a new
node started later. Draws both loss curves and says how far they are apart.

    build/venv/bin/python scripts/churn_plot.py            writes docs/images/churn.svg and docs/images/churn.json

The job is configs/quickstart.yaml's model with policy `replay`; the kill comes at a third of the steps, the new node at half.
"""
import argparse
import json
import math
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "system"))

from harness import Cluster, trainctl_json, wait_for  # noqa: E402


def metrics(folder):
    """{step: row} of a run; a step is written once, by the contributor that was first in its round."""
    rows = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert row["step"] not in rows, f"step {row['step']} is recorded twice"
        rows[row["step"]] = row
    return rows


def train(folder, steps, disturb):
    run = folder / ("churn" if disturb else "calm")
    with Cluster(folder / ("cluster-churn" if disturb else "cluster-calm"), nodes=4) as cluster:
        keys = ["mesh.nodes=4", f"train.steps={steps}", f"checkpoint.dir={run}", "checkpoint.every=0"]
        job = trainctl_json("--address", cluster.memberd.address, "launch", ROOT / "configs" / "quickstart.yaml",
                            *[word for key in keys for word in ("--set", key)], "--detach")["id"]
        reached = lambda step: wait_for(lambda: cluster.job(job).progress.step >= step, f"step {step}", 1200)
        if disturb:
            reached(steps // 3)
            cluster.nodes[1].kill9()
            reached(steps // 2)
            cluster.add_node()
        cluster.wait_job(job, "DONE", deadline_s=1800)
        final = cluster.job(job)
    rows = metrics(run)
    missing = [step for step in range(1, steps + 1) if step not in rows]
    assert not missing, f"steps without a record: {missing[:10]}"
    return rows, final


def draw(path, calm, churn, events):
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "traind"
    import matplotlib.pyplot as plt
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(8, 5.4), sharex=True, height_ratios=[3, 1])
    steps = sorted(calm)
    top.plot(steps, [calm[s]["loss"] for s in steps], color="#1f77b4", linewidth=2.4, label="undisturbed, 4 nodes")
    top.plot(steps, [churn[s]["loss"] for s in steps], color="#d62728", linewidth=0.9, label="a node killed, a new one joins")
    for step, words in events:
        for axis in (top, bottom):
            axis.axvline(step, color="#888888", linewidth=0.8, linestyle=":")
        top.text(step, 0.97, " " + words, transform=top.get_xaxis_transform(), fontsize=8, va="top", color="#444444")
    top.set_ylabel("training loss, nats per byte")
    top.legend(frameon=False, loc="center right")
    difference = [abs(churn[s]["loss"] - calm[s]["loss"]) / calm[s]["loss"] for s in steps]
    bottom.semilogy(steps, [max(d, 1e-9) for d in difference], color="#444444", linewidth=0.8)
    bottom.set_ylabel("relative difference")
    bottom.set_xlabel("step")
    for axis in (top, bottom):
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", default=ROOT / "docs" / "images")
    options = parser.parse_args()
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="churn-") as folder:
        calm, _ = train(pathlib.Path(folder), options.steps, disturb=False)
        churn, final = train(pathlib.Path(folder), options.steps, disturb=True)
    assert all(math.isfinite(row["loss"]) for row in churn.values())
    changes = [(step, churn[step]["contributors"]) for step in sorted(churn)
               if step > 1 and churn[step]["contributors"] != churn[step - 1]["contributors"]]
    draw(out / "churn.svg", calm, churn, [(step, f"{count} contribute") for step, count in changes])
    worst = max((abs(churn[s]["loss"] - calm[s]["loss"]) / calm[s]["loss"], s) for s in calm)
    facts = {
        "steps": options.steps,
        "contributors": changes,
        "worst_relative_difference": {"value": worst[0], "step": worst[1]},
        "final_loss": {"undisturbed": calm[options.steps]["loss"], "churn": churn[options.steps]["loss"]},
        "rounds": {"committed": final.rounds.committed, "recorded": final.rounds.recorded,
                   "samples": final.rounds.samples, "replayed": final.rounds.replayed_rounds,
                   "partial": final.rounds.partial_rounds},
        "events": [event.text for event in final.events],
    }
    (out / "churn.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
