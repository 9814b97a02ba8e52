"""A cluster whose nodes are machines of a laboratory (bridge_lab): each traind in a network namespace of its own, whose links can be made slow.

    with NodeLab(tmp_path) as lab:
        nodes = [lab.add_node(number, slots=2) for number in (2, 3)]
        lab.slow_down(nodes[1], "10mbit")
        lab.trainctl("nodes", "--measure")
"""
import json
import os
import subprocess

from bridge_lab import Lab, Place
from harness import BIN, marked_processes, trainctl, wait_for


class Node:
    def __init__(self, place, folder, process):
        self.place, self.folder, self.process = place, folder, process
        self.name = f"node-{place.address.rsplit('.', 1)[1]}"

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait()


class NodeLab:
    def __init__(self, folder, tls=None, memberd=()):
        """`memberd`: further arguments of it."""
        self.folder, self.tls, self.nodes, self.memberd = folder, tls, [], list(memberd)
        self.program = BIN / "trainctl"  # what `command` runs
        self.lab = Lab(folder)
        self.mark = f"node-lab-{os.getpid()}-{self.lab.name}"

    def __enter__(self):
        self.lab.open(self.tls and self.tls / "memberd", self.memberd)
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            node.end()
        self.lab.close()

    def place(self, number):
        return Place(self.lab, number)

    def add_node(self, number, slots=1, hidden=False, more=()):
        """`hidden`: nobody else can dial it."""
        place = self.place(number)
        if hidden:
            place.hide()
        folder = self.folder / f"node-{number}"
        folder.mkdir()
        security = ["--insecure"] if self.tls is None else ["--tls", str(self.tls / f"node-{number}")]
        with open(folder / "daemon.log", "ab") as log:
            process = subprocess.Popen(
                ["ip", "netns", "exec", place.namespace, str(BIN / "traind"), "--memberd", self.lab.address, "--listen", f"{place.listens}:0",
                 "--dir", str(folder), "--name", f"node-{number}", "--slots", str(slots), *security, *more],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "TRAIND_TEST_CLUSTER": self.mark})
        self.nodes.append(Node(place, folder, process))
        wait_for(lambda: (folder / "address").exists(), "traind to serve")
        wait_for(lambda: sum(row["state"] == "alive" for row in self.json("nodes")) == len(self.nodes), "it to be a node")
        return self.nodes[-1]

    def slow_down(self, node, rate, burst="64kb"):
        """Both ways. After a rest so much goes at once, faster than the rate."""
        node.place.slow_down(rate, burst)
        self.lab.inside("tc", "qdisc", "replace", "dev", node.place.port, "root", "tbf", "rate", rate, "burst", burst, "latency", "200ms")

    def command(self, *words):
        """trainctl, run beside memberd, as a list of words."""
        security = ["--insecure"] if self.tls is None else ["--tls", str(self.tls / "memberd")]
        return ["ip", "netns", "exec", self.lab.name, str(self.program), "--address", self.lab.address, *security, *map(str, words)]

    def trainctl(self, *words, check=True, timeout=300):
        done = subprocess.run(self.command(*words), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def json(self, *words):
        return json.loads(self.trainctl(*words, "--json").stdout)

    def left(self):
        return marked_processes(self.mark)
