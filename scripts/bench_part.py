#!/usr/bin/env python3
"""Runs one part of `make bench` and says how much of the machine other work took meanwhile: figures that were taken beside it
are not those of a quiet machine.

	scripts/bench_part.py NAME COMMAND...
"""
import os
import resource
import signal
import subprocess
import sys

QUIET_PERCENT = 5


def machine_s():
    """CPU time that anybody used, hypervisor's other guests included, and all that there was."""
    with open("/proc/stat") as stat:
        user, nice, system, idle, wait, irq, soft, steal = map(int, stat.readline().split()[1:9])
    ticks = os.sysconf("SC_CLK_TCK")
    busy = user + nice + system + irq + soft + steal
    return busy / ticks, (busy + idle + wait) / ticks


def children_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main():
    name, command = sys.argv[1], sys.argv[2:]
    print(f"== {name}", flush=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # the command gets it too, and has a cluster to end
    busy, whole = machine_s()
    code = subprocess.run(command).returncode
    busy_after, whole_after = machine_s()
    others = 100 * max(0.0, busy_after - busy - children_s()) / max(whole_after - whole, 1e-9)
    if others > QUIET_PERCENT:
        print(f"   (other work took {others:.0f} % of the machine meanwhile: times are not those of a quiet machine)")
    if code != 0:
        print(f"bench: failed: {' '.join(command)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
