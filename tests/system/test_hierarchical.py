"""Two machines with two members each: shared memory inside, TCP between. With "hierarchical" a vector crosses the cable once each way, whoever dies.
Machines are network namespaces on a bridge (root is needed: without it these tests are skipped)."""
import itertools
import subprocess

import pytest

from bridge_lab import Lab, Peer, Place
from harness import wait_for

COUNT, OPS = 200000, 3
ROUND_BYTES = COUNT * 4 * OPS


@pytest.fixture
def lab(tmp_path):
    made = Lab(tmp_path)
    try:
        yield made.open()
    finally:
        made.close()


def start(lab, policy, algorithm, rounds=1000000):
    """Members 0 and 2 are on the first machine, 1 and 3 on the second."""
    places = [Place(lab, number) for number in (2, 3)]
    for _, place in itertools.product(range(2), places):
        lab.peers.append(Peer(lab.address, 4, rounds, COUNT, place, policy=policy, algorithm=algorithm))
        assert lab.peers[-1].id
    return places


def sent(lab, place):
    """Bytes that came out of its cable."""
    done = subprocess.run(["ip", "netns", "exec", lab.name, "cat", f"/sys/class/net/{place.port}/statistics/rx_bytes"], check=True,
                          capture_output=True, text=True)
    return int(done.stdout)


def reach(peers, more):
    goal = max(peer.newest() for peer in peers) + more
    wait_for(lambda: all(peer.newest() >= goal for peer in peers), f"{more} rounds")


def crossings(lab, place, rounds):
    """How often a vector left the machine in a round, when all rounds are over."""
    wait_for(lambda: all(peer.process.poll() is not None for peer in lab.peers), "all rounds")
    assert all(len(peer.rounds()) == rounds for peer in lab.peers)
    assert all(line["wrong"] == 0 and line["contributors"] == 4 for peer in lab.peers for line in peer.rounds())
    return sent(lab, place) / rounds / ROUND_BYTES


def test_a_vector_crosses_once(lab):
    places = start(lab, "replay", "hierarchical", rounds=40)
    reach(lab.peers, 5)
    inside = subprocess.run(["ip", "netns", "exec", places[0].namespace, "ss", "-Htn", "state", "established", "dst", places[0].address],
                            check=True, capture_output=True, text=True).stdout
    assert inside == ""  # nothing of one machine's members goes over TCP to each other
    for place in places:
        assert 0.95 < crossings(lab, place, 40) < 1.2


def test_with_direct_it_crosses_twice(lab):
    """So that the figure above says something."""
    places = start(lab, "replay", "direct", rounds=40)
    assert 1.9 < crossings(lab, places[0], 40) < 2.3


@pytest.mark.parametrize("policy", ["keep", "uniform", "replay"])
def test_the_others_finish_without_who_dies(lab, policy):
    """One of each machine, one after the other; the last two are alone on theirs, so that there are no levels any more."""
    start(lab, policy, "hierarchical")
    left = list(lab.peers)
    reach(left, 5)
    for victim in (left[3], left[0]):
        victim.process.kill()
        left.remove(victim)
        reach(left, 20)
        assert all(peer.rounds()[-1]["contributors"] == len(left) for peer in left)
    histories = [{line["round"]: (line["sum"], line["wrong"]) for line in peer.rounds()} for peer in left]
    common = set(histories[0]) & set(histories[1])
    assert len(common) > 40 and all(histories[0][number] == histories[1][number] for number in common)
    assert all(wrong == 0 for history in histories for _, wrong in history.values())
