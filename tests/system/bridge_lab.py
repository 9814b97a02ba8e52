"""Machines as network namespaces on a bridge with memberd, for tests of what is between them. Root is needed.

    lab = Lab(tmp_path).open()
    peers = lab.start([Place(lab, number) for number in (2, 3, 4)])
"""
import itertools
import json
import os
import signal
import subprocess
import threading

import pytest

from harness import wait_for
from stubs import BUILD

PEER = BUILD / "tests" / "library_peer"
serial = itertools.count()


class Peer:
    """A library_peer that commits rounds until it is stopped; `lines` grows with what it prints."""

    def __init__(self, address, size, rounds, count, place=None, forks=False, more=(), policy="replay", algorithm="ring"):
        arguments = [str(PEER), address, "g", str(size), str(rounds), policy, algorithm, str(count)]
        if place is not None:
            arguments = ["ip", "netns", "exec", place.namespace] + arguments + ["0", "0", place.listens + ":0", *map(str, more)]
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
        self.listens = self.address
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

    def hide(self):
        """What it starts from now on listens at an address that only it knows a way to, as behind a NAT."""
        self.listens = "10.88" + self.address[5:]
        self.inside("ip", "address", "add", self.listens + "/32", "dev", "lo")

    def vanish(self):
        """Frames to and from it are lost in the bridge; nobody is told."""
        self.lab.inside("bridge", "link", "set", "dev", self.port, "state", "0")

    def come_back(self):
        """After `vanish`; nobody is told that either."""
        self.lab.inside("bridge", "link", "set", "dev", self.port, "state", "3")

    def lose_what_it_sends_to(self, other):
        self.inside("ip", "route", "add", "blackhole", other.address + "/32")

    def slow_down(self, rate, burst="64kb"):
        self.inside("tc", "qdisc", "replace", "dev", self.cable, "root", "tbf", "rate", rate, "burst", burst, "latency", "200ms")


class Lab:
    """A bridge with memberd at 10.77.0.1 in a namespace of its own."""

    def __init__(self, folder):
        self.name = f"lab{os.getpid()}-{next(serial)}"
        self.folder, self.namespaces, self.peers, self.memberd = folder, [], [], None

    def run(self, *command):
        subprocess.run(command, check=True, capture_output=True, text=True)

    def inside(self, *command):
        self.run("ip", "netns", "exec", self.name, *command)

    def open(self, tls=None, more=()):
        """Where there can be none the test is skipped."""
        try:
            self.make(tls, more)
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            pytest.skip(f"network namespaces cannot be made here: {getattr(error, 'stderr', '') or error}")
        return self

    def make(self, tls, more):
        self.make_bridge()
        self.serve("10.77.0.1:0", *(["--insecure"] if tls is None else ["--tls", str(tls)]), *more)

    def make_bridge(self):
        self.run("ip", "netns", "add", self.name)
        self.namespaces.append(self.name)
        # An address of its own: else it has that of some port, and another one whenever ports come or go, which machines learn half a minute late.
        self.inside("ip", "link", "add", "bridge", "address", "02:00:0a:4d:00:01", "type", "bridge")
        self.inside("ip", "address", "add", "10.77.0.1/24", "dev", "bridge")
        self.inside("ip", "link", "set", "bridge", "up")
        self.inside("ip", "link", "set", "lo", "up")

    def serve(self, address, *options):
        with open(self.folder / "memberd.log", "ab") as log:
            self.memberd = subprocess.Popen(
                ["ip", "netns", "exec", self.name, str(BUILD / "bin" / "memberd"), "--listen", address, "--dir", str(self.folder / "memberd"), *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.options = options
        wait_for(lambda: (self.folder / "memberd" / "address").exists(), "memberd to serve")
        self.address = (self.folder / "memberd" / "address").read_text().strip()

    def restart(self):
        """memberd dies without a word and comes back where it was."""
        self.memberd.kill()
        self.memberd.wait()
        (self.folder / "memberd" / "address").unlink(missing_ok=True)
        self.serve(self.address, *self.options)

    def log(self):
        return (self.folder / "memberd.log").read_text(errors="replace")

    def start(self, places, rounds=1000000, count=20000, more=lambda place: ()):
        """A peer on each place, in ascending order of their ids."""
        for place in places:
            self.peers.append(Peer(self.address, len(places), rounds, count, place, more=more(place)))
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
