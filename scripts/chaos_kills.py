"""Kills and pauses of workers and daemons of a cluster, nodes that do not come back, breaks of their connections, and splits of the cluster into halves, at random moments, for scripts/chaos.py and scripts/chaos_sharded.py. TRAIND_BUILD says whose daemons these are."""
import collections
import os
import pathlib
import random
import signal
import sys
import threading
import time

import grpc

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "system"))

from connections import break_connection, connections_of  # noqa: E402
from harness import Cluster, wait_for  # noqa: E402, F401
from stubs import pb  # noqa: E402


class Strike:
    """A kill, a pause, a cut or a split: what it hit, and when."""

    def __init__(self, kind, peers, seconds=0.0):
        self.kind, self.peers, self.seconds, self.unix_ms = kind, peers, seconds, time.time() * 1e3
        self.over_ms = self.unix_ms  # chaos_recovery.py: until the next step


class Chaos:
    def __init__(self, cluster, seed):
        self.random = random.Random(seed)
        self.counts = collections.Counter()
        self.pauses, self.cuts, self.splits, self.newcomers = 0, 0, 0, 0
        self.use(cluster)
        self.strikes = []
        self.returning = []  # threads that bring something back
        self.began = time.monotonic()

    def use(self, cluster):
        """From now on this one's. Peers are known by numbers of its own."""
        self.cluster = cluster
        self.killed_peers, self.paused_peers = set(), set()
        self.first_rounds = {}  # of peers, as they told them first

    def say(self, text):
        print(f"{time.monotonic() - self.began:7.2f} s  {text}", flush=True)

    @property
    def kills(self):
        return sum(self.counts.values())

    # ---- what is there to kill

    def job_now(self, job):
        """The job as memberd tells it, or None while memberd is away. Of one that all workers of are lost all nodes are needed again."""
        try:
            now = self.cluster.api().GetJob(pb.GetJobRequest(job_id=job), timeout=10)
            if now.state == pb.JOB_STATE_QUEUED and self.missing_nodes() > 0:
                self.new_node()
            return now
        except FileNotFoundError:  # its address: it starts just now
            return None
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
                return None
            raise

    def holds_state(self, peer):
        """Whether a round was committed since it told its first one. Who has just entered may still be getting the state: the others are not to die before it has it."""
        return peer.round > 0 and peer.round > self.first_rounds.setdefault(peer.id, peer.round)

    def active_peers(self, now):
        return [peer for peer in now.peers if peer.state == "active" and self.holds_state(peer) and peer.id not in self.killed_peers | self.paused_peers]

    def await_victims(self, job, enough):
        """Waits for `enough` active peers; returns them, or None once the job has ended."""
        def there():
            now = self.job_now(job)
            if now is None:
                return None
            if now.state not in (pb.JOB_STATE_QUEUED, pb.JOB_STATE_STARTING, pb.JOB_STATE_RUNNING):
                return "ended"
            peers = self.active_peers(now)
            return peers if now.progress.step > 0 and len(peers) >= enough else None
        found = wait_for(there, f"{enough} active peers of job {job}", 120)
        return None if found == "ended" else found

    # ---- kills

    def strike(self, kind, peers, seconds=0.0):
        self.strikes.append(Strike(kind, peers, seconds))

    def node_of(self, peer):
        """Its traind, or None: it does not run just now."""
        return next((node for node in self.cluster.nodes if node.running() and node.folder.name == peer.node_name), None)

    def kill_worker(self, peer):
        if peer.pid not in self.cluster.processes():
            return False
        self.killed_peers.add(peer.id)
        self.strike("worker", {peer.id})
        os.kill(peer.pid, signal.SIGKILL)
        self.say(f"kill {self.kills + 1}: worker of peer {peer.id} on {peer.node_name} (pid {peer.pid})")
        return True

    def kill_traind(self, peer):
        node = self.node_of(peer)
        if node is None:
            return False
        self.killed_peers.add(peer.id)
        self.strike("traind", {peer.id})
        node.kill9()
        self.say(f"kill {self.kills + 1}: traind {peer.node_name} under peer {peer.id}")
        self.bring_back(node.start, f"traind {peer.node_name}", 1.0)
        return True

    def kill_node(self, peer):
        """Its machine is gone for good, if others are left: until the job has ended, or a new one comes."""
        node = self.node_of(peer)
        if node is None or sum(node.running() for node in self.cluster.nodes) < 3:
            return False
        self.killed_peers.add(peer.id)
        self.strike("node for good", {peer.id})
        node.kill9()
        self.say(f"kill {self.kills + 1}: node {peer.node_name} under peer {peer.id}, for good")
        return True

    def new_node(self):
        """Takes the place of one that is gone for good."""
        node = self.cluster.add_node()
        self.newcomers += 1
        self.say(f"        {node.folder.name} is new")

    def missing_nodes(self):
        """So many are gone for good, and nobody has come for them."""
        back = sum(thread.name.startswith("traind ") for thread in self.alive_threads())
        return self.cluster.count - sum(node.running() for node in self.cluster.nodes) - back

    def restart_missing(self):
        for node in self.cluster.nodes:
            if self.missing_nodes() > 0 and not node.running():
                node.start().wait_serving()

    def kill_memberd(self, _):
        if not self.cluster.memberd.running() or any(thread.name == "memberd" for thread in self.alive_threads()):
            return False
        self.strike("memberd", set())
        self.cluster.kill_memberd()
        self.say(f"kill {self.kills + 1}: memberd")
        self.bring_back(self.cluster.restart_memberd, "memberd", 0.5)
        return True

    def pause(self, peer):
        """Stops a traind or a worker for a while: short ones must not be evicted, long ones must."""
        node = self.node_of(peer)
        pid = node.pid if node is not None and self.random.random() < 0.5 else peer.pid
        if pid not in self.cluster.processes():
            return
        seconds = self.random.choice((0.2, 1.0, 3.0))
        self.strike("pause", {peer.id}, seconds)
        os.kill(pid, signal.SIGSTOP)
        self.paused_peers.add(peer.id)
        self.say(f"        {'worker' if pid == peer.pid else 'traind'} of peer {peer.id} stands still for {seconds} s")
        self.pauses += 1

        def go_on():
            time.sleep(seconds)
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
            self.paused_peers.discard(peer.id)

        thread = threading.Thread(target=go_on, name="pause")
        thread.start()
        self.returning.append(thread)

    def cut(self, peer):
        """Breaks a daemon's connections, the one to memberd with them: its node is lost, and comes back at once. (Daemons of one host talk over shared memory.)"""
        node = self.node_of(peer)
        if node is None:
            return
        self.killed_peers.add(peer.id)
        self.strike("cut", {peer.id})
        broken = sum(break_connection(here, there) for _, here, there in connections_of({node.pid}))
        self.cuts += broken
        self.say(f"        {broken} connections of traind {peer.node_name} under peer {peer.id} break")

    def split(self, peers):
        """The nodes are in two halves that hear nothing of each other, one of them nothing of memberd, for less or more than a heartbeat's timeout."""
        names = [node.folder.name for node in self.cluster.nodes if node.running()]
        if len(names) < 2 or any(thread.name == "split" for thread in self.alive_threads()):
            return
        away = self.random.sample(names, self.random.randint(1, len(names) - 1))
        seconds = self.random.choice((0.4, 1.5, 2.5, 5.0))
        lost = {peer.id for peer in peers if peer.node_name in away}
        self.strike("split", lost, seconds)
        self.paused_peers |= lost
        self.cluster.split(away)
        self.splits += 1
        self.say(f"        {' and '.join(away)} (peers {sorted(lost)}) hear nothing of the other {len(names) - len(away)} and memberd for {seconds} s")

        def heal():
            time.sleep(seconds)
            self.cluster.heal(away)
            self.say("        the halves hear each other again")
            self.paused_peers -= lost

        thread = threading.Thread(target=heal, name="split")
        thread.start()
        self.returning.append(thread)

    def bring_back(self, start, name, within_s):
        delay = self.random.uniform(0, within_s)

        def later():
            time.sleep(delay)
            start()
            self.say(f"        {name} is back")

        thread = threading.Thread(target=later, name=name)
        thread.start()
        self.returning.append(thread)

    def alive_threads(self):
        return [thread for thread in self.returning if thread.is_alive()]

    def kill_one(self, peers, for_good=False):
        """One kill by the dice, if the victim is still there; now and then a pause before it, a cut, or a split where the cluster can be split. `for_good`: perhaps of a node that does not come back."""
        kinds, weights = ("worker", "traind", "memberd"), (5, 4, 1)
        if for_good:
            kinds, weights = (*kinds, "node"), (*weights, 3)
        kind = self.random.choices(kinds, weights)[0]
        victim = self.random.choice(peers)
        time.sleep(self.random.uniform(0, 0.3))
        others = [peer for peer in peers if peer.id != victim.id]
        if self.random.random() < 0.1 and len(others) > 1:
            self.pause(self.random.choice(others))
        elif hasattr(self.cluster, "split"):
            if self.random.random() < 0.4:
                self.split(peers)
        elif self.random.random() < 0.2 and len(others) > 1:
            self.cut(self.random.choice(others))
        if getattr(self, f"kill_{kind}")(victim):
            self.counts[kind] += 1

    def await_end(self, job):
        """The job as it ended; whatever was to come back is back."""
        now = wait_for(lambda: self.ended(job), f"job {job} to end", 600)
        for thread in self.returning:
            thread.join()
        self.returning = []
        return now

    def ended(self, job):
        now = self.job_now(job)
        return now if now and now.state in (pb.JOB_STATE_DONE, pb.JOB_STATE_FAILED, pb.JOB_STATE_CANCELLED) else None
