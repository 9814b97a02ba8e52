"""Peers that die without a word: a process that is stopped, a machine that vanishes, ways that are cut between members that both
reach memberd. And one that is slow but moves, which is nobody's loss. Real processes; machines are network namespaces on a bridge
(root is needed: without it those tests are skipped). What was measured is read from memberd's own words, not from a clock here."""
import os
import re
import signal

import pytest

from bridge_lab import Lab, Peer, Place
from harness import Cluster, wait_for

TIMEOUT_S = 1.0  # memberd's default
MOST_S = 1.5 * TIMEOUT_S


@pytest.fixture
def lab(tmp_path):
    made = Lab(tmp_path)
    try:
        yield made.open()
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
