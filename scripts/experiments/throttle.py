"""Nodes of different speed on one machine: a worker whose `slowness` is s gets 1/s of the CPU time that the fastest may have, by SIGSTOP and
SIGCONT."""
import os
import signal
import threading
import time

FASTEST_SHARE = 0.5  # of a core; less than all, so that a machine with fewer cores than workers can give it
TICK_S, MOST_SAVED_S = 0.02, 0.06


class Bucket:
    """CPU time that a worker may still use: it fills with the clock and does not overflow."""

    def __init__(self, share, used, now):
        self.share, self.used, self.filled, self.left = share, used, now, 0.0

    def may_run(self, used, now):
        self.left = min(self.left + (now - self.filled) * self.share, MOST_SAVED_S) - (used - self.used)
        self.used, self.filled = used, now
        return self.left > 0


class Throttle:
    """`peers`: asks for the job's peers, of which the pid and the node are known once it runs. Does nothing where all are alike."""

    def __init__(self, run, peers):
        self.slowness, self.peers = run.arm.slowness, peers
        self.ended, self.thread = threading.Event(), None

    def __enter__(self):
        if self.slowness:
            self.thread = threading.Thread(target=self.hold, daemon=True)
            self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        if self.thread:
            self.thread.join()

    def pids(self):
        while not self.ended.wait(0.1):
            found = sorted((peer.node_name, peer.pid) for peer in self.peers() if peer.pid and peer.state == "active")
            if len(found) == len(self.slowness):
                return [pid for _, pid in found]
        return []

    def hold(self):
        from execute import cpu_s
        now = time.monotonic()
        buckets = {pid: Bucket(FASTEST_SHARE / slowness, cpu_s(pid) or 0, now) for pid, slowness in zip(self.pids(), self.slowness)}
        stopped = set()
        while buckets and not self.ended.wait(TICK_S):
            for pid, bucket in list(buckets.items()):
                used = cpu_s(pid)
                if used is None:
                    del buckets[pid]
                    continue
                runs = bucket.may_run(used, time.monotonic())
                if runs == (pid in stopped):
                    os.kill(pid, signal.SIGCONT if runs else signal.SIGSTOP)
                    stopped ^= {pid}
        for pid in stopped & set(buckets):
            os.kill(pid, signal.SIGCONT)
