"""Whether `auto` takes the algorithm that is fastest, over sizes, round trips, members and a slow one among them, and how far the cost model's times
(collectives/core/select.h) are from what is measured: collbench at sites of a laboratory (docs/wanlab.md; root), each site with 100 Mbit/s up and down.

    build/venv/bin/python scripts/experiments/auto.py [--out docs/results/auto.json]

Algorithms take turns; a case's time of each is the least of its turns' medians, from the submission of an op to its result. The model is computed from the
links as they were asked for, TCP's payload of them; handling and adding, microseconds, are left out. Cases that the file has of the same commit are not measured again.
"""
import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "system"))

import store  # noqa: E402
from stubs import BUILD  # noqa: E402
from wan_lab import WanLab, missing  # noqa: E402

RATE_MBIT, PAYLOAD = 100, 1448 / 1500
FIXED = ("ring", "star", "direct", "one-shot")
KIB, MIB = 1 << 10, 1 << 20
# Members, round trip in ms, bytes, the last member's part of the rate; most wanted first.
CASES = [(4, rtt, size, 1) for rtt in (20, 200, 1) for size in (64 * KIB, MIB)] + [
    (4, 20, MIB, 1 / 2), (4, 20, MIB, 1 / 10), (8, 20, 64 * KIB, 1), (8, 20, MIB, 1), (4, 20, 4 * MIB, 1 / 4), (4, 20, 16 * MIB, 1), (8, 200, 64 * KIB, 1),
    (8, 200, MIB, 1), (8, 20, MIB, 1 / 4), (4, 200, 16 * MIB, 1)]


def topology(members, rtt_ms, slow):
    names = "abcdefgh"[:members]
    rates = [RATE_MBIT] * (members - 1) + [RATE_MBIT * slow]
    lines = [f"site {name} up={rate:g}mbit down={rate:g}mbit queue=100ms" for name, rate in zip(names, rates)]
    return "\n".join([*lines, f"link all all delay={rtt_ms / 2:g}ms"])


def model_s(algorithm, members, rtt_ms, size, slow):
    """Of direct among unequal members: the least that weights can come to; the others go by the slowest link. Each member moves (1 + (n - 2) w) S of a
    share w: with S / B of the slow one, and no share for it, that of the others is 1 / (n - 1)."""
    n, a, rate = members, rtt_ms / 2000, RATE_MBIT * 1e6 / 8 * PAYLOAD
    slowest = size / (rate * slow)
    if algorithm == "direct":
        # All done at the same moment: shares w of the fast, u of the slow, (n - 1) w + u = 1.
        u = max(0.0, (slow * (1 + (n - 2) / (n - 1)) - 1) / ((n - 2) * (1 + slow / (n - 1))))
        w = (1 - u) / (n - 1)
        return 2 * a + max((1 + (n - 2) * w) * size / rate, (1 + (n - 2) * u) * slowest)
    return {"ring": 2 * (n - 1) * a + 2 * (n - 1) / n * slowest, "star": 2 * a + max((n - 1) * size / rate, slowest),
            "one-shot": a + (n - 1) * slowest}[algorithm]


def collbench(lab, members, size, algorithm, iterations):
    argv = [BUILD / "bin" / "collbench", "--world", members, "--sites", ",".join("abcdefgh"[:members]), "--transport", "tcp", "--bytes", size,
            "--algo", algorithm, "--iters", iterations, "--json"]
    done = subprocess.run([str(word) for word in argv], env=lab.environment, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-400:])
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["identical"]
    return found["median_s"]


def measure(case, turns):
    members, rtt_ms, size, slow = case
    iterations = 10 if size < MIB else 6 if size < 4 * MIB else 4
    times = {algorithm: [] for algorithm in ("auto", *FIXED)}
    with WanLab(topology(members, rtt_ms, slow)) as lab:
        for name in "abcdefgh"[:members]:
            lab.net(name)
        for _ in range(turns):
            for algorithm, found in times.items():
                found.append(collbench(lab, members, size, algorithm, iterations))
    least = {algorithm: min(found) for algorithm, found in times.items()}
    best = min(FIXED, key=least.get)
    return {"members": members, "rtt_ms": rtt_ms, "bytes": size, "slow": slow, "times_s": times, "best": best,
            "auto_of_best": round(least["auto"] / least[best], 3),
            "of_model": {algorithm: round(least[algorithm] / model_s(algorithm, *case), 3) for algorithm in FIXED}}


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
            print("auto:", {key: value for key, value in row.items() if key != "times_s"}, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
