#!/usr/bin/env python3
"""Runs 3 to 8 processes of one group for a long time, kills, stops, ends and adds one of them every few seconds, breaks connections between them
(`ss -K`, as root), and asks at the end whether anything hung, leaked or differed.

    make soak MINUTES=60 [SEED=7] [POLICY=keep|replay|uniform] [TRANSPORT=auto|tcp|shm]

Judged: every peer that lives commits rounds all the time (a pause beyond --hang seconds is a hang); all peers that report a round report the same digest
chain; every element agrees with the contributor set (tests/soak/soak_peer.c); nobody ends but who was told to, or was stopped for so long that the group
went on without it; memory and descriptors of the two peers that are never killed and of memberd are flat, and so is the shared memory that all peers hold, by the
peers that there are (as root, who may see what is mapped).
"""
import argparse
import collections
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from connections import break_connection, connections_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOUNDERS, PEERS_MIN, PEERS_MAX = 3, 3, 8
FLAT_SECONDS = 240
KINDS = ("kill", "kill", "stop", "freeze", "leave", "join", "join", "join", "cut", "cut")
GROWTH_KIB, GROWTH_FDS, GROWTH_MAPPINGS, GROWTH_SHARED_KIB = 8192, 8, 200, 8192  # beyond these, from the first third to the last, it leaks


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--policy", default="keep", choices=["keep", "replay", "uniform"])
    parser.add_argument("--transport", default="auto", choices=["auto", "tcp", "shm"])
    parser.add_argument("--pause", type=float, default=3.0, help="seconds between two events, on average")
    parser.add_argument("--hang", type=float, default=30.0, help="seconds without a committed round that are a hang")
    parser.add_argument("--build", default="build")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    return parser.parse_args()


def grown(values):
    """From the median of the first third to that of the last, the warm-up left out."""
    values = values[len(values) // 10:]
    third = len(values) // 3
    return statistics.median(values[-third:]) - statistics.median(values[:third]) if third >= 3 else 0


def shared_files(pid):
    """{file: KiB that it has} of the shared memory that a process has open or mapped."""
    found = {}
    for folder in ("fd", "map_files"):
        try:
            for entry in os.scandir(f"/proc/{pid}/{folder}"):
                if os.readlink(entry.path).startswith("/memfd:"):
                    about = entry.stat()
                    found[about.st_dev, about.st_ino] = about.st_blocks // 2
        except OSError:
            pass  # it ended just now, or closed it; or we may not look
    return found


class Process:
    """A process whose standard output is JSON lines (a peer), or nothing (memberd)."""

    def __init__(self, arguments, errors):
        self.errors = errors
        self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=open(errors, "wb"), text=True)
        self.samples = []  # (time, private memory in KiB, descriptors, mappings)

    @property
    def alive(self):
        return self.process.poll() is None

    def sample(self, now):
        try:
            status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
            # Shared memory is counted once for each process and mapping that has looked at it: the callers' buffers, not ours.
            private = int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1])
            mappings = pathlib.Path(f"/proc/{self.process.pid}/maps").read_text().count("\n")
            self.samples.append((now, private, len(os.listdir(f"/proc/{self.process.pid}/fd")), mappings))
        except (OSError, StopIteration):
            pass  # it ended just now

    def growth(self):
        """Of private memory in KiB, descriptors and mappings."""
        return tuple(grown([sample[i] for sample in self.samples]) for i in (1, 2, 3))


class Peer(Process):
    def __init__(self, soak, number):
        options = soak.options
        super().__init__([str(soak.build / "tests" / "soak_peer"), soak.address, "soak", str(FOUNDERS), options.policy,
                          options.transport, str(options.seed)], soak.folder / f"peer-{number}.err")
        self.soak, self.number, self.peer = soak, number, None
        self.stopped_until = None
        self.may_end = None  # why it may end by itself
        self.last = None     # its last line
        self.moved = time.monotonic()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.moved = time.monotonic()
            self.last = json.loads(line)
            if "joined" in self.last:
                self.peer = self.last["joined"]
            if "round" in self.last:
                self.soak.reported(self, self.last)

    def story(self):
        errors = self.errors.read_text(errors="replace").splitlines()[-5:]
        return f"process {self.number} (peer {self.peer}): exit {self.process.poll()}, last line {self.last}, {errors}"


class Soak:
    def __init__(self, options, folder):
        self.options, self.folder, self.build = options, folder, pathlib.Path(options.build).resolve()
        self.random = random.Random(options.seed)
        self.counts = collections.Counter()
        self.shared = []  # KiB of shared memory that all peers hold, by the peers that there are
        self.chains, self.newest, self.trouble = {}, 0, []
        self.lock = threading.Lock()
        self.began = time.monotonic()
        self.peers, self.ended = [], []
        self.deck = ["cut"]  # of what happens next; shuffled anew when it is empty, so that a short run has all kinds too

    def say(self, text):
        if not self.options.json:
            print(f"{time.monotonic() - self.began:8.2f} s  {text}", flush=True)

    # ---- what the peers report

    def reported(self, peer, line):
        with self.lock:
            first = self.chains.setdefault(line["round"], (line["chain"], peer.number))
            self.newest = max(self.newest, line["round"])
            if first[0] != line["chain"]:
                self.trouble.append(f"round {line['round']}: process {peer.number} has chain {line['chain']}, process {first[1]} has {first[0]}")
            for old in [number for number in self.chains if number < self.newest - 100000]:
                del self.chains[old]

    # ---- events

    def start_memberd(self):
        self.memberd = Process([str(self.build / "bin" / "memberd"), "--listen", "127.0.0.1:0", "--dir", str(self.folder / "memberd")],
                               self.folder / "memberd.err")
        address = self.folder / "memberd" / "address"
        deadline = time.monotonic() + 20
        while not (address.exists() and address.read_text().strip()):
            if time.monotonic() > deadline or not self.memberd.alive:
                raise SystemExit(f"soak: memberd did not start: {self.memberd.errors.read_text()}")
            time.sleep(0.02)
        self.address = address.read_text().split()[0]

    def add(self):
        peer = Peer(self, len(self.peers) + len(self.ended))
        self.peers.append(peer)

    def candidates(self):
        """Whom an event may hit: never the first two, so that somebody's memory can be watched, and nobody who is stopped or on its way in or out."""
        return [p for p in self.peers[2:] if p.alive and p.stopped_until is None and p.may_end is None and
                p.last is not None and "round" in p.last]

    def cut(self):
        """Breaks one connection between peers, some, or all of one process; also of those that are never killed. Nobody ends for it."""
        connections = [c for c in connections_of({peer.process.pid for peer in self.peers if peer.alive}) if self.address not in c]
        if not connections:
            return
        one = self.random.choice(connections)
        share = self.random.choice([0, 0.3, 1])
        chosen = [one] + [c for c in connections if c != one and (c[0] == one[0] if share == 1 else self.random.random() < share)]
        broken = sum(break_connection(*ends) for _, *ends in chosen)
        self.counts["cut"] += broken
        self.say(f"cut {broken} of {len(connections)} connections, round {self.newest}")

    def event(self):
        standing = [p for p in self.peers if p.alive and p.may_end is None]
        choices = self.candidates()
        if not self.deck:
            self.deck = self.random.sample(KINDS, len(KINDS))
        kind = self.deck.pop()
        if kind == "cut":
            self.cut()
            return
        if kind == "join" or not choices or len(standing) <= PEERS_MIN:
            if len(standing) < PEERS_MAX:
                self.counts["join"] += 1
                self.add()
            return
        peer = self.random.choice(choices)
        self.counts[kind] += 1
        self.say(f"{kind} process {peer.number} (peer {peer.peer}), round {self.newest}, {len(standing)} peers")
        if kind == "kill":
            peer.may_end = "killed"
            peer.process.kill()
        elif kind == "leave":
            peer.may_end = "left"
            peer.process.terminate()
        else:  # a short stop is sat out; a long one costs its membership
            long = kind == "freeze"
            peer.stopped_until = time.monotonic() + (self.random.uniform(3, 5) if long else self.random.uniform(0.05, 0.4))
            peer.process.send_signal(signal.SIGSTOP)
            if long:
                peer.may_end = "stopped for long"

    def wake(self, now):
        for peer in self.peers:
            if peer.stopped_until is not None and now >= peer.stopped_until:
                peer.stopped_until = None
                peer.moved = now
                if peer.alive:
                    peer.process.send_signal(signal.SIGCONT)

    def bury(self):
        for peer in [p for p in self.peers if not p.alive]:
            peer.reader.join()
            self.peers.remove(peer)
            self.ended.append(peer)
            evicted = peer.last is not None and peer.last.get("error") in ("TR_EEVICTED", "TR_EPEERLOST", "TR_EUNAVAILABLE")
            fine = {None: False, "killed": True, "left": peer.process.returncode == 0 or evicted,
                    "stopped for long": evicted or peer.process.returncode == 0}[peer.may_end]
            if not fine:
                self.trouble.append(f"ended by itself ({peer.may_end}): {peer.story()}")

    def watch(self, now):
        for peer in self.peers:
            if peer.stopped_until is None and peer.alive and now - peer.moved > self.options.hang:
                self.trouble.append(f"hangs: nothing for {now - peer.moved:.0f} s: {peer.story()}")

    # ---- the run

    def run(self):
        self.start_memberd()
        for _ in range(FOUNDERS):
            self.add()
        end = self.began + self.options.seconds
        next_event = time.monotonic() + 2
        next_sample = self.began
        while time.monotonic() < end and not self.trouble:
            now = time.monotonic()
            self.wake(now)
            self.bury()
            self.watch(now)
            if not self.memberd.alive:
                self.trouble.append(f"memberd ended: {self.memberd.errors.read_text()[-500:]}")
            if now >= next_event and self.newest > 0:  # the group stands
                self.event()
                next_event = now + self.random.expovariate(1 / self.options.pause)
            if now >= next_sample:
                next_sample = now + max(1.0, self.options.seconds / 300)
                for process in [self.memberd] + self.peers[:2]:
                    process.sample(now)
                self.sample_shared()
            time.sleep(0.02)
        for process in [self.memberd] + self.peers[:2]:
            kib, descriptors, mappings = process.growth()
            name = "memberd" if process is self.memberd else f"process {process.number}"
            self.counts[f"{name} KiB"] = kib
            self.counts[f"{name} descriptors"] = descriptors
            self.counts[f"{name} mappings"] = mappings
            # memberd keeps a row for each of the newest rounds (TR_ROUND_RECORDS_MAX), and packs them for a snapshot.
            if self.options.seconds < FLAT_SECONDS:
                continue  # it is still warming up
            if kib > GROWTH_KIB + (min(self.newest, 65536) * 128 // 1024 if process is self.memberd else 0):
                self.trouble.append(f"{name} grew by {kib} KiB")
            if descriptors > GROWTH_FDS:
                self.trouble.append(f"{name} grew by {descriptors} descriptors")
            if mappings > GROWTH_MAPPINGS:
                self.trouble.append(f"{name} grew by {mappings} mappings")
        shared = self.counts["shared KiB a peer"] = round(grown(self.shared))
        if self.options.seconds >= FLAT_SECONDS and shared > GROWTH_SHARED_KIB:
            self.trouble.append(f"shared memory grew by {shared} KiB a peer")

    def sample_shared(self):
        living = [peer for peer in self.peers if peer.alive]
        files = {}
        for peer in living:
            files.update(shared_files(peer.process.pid))
        if living:
            self.shared.append(sum(files.values()) / len(living))

    def stop(self):
        for peer in self.peers:
            if peer.alive:
                peer.process.send_signal(signal.SIGCONT)
                peer.process.kill()
        for peer in self.peers:
            peer.process.wait()
            peer.reader.join()
        self.memberd.process.kill()
        self.memberd.process.wait()


def main():
    options = parse_arguments()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 31)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        soak = Soak(options, pathlib.Path(folder))
        soak.say(f"seed {options.seed}, {options.seconds:.0f} s, policy {options.policy}, transport {options.transport}")
        try:
            soak.run()
        finally:
            soak.stop()
        for line in soak.trouble:
            print(f"soak: {line}", file=sys.stderr)
        if soak.trouble:
            for line in (soak.folder / "memberd.err").read_text().splitlines()[-30:]:
                print(f"memberd: {line}", file=sys.stderr)
        result = {"ok": not soak.trouble, "seconds": round(time.monotonic() - soak.began, 1), "seed": options.seed, "rounds": soak.newest,
                  "policy": options.policy, "transport": options.transport, **soak.counts}
        print(json.dumps(result) if options.json else "soak: " + " ".join(f"{key.replace(' ', '_')}={value}" for key, value in result.items()))
    sys.exit(1 if soak.trouble else 0)


if __name__ == "__main__":
    main()
