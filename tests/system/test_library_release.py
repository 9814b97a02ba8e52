"""Rounds of more ops than a round may hold at once, out of a few buffers (tr_release), in processes that die and come in the middle of one (tests/system/release_peer.c)."""
import os

import pytest

from harness import wait_for
from library_group import GroupPeer, check_agreement
from line_process import group_of
from stubs import BUILD

PEER = BUILD / "tests" / "release_peer"
STEPS = 4200  # more than TR_ROUND_OPS_MAX


class ReleasePeer(GroupPeer):
    def __init__(self, cluster, group, size, rounds, steps=STEPS, count=1024, gate=None):
        super().__init__([PEER, cluster.memberd.address, group, size, rounds, steps, count, *([gate] if gate else [])], cluster.environment)

    def is_at(self, round_number, step):
        """In that round, and so far in it."""
        assert self.process.poll() is None, self.story()
        return any(line["at"][0] == round_number and line["at"][1] >= step for line in self.said("at"))


@pytest.fixture
def group(tmp_path):
    with group_of(lambda cluster, *words, **options: ReleasePeer(cluster, "g", *words, **options), tmp_path) as start:
        yield start


def test_a_joiner_comes_in_mid_round(group, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    peers = [group(3, 3, gate=gate) for _ in range(3)]
    wait_for(lambda: peers[0].is_at(1, 1000), "the middle of round 1")
    peers.append(group(3, 3))
    wait_for(lambda: peers[3].said("joined"), "the joiner to be a member")
    opened = os.open(gate, os.O_RDWR)
    histories = [peer.end() for peer in peers]
    os.close(opened)
    assert all(line["restarts"] == 0 for history in histories for line in history)
    # It was there before the others were through round 1.
    assert histories[3][0]["round"] <= 2 and histories[3][-1]["contributors"] == 4
    check_agreement(histories, first=histories[3][0]["round"])


def test_killed_in_mid_round(group):
    peers = [group(4, 2) for _ in range(4)]
    wait_for(lambda: all(peer.is_at(1, 1500) for peer in peers), "the middle of round 1")
    peers[1].process.kill()
    histories = [peer.end() for peer in peers[:1] + peers[2:]]
    check_agreement(histories)
    for history in histories:
        assert [line["contributors"] for line in history] == [3, 3]
        assert [line["restarts"] for line in history] == [1, 0]
