"""Collectives of a part of a group's contributors (struct tr_scope) as a user's program sees them: the rows and columns of a mesh, in processes
that die, come and leave (tests/system/mesh_peer.c)."""
import pytest

from harness import wait_for
from library_group import GroupPeer, check_agreement, check_common, check_survivors
from line_process import group_of
from stubs import BUILD

MESH = BUILD / "tests" / "mesh_peer"


class MeshPeer(GroupPeer):
    def __init__(self, cluster, group, size, rounds, policy="replay", row=2, count=10000, pause_at=0):
        super().__init__([MESH, cluster.memberd.address, group, size, rounds, policy, row, count, pause_at], cluster.environment)


@pytest.fixture
def group(tmp_path):
    with group_of(lambda cluster, *words, **options: MeshPeer(cluster, "g", *words, **options), tmp_path) as start:
        yield start


@pytest.mark.parametrize("size,row", [(1, 2), (2, 2), (4, 2), (6, 3), (7, 2)])
def test_rows_and_columns(group, size, row):
    histories = [peer.end() for peer in [group(size, 12, row=row, count=70001) for _ in range(size)]]
    check_agreement(histories)
    assert all(line["contributors"] == size and line["restarts"] == 0 for history in histories for line in history)


@pytest.mark.parametrize("policy", ["keep", "uniform", "replay"])
def test_killed_in_mid_round(group, policy):
    """Its row's and column's sums are done: the round begins again all the same, at all, as a mesh of three."""
    victim = group(4, 8, policy=policy, pause_at=4)
    others = [group(4, 8, policy=policy) for _ in range(3)]
    wait_for(victim.paused, "the victim to be in round 4")
    victim.process.kill()
    histories = [peer.end() for peer in others]
    check_agreement(histories)
    for history in histories:
        assert history[2]["contributors"] == 4
        assert history[3]["restarts"] <= 1 and history[3]["contributors"] == 3 and not history[3]["partial"]
    # Whoever had begun it: the victim's column had, since the victim got its sum.
    assert any(history[3]["restarts"] == 1 for history in histories)


@pytest.mark.parametrize("policy", ["keep", "replay"])
def test_killed_at_random_moments(group, policy):
    peers = [group(8, 100000, policy=policy, count=5000) for _ in range(8)]
    for i, victim in enumerate(peers[:5]):
        last = max((peer.rounds() or [{"round": 0}])[-1]["round"] for peer in peers)
        wait_for(lambda: all(peer.reached(last + 5) for peer in peers[i:]), "rounds")
        victim.process.kill()
    check_survivors(peers, peers[5:])


def test_a_joiner_does_not_disturb(group):
    peers = [group(3, 100000, count=5000) for _ in range(3)]
    wait_for(lambda: all(peer.reached(10) for peer in peers), "rounds")
    peers.append(group(3, 100000, count=5000))
    wait_for(lambda: len(peers[3].rounds()) >= 20, "rounds of the joiner")
    histories = [list(peer.rounds()) for peer in peers]
    assert all(line["restarts"] == 0 for history in histories for line in history)
    assert histories[3][0]["contributors"] == 3 and histories[3][1]["contributors"] == 4
    check_common(histories)
