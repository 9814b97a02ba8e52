#!/usr/bin/env python3
"""All-reduce through libtraincoll between processes of this machine, over TCP, beside a bare memcpy of the same bytes in one
process: what the bytes cost when nobody has to send, add or agree. Figures of one run; nothing is asserted."""
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("TRAIND_BUILD") or ROOT / "build")
SIZES = {"4 B": 4, "64 KiB": 64 << 10, "4 MiB": 4 << 20, "64 MiB": 64 << 20}


def main():
    bench = BUILD / "bin" / "collbench"
    if not bench.exists():
        print(f"collectives: {bench} is not built")
        return 1
    argv = [str(bench), "--world", "2,4,8", "--bytes", ",".join(map(str, SIZES.values())), "--algo", "ring,star,auto",
            "--iters", "10", "--json"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=900)
    names = {count: name for name, count in SIZES.items()}
    print(f"{'world':>5} {'bytes':>7} {'algo':>5} {'all-reduce':>12} {'with commit':>12} {'busbw':>11} {'of memcpy':>10}")
    for line in done.stdout.splitlines():
        case = json.loads(line)
        print(f"{case['world']:5} {names[case['bytes']]:>7} {case['algo']:>5} {case['median_s'] * 1e6:9.0f} us"
              f" {case['round_s'] * 1e6:9.0f} us {case['busbw_gbps']:6.3f} GB/s {case['busbw_gbps'] / case['memcpy_gbps']:9.1%}"
              + ("" if case["identical"] else "   RESULTS DIFFER"))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
