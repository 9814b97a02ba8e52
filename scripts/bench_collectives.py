#!/usr/bin/env python3
"""All-reduce through libtraincoll beside its peers and beside a bare ring in C, in one interleaved run: every contender has its
turn at every case, then all again, so that what else the machine does falls on all of them. Prints a table, the ratios
with the project's targets beside them, and writes everything to a JSON file and a plot. Nothing is asserted.

	build/venv/bin/python scripts/bench_collectives.py [--quick | --full] [--algo auto,direct] [--out DIR] [--build DIR]

docs/benchmarks.md says what the columns mean.
"""
import argparse
import collections
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

import bench_plot
from bench_peers import BYTES, FLOOR, SMALL_BYTES, contenders, reason_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
KIB, MIB = 1 << 10, 1 << 20
SMALL_OPS = 256  # timed at least, below SMALL_BYTES
# In shared memory for half a second: the scheduler needs some tenths of one to spread processes that have just been started.
SMALL_OPS_SHM = 60000
KILL_AT = 0.5
HALVING = "Gloo halving-doubling"
MPI_SHM = "Open MPI shm"


def size_text(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB" if size >= KIB else f"{size} B"


def case_list(full):
    """[{transport, world, bytes}]. All that the targets speak of, or what fits into three minutes."""
    def cases(transport, worlds, sizes):
        return [{"transport": transport, "world": world, "bytes": size} for world in worlds for size in sizes]
    if full:
        small, large = [4, KIB, 16 * KIB, 64 * KIB], [MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB]
        return cases("tcp", [4], small) + cases("tcp", [2, 4, 8], large) + cases("shm", [4], small) + cases("shm", [2, 4, 8], large)
    return (cases("tcp", [4], [4, 64 * KIB]) + cases("tcp", [2, 4, 8], [64 * MIB]) + cases("shm", [4], [4, 64 * KIB])
            + cases("shm", [4], [64 * MIB]))


def iterations_of(case, full):
    if case["bytes"] < SMALL_BYTES:
        return SMALL_OPS_SHM if case["transport"] == "shm" and case["bytes"] <= KIB else SMALL_OPS
    return max(3, min(50, (1024 if full else 320) * MIB // case["bytes"] // case["world"] * 2))


class Run:
    """What was measured, and what could not be."""

    def __init__(self, build, algorithms, full, peers, plain_pages):
        self.build, self.full = pathlib.Path(build), full
        self.everybody = [one for one in contenders(build, algorithms, plain_pages) if one.ours or not peers or one.name in peers]
        self.absent = {one.name + (f" {one.transport}" if one.ours else ""): one.missing for one in self.everybody if one.missing}
        self.refused = {}  # {(contender, transport or option): reason}: not asked again
        self.rows = []

    def turn(self, one, case, repetition):
        if (one.name, one.transport) in self.refused:
            return
        result, reason = one.run(case, iterations_of(case, self.full))
        if result is None:
            self.refused[one.name, one.transport] = reason
            return
        self.rows.append({**result, "contender": one.name, "ours": one.ours, "transport": one.transport, "repetition": repetition})

    def measure(self, cases, repetitions):
        for repetition in range(repetitions):
            for case in cases:
                able = [one for one in self.everybody if not one.missing and one.transport == case["transport"]
                        and (self.full or not one.slow or case["world"] == 4)]
                turn = repetition % len(able) if able else 0
                for one in able[turn:] + able[:turn]:  # nobody is always the first
                    self.turn(one, case, repetition)

    def collbench(self, key, options, repetitions):
        """Rows of collbench alone, for what no peer has; None and a reason kept if this library has it not either."""
        rows = []
        for _ in range(repetitions):
            done = subprocess.run([self.build / "bin" / "collbench", "--json", *map(str, options)], capture_output=True, text=True,
                                  timeout=300)
            if done.returncode != 0 or not done.stdout.strip():
                self.refused["collbench", key] = reason_of(done)
                return None
            rows.append(json.loads(done.stdout))
        return rows


def medians(rows):
    """{(transport, world, bytes): {contender: row}}, figures being medians over the repetitions."""
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row["transport"], row["world"], row["bytes"], row["contender"]].append(row)
    table = collections.defaultdict(dict)
    for (transport, world, size, name), some in groups.items():
        merged = dict(some[0])
        for key in ("median_s", "busbw_gbps", "algbw_gbps", "cpu_s", "rss_mib", "wire_bytes", "round_s"):
            if key in some[0]:
                merged[key] = statistics.median(row[key] for row in some)
        merged["identical"] = all(row["identical"] for row in some)
        merged["spread"] = max(row["median_s"] for row in some) / min(row["median_s"] for row in some)
        table[transport, world, size][name] = merged
    return table


def best(rows, keep):
    """The fastest of those rows, or None."""
    return min((row for row in rows if keep(row)), key=lambda row: row["median_s"], default=None)


def is_peer(row):
    return not row["ours"] and row["contender"] not in (*FLOOR.values(), BYTES)


def print_table(table):
    print(f"{'':11}{'contender':24}{'time':>12}{'busbw':>12}{'of floor':>9}{'of best peer':>13}{'CPU':>11}{'/floor':>8}{'on the wire':>12}"
          f"{'RSS':>8}  notes")
    for (transport, world, size), by_name in table.items():
        print(f"{transport} n={world} {size_text(size)}")
        floor, peer = by_name.get(FLOOR[transport]), best(by_name.values(), is_peer)
        for row in sorted(by_name.values(), key=lambda row: row["median_s"]):
            def ratio(other):
                return f"{other['median_s'] / row['median_s']:.2f}x" if other else "-"
            notes = [] if row["identical"] else ["RESULTS DIFFER"]
            notes += [row["congestion"]] if transport == "tcp" and row["congestion"] not in ("", "cubic") else []
            notes += [f"runs differ {row['spread']:.1f}x"] if row["spread"] > 1.5 else []
            notes += [f"with commit {row['round_s'] * 1e6:.1f} us"] if "round_s" in row and size < SMALL_BYTES else []
            bandwidth = f"{row['busbw_gbps']:.3f} GB/s" if size >= SMALL_BYTES else "-"
            cpu = f"{row['cpu_s'] / floor['cpu_s']:.2f}x" if floor else "-"
            wire = f"{row['wire_bytes'] / size:.2f} S" if size >= SMALL_BYTES else f"{row['wire_bytes']:.0f} B"
            print(f"{'':11}{row['contender']:24}{row['median_s'] * 1e6:9.1f} us{bandwidth:>12}{ratio(floor):>9}{ratio(peer):>13}"
                  f"{row['cpu_s'] * 1e3:8.2f} ms{cpu:>8}{wire:>12}{row['rss_mib']:4.0f} MiB  {', '.join(notes)}")


def targets(table):
    """[(what, ratio, wanted)]: of `auto`, what users get, and of our fastest algorithm where that is another; a ratio above `wanted` is a target met."""
    found = []
    for (transport, world, size), by_name in table.items():
        fastest = best(by_name.values(), lambda row: row["ours"])
        shown = [row for row in by_name.values() if row["ours"] and (row is fastest or row["algo"] == "auto")]
        for ours in shown:
            found += targets_of(ours, by_name, transport, world, size)
    return found


def targets_of(ours, by_name, transport, world, size):
    found = []
    where = f"{transport} n={world} {size_text(size)}"

    def beside(other, wanted, words):
        if other is not None:
            found.append({"case": where, "ours": ours["contender"], "what": words, "wanted": wanted,
                          "ratio": other["median_s"] / ours["median_s"]})
    peer = best(by_name.values(), is_peer)
    name = peer["contender"] if peer else ""
    if transport == "tcp" and size >= 16 * MIB:
        beside(peer, 1.5 if world < 8 else 1.0, f"faster than the best peer ({name})")
        if world < 8:
            beside(by_name.get(FLOOR[transport]), 0.9, "of the bare ring's speed")
        beside(by_name.get(BYTES), 0.0, "of the speed of its bytes alone (bare bytes)")
    elif transport == "tcp" and size <= 64 * KIB:
        beside(by_name.get(HALVING), 2.0, "faster than Gloo's halving-doubling")
    elif transport == "shm" and size <= 64 * KIB:
        beside(by_name.get(MPI_SHM), 1 / 1.5, "of Open MPI's shared memory's speed")
    elif transport == "shm":
        beside(by_name.get(MPI_SHM), 3.0 if (world, size) == (4, 64 * MIB) else 1.0, "faster than Open MPI's shared memory")
        beside(by_name.get(FLOOR[transport]), 0.0, "of the speed of memory (bare fold)")
    return found


def codec_targets(run, repetitions, found):
    plain, coded = [], []
    for _ in range(repetitions):
        for codec, rows in (("none", plain), ("int8", coded)):
            more = run.collbench(f"codec {codec}", ["--world", 4, "--bytes", 64 * MIB, "--transport", "tcp", "--iters", 5,
                                                    "--codec", codec], 1)
            if more is None:
                return
            rows += more
    for what, key, wanted in (("faster than f32 as it is", "median_s", 1.5), ("fewer bytes on the wire", "wire_bytes", 3.5)):
        ratio = statistics.median(row[key] for row in plain) / statistics.median(row[key] for row in coded)
        found.append({"case": "tcp n=4 64 MiB int8", "ours": "traind auto", "what": what, "ratio": ratio, "wanted": wanted})


def memory_target(run, found):
    rows = run.collbench("memory", ["--world", 2, "--bytes", 256 * MIB, "--transport", "tcp", "--iters", 2], 1)
    if rows:
        found.append({"case": "tcp n=2 256 MiB", "ours": "traind auto", "wanted": 1.0, "ratio": 32 / max(rows[0]["rss_mib"], 0.1),
                      "what": f"of the 32 MiB that it may add to the peak memory (it added {rows[0]['rss_mib']:.0f})"})


def print_targets(found):
    print("\nratios beside the targets: of auto, and of the fastest of our algorithms where that is another")
    for one in found:
        mark = "met" if one["ratio"] >= one["wanted"] else "not met"
        aim = f" (target {one['wanted']:.2f}x: {mark})" if one["wanted"] > 0 else ""
        print(f"  {one['case']:20} {one['ours']:14} {one['ratio']:6.2f}x {one['what']}{aim}")


def print_deaths(name, rows):
    if not rows:
        return
    def middle(key):
        return statistics.median(row[key] for row in rows)
    late = sum(row["trigger"] != "bytes" for row in rows)
    detected = [row["detect_s"] for row in rows if row["detect_s"] is not None]
    print(f"  {name.split()[0]} of 1 of 4 in mid 64 MiB, {rows[0]['algo']}{', its hub' if name.endswith('hub') else ''}: {middle('disturbed_s') * 1e3:.0f} ms instead of "
          f"{middle('undisturbed_s') * 1e3:.0f}: {middle('added_s') * 1e3:+.0f} ms{' (target +50)' if name.startswith('SIGKILL') else ''}; first known after "
          f"{statistics.median(detected) * 1e3 if detected else float('nan'):.0f} ms; "
          f"{middle('resent_shares'):.2f} S/n given out again{' (target 1.5)' if name == 'SIGKILL direct' else ''}; "
          f"{'exact' if all(row['exact'] for row in rows) else 'NOT EXACT'}{f'; {late} of {len(rows)} ended before it' if late else ''}")


def machine():
    def setting(name):
        path = pathlib.Path("/proc/sys/net/ipv4") / name
        return path.read_text().strip() if path.exists() else "unknown"
    cpu = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return {"cpu": cpu[0] if cpu else platform.machine(), "cores": os.cpu_count(), "kernel": platform.release(),
            "system_congestion": setting("tcp_congestion_control"), "load_before": os.getloadavg()[0],
            "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"), "commit": head}


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.environ.get("TRAIND_BUILD") or ROOT / "build", type=pathlib.Path)
    parser.add_argument("--full", action="store_true", help="all sizes and world sizes; 20 minutes")
    parser.add_argument("--quick", action="store_true", help="few cases, some minutes (default)")
    parser.add_argument("--algo", default="auto", help="of ours, with commas: auto,ring,star,direct,one-shot")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--peers", default="", help="only these, with commas: 'bare ring,Open MPI shm'")
    parser.add_argument("--plain-pages", action="store_true",
                        help="peers' memory as their programs get it from malloc; else all have huge pages, as tr_alloc gives")
    parser.add_argument("--only", default="", help="a part of a case's name, as 'tcp n=4'")
    parser.add_argument("--out", type=pathlib.Path, help="folder for collectives.svg and .json (BUILD; docs/images is the kept one)")
    return parser.parse_args()


def main():
    options = parse()
    began = time.monotonic()
    facts = machine()
    run = Run(options.build, options.algo.split(","), options.full, [name for name in options.peers.split(",") if name],
              options.plain_pages)
    cases = [case for case in case_list(options.full)
             if options.only in f"{case['transport']} n={case['world']} {size_text(case['bytes'])}"]
    run.measure(cases, options.repetitions)
    table = medians(run.rows)
    print(f"one all-reduce, f32, sum, between processes of this machine; medians of {options.repetitions} turns of each contender")
    print_table(table)
    found = targets(table)
    deaths = {}
    if not options.only:
        codec_targets(run, options.repetitions, found)
        memory_target(run, found)
        middle = ["--world", 4, "--bytes", 64 * MIB, "--iters", 7, "--transport", "tcp"]
        for algorithm in ("direct", "ring", "star"):
            deaths[f"SIGKILL {algorithm}"] = run.collbench("--kill-at", [*middle, "--algo", algorithm, "--kill-at", KILL_AT],
                                                           options.repetitions)
        deaths["SIGKILL hub"] = run.collbench("--victim", [*middle, "--algo", "star", "--kill-at", KILL_AT, "--victim", "busiest"],
                                              options.repetitions)
        deaths["SIGSTOP"] = run.collbench("--stop-at", [*middle, "--algo", "direct", "--stop-at", KILL_AT], 1)
    print_targets(found)
    for name, rows in deaths.items():
        print_deaths(name, rows)
    if any(run.absent) or any(run.refused):
        print("not measured")
    for name, reason in run.absent.items():
        print(f"  {name}: {reason}")
    for (name, what), reason in run.refused.items():
        print(f"  {name}, {what}: {reason}")
    facts["load_after"], facts["took_s"] = os.getloadavg()[0], round(time.monotonic() - began)
    out = options.out or options.build
    out.mkdir(parents=True, exist_ok=True)
    everything = {"machine": facts, "options": {key: str(value) for key, value in vars(options).items()}, "targets": found,
                  "deaths": deaths, "absent": run.absent, "refused": {f"{a}, {b}": reason for (a, b), reason in run.refused.items()},
                  "medians": [row for by_name in table.values() for row in by_name.values()], "runs": run.rows}
    (out / "collectives.json").write_text(json.dumps(everything, indent=1) + "\n")
    bench_plot.draw(out / "collectives.svg", table, facts)
    print(f"\nwrote {out / 'collectives.json'} and {out / 'collectives.svg'} after {facts['took_s']} s; load average before: "
          f"{facts['load_before']:.1f}, after: {facts['load_after']:.1f} on {facts['cores']} cores")
    return 0 if run.rows and all(row["identical"] for row in run.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
