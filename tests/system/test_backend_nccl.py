"""Domains of NCCL on a real GPU: real processes, real memberd, one group of the domains' leaders (tests/system/domain_peer.c). Exact
results with every member's data, in the memory of the device; members, leaders and domains that are killed, one that stands still, one
that joins. Without a GPU most are skipped; tests/unit/test_backend_nccl.c and test_backend_nccl_trouble.c play NCCL there."""
import importlib.util
import json
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

import domains
import gpu
from domains import Domain, check_joined, new_group
from harness import Cluster
from stubs import BUILD

needs_gpu = pytest.mark.skipif(gpu.missing() is not None, reason=str(gpu.missing()))
FAKE = {name: str(BUILD / "tests" / "fake_nccl.so") for name in ("NCCL_LIBRARY", "CUDA_LIBRARY")}  # of one process: enough for a domain of one
RANKS_MOST = 4
INSIDE = 4 * 7 * 4
each_way = pytest.mark.parametrize("way", gpu.ways(RANKS_MOST))


class Ranks(Domain):
    def start(self, cluster, arguments, log, way="devices", libraries=None, deadline_ms=20_000, wait_ms=60_000):
        def started(rank):
            device = self.domain * self.ranks + rank if way == "devices" else 0
            place = f"{rank} {self.ranks} @{cluster.mark}-{self.domain} {device} {deadline_ms} {wait_ms}"
            return subprocess.Popen([domains.PEER, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={
                "NCCL_DEBUG": "WARN", **cluster.environment, **(libraries or gpu.libraries()[0]), **gpu.WAYS[way](self.domain, rank), "DOMAIN_PLACE": place})
        return [started(rank) for rank in range(self.ranks)]

    def end_rank(self, rank, expected=0):
        assert self.processes[rank].wait(120) == expected, self.said()


@pytest.fixture
def cluster(tmp_path):
    with Cluster(tmp_path, nodes=0) as running:
        yield running


def check(*which, **options):
    domains.check(*which, inside=INSIDE, **options)


@needs_gpu
@each_way
@pytest.mark.parametrize("policy", ["keep", "replay"])
@pytest.mark.parametrize("count", [0, 300_001, 3_000_001])
def test_exact_and_identical(cluster, way, policy, count):
    """3,000,001 floats are three chunks, the last one not whole."""
    group = new_group()
    both = [Ranks(cluster, group, domain, policy=policy, count=count, way=way) for domain in range(2)]
    for domain in both:
        domain.end()
    check(*both, rounds=5, members=4)


@pytest.mark.parametrize("libraries", [pytest.param(FAKE, id="fake"), pytest.param(None, id="real", marks=needs_gpu)])
@pytest.mark.parametrize("count", [1, 3_000_001])
def test_domains_of_one(cluster, count, libraries):
    """One GPU a node: NCCL has nothing to add, what is between device and group stays."""
    group = new_group()
    way = "devices" if gpu.devices()[0] > 1 else "sockets"
    both = [Ranks(cluster, group, domain, ranks=1, count=count, way=way, libraries=libraries) for domain in range(2)]
    for domain in both:
        domain.end()
    check(*both, rounds=5, members=2)


@needs_gpu
@each_way
@pytest.mark.parametrize("policy", ["keep", "replay"])
def test_a_killed_member_is_left_out(cluster, way, policy):
    """In the middle of round 3: the domain opens a communicator of the two that are left."""
    domain = Ranks(cluster, new_group(), 0, founders=1, ranks=3, policy=policy, count=300_001, pause=[3, 1], way=way)
    domain.wait("paused", 3, ranks=[1])
    domain.kill(1)
    for rank in (0, 2):
        domain.end_rank(rank)
        assert f"member 1 of the domain (pid {domain.pid(1)}) is gone" in domain.find(rank, "restart")["restart"]
        found = [domain.rounds(rank)[number]["members"] for number in range(1, 6)]
        # with keep, what was summed with its data stays
        assert found[:2] == [3, 3] and found[3:] == [2, 2] and found[2] in ((2, 3) if policy == "keep" else (2,))
    check(domain, rounds=5, ranks=[0, 2])


@needs_gpu
@each_way
def test_members_are_killed_at_any_time(cluster, way):
    """Until the leader is alone. Nothing is lost, nobody waits long, every result is right."""
    domain = Ranks(cluster, new_group(), 0, founders=1, ranks=RANKS_MOST, policy="replay", rounds=1_000_000, count=1_000_003, way=way)
    rng, committed = random.Random(way), 0
    for lost in (2, 3, 1):
        domain.wait("round", committed + 5, ranks=[0])
        time.sleep(rng.random() * 0.2)
        domain.kill(lost)
        committed = max(domain.rounds(0))
    domain.wait("round", committed + 20, ranks=[0])
    rows = domain.rounds(0)
    domain.kill(0)
    assert all(row["wrong"] == 0 for row in rows.values())
    assert [rows[1]["members"], rows[max(rows)]["members"]] == [RANKS_MOST, 1]
    counts = [rows[number]["members"] for number in sorted(rows)]
    assert counts == sorted(counts, reverse=True) and rows[max(rows)]["restarts"] <= 3
    times = [rows[number]["ms"] for number in sorted(rows)]
    print(f"{way}: rounds of {times[4] - times[3]:.0f} ms, the longest after a kill {max(b - a for a, b in zip(times, times[1:])):.0f} ms")


@needs_gpu
@each_way
def test_a_member_that_stands_still_is_left_out(cluster, way):
    """SIGSTOP says nothing to anybody: `wait_ms` does."""
    domain = Ranks(cluster, new_group(), 0, founders=1, ranks=3, policy="replay", count=300_001, pause=[3, 2], way=way, wait_ms=3000)
    domain.wait("paused", 3, ranks=[2])
    domain.kill(2, number=signal.SIGSTOP)
    try:
        for rank in (0, 1):
            domain.end_rank(rank)
            assert "did not commit the round within 3000 ms" in domain.find(rank, "restart")["restart"]
    finally:
        domain.kill(2)
    check(domain, rounds=5, ranks=[0, 1])


@needs_gpu
@each_way
def test_a_killed_leader_ends_its_domain_alone(cluster, way):
    group = new_group()
    first = Ranks(cluster, group, 0, policy="replay", way=way)
    second = Ranks(cluster, group, 1, policy="replay", pause=[3, 0], way=way)
    second.wait("paused", 3, ranks=[0])
    first.wait("submitted", 3)
    second.kill(0)
    first.end()
    check(first, rounds=5)
    assert [first.rounds(1)[number]["members"] for number in range(1, 6)] == [4, 4, 2, 2, 2]
    second.end_rank(1, 1)
    assert second.find(1, "error", "TR_EPEERLOST")["text"].startswith("the domain's leader")


@needs_gpu
@each_way
def test_a_joining_domain(cluster, way):
    """The state that its leader receives reaches all its members."""
    group = new_group()
    first = Ranks(cluster, group, 0, founders=1, rounds=1_000_000, count=1000, way=way)
    first.wait("round", 3)
    second = Ranks(cluster, group, 1, founders=1, rounds=3, count=1000, way=way)
    check_joined(first, second)


@needs_gpu
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no PyTorch here")
def test_in_a_program_of_pytorch(cluster):
    """The libraries are those that it has loaded, each once; the sum waits for what its stream holds; no error is left for its next look."""
    script, way = pathlib.Path(__file__).with_name("torch_domain.py"), "devices" if gpu.devices()[0] > 1 else "sockets"
    both = [subprocess.Popen([sys.executable, script, BUILD / "lib" / "libtraincoll.so.0", str(rank), "2", f"@{cluster.mark}-torch"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env={**cluster.environment, **gpu.WAYS[way](0, rank)})
            for rank in range(2)]
    for process in both:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        said = json.loads(out.splitlines()[-1])
        print(said)
        assert said["wrong"] == 0 and said["left_behind"] == 0 and len(said["loaded"]) == 2
