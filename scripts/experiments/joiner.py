"""A joiner at the end of a slow link: how long its state takes, and what the others lose meanwhile. Members and the joiner are nodes at sites of their
own of a laboratory (docs/wanlab.md; root); among the members 1 Gbit/s and 2 ms there and back, between the joiner and each of them 20 Mbit/s and 40 ms.

    build/venv/bin/python scripts/experiments/joiner.py [--only eager] [--members 2] [--donors 1] [--joins 3] [--out docs/results/joiner.json]

--donors: of how many members' links the bound state / rate is. --shared: the joiner has these 20 Mbit/s once, for all of its links. Computation is paced (variants/paced.patch). What the others lose is judged by the times between
their merges: from the one before the joiner's traind started to the one from which on it contributes, beside the rounds before, and beside those after, in which it is a member like any other. What is in the file of
other cases stays.
"""
import argparse
import json
import pathlib
import re
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "system"))

import plan  # noqa: E402
import store  # noqa: E402
import variants  # noqa: E402
from harness import wait_for  # noqa: E402
from sites import Sites  # noqa: E402
from stubs import BUILD  # noqa: E402
from wan_lab import WanLab, missing  # noqa: E402

TEXT = "/usr/share/doc/jargon-text/jargon.txt.gz"
RATE_MBIT, PAYLOAD = 20, 1448 / 1500  # of a rate, what TCP carries
CONTEXT, QUIET_ROUNDS, ROUNDS_WITH_IT = 8, 3, 2
# What sync says, milliseconds of a step: rounds shorter and longer than the state is on its way. Streaming's fragment leaves when most of the state must be there.
CASES = {"short": ({"mode": "diloco", "inner_steps": 20}, 250), "quick": ({"mode": "diloco", "inner_steps": 20, "codec": "int4"}, 60), "coded": ({"mode": "diloco", "inner_steps": 20, "codec": "int4"}, 250),
         "long": ({"mode": "diloco", "inner_steps": 40}, 600), "eager": ({"mode": "eager", "inner_steps": 40}, 600),
         "rare": ({"mode": "diloco", "inner_steps": 200, "codec": "int4"}, 600),  # rounds of two minutes, as the papers' are longer still
         "streaming": ({"mode": "streaming", "inner_steps": 90, "fragments": 3, "overlap": 10}, 600)}
MODEL = {**plan.MODEL, "width": 320, "context": CONTEXT}
SENDING, HERE = re.compile(r"^(\S+) .*: sending (?:pieces of )?the state after round (\d+) to peer (\d+)"), re.compile(r"^(\S+) .*peer (\d+): has the state after round (\d+)")
SENT = re.compile(r"sent (\d+) bytes of the state after round (\d+) to peer (\d+)")
JOB = "joined"


def topology(members, shared):
    own = f" up={RATE_MBIT}mbit down={RATE_MBIT}mbit" if shared else ""
    lines = [f"site {name}" for name in members] + [f"site j{own}"] + ["link all all delay=1ms rate=1gbit queue=20ms"]
    return "\n".join(lines + [f"link j {name} delay=20ms rate={RATE_MBIT}mbit queue=100ms" for name in members])


def stamp(text):
    """Seconds of a log line's time."""
    from datetime import datetime
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class Join:
    """One joiner after the other in one job."""

    def __init__(self, sites, members, sync):
        self.sites, self.members = sites, members
        train = {**plan.TRAIN, "steps": 10**6, "batch_tokens": len(members) * (len(members) + 1) * CONTEXT, "micro_sequences": 1, "warmup": 1, "seed": 1}
        self.number = sites.launch({"name": JOB, "model": MODEL, "data": {"text": [TEXT]}, "train": train,
                                    "mesh": {"nodes": len(members) + 1, "min_nodes": len(members), "threads": 1},
                                    "sync": sync, "checkpoint": {"dir": str(sites.folder / "checkpoints")}})

    def merges(self):
        """[(time, contributors of the next round)] of all merges, as the first member says."""
        text = self.sites.worker_output(self.members[0])
        rows = [json.loads(line) for line in text.splitlines() if line.startswith('{"merged"') and line.endswith("}")]
        return [(row["unix_s"], row["contributors"]) for row in rows]

    def await_rounds(self, count, contributors, since):
        wait_for(lambda: len([at for at, many in self.merges() if at > since and many == contributors]) >= count, f"{count} rounds of {contributors}", 600)

    def once(self):
        before = time.time()
        self.await_rounds(QUIET_ROUNDS + 1, len(self.members), before)
        began, seen = time.time(), {name: len(self.sites.log(f"node-{name}")) for name in [*self.members, "j"]}
        self.sites.start_node("j", "j")
        self.await_rounds(ROUNDS_WITH_IT + 1, len(self.members) + 1, began)
        logs = {name: self.sites.log(f"node-{name}")[seen[name]:] for name in seen}
        row = self.row(before, began, logs)
        ended = time.time()
        self.sites.end_node("j")
        self.await_rounds(2, len(self.members), ended)
        print("joiner:", row, file=sys.stderr, flush=True)
        return row

    def row(self, before, began, logs):
        here = [found for line in logs["j"].splitlines() if (found := HERE.match(line))][-1]
        peer, arrived = here.group(2), stamp(here.group(1))
        sending = [found for name in self.members for line in logs[name].splitlines() if (found := SENDING.match(line)) and found.group(3) == peer]
        sent = sum(int(found.group(1)) for name in self.members for found in SENT.finditer(logs[name]) if found.group(3) == peer)
        asked = min(stamp(found.group(1)) for found in sending)
        merges, alone = self.merges(), len(self.members)
        entered = min(at for at, many in merges if many == alone + 1 and at > began)
        times = [at for at, _ in merges if before <= at <= entered]
        lengths = [(later - at, later) for at, later in zip(times, times[1:])]
        quiet = statistics.median(length for length, end in lengths if end <= began)
        during = [length for length, end in lengths if end > began]
        later = [at for at, _ in merges if at >= entered]
        with_it = statistics.median(after - at for at, after in zip(later, later[1:]))
        return {"state_bytes": sent, "donors": len(sending), "start_to_asked_s": round(asked - began, 3), "transfer_s": round(arrived - asked, 3),
                "start_to_state_s": round(arrived - began, 3), "start_to_first_merge_s": round(entered - began, 3),
                "quiet_round_s": round(quiet, 3), "round_with_it_s": round(with_it, 3), "rounds_s": [round(length, 3) for length in during],
                "lost": round(1 - len(during) * quiet / sum(during), 4)}


def measure(members, case, joins, least_s, shared):
    sync, step_ms = CASES[case]
    with tempfile.TemporaryDirectory(prefix="joiner-") as folder, WanLab(topology(members, shared)) as lab:
        program = variants.paced(folder, step_ms / (len(members) + 1))
        with Sites(lab, folder, {name: name for name in members}, ["--trainworker", program]) as sites:
            sites.start_node("j", "j")  # a job begins with all its nodes
            began, join = time.time(), Join(sites, members, sync)
            join.await_rounds(1, len(members) + 1, began)
            sites.end_node("j")
            rows = [join.once() for _ in range(joins)]
            sites.cancel(join.number)
    note = {"note": "one link for all"} if shared else {}
    return {"commit": store.commit_of(BUILD.parent), "topology": topology(members, shared), **note, **sync, "step_ms": step_ms,
            "joins": [{**row, "of_least": round(row["transfer_s"] / least_s, 3)} for row in rows]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "results" / "joiner.json")
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--donors", type=int, default=1)
    parser.add_argument("--joins", type=int, default=3)
    parser.add_argument("--shared", action="store_true")
    parser.add_argument("--only", action="append", choices=list(CASES))
    options = parser.parse_args()
    if missing():
        sys.exit(f"no laboratory: {missing()}")
    members = ["a", "b", "c", "d", "e", "f", "g"][:options.members]
    parameters = plan.parameters_of(MODEL)
    least_s = 8 * parameters / (options.donors * RATE_MBIT * 1e6 / 8 * PAYLOAD)
    found = json.loads(options.out.read_text())["cases"] if options.out.exists() else {}
    for case in options.only or CASES:
        measured = measure(members, case, options.joins, least_s, options.shared)
        found[f"{case}-{options.members}-{options.donors}{'-shared' if options.shared else ''}"] = {"members": options.members, "donors": options.donors, "least_s": round(least_s, 3), **measured}
    result = {"machine": store.machine(), "model": MODEL, "parameters": parameters, "rate_mbit": RATE_MBIT, "cases": found}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
