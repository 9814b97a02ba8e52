"""A NodeLab whose machines are at sites: each site is a bridge, from which one cable, as slow as is said, goes to the bridge of the laboratory. Root is needed."""
from bridge_lab import Place
from node_lab import NodeLab


class SiteLab(NodeLab):
    def __init__(self, folder):
        super().__init__(folder)
        self.sites = {}  # of a machine's number: the bridge where its cable ends
        self.prepare = None

    def add_site(self, number, out, into, machines, prepare=None):
        """Rates as `tc` has them: of what leaves the site, and of what comes in. `prepare` gets the place of each machine before anything is sent from there."""
        bridge, port, cable = f"site{number}", f"far{number}", f"near{number}"
        inside = self.lab.inside
        inside("ip", "link", "add", bridge, "type", "bridge")
        inside("ip", "link", "set", bridge, "up")
        inside("ip", "link", "add", port, "type", "veth", "peer", "name", cable)
        for end, master, rate in ((cable, bridge, out), (port, "bridge", into)):
            inside("ip", "link", "set", end, "master", master, "up")
            inside("tc", "qdisc", "replace", "dev", end, "root", "tbf", "rate", rate, "burst", "64kb", "latency", "200ms")
        self.sites.update(dict.fromkeys(machines, bridge))
        self.prepare = prepare
        return [self.add_node(machine) for machine in machines]

    def place(self, number):
        place = Place(self.lab, number)
        self.lab.inside("ip", "link", "set", place.port, "master", self.sites[number])
        if self.prepare is not None:
            self.prepare(place)
        return place
