"""Machines with a cable each (network namespaces, root is needed) for bench_plan.py --links: a cluster that it asks as it does one host's, and the jobs that it runs there.
TRAIND_BUILD is to be set before it is imported.

Each machine is a core of this one: its traind and all that it starts run there alone, so two of them compute at once without taking each other's time (but of memory and of its caches), and say that their
cores are all in use, which they are. The third machine has the first one's core. So what three stages compute is to be next to nothing beside what they send, or the figure is that of a core too few."""
import contextlib
import os

from harness import wait_for
from node_lab import NodeLab
from stubs import pb

# What a cable carries at once after a rest. 64 KB are half a message of a pipeline here, and steps of 1f1b, which rest often, were a fifth shorter than their bytes take at 10 Mbit/s; 8 KB are 6 ms of that, but 65 us of 1 Gbit/s.
BURST, BURST_FAST = "8kb", "64kb"
SMALL = "{preset: gpt2, layers: 4, width: 128, heads: 4, context: 128, vocab: bytes}"
NARROW = "{preset: gpt2, layers: 3, width: 64, heads: 4, context: 128, vocab: bytes}"  # a layer for each of three stages
TP, PP, ONE_EACH, GPIPE = "tp: 2", "pp: 2", "pp: 3, schedule: 1f1b", "pp: 3, schedule: gpipe"
# name: rate of each cable, machines; model, tokens a step, sequences of a microbatch, what mesh.* says
CASES = {
    "4 x 128, dp 2, 1 Gbit/s": ("1gbit", 2, (SMALL, 4096, 2, "")),
    "4 x 128, dp 2, 100 Mbit/s": ("100mbit", 2, (SMALL, 4096, 2, "")),
    "4 x 128, dp 2, 10 Mbit/s": ("10mbit", 2, (SMALL, 1024, 2, "")),
    "4 x 128, tp 2, 1 Gbit/s": ("1gbit", 2, (SMALL, 4096, 2, TP)),
    "4 x 128, tp 2, 200 Mbit/s": ("200mbit", 2, (SMALL, 4096, 16, TP)),
    "4 x 128, tp 2, 200 Mbit/s, sequence parallel": ("200mbit", 2, (SMALL, 4096, 16, f"{TP}, sequence_parallel: true")),
    "4 x 128, tp 2, 10 Mbit/s": ("10mbit", 2, (SMALL, 512, 2, TP)),
    "4 x 128, pp 2, 1 Gbit/s": ("1gbit", 2, (SMALL, 4096, 2, PP)),
    "4 x 128, pp 2, 100 Mbit/s": ("100mbit", 2, (SMALL, 4096, 2, PP)),
    "4 x 128, pp 2, 10 Mbit/s": ("10mbit", 2, (SMALL, 4096, 2, PP)),
    "3 x 64, pp 3, 1f1b, 100 Mbit/s": ("100mbit", 3, (NARROW, 4096, 4, ONE_EACH)),
    "3 x 64, pp 3, 1f1b, 10 Mbit/s": ("10mbit", 3, (NARROW, 4096, 4, ONE_EACH)),
    "3 x 64, pp 3, gpipe, 10 Mbit/s": ("10mbit", 3, (NARROW, 4096, 4, GPIPE)),
}


@contextlib.contextmanager
def on_core(core):
    """What is started meanwhile has this core alone."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


class Machines(NodeLab):
    def __init__(self, folder, count, rate):
        super().__init__(folder)
        self.count, self.rate = count, rate

    def __enter__(self):
        super().__enter__()
        try:
            cores = sorted(os.sched_getaffinity(0))
            for number in range(self.count):
                with on_core(cores[number % 2]):
                    node = self.add_node(2 + number)
                self.slow_down(node, self.rate, BURST_FAST if self.rate == "1gbit" else BURST)
        except BaseException:
            self.__exit__()
            raise
        return self

    def said(self, *words):
        return self.trainctl(*words).stdout

    def job(self, number):
        """As a cluster of one host says it."""
        said = self.json("status", number)
        peers = [pb.Peer(id=peer["id"], pid=peer["pid"] or 0) for peer in said["peers"]]
        return pb.Job(state=f"JOB_STATE_{said['state'].upper()}", reason=said["reason"] or "", peers=peers)

    def wait_job(self, number, state):
        wait_for(lambda: pb.JobState.Name(self.job(number).state) == f"JOB_STATE_{state}", f"job {number} to be {state}")
