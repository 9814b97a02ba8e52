"""Whether `auto` takes the algorithm that is fastest, over sizes, round trips, members and a slow one among them, and how far the cost model's times
(collectives/core/select.h) are from what is measured: collbench at sites of a laboratory (docs/wanlab.md; root), each site with 100 Mbit/s up and down.

    build/venv/bin/python scripts/experiments/auto.py [--out docs/results/auto.json]

Algorithms take turns, each in a new group; times are from the submission of an op to its result. A group's *first* ops are the second to fourth of it (the very first
one waits for connections, whatever the algorithm), its *later* ones those from the seventh on, when links have been measured and what is known of them has been agreed on; ops of less than 256 KiB come in
rounds of 16, and what is known changes between rounds only: there the first are those of the first round, the later those from the third on. A case's time of each is the least of its turns' medians.
The model (collectives/core/select.h) is computed from the links as they were asked for, TCP's payload of them; handling and adding, microseconds, are left out. It is compared with later ops.
Cases that the file has of the same commit are not measured again.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "system"))

import store  # noqa: E402
from stubs import BUILD  # noqa: E402
from wan_lab import WanLab, missing  # noqa: E402

RATE_MBIT, PAYLOAD = 100, 1448 / 1500
TRIP, CROWD, INPUTS = 1.2, 0.04, 0.02  # LONG_TRIP, LONG_CROWD_COST, LONG_INPUTS_COST of collectives/core/select.c
FIXED = ("ring", "star", "direct", "one-shot")
KIB, MIB = 1 << 10, 1 << 20
# Members, round trip in ms, bytes, the last member's part of the rate; most wanted first.
CASES = [(4, 200, MIB, 1), (4, 20, MIB, 1 / 10), (4, 20, 4 * MIB, 1 / 4), (8, 20, MIB, 1), (4, 20, 64 * KIB, 1), (4, 20, MIB, 1 / 2), (4, 1, MIB, 1), (4, 20, MIB, 1),
         (4, 200, 64 * KIB, 1), (4, 1, 64 * KIB, 1), (8, 20, 64 * KIB, 1), (8, 200, 64 * KIB, 1), (8, 200, MIB, 1), (8, 20, MIB, 1 / 4), (4, 20, 16 * MIB, 1),
         (4, 200, 16 * MIB, 1)]


def topology(members, rtt_ms, slow):
    names = "abcdefgh"[:members]
    rates = [RATE_MBIT] * (members - 1) + [RATE_MBIT * slow]
    lines = [f"site {name} up={rate:g}mbit down={rate:g}mbit queue=100ms" for name, rate in zip(names, rates)]
    return "\n".join([*lines, f"link all all delay={rtt_ms / 2:g}ms"])


def segments(size, rtt_ms):
    """Pieces that go on by themselves, bytes of one (op_segment_bytes, over long ways with TR_OP_SEGMENTS_LONG)."""
    if rtt_ms >= 4:
        each = min(max(-(-size // 120 // KIB) * KIB, 16 * KIB), 256 * KIB)
    else:
        middle = 171 * KIB
        each = max(-(-size // 24 // KIB) * KIB, 16 * KIB)
        each = each if each <= middle else max(size // 32, middle)
    return -(-size // each), each


def model_s(algorithm, members, rtt_ms, size, slow):
    """Of direct among unequal members with the weights that end all at the same moment, in whole segments (the bound, with trips as long as the way); the others go by the slowest link. Each member
    moves (1 + (n - 2) w) S of a share w: with no share for the slow one, that of the others is 1 / (n - 1)."""
    n, way, rate = members, rtt_ms / 2000, RATE_MBIT * 1e6 / 8 * PAYLOAD
    a, slowest, (count, each) = TRIP * way, size / (rate * slow), segments(size, rtt_ms)
    fullest, piece, fast_piece = -(-count // n) / count, each / (rate * slow), each / rate
    if algorithm == "direct" and slow == 1:
        return max(2 * a + (n - 1) * (fullest * slowest + piece), a + (1 + (n - 2) * fullest) * (1 + CROWD * (n - 2)) * slowest + piece)
    if algorithm == "direct":
        # All done at the same moment: shares w of the fast, u of the slow, (n - 1) w + u = 1.
        u = max(0.0, (slow * (1 + (n - 2) / (n - 1)) - 1) / ((n - 2) * (1 + slow / (n - 1))))
        w = (1 - u) / (n - 1)
        return max(2 * way + (1 - w) * size / rate, way + (1 + (n - 2) * w) * size / rate, 2 * way + (1 - u) * slowest, way + (1 + (n - 2) * u) * slowest) + piece
    if algorithm == "ring":
        trip = a if fullest * slowest < way else way
        return (2 * n - 3) * max(trip + piece, fullest * slowest) + trip + fullest * slowest
    inputs = (n - 1) * (1 + INPUTS * (n - 2))
    return {"star": 2 * a + max(inputs * size / rate, slowest) + (n - 1) * fast_piece, "one-shot": a + inputs * slowest}[algorithm]


def collbench(lab, members, size, algorithm):
    """Times of first and of later ops, each the median of theirs."""
    small = size < 256 * KIB
    iterations = 16 if small else 12 if size < 4 * MIB else 8 if size < 16 * MIB else 6
    argv = [BUILD / "bin" / "collbench", "--world", members, "--sites", ",".join("abcdefgh"[:members]), "--transport", "tcp", "--bytes", size,
            "--algo", algorithm, "--iters", iterations, "--json", "--each"]
    done = subprocess.run([str(word) for word in argv], env=lab.environment, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-400:])
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["identical"]
    each = found["each_s"]
    first, later = (each[1:iterations], each[2 * iterations:]) if small else (each[1:4], each[min(6, len(each) // 2):])
    return statistics.median(first), statistics.median(later), found["reason"]


def measure(case, turns):
    members, rtt_ms, size, slow = case
    first, later, reasons = ({algorithm: [] for algorithm in ("auto", *FIXED)} for _ in range(3))
    with WanLab(topology(members, rtt_ms, slow)) as lab:
        for name in "abcdefgh"[:members]:
            lab.net(name)
        for _ in range(turns):
            for algorithm in first:
                for kept, value in zip((first, later, reasons), collbench(lab, members, size, algorithm)):
                    kept[algorithm].append(value)
    row = {"members": members, "rtt_ms": rtt_ms, "bytes": size, "slow": slow, "first_s": first, "times_s": later, "why": reasons["auto"][-1]}
    for of, times in (("first_of_best", first), ("auto_of_best", later)):
        least = {algorithm: min(found) for algorithm, found in times.items()}
        row[of] = round(least["auto"] / min(least[algorithm] for algorithm in FIXED), 3)
    row["best"] = min(FIXED, key=least.get)
    row["of_model"] = {algorithm: round(least[algorithm] / model_s(algorithm, *case), 3) for algorithm in FIXED}
    return row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "results" / "auto.json")
    parser.add_argument("--turns", type=int, default=2)
    options = parser.parse_args()
    if missing():
        sys.exit(f"no laboratory: {missing()}")
    found = store.Rows(options.out, store.commit_of(BUILD.parent), ("members", "rtt_ms", "bytes", "slow"), "cases", rate_mbit=RATE_MBIT, wanted=len(CASES))
    for case in CASES:
        if not found.has(*case):
            row = measure(case, options.turns)
            found.put(row)
            print("auto:", {key: value for key, value in row.items() if key not in ("times_s", "first_s")}, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
