"""Machines that hear nothing of memberd for a while, shorter than memberd waits: they come back by a new connection, since the old one's next try is as far away as they were, and nothing is lost for it.
Real processes; machines are network namespaces on a bridge (root is needed: without it the tests are skipped)."""
import signal
import time

import pytest

from bridge_lab import Lab, Place
from harness import alive, trainctl, wait_for
from node_lab import NodeLab

LONG = ["--heartbeat-timeout-ms", "60000"]  # nobody is put out
AWAY_S = 7.5  # between two tries of the old connection, some 6 to 7 s and some 12 to 13 s after the way was cut: it comes back by a new one seconds before it would by the old one, or that is given up (10 s)


def here(log, name):
    """So often memberd has welcomed it."""
    return sum(f"({name}," in line and " is here with " in line for line in log.splitlines())


def make_certificates(folder):
    trainctl("ca", "init", folder)
    trainctl("cert", "memberd", "--address", "10.77.0.1", folder)
    for number in (2, 3):
        trainctl("cert", f"node-{number}", "--address", f"10.77.0.{number}", folder)
    return folder


def workers(lab):
    """[(peer, pid)] of job 1's, once both run."""
    found = [(peer["id"], peer["pid"]) for peer in lab.json("status", "1")["peers"]]
    return found if len(found) == 2 and all(pid for _, pid in found) else None


def be_away(place):
    place.vanish()
    time.sleep(AWAY_S)
    place.come_back()


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_a_node_comes_back_by_a_new_connection(tmp_path, secure):
    tls = make_certificates(tmp_path / "ca") if secure else None
    with NodeLab(tmp_path, tls, LONG) as lab:
        away, other = lab.add_node(2), lab.add_node(3)
        lab.trainctl("launch", "-d", "-n", "2", "--", "sh", "-c", "while sleep 1; do echo here; done")
        before = wait_for(lambda: workers(lab), "two workers")
        be_away(away.place)
        wait_for(lambda: here(lab.lab.log(), away.name) == 2, "the node to come back")
        log = (away.folder / "daemon.log").read_text()
        assert "but on a new connection" in log and "back with memberd" in log
        assert workers(lab) == before and all(alive(pid) for _, pid in before)
        assert here(lab.lab.log(), other.name) == 1 and "is lost" not in lab.lab.log()
        lab.trainctl("cancel", "1")


@pytest.fixture
def lab(tmp_path):
    made = Lab(tmp_path)
    try:
        yield made
    finally:
        made.close()


def rounds_go_on(peers, more=20):
    before = max(peer.newest() for peer in peers)
    wait_for(lambda: all(peer.newest() >= before + more for peer in peers), "rounds to go on")


def test_a_group_goes_on_as_it_was(lab):
    lab.open(more=LONG)
    places = [Place(lab, number) for number in (2, 3, 4)]
    peers = lab.start(places)
    rounds_go_on(peers)
    be_away(places[2])
    wait_for(lambda: lab.log().count(" is here with ") == 4, "the third to come back")
    rounds_go_on(peers)
    assert all(line["wrong"] == 0 and line["contributors"] == 3 for peer in peers for line in peer.rounds()[1:])
    assert " lost" not in lab.log()


def test_memberd_that_stands_still_is_not_dialled_anew(lab):
    """Its kernel answers."""
    lab.open()
    peers = lab.start([Place(lab, number) for number in (2, 3)])
    rounds_go_on(peers)
    lab.memberd.send_signal(signal.SIGSTOP)
    time.sleep(AWAY_S)
    lab.memberd.send_signal(signal.SIGCONT)
    wait_for(lambda: "memberd itself stood still" in lab.log(), "memberd to notice")
    rounds_go_on(peers)
    assert lab.log().count(" is here with ") == 2 and " lost" not in lab.log()
