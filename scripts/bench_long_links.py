#!/usr/bin/env python3
"""How the engine fills a long link: all-reduces between two sites of a laboratory (docs/wanlab.md; root), while it is watched how many TCP
connections the engine uses, with which congestion control, and what comes through. Prints a table; nothing is asserted.

	build/venv/bin/python scripts/bench_long_links.py [--seconds 30] [--rate 100mbit] [--rtt-ms 100] [--loss 0,0.0001,0.001]
	    [--sockets 0,1,8] [--congestion auto,cubic] [--json FILE]

--sockets 0: as many as the engine thinks right. The rate is that of IP packets that arrived, over the second half of the time.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "system"))

from stubs import BUILD  # noqa: E402
from wan_lab import WanLab, missing  # noqa: E402

LOOK_S = 0.25


def listening(lab, site):
    """The port of the engine in the site: the one that is not memberd's has no other use there."""
    done = subprocess.run(lab.command(site, ["ss", "-Hltn"]), env=lab.environment, capture_output=True, text=True)
    return {int(line.split()[3].rsplit(":", 1)[1]) for line in done.stdout.splitlines()}


def connections(lab, site, other, ports):
    """What the site's kernel says of the connections that it dialled to the other's engine."""
    done = subprocess.run(lab.command(site, ["ss", "-Htni", "state", "established", "dst", lab.address(other)]), env=lab.environment,
                          capture_output=True, text=True)
    found = []
    lines = done.stdout.splitlines()
    for head, detail in zip(lines[::2], lines[1::2]):
        if int(head.split()[3].rsplit(":", 1)[1]) in ports:
            found.append({"congestion": detail.split()[0], "rtt_ms": float(re.search(r"\brtt:([\d.]+)", detail).group(1)),
                          "acked": int((re.search(r"bytes_acked:(\d+)", detail) or [0, 0])[1]),
                          "cwnd": int(re.search(r"cwnd:(\d+)", detail).group(1)),
                          "retransmitted": int((re.search(r"retrans:\d+/(\d+)", detail) or [0, 0])[1])})
    return found


def measure(options, loss, sockets, congestion):
    topology = f"site a\nsite b\nlink a b delay={options.rtt_ms / 2}ms rate={options.rate} queue={options.queue} loss={loss}"
    argv = [BUILD / "bin" / "collbench", "--world", "2", "--sites", "a,b", "--transport", "tcp", "--bytes", options.bytes, "--iters", "10000", "--json"]
    argv += ["--sockets", sockets] if sockets else []
    argv += ["--congestion", congestion] if congestion != "auto" else []
    looks = []
    with WanLab(topology, seed=options.seed) as lab:
        lab.net("a"), lab.net("b")
        bench = subprocess.Popen([str(word) for word in argv], env=lab.environment, stdout=subprocess.DEVNULL)
        start = time.monotonic()
        while time.monotonic() < start + options.seconds and bench.poll() is None:
            counters, open_now = lab.show()["a", "b"], connections(lab, "a", "b", listening(lab, "b"))
            looks.append({"s": time.monotonic() - start, "bytes": counters["bytes"], "dropped": counters["dropped"], "lost": counters["lost"],
                          "arrived": counters["arrived"], "lanes": len(open_now), "connections": open_now})
            time.sleep(LOOK_S)
        well = bench.poll() is None
        bench.terminate()
        bench.wait()
    return looks if well else None


def summary(looks):
    def rate(since, until):
        some = [look for look in looks if since <= look["s"] <= until]
        return (some[-1]["bytes"] - some[0]["bytes"]) * 8 / (some[-1]["s"] - some[0]["s"]) / 1e6
    lanes, changes = 0, []
    for look in looks:
        if look["lanes"] != lanes and look["lanes"]:
            lanes = look["lanes"]
            changes.append((round(look["s"], 1), lanes))
    end = looks[-1]["s"]
    names = sorted({one["congestion"] for one in looks[-1]["connections"]})
    drops = looks[-1]["dropped"] + looks[-1]["lost"]
    return {"first_10_s": rate(0, 10), "second_half": rate(end / 2, end), "lanes": lanes, "changes": changes, "congestion": ",".join(names),
            "rtt_ms": max((one["rtt_ms"] for one in looks[-1]["connections"]), default=0),
            "dropped": looks[-1]["dropped"] / max(1, looks[-1]["arrived"] + drops)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--queue", default="100ms")
    parser.add_argument("--rtt-ms", type=float, default=100)
    parser.add_argument("--bytes", type=int, default=32 << 20)
    parser.add_argument("--loss", default="0,0.0001,0.001")
    parser.add_argument("--sockets", default="0,1,8")
    parser.add_argument("--congestion", default="auto,cubic")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    options = parser.parse_args()
    if missing():
        sys.exit(f"no laboratory: {missing()}")
    rows = []
    print(f"{options.rate}, round trip {options.rtt_ms:g} ms, queue {options.queue}, vector of {options.bytes >> 20} MiB, {options.seconds:g} s each; Mbit/s one way")
    print("  loss    asked for      ran             first 10 s  second half  k over time (s:k)            dropped  rtt ms")
    for loss in options.loss.split(","):
        for congestion in options.congestion.split(","):
            for sockets in map(int, options.sockets.split(",")):
                looks = measure(options, loss, sockets, congestion)
                if looks is None:
                    print(f"  {loss:7} {congestion} k={sockets or 'auto'}: collbench failed")
                    continue
                row = {"loss": loss, "asked": congestion, "sockets": sockets, **summary(looks)}
                rows.append({**row, "looks": looks})
                over_time = " ".join(f"{at}:{lanes}" for at, lanes in row["changes"])
                print(f"  {loss:7} {congestion:6} k={sockets or 'auto':<5} {row['congestion']:6} k={row['lanes']:<4} {row['first_10_s']:12.1f} {row['second_half']:12.1f}"
                      f"  {over_time:28} {row['dropped']:7.2%} {row['rtt_ms']:7.0f}", flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
