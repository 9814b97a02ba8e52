#!/usr/bin/env python3
"""All-reduce through libtraincoll between processes of this machine, over TCP, beside a bare memcpy of the same bytes in one
process: what the bytes cost when nobody has to send, add or agree. Figures of one run; nothing is asserted.

	build/venv/bin/python scripts/bench_collectives.py [--build DIR] [--world 2,4,8] [--iters N]
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZES = {"4 B": 4, "64 KiB": 64 << 10, "4 MiB": 4 << 20, "64 MiB": 64 << 20}
ALGORITHMS = ["ring", "star", "auto"]
LEGEND = """one all-reduce of float32 between processes of this machine; medians of {iters} rounds, of the slowest process
  all-reduce   from the call to the sum's arrival; with commit: until all have agreed on the round
  busbw        bytes * 2 (n - 1) / n / time, which does not depend on n when links are what is scarce; here {cores} cores are
  of memcpy    busbw beside memcpy of as many bytes; of small ones the latency is all, so they have none"""


def text(case, names):
    row = (f"{case['world']:9} {names[case['bytes']]:>7} {case['algo']:>5} {case['median_s'] * 1e6:10.0f} us"
           f" {case['round_s'] * 1e6:10.0f} us")
    if case["bytes"] >= 64 << 10:
        row += f" {case['busbw_gbps']:8.3f} GB/s {case['busbw_gbps'] / case['memcpy_gbps']:9.1%}"
    return row + ("" if case["identical"] else "   RESULTS DIFFER")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.environ.get("TRAIND_BUILD") or ROOT / "build", type=pathlib.Path)
    parser.add_argument("--world", default="2,4,8")
    parser.add_argument("--iters", type=int, default=10)
    options = parser.parse_args()
    bench = options.build / "bin" / "collbench"
    if not bench.exists():
        print(f"collectives: {bench} is not built; `make {bench}` builds it")
        return 1
    argv = [str(bench), "--world", options.world, "--bytes", ",".join(map(str, SIZES.values())), "--algo",
            ",".join(ALGORITHMS), "--iters", str(options.iters), "--json"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=900)
    cases = sorted(map(json.loads, done.stdout.splitlines()),
                   key=lambda case: (case["world"], case["bytes"], ALGORITHMS.index(case["algo"])))
    names = {count: name for name, count in SIZES.items()}
    print(LEGEND.format(iters=options.iters, cores=os.cpu_count()))
    print(f"{'processes':>9} {'bytes':>7} {'algo':>5} {'all-reduce':>13} {'with commit':>13} {'busbw':>13} {'of memcpy':>9}")
    for case in cases:
        print(text(case, names))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
