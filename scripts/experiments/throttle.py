"""Nodes of different speed on one machine: a worker whose `slowness` is s gets 1/s of the CPU time that the fastest may have, by SIGSTOP and
SIGCONT. Of the time that it has had: a machine that is busy slows them alike."""
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


class Clock:
    """By which the slower ones' buckets fill: it goes as the fastest worker gets on, so that speeds stay what they are to one another where a busy machine gives it less than its share. While that waits for others it
    goes as time does."""
    def __init__(self, used, now):
        self.at, self.used, self.now = 0.0, used, now

    def tell(self, used, now, waits):
        got = (used - self.used) / FASTEST_SHARE
        self.at += max(got, now - self.now) if waits else got
        self.used, self.now = used, now
        return self.at


def waits(pid):
    """Whether a process neither runs nor wants to, of its own accord."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "RT"
    except OSError:
        return True


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
        pids, now = self.pids(), time.monotonic()
        if not pids:
            return
        fastest = pids[self.slowness.index(min(self.slowness))]
        clock = Clock(cpu_s(fastest) or 0, now)
        buckets = {pid: Bucket(FASTEST_SHARE / slowness, cpu_s(pid) or 0, now if pid == fastest else clock.at) for pid, slowness in zip(pids, self.slowness)}
        stopped = set()
        while buckets and not self.ended.wait(TICK_S):
            now = time.monotonic()
            clock.tell(cpu_s(fastest) or clock.used, now, waits(fastest))
            for pid, bucket in list(buckets.items()):
                used = cpu_s(pid)
                if used is None:
                    del buckets[pid]
                    continue
                runs = bucket.may_run(used, now if pid == fastest else clock.at)
                if runs == (pid in stopped):
                    os.kill(pid, signal.SIGCONT if runs else signal.SIGSTOP)
                    stopped ^= {pid}
        for pid in stopped & set(buckets):
            os.kill(pid, signal.SIGCONT)
