"""A cluster whose nodes are machines of a laboratory (tests/system/bridge_lab.py): network namespaces on a bridge, some of which can be moved to another bridge, so that two halves hear nothing of each other; nobody is told.
For scripts/chaos_sharded.py. Root is needed."""
import ctypes
import os
import subprocess

from bridge_lab import Lab, Place
from harness import Cluster

CLONE_NEWNET = 0x40000000


def enter_laboratory(folder):
    """From now on this process, its threads and what it starts are where memberd is. None: there can be no namespaces here."""
    if os.geteuid() != 0:
        return None
    lab = Lab(folder)
    try:
        lab.make_bridge()
        lab.inside("ip", "link", "add", "other", "type", "bridge")
        lab.inside("ip", "link", "set", "other", "up")
        with open(f"/run/netns/{lab.name}") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
    except (OSError, subprocess.CalledProcessError):
        lab.close()
        return None
    return lab


class Machines(Cluster):
    """memberd is at the bridge's address, each traind in a namespace of its own."""

    def __init__(self, folder, lab, **options):
        super().__init__(folder, memberd=["--insecure"], traind=["--insecure"], **options)
        self.lab, self.places = lab, {}

    def start_memberd(self, listen="10.77.0.1:0"):
        return super().start_memberd(listen)

    def add_node(self, wait=True, slots=None, arguments=(), through=()):
        name = f"node-{len(self.nodes) + 1}"
        place = self.places[name] = Place(self.lab, len(self.nodes) + 2)
        return super().add_node(wait, slots, ["--listen", f"{place.listens}:0", *arguments], ["ip", "netns", "exec", place.namespace, *through])

    def move(self, names, bridge):
        for name in names:
            self.lab.inside("ip", "link", "set", self.places[name].port, "master", bridge)

    def split(self, names):
        """These hear each other; not the others, nor memberd."""
        self.move(names, "other")

    def heal(self, names):
        self.move(names, "bridge")
