#!/usr/bin/env python3
"""What a new peer's join costs the others, and when it takes part: build/bin/faultbench with states of several sizes, whole in the newcomer's first
round or gradual over several, through shared memory and TCP. Medians (least to most) in ms; nothing is asserted.

    scripts/bench_newcomer.py [--build build] [--trials 5] [--states 0,16777216,268435456] [--bytes 1048576]
"""
import argparse
import json
import pathlib
import subprocess
import sys

AIMS = "aims: the others' next op +10 ms, it takes part after 150 ms"
COLUMNS = (("calm", "calm_ms"), ("result", "next_result_ms"), ("next round", "next_op_ms"), ("longest", "stall_ms"), ("settled", "settled_ms"),
           ("admitted", "admitted_ms"), ("ready", "ready_ms"), ("takes part", "takes_part_ms"), ("state", "state_ms"), ("contributes", "contributes_ms"))


def run(options, size, transport, state, gradual):
    words = [options.build / "bin" / "faultbench", "--fault", "join", "--world", 3, "--bytes", size, "--transport", transport, "--state", state,
             "--trials", options.trials, "--json", *(["--gradual"] if gradual else [])]
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout) if done.stdout.strip() else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--states", default="0,16777216,268435456")
    parser.add_argument("--bytes", default="1048576,67108864", help="of the ops; those after the first with an empty state alone")
    options = parser.parse_args()
    states, sizes = ([int(word) for word in words.split(",")] for words in (options.states, options.bytes))
    cases = [(sizes[0], state, gradual) for state in states for gradual in (False, True) if state > 0 or not gradual] + [(size, 0, False) for size in sizes[1:]]
    missed = 0
    print(f"a newcomer to three processes, {options.trials} joins each ({AIMS})")
    print(f"{'op':>6} {'state':>8} {'':8}" + "".join(f"{name:>22}" for name, _ in COLUMNS))
    for size, state, gradual in cases:
        for transport in ("tcp", "shm"):
            row = run(options, size, transport, state, gradual)
            if row is None:
                missed += 1
                print(f"{size >> 20:>4} M {state >> 20:>6} M {transport}: no join was measured")
                continue
            figures = "".join(f"{'%.1f (%.1f-%.1f)' % tuple(row[key]):>22}" for _, key in COLUMNS)
            print(f"{size >> 20:>4} M {state >> 20:>6} M {transport} {'grad' if gradual else '':4}{figures}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
