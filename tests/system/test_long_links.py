"""Groups over long links, in the laboratory of wide-area networks (docs/wanlab.md; root): a connection of several that is lost in
mid op costs nothing but its bytes, and how long a silence may last follows from the round trip. Times are memberd's own words."""
import json
import pathlib
import re
import subprocess
import sys
import threading

import pytest

from harness import wait_for
from stubs import BUILD, ROOT
from wan_lab import WanLab, missing

sys.path.insert(0, str(ROOT / "scripts" / "experiments"))

import wire  # noqa: E402

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
PEER = BUILD / "tests" / "library_peer"


class Peers:
    """memberd in the first site, a library_peer in each of `sites`; `lines[site]` grows with what each prints."""

    def __init__(self, lab, folder, sites, rounds, count, *more):
        self.lab, self.folder, self.processes, self.lines, self.readers = lab, folder, {}, {site: [] for site in sites}, []
        first = sites[0]
        with open(folder / "memberd.log", "wb") as log:
            self.memberd = lab.popen(first, [BUILD / "bin" / "memberd", "--listen", lab.address(first) + ":0", "--insecure", "--dir",
                                             folder / "memberd"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wait_for((folder / "memberd" / "address").exists, "memberd to serve")
            address = (folder / "memberd" / "address").read_text().strip()
            for site in sites:
                self.processes[site] = lab.popen(
                    site, [PEER, address, "g", len(sites), rounds, "replay", "auto", count, 0, 0, lab.address(site) + ":0", *more],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
                reader = threading.Thread(target=self.read, args=(site,))
                reader.start()
                self.readers.append(reader)
                wait_for(lambda: self.lines[site], "a peer to join")  # so that ids are in the order of the sites
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for process in [*self.processes.values(), self.memberd]:
            process.kill()
            process.wait()
        for reader in self.readers:
            reader.join()

    def read(self, site):
        with self.processes[site].stdout as lines:
            for line in lines:
                self.lines[site].append(json.loads(line))

    def id(self, site):
        return self.lines[site][0]["joined"]

    def rounds(self, site):
        return [line for line in self.lines[site] if "round" in line]

    def wait_rounds(self, count, deadline_s=240):
        wait_for(lambda: all(len(self.rounds(site)) >= count for site in self.lines), f"{count} rounds", deadline_s=deadline_s)

    def log(self):
        return (self.folder / "memberd.log").read_text(errors="replace")

    def lost(self, site):
        """Why memberd gave the peer up; None: it did not."""
        found = re.search(rf"peer p{self.id(site)} \([^)]*\) is lost: (.*)", self.log())
        return found.group(1) if found else None

    def check(self, contributors, views=1):
        for site in self.lines:
            rounds = self.rounds(site)
            assert all(line["wrong"] == 0 and line["restarts"] == 0 and line["contributors"] == contributors for line in rounds), rounds
            assert len({line["view"] for line in rounds}) == views, rounds
        assert len({json.dumps([[line["round"], line["sum"]] for line in self.rounds(site)][:3]) for site in self.lines}) == 1


def dialled(lab, site, other):
    """Ports, here, of connections from the site's engine to the other's that have carried bulk."""
    done = subprocess.run(lab.command(site, ["ss", "-Htni", "state", "established", "dst", lab.address(other)]), env=lab.environment,
                          capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    return [int(head.split()[2].rsplit(":", 1)[1]) for head, detail in zip(lines[::2], lines[1::2])
            if int((re.search(r"bytes_sent:(\d+)", detail) or [0, 0])[1]) > 200000]


@pytest.mark.parametrize("how,sockets,lost", [("silence", 4, 1), ("reset", 4, 1), ("silence", 16, 12)])
def test_connections_that_are_lost_in_mid_op_cost_no_view(tmp_path, how, sockets, lost):
    """Most of many, too: those that are left say that the peer lives."""
    rounds = 6
    with WanLab("site a\nsite b\nlink a b delay=50ms rate=60mbit loss=0.01%") as lab:
        with Peers(lab, tmp_path, "ab", rounds, 1000000, f"sockets={sockets}") as peers:
            peers.wait_rounds(1)
            ports = wait_for(lambda: len(ports := dialled(lab, "b", "a")) == sockets and ports, "all connections to carry bulk")[1:][:lost]
            sent, committed = lab.show()["b", "a"]["bytes"], len(peers.rounds("b"))
            wait_for(lambda: lab.show()["b", "a"]["bytes"] > sent + 1000000, "an op to be under way")
            for port in ports:
                if how == "silence":
                    lab.do(f"drop a b {port}")
                else:
                    subprocess.run(lab.command("b", ["ss", "-K", "sport", "=", f":{port}"]), env=lab.environment, check=True, capture_output=True)
            wait_for(lambda: not set(ports) & set(dialled(lab, "b", "a")), "the connections to be given up")
            wait_for(lambda: len(dialled(lab, "b", "a")) == sockets or len(peers.rounds("b")) == rounds, "others in their place")
            peers.wait_rounds(rounds)
            assert committed < rounds
            peers.check(contributors=2)
            assert not any(peers.lost(site) for site in "ab")
        if how == "silence":
            assert lab.show()["b", "a"]["swallowed"] + lab.show()["a", "b"]["swallowed"] > 0


def test_a_lossy_link_gets_more_connections():
    """One stream of cubic carries a twentieth of it. What was chosen, and that the sums are right, the library's programs say."""
    with WanLab("site a\nsite b\nlink a b delay=20ms rate=100mbit loss=1%") as lab:
        bench = subprocess.Popen(
            [BUILD / "bin" / "collbench", "--world", "2", "--sites", "a,b", "--transport", "tcp", "--bytes", str(4 << 20), "--iters", "1000", "--congestion",
             "cubic", "--json"], env=lab.environment, stdout=subprocess.DEVNULL)
        try:
            wait_for(lambda: len(dialled(lab, "a", "b")) >= 4 or bench.poll() is not None, "connections to be added", deadline_s=170)
            assert bench.poll() is None
        finally:
            bench.terminate()
            bench.wait()
        done = subprocess.run(
            [BUILD / "bin" / "collbench", "--world", "2", "--sites", "a,b", "--transport", "tcp", "--bytes", str(1 << 20), "--iters", "2", "--json"],
            env=lab.environment, capture_output=True, text=True, check=True)
        row = json.loads(done.stdout)
        assert row["identical"] is True
        offered = pathlib.Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
        assert row["congestion"] == ("bbr" if "bbr" in offered else "cubic" if "cubic" in offered else "reno"), offered


def learned(lab):
    """What a group of four said of its links before its first op and after its last: (ms one way, the words), (ms one way, MB/s, the words)."""
    done = subprocess.run(
        [BUILD / "bin" / "collbench", "--world", "4", "--sites", "a,b,c,d", "--transport", "tcp", "--bytes", str(1 << 20), "--iters", "8", "--json", "--each"],
        env=lab.environment, capture_output=True, text=True, check=True)
    row = json.loads(done.stdout)
    assert row["identical"] is True and len(row["each_s"]) == 10
    at_once = re.search(r"([0-9.]+) ms one way, .* \(not measured yet\)", row["reason_first"])
    said = re.search(r"([0-9.]+) ms one way, ([0-9.]+) MB/s(.*)", row["reason"])
    assert at_once and said and "not measured" not in said.group(3), row
    return (float(at_once.group(1)), row["reason_first"]), (float(said.group(1)), float(said.group(2)), row["reason"])


def test_a_group_learns_what_its_links_carry():
    """Within its first rounds, from the ops themselves, and all members go by the same figures: sums are right whatever they change to. No link is nearer than it is; a machine
    with other work makes links seem longer and other rates seem theirs, so there are some turns."""
    sites = "\n".join(f"site {name} up={rate}mbit down={rate}mbit" for name, rate in zip("abcd", (100, 100, 100, 10)))
    with WanLab(f"{sites}\nlink all all delay=10ms") as lab:
        for name in "abcd":
            lab.net(name)
        for _ in range(6):
            first, last = learned(lab)
            assert first[0] >= 9.5 and last[0] >= 9.5, (first, last)  # not a loopback's: the group's first ops would be a star's, or everybody's to everybody
            if first[0] <= 15 and last[0] <= 15 and 0.6 <= last[1] <= 2.5:
                return
        pytest.fail(f"{first} {last}")


def paces(lab, site, other):
    """Mbit/s that the kernel lets out at most, of connections from the site's engine to the other's; those without such a bound left out."""
    done = subprocess.run(lab.command(site, ["ss", "-Htni", "state", "established", "dst", lab.address(other)]), env=lab.environment,
                          capture_output=True, text=True, check=True)
    return [float(most) / 1e6 for most in re.findall(r"pacing_rate [0-9]+bps/([0-9]+)bps", bits(done.stdout))]


def bits(text):
    """12.5Mbps -> 12500000bps"""
    units = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9}
    return re.sub(r"([0-9.]+)([KMG]?)bps", lambda found: f"{float(found.group(1)) * units[found.group(2)]:.0f}bps", text)


def resent(lab, site, other):
    """Packets that the kernel has sent again, of connections that are open."""
    done = subprocess.run(lab.command(site, ["ss", "-Htni", "state", "established", "dst", lab.address(other)]), env=lab.environment,
                          capture_output=True, text=True, check=True)
    return sum(int(count) for count in re.findall(r"retrans:\d+/(\d+)", done.stdout))


def test_a_way_whose_queues_overflow_is_paced(tmp_path):
    """Each of four TCPs looks for the rate by losses, at both ends; a round trip is longer than the queue, so losses cost round trips. The engine measures the rate, and has no more than that let
    out; sums are right all the while. Two members are left alone: theirs is one way, and one TCP's."""
    sites = "\n".join(f"site {name} up=40mbit down=40mbit queue=60ms" for name in "abcd")
    with WanLab(f"{sites}\nlink all all delay=60ms") as lab:
        with Peers(lab, tmp_path, "abcd", 1000, 2 << 20, "sockets=1") as peers:
            wait_for(lambda: (found := [pace for other in "bcd" for pace in paces(lab, "a", other)]) and all(0.5 < pace < 1.5 * 40 for pace in found),
                     "paces that the way carries")
            before = len(peers.rounds("a"))
            peers.wait_rounds(before + 3)
            assert sum(resent(lab, "a", other) for other in "bcd") > 32
            peers.check(contributors=4)
        (tmp_path / "two").mkdir()
        with Peers(lab, tmp_path / "two", "ab", 1000, 2 << 20) as peers:
            wait_for(lambda: resent(lab, "a", "b") > 300, "its queue to overflow")
            peers.wait_rounds(len(peers.rounds("a")) + 3)
            assert paces(lab, "a", "b") == paces(lab, "b", "a") == []
            peers.check(contributors=2)


@pytest.mark.parametrize("delay,codec,least,most", [(10, "bf16", 0.3, 0.75), (0, "bf16", 0.99, 1.05), (10, "none", 0.99, 1.05)])
def test_encoded_elements_are_packed_over_long_ways_alone(delay, codec, least, most):
    """What a process sends of a vector's bytes in the codec's form: the engine packs where a way is long, and nothing that is not encoded. A way so slow that packing is faster on
    any machine that is not busy: what it takes is measured as it goes, and on a busy one some is sent as it is."""
    size = 1 << 20
    for _ in range(3):
        with WanLab(f"site a\nsite b\nlink a b delay={delay}ms rate=20mbit") as lab:
            for name in "ab":
                lab.net(name)
            done = subprocess.run(
                [BUILD / "bin" / "collbench", "--world", "2", "--sites", "a,b", "--transport", "tcp", "--bytes", str(size), "--iters", "20", "--codec", codec, "--json"],
                env=lab.environment, capture_output=True, text=True, check=True)
        row = json.loads(done.stdout)
        assert row["identical"] is True
        sent = row["wire_bytes"] / (size / 2 if codec == "bf16" else size)
        if least < sent < most:
            return
    raise AssertionError(row)


def pulsed(lab, site, other):
    """Bytes that have come through on each connection from the site's engine to the other's: those on which little comes back, since signs of life
    go one way."""
    done = subprocess.run(lab.command(site, ["ss", "-Htni", "state", "established", "dst", lab.address(other)]), env=lab.environment,
                          capture_output=True, text=True, check=True)
    details = done.stdout.splitlines()[1::2]
    sent = [int(re.search(r"bytes_sent:(\d+)", one).group(1)) for one in details if "bytes_sent" in one and "bytes_received" not in one]
    return [count for count in sent if count > 100]  # less than that has a worker's lifeline to memberd


def test_an_idle_link_keeps_one_connection(tmp_path):
    """A job that trains long between merges: for seconds nothing but signs of life, ten bytes each fifth of one, goes over the link; they
    were taken for traffic, for which more connections brought more, until there were 32."""
    with WanLab("site a\nsite b\nlink a b delay=5ms") as lab, wire.Jobs(lab, tmp_path) as jobs:
        jobs.begin({"mode": "diloco", "inner_steps": 100000000}, 100000000, 256)
        wait_for(lambda: max(pulsed(lab, "b", "a"), default=0) > 400, "signs of life of seven seconds")
        assert len(pulsed(lab, "b", "a")) == 1


def test_silence_is_judged_by_the_round_trip(tmp_path):
    """Eight round trips of 300 ms: 2.4 s, where one second is the least. An outage that is shorter is nobody's loss."""
    allowed = 8 * 0.3
    with WanLab("site a\nsite b\nsite c\nlink all all delay=150ms") as lab, Peers(lab, tmp_path, "abc", 1000000, 20000) as peers:
        peers.wait_rounds(5)
        lab.do("cut c")
        wait_for(lambda: "is suspected: silent for" in peers.log(), "the silence to be noticed")
        lab.do("heal c")
        before = len(peers.rounds("c"))
        wait_for(lambda: len(peers.rounds("c")) >= before + 5, "rounds to go on where they stood")
        peers.check(contributors=3)
        lab.do("cut c")
        wait_for(lambda: peers.lost("c"), "the site that is cut off to be given up")
        reason = peers.lost("c")
        measured = [float(s) for s in re.findall(r"(?:silent|no answer) for ([0-9.]+) s", reason)]
        assert measured and allowed - 0.1 <= max(measured) <= 1.5 * allowed, reason
        before = len(peers.rounds("a"))
        wait_for(lambda: len(peers.rounds("a")) >= before + 5, "the others to go on")
        assert all(line["wrong"] == 0 for site in "ab" for line in peers.rounds(site))
        assert peers.rounds("a")[-1]["contributors"] == 2
