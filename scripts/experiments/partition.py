"""Two halves that do not see one another, and a coordinator that dies in the middle of a commit: what each member commits meanwhile, by what the members
themselves say of each merge (variants/paced.patch). Nodes at sites of a laboratory (docs/wanlab.md; root).

    build/venv/bin/python scripts/experiments/partition.py [--cuts 5] [--kills 20] [--out docs/results/partition.json]

Halves: sites a and b with four nodes each, memberd at a; the sites are cut from one another for some seconds and healed. Coordinator: four sites with a
node each; the hub of the commits, which is whose merges come first, is killed with -9 (traind and worker) about when it commits, and is back 2 s later.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "system"))

import store  # noqa: E402
import variants  # noqa: E402
from harness import wait_for  # noqa: E402
from sites import Sites  # noqa: E402
from stubs import BUILD  # noqa: E402
from wan_lab import WanLab, missing  # noqa: E402

TEXT = "/usr/share/doc/jargon-text/jargon.txt.gz"
MODEL = {"preset": "gpt2", "layers": 2, "width": 48, "heads": 4, "context": 32, "vocab": "bytes"}
HALVES = "site a\nsite b\nlink a b delay=20ms rate=100mbit queue=100ms"
APART = "site a\nsite b\nsite c\nsite d\nlink all all delay=40ms rate=100mbit queue=100ms"
STEP_MS, PERIOD, AWAY_S = 100, 5, 2


def launch(sites):
    nodes = len(sites.nodes)
    train = {"steps": 10**6, "batch_tokens": 2 * nodes * MODEL["context"], "micro_sequences": 1, "lr": 4e-3, "warmup": 20, "clip": 1.0, "seed": 1}
    return sites.launch({"name": "parted", "model": MODEL, "data": {"text": [TEXT]}, "train": train, "mesh": {"nodes": nodes, "min_nodes": 1, "threads": 1},
                         "sync": {"mode": "diloco", "inner_steps": PERIOD}, "checkpoint": {"dir": str(sites.folder / "checkpoints")}})


def said(sites, name, what):
    """What the node's workers have said: rows with the key `what`, by time."""
    lines = (line for line in sites.worker_output(name).splitlines() if line.startswith(f'{{"{what}"') and line.endswith("}"))
    return sorted((json.loads(line) for line in lines), key=lambda row: row["unix_s"])


def merges(sites):
    """{node: its merges}."""
    return {name: said(sites, name, "merged") for name in sites.nodes}


def await_whole(sites, since, rounds=1):
    """All nodes have merged the same rounds after `since`, contributors in the next."""
    def there():
        found = [{row["merged"] for row in rows if row["unix_s"] > since and row["contributors"] == len(sites.nodes)} for rows in merges(sites).values()]
        return len(set.intersection(*found)) >= rounds
    wait_for(there, "all to merge a round", 120)


def judge(sites, number):
    """Of all that was said: rounds of which members hold different bits, rounds that a peer merged twice; and memberd's record."""
    digests, by_peer, twice = {}, set(), 0
    for rows in merges(sites).values():
        for row in rows:
            digests.setdefault(row["merged"], set()).add((row["digest"], row["step"]))
            twice += (row["peer"], row["merged"]) in by_peer
            by_peer.add((row["peer"], row["merged"]))
    job = sites.job(number)
    return {"rounds": len(digests), "differ": sum(len(found) > 1 for found in digests.values()), "twice": twice, "skipped": max(digests) - len(digests),
            "committed": job["rounds"]["committed"], "recorded": job["rounds"]["recorded"], "state": job["state"]}


def cut_once(sites, seconds):
    began = time.time()
    await_whole(sites, began)
    cut = time.time()
    sites.lab.do("cut a b")
    time.sleep(seconds)
    healed = time.time()
    sites.lab.do("heal a b")
    await_whole(sites, healed + 1)
    whole, found = time.time(), merges(sites)
    a, b = ({row["merged"] for name, rows in found.items() if name[0] == site for row in rows if cut <= row["unix_s"] < healed} for site in "ab")
    row = {"seconds": seconds, "rounds_a": len(a), "rounds_b": len(b), "only_b": len(b - a), "whole_again_s": round(whole - healed, 2)}
    print("partition:", row, file=sys.stderr, flush=True)
    return row


def halves(options):
    nodes = {f"{site}{number}": site for site in "ab" for number in range(1, 5)}
    with tempfile.TemporaryDirectory(prefix="parted-") as folder, WanLab(HALVES) as lab:
        program = variants.paced(folder, STEP_MS / 2)
        with Sites(lab, folder, nodes, ["--trainworker", program]) as sites:
            number = launch(sites)
            chance = random.Random(options.seed)
            cuts = [cut_once(sites, round(chance.uniform(3, 15), 1)) for _ in range(options.cuts)]
            found = judge(sites, number)
            sites.cancel(number)
    return {"topology": HALVES, "cuts": cuts, **found}


def hub_of(found):
    """The node whose merges come first; by the newest rounds that all have."""
    common = sorted(set.intersection(*({row["merged"] for row in rows} for rows in found.values())))[-3:]
    first = [min(found, key=lambda name: next(row["unix_s"] for row in found[name] if row["merged"] == one)) for one in common]
    return max(set(first), key=first.count)


def kill_once(sites, number, chance):
    await_whole(sites, time.time(), 3)
    found = merges(sites)
    hub = hub_of(found)
    ends = [row["unix_s"] for row in found[hub][-3:]]
    period = (ends[-1] - ends[0]) / 2
    worker = next(peer["pid"] for peer in sites.job(number)["peers"] if peer["node"] == hub and peer["state"] == "active")
    at = ends[-1] + period
    while at < time.time() + 0.3:
        at += period
    time.sleep(at - chance.uniform(-0.04, 0.05) - time.time())
    killed = time.time()
    sites.processes[f"node-{hub}"].kill()
    os.kill(worker, signal.SIGKILL)
    sites.processes[f"node-{hub}"].wait()
    time.sleep(AWAY_S)
    back = time.time()
    sites.start_node(hub, sites.nodes[hub])
    await_whole(sites, back)
    row = {"hub": hub, **what_happened(sites, hub, killed), "whole_again_s": round(time.time() - back, 2)}
    print("partition:", row, file=sys.stderr, flush=True)
    return row


def what_happened(sites, hub, killed):
    """Whether the hub had closed a round that not all others had merged when it died; and who of them merged it by what the hub still had sent."""
    closed = max(row["closes"] for row in said(sites, hub, "closes") if row["unix_s"] < killed)
    when = [next((row["unix_s"] for row in rows if row["merged"] == closed), None) for name, rows in merges(sites).items() if name != hub]
    return {"round": closed, "mid_commit": any(at is None or at > killed for at in when), "merged_by_all": None not in when,
            "last_merged_s": round(max((at for at in when if at), default=killed) - killed, 3)}


def coordinator(options):
    with tempfile.TemporaryDirectory(prefix="parted-") as folder, WanLab(APART) as lab:
        program = variants.paced(folder, STEP_MS / 2)
        with Sites(lab, folder, {site: site for site in "abcd"}, ["--trainworker", program]) as sites:
            number = launch(sites)
            chance = random.Random(options.seed)
            kills = [kill_once(sites, number, chance) for _ in range(options.kills)]
            found = judge(sites, number)
            sites.cancel(number)
    return {"topology": APART, "kills": kills, "mid_commit": sum(kill["mid_commit"] for kill in kills), **found}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "results" / "partition.json")
    parser.add_argument("--cuts", type=int, default=5)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if missing():
        sys.exit(f"no laboratory: {missing()}")
    result = {"commit": store.commit_of(BUILD.parent), "machine": store.machine(), "step_ms": STEP_MS, "inner_steps": PERIOD, "seed": options.seed,
              "coordinator": coordinator(options), "halves": halves(options)}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
