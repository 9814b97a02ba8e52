"""Churn: a node of four dies every 15 s, or every 60 s, and is back 5 s later; how many tokens are committed meanwhile, beside what the same job
commits in the same time when nobody dies. All of it at once, on clusters of their own on this machine, so that its load is everybody's.

    build/venv/bin/python scripts/experiments/churn.py [--mode diloco] [--seed 1] [--seconds 600] [--out docs/results/churn.json]

A death is SIGKILL to traind and to its worker at the same moment; 5 s later traind is started in the same folder. Computation is paced
(variants/paced.patch): each sequence takes 33 ms, so a step of all four 0.2 s. The result of a mode and a seed (of weights, order and deaths) is put beside what is there of others.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "system"))

import execute  # noqa: E402
import store  # noqa: E402
import variants  # noqa: E402
from harness import Cluster, trainctl_json, wait_for  # noqa: E402
from stubs import BUILD, pb  # noqa: E402

TEXT = "/usr/share/doc/jargon-text/jargon.txt.gz"
NODES, AWAY_S, SEQUENCE_MS, LOOK_S, LAST_LOSSES = 4, 5, 100 / 3, 0.25, 5
MODEL = {"preset": "gpt2", "layers": 2, "width": 48, "heads": 4, "context": 64, "vocab": "bytes"}
TRAIN = {"steps": 10**6, "batch_tokens": 24 * 64, "micro_sequences": 1, "lr": 4e-3, "min_lr": 4e-3, "warmup": 50, "clip": 1.0, "beta2": 0.95, "seed": 1,
         "eval_every": 40, "eval_sequences": 128}
SYNC = {"diloco": {"mode": "diloco", "inner_steps": 8}, "ddp": {"mode": "ddp", "on_loss": "replay"}}
EVERY_S = {"undisturbed": None, "every-60-s": 60, "every-15-s": 15}


class Arm:
    """One job; `every_s`: between two deaths, None for none."""

    def __init__(self, name, every_s, options, folder):
        self.name, self.every_s, self.options, self.folder = name, every_s, options, folder / name
        self.folder.mkdir()
        self.random = random.Random(options.seed)
        self.looks, self.events, self.repairs, self.kills, self.failure = [], {}, [], 0, None

    def look(self):
        now = self.cluster.job(self.job)
        self.looks.append((time.monotonic(), now.rounds.samples, now.progress.step, now.progress.val_loss))
        self.events.update({(event.unix_ms, event.text): None for event in now.events})
        return now

    def kill(self, now):
        node = self.random.choice(self.cluster.nodes)
        for peer in now.peers:
            if peer.node_name == node.folder.name and peer.pid in self.cluster.processes():
                os.kill(peer.pid, signal.SIGKILL)
        node.kill9()
        self.kills += 1
        return node

    def whole(self, now):
        return sum(peer.state == "active" for peer in now.peers) == NODES

    def train(self, all_ready):
        path = self.folder / "job.yaml"
        spec = {"name": self.name, "model": MODEL, "data": {"text": [TEXT], "validation": 0.05}, "train": TRAIN,
                "mesh": {"nodes": NODES, "min_nodes": 1, "threads": 1}, "sync": SYNC[self.options.mode], "checkpoint": {"dir": str(self.folder / "checkpoints")}}
        path.write_text(execute.yaml_of(spec))
        self.job = trainctl_json("--address", self.cluster.memberd.address, "launch", path, "--detach")["id"]
        wait_for(lambda: self.look().rounds.samples > 0, "the first merge", 120)
        all_ready.wait()
        began = time.monotonic()
        next_kill, back, died = (began + self.every_s if self.every_s else None), None, None
        self.looks = []
        while time.monotonic() < began + self.options.seconds:
            now, at = self.look(), time.monotonic()
            if next_kill and at >= next_kill:
                died, back, next_kill = at, (at + AWAY_S, self.kill(now)), next_kill + self.every_s
            elif back and at >= back[0]:
                back[1].start()
                back = None
            elif died and not back and self.whole(now):
                self.repairs.append(at - died)
                died = None
            time.sleep(LOOK_S)
        now = self.look()
        self.end = {"state": pb.JobState.Name(now.state), "committed": now.rounds.committed, "recorded": now.rounds.recorded,
                    "abandoned_attempts": now.rounds.replayed_rounds, "partial": now.rounds.partial_rounds}
        self.cluster.api().CancelJob(pb.CancelJobRequest(job_id=self.job))
        self.cluster.wait_job(self.job, "CANCELLED")

    def run(self, all_ready):
        try:
            program = variants.paced(self.folder, SEQUENCE_MS)
            with Cluster(self.folder / "cluster", nodes=NODES, traind=["--trainworker", program]) as self.cluster:
                self.train(all_ready)
        except BaseException as error:
            self.failure = error
            all_ready.abort()

    def tokens(self):
        return (self.looks[-1][1] - self.looks[0][1]) * MODEL["context"]

    def curve(self):
        """[(tokens, validation loss)]: each loss with the tokens of the look that first saw it."""
        found = []
        for _, samples, _, loss in self.looks:
            if loss == loss and (not found or found[-1][1] != loss):
                found.append((samples * MODEL["context"], loss))
        return found

    def result(self):
        texts = [text for _, text in sorted(self.events)]
        return {"seconds": round(self.looks[-1][0] - self.looks[0][0], 1), "tokens": self.tokens(), "kills": self.kills,
                "whole_again_s": {"median": round(statistics.median(self.repairs), 2), "most": round(max(self.repairs), 2), "times": len(self.repairs)}
                if self.repairs else None,
                **self.end, "of_digests": [text for text in texts if "digest" in text or "held other" in text],
                "from_checkpoint": [text for text in texts if "again from" in text],
                "curve": [[tokens, round(loss, 5)] for tokens, loss in self.curve()]}


def loss_at(curve, tokens):
    """Interpolated."""
    for (t0, l0), (t1, l1) in zip(curve, curve[1:]):
        if t0 <= tokens <= t1:
            return l0 + (l1 - l0) * (tokens - t0) / (t1 - t0)
    return None


def compare(arms):
    """Of each disturbed arm: tokens beside the undisturbed one's in the same time; its last losses beside the undisturbed one's at as many tokens."""
    whole = arms["undisturbed"]
    for name, arm in arms.items():
        if name != "undisturbed":
            arm["efficiency"] = round(arm["tokens"] / arm["seconds"] / (whole["tokens"] / whole["seconds"]), 4)
            pairs = [(loss, loss_at(whole["curve"], tokens)) for tokens, loss in arm["curve"][-LAST_LOSSES:]]
            arm["loss_beside"] = round(statistics.mean(loss / beside - 1 for loss, beside in pairs if beside), 4)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "results" / "churn.json")
    parser.add_argument("--mode", choices=sorted(SYNC), default="diloco")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    commit, all_ready = store.commit_of(BUILD.parent), threading.Barrier(len(EVERY_S))
    with tempfile.TemporaryDirectory(prefix="churn-") as folder:
        variants.trainworker(variants.PACED)
        arms = [Arm(name, every_s, options, pathlib.Path(folder)) for name, every_s in EVERY_S.items()]
        threads = [threading.Thread(target=arm.run, args=(all_ready,)) for arm in arms]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for arm in arms:
            if arm.failure and not isinstance(arm.failure, threading.BrokenBarrierError):
                raise arm.failure
    found = {arm.name: arm.result() for arm in arms}
    compare(found)
    result = json.loads(options.out.read_text()) if options.out.exists() else {}
    runs = [run for run in result.get(options.mode, {}).get("runs", []) if run["seed"] != options.seed]
    runs.append({"seed": options.seed, "commit": commit, "machine": store.machine(), "arms": found})
    result[options.mode] = {"nodes": NODES, "away_s": AWAY_S, "sequence_ms": round(SEQUENCE_MS, 2), "model": MODEL, "train": TRAIN, "sync": SYNC[options.mode],
                            "runs": sorted(runs, key=lambda run: run["seed"])}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: {key: value for key, value in arm.items() if key != "curve"} for name, arm in found.items()}, indent=1))


if __name__ == "__main__":
    main()
