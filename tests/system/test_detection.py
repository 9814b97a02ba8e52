"""Peers that die without a word: a process that is stopped, a machine that vanishes, ways that are cut between members that both
reach memberd. And one that is slow but moves, which is nobody's loss. Real processes; machines are network namespaces on a bridge
(root is needed: without it those tests are skipped). What was measured is read from memberd's own words, not from a clock here."""
import itertools
import json
import os
import re
import signal
import subprocess
import threading

import pytest

from harness import Cluster, wait_for
from stubs import BUILD

PEER = BUILD / "tests" / "library_peer"
TIMEOUT_S = 1.0  # memberd's default
MOST_S = 1.5 * TIMEOUT_S
serial = itertools.count()


class Peer:
    """A library_peer that commits rounds until it is stopped; `lines` grows with what it prints."""

    def __init__(self, address, size, rounds, count, place=None, forks=False):
        arguments = [str(PEER), address, "g", str(size), str(rounds), "replay", "ring", str(count)]
        if place is not None:
            arguments = ["ip", "netns", "exec", place.namespace] + arguments + ["0", "0", place.address + ":0"]
        if forks:
            arguments += ["0", "0", "127.0.0.1:0", "fork"]
        self.lines = []
        self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    @property
    def id(self):
        wait_for(lambda: self.lines, "a peer to join")
        return self.lines[0]["joined"]

    def rounds(self):
        return [line for line in self.lines if "round" in line]

    def newest(self):
        rows = self.rounds()
        return rows[-1]["round"] if rows else 0

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self.reader.join()


class Place:
    """A machine: a network namespace whose cable ends in a port of the laboratory's bridge."""

    def __init__(self, lab, number):
        self.lab, self.address = lab, f"10.77.0.{number}"
        self.namespace, self.port, cable = f"{lab.name}-{number}", f"port{number}", f"cable{number}"
        lab.run("ip", "netns", "add", self.namespace)
        lab.namespaces.append(self.namespace)
        lab.inside("ip", "link", "add", self.port, "type", "veth", "peer", "name", cable, "netns", self.namespace)
        lab.inside("ip", "link", "set", self.port, "master", "bridge", "up")
        self.cable = cable
        self.inside("ip", "link", "set", "lo", "up")
        self.inside("ip", "link", "set", cable, "up")
        self.inside("ip", "address", "add", self.address + "/24", "dev", cable)

    def inside(self, *command):
        self.lab.run("ip", "netns", "exec", self.namespace, *command)

    def vanish(self):
        """Frames to and from it are lost in the bridge; nobody is told."""
        self.lab.inside("bridge", "link", "set", "dev", self.port, "state", "0")

    def lose_what_it_sends_to(self, other):
        self.inside("ip", "route", "add", "blackhole", other.address + "/32")

    def slow_down(self, rate):
        self.inside("tc", "qdisc", "add", "dev", self.cable, "root", "tbf", "rate", rate, "burst", "64kb", "latency", "200ms")


class Lab:
    """A bridge with memberd at 10.77.0.1 in a namespace of its own."""

    def __init__(self, folder):
        self.name = f"lab{os.getpid()}-{next(serial)}"
        self.folder, self.namespaces, self.peers, self.memberd = folder, [], [], None

    def run(self, *command):
        subprocess.run(command, check=True, capture_output=True, text=True)

    def inside(self, *command):
        self.run("ip", "netns", "exec", self.name, *command)

    def open(self):
        self.run("ip", "netns", "add", self.name)
        self.namespaces.append(self.name)
        self.inside("ip", "link", "add", "bridge", "type", "bridge")
        self.inside("ip", "address", "add", "10.77.0.1/24", "dev", "bridge")
        self.inside("ip", "link", "set", "bridge", "up")
        self.inside("ip", "link", "set", "lo", "up")
        with open(self.folder / "memberd.log", "wb") as log:
            self.memberd = subprocess.Popen(
                ["ip", "netns", "exec", self.name, str(BUILD / "bin" / "memberd"), "--listen", "10.77.0.1:0", "--insecure", "--dir",
                 str(self.folder / "memberd")], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for(lambda: (self.folder / "memberd" / "address").exists(), "memberd to serve")
        self.address = (self.folder / "memberd" / "address").read_text().strip()
        return self

    def log(self):
        return (self.folder / "memberd.log").read_text(errors="replace")

    def start(self, places, rounds=1000000, count=20000):
        """A peer on each place, in ascending order of their ids."""
        for place in places:
            self.peers.append(Peer(self.address, len(places), rounds, count, place))
            assert self.peers[-1].id
        return self.peers

    def close(self):
        for peer in self.peers:
            peer.stop()
        if self.memberd is not None:
            self.memberd.terminate()
            self.memberd.wait()
        for namespace in reversed(self.namespaces):
            subprocess.run(["ip", "netns", "delete", namespace], check=False, capture_output=True)


@pytest.fixture
def lab(tmp_path):
    made = Lab(tmp_path)
    try:
        try:
            made.open()
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"network namespaces cannot be made here: {getattr(error, 'stderr', '') or error}")
        yield made
    finally:
        made.close()


def lost(log, peer):
    """Why memberd gave the peer up; None: it did not."""
    found = re.search(rf"peer p{peer} \([^)]*\) is lost: (.*)", log)
    return found.group(1) if found else None


def check_silence(reason):
    """The words name a silence, as long as is allowed and not longer."""
    measured = [float(s) for s in re.findall(r"(?:silent|no answer) for ([0-9.]+) s", reason)]
    assert measured, reason
    assert max(measured) >= TIMEOUT_S - 0.1 and max(measured) <= MOST_S, reason


def check_survivors_go_on(survivors):
    before = max(peer.newest() for peer in survivors)
    wait_for(lambda: all(peer.newest() >= before + 20 for peer in survivors), "the survivors to go on")
    for peer in survivors:
        assert all(line["wrong"] == 0 for line in peer.rounds())
        assert peer.rounds()[-1]["contributors"] == len(survivors)


def test_stopped_process(tmp_path):
    cluster = Cluster(tmp_path, nodes=0)
    peers = []
    try:
        cluster.start_memberd()
        peers = [Peer(cluster.memberd.address, 3, 1000000, 20000) for _ in range(3)]
        wait_for(lambda: all(peer.newest() >= 5 for peer in peers), "rounds")
        victim = peers[2]
        victim.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: lost(cluster.memberd.log(), victim.id), "the stopped peer to be given up")
        check_silence(lost(cluster.memberd.log(), victim.id))
        check_survivors_go_on(peers[:2])
    finally:
        for peer in peers:
            peer.stop()
        cluster.stop()


def test_killed_process_whose_child_holds_its_connections(tmp_path):
    """No connection of it closes but the lifeline, which no child inherits."""
    cluster = Cluster(tmp_path, nodes=0)
    peers, child = [], None
    try:
        cluster.start_memberd()
        peers = [Peer(cluster.memberd.address, 3, 1000000, 20000, forks=number == 2) for number in range(3)]
        wait_for(lambda: all(peer.newest() >= 5 for peer in peers), "rounds")
        victim = peers[2]
        child = next(line["child"] for line in victim.lines if "child" in line)
        victim.process.kill()
        wait_for(lambda: lost(cluster.memberd.log(), victim.id), "the killed peer to be given up")
        assert "its lifeline closed" in lost(cluster.memberd.log(), victim.id)
        check_survivors_go_on(peers[:2])
    finally:
        if child is not None:
            os.kill(child, signal.SIGKILL)
        for peer in peers:
            peer.stop()
        cluster.stop()


def test_machine_vanishes(lab):
    """Half-open connections on all sides."""
    places = [Place(lab, number) for number in (2, 3, 4)]
    peers = lab.start(places)
    wait_for(lambda: all(peer.newest() >= 5 for peer in peers), "rounds")
    places[2].vanish()
    wait_for(lambda: lost(lab.log(), peers[2].id), "the machine that is gone to be given up")
    check_silence(lost(lab.log(), peers[2].id))
    check_survivors_go_on(peers[:2])


def test_one_way_is_cut(lab):
    """What it sends to the others is lost; memberd hears it all the time. Only members can notice."""
    places = [Place(lab, number) for number in (2, 3, 4)]
    peers = lab.start(places)
    wait_for(lambda: all(peer.newest() >= 5 for peer in peers), "rounds")
    for other in places[:2]:
        places[2].lose_what_it_sends_to(other)
    wait_for(lambda: lost(lab.log(), peers[2].id), "the peer that is not heard to be given up")
    reason = lost(lab.log(), peers[2].id)
    assert "cannot reach it; peer p" in reason
    check_silence(reason)
    check_survivors_go_on(peers[:2])


def test_both_ways_between_two_are_cut(lab):
    """Each says it of the other: the younger one goes."""
    places = [Place(lab, number) for number in (2, 3, 4)]
    peers = lab.start(places)
    wait_for(lambda: all(peer.newest() >= 5 for peer in peers), "rounds")
    places[2].lose_what_it_sends_to(places[1])
    places[1].lose_what_it_sends_to(places[2])
    wait_for(lambda: lost(lab.log(), peers[1].id) or lost(lab.log(), peers[2].id), "one of the two to be given up")
    gone = 2 if lost(lab.log(), peers[2].id) else 1
    check_silence(lost(lab.log(), peers[gone].id))
    check_survivors_go_on([peers[0], peers[3 - gone]])


def test_slow_but_moving(lab):
    """Less than a twentieth of the others' rate: an op takes several timeouts, and nobody is given up."""
    places = [Place(lab, number) for number in (2, 3, 4)]
    for place, rate in zip(places, ("1gbit", "1gbit", "25mbit")):
        place.slow_down(rate)
    peers = lab.start(places, rounds=2, count=1000000)
    wait_for(lambda: all(peer.process.poll() is not None for peer in peers), "two rounds", deadline_s=240)
    assert all(peer.process.returncode == 0 for peer in peers)
    assert all(line["contributors"] == 3 and line["restarts"] == 0 for peer in peers for line in peer.rounds())
    assert not any(lost(lab.log(), peer.id) for peer in peers), lab.log()
