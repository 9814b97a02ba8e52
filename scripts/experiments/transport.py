"""How much of a long link the engine fills, by loss, congestion control and number of connections: scripts/bench_long_links.py, case by case; 100 Mbit/s
each way, busy both ways, 100 ms there and back, a queue of 100 ms (docs/wanlab.md; root).

    build/venv/bin/python scripts/experiments/transport.py [--seconds 30] [--out docs/results/transport.json]

`sockets` 0: as many as the engine thinks right. Cases that the file has of the same commit are not measured again.
"""
import argparse
import pathlib
import sys
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "system"), str(ROOT / "scripts")]

import bench_long_links  # noqa: E402
import store  # noqa: E402
from stubs import BUILD  # noqa: E402
from wan_lab import missing  # noqa: E402

LINK = {"rate": "100mbit", "queue": "100ms", "rtt_ms": 100, "bytes": 1 << 30, "seed": 1}
LOSSES = ("0", "0.0001", "0.001", "0.01")
# Congestion control (auto: what the engine chooses) and connections, most wanted first.
ARMS = (("cubic", 0), ("cubic", 1), ("auto", 0), ("auto", 1), ("cubic", 32), ("cubic", 8), ("auto", 8), ("auto", 32))


def measure(seconds, loss, congestion, sockets):
    looks = bench_long_links.measure(types.SimpleNamespace(**LINK, seconds=seconds), loss, sockets, congestion)
    row = {"loss": loss, "asked": congestion, "sockets": sockets}
    if looks is None:
        return {**row, "failed": True}
    found = bench_long_links.summary(looks)
    return {**row, "ran": found["congestion"], "mbit": round(found["second_half"], 2), "first_10_s_mbit": round(found["first_10_s"], 2),
            "lanes": found["lanes"], "changes": found["changes"], "dropped": round(found["dropped"], 5)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "results" / "transport.json")
    parser.add_argument("--seconds", type=float, default=30)
    options = parser.parse_args()
    if missing():
        sys.exit(f"no laboratory: {missing()}")
    found = store.Rows(options.out, store.commit_of(BUILD.parent), ("loss", "asked", "sockets"), link=LINK, seconds=options.seconds)
    for congestion, sockets in ARMS:
        for loss in LOSSES:
            if not found.has(loss, congestion, sockets):
                row = measure(options.seconds, loss, congestion, sockets)
                found.put(row)
                print("transport:", row, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
