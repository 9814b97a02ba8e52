#!/usr/bin/env python3
"""Lines of the cores that the simulator ran: `make sim SEEDS=1..1000 COVERAGE=1`.

Reads what gcov counted below a build folder and prints each file's lines, and the lines and functions that no seed reached.
"""
import argparse
import collections
import json
import pathlib
import subprocess
import sys

# Of the engine: states that come in pieces.
CORES = {"collectives/core": "*", "daemon/membership/core": "*", "collectives/engine": "state_*"}


def counts(build, folder, names):
    """{file: {line: count}} and {file: {function: count}} of the sources in this folder."""
    lines = collections.defaultdict(lambda: collections.defaultdict(int))
    functions = collections.defaultdict(lambda: collections.defaultdict(int))
    data = sorted((build / "obj" / folder).glob(f"{names}.gcda"))
    if not data:
        sys.exit(f"sim_coverage: no counts below {build}/obj/{folder}")
    data += sorted((build / "obj" / "tests" / "sim").glob("*.gcda"))  # tests/sim/fold.c and path.c are the core's files too
    out = subprocess.run(["gcov", "--json-format", "--stdout", *map(str, data)], check=True, capture_output=True, text=True)
    for text in out.stdout.splitlines():
        for file in json.loads(text)["files"] if text.strip() else ():
            name = file["file"]
            if not name.startswith(folder) or not name.endswith(".c"):
                continue
            for line in file["lines"]:
                lines[name][line["line_number"]] += line["count"]
            for function in file["functions"]:
                functions[name][function["name"]] += function["execution_count"]
    return lines, functions


def ranges(numbers):
    """5-7, 9"""
    out = []
    for number in sorted(numbers):
        if out and out[-1][1] == number - 1:
            out[-1][1] = number
        else:
            out.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--lines", action="store_true", help="name the lines that were not reached")
    options = parser.parse_args()
    for folder, names in CORES.items():
        lines, functions = counts(options.build, folder, names)
        all_lines = all_hit = 0
        never = []
        for name in sorted(lines):
            hit = sum(count > 0 for count in lines[name].values())
            all_lines += len(lines[name])
            all_hit += hit
            print(f"{name:45} {hit:5} of {len(lines[name]):5} lines {100 * hit / len(lines[name]):6.1f} %")
            if options.lines and hit < len(lines[name]):
                print("    not reached:", ranges(n for n, count in lines[name].items() if count == 0))
            never += [f"{name}: {function}" for function, count in sorted(functions[name].items()) if count == 0]
        print(f"{folder + ': all':45} {all_hit:5} of {all_lines:5} lines {100 * all_hit / all_lines:6.1f} %")
        print(f"functions never entered: {len(never)} of {sum(map(len, functions.values()))}")
        for name in never:
            print("   ", name)
        print()


main()
