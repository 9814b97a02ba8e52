"""Domains that are worlds of Open MPI: real mpirun, real memberd, one group of the worlds' leaders (tests/system/domain_peer.c).
Exact results with every member's data, a world that is killed, one that joins, a member that dies, and calls that differ."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import uuid

import pytest

from harness import Cluster, wait_for
from stubs import BUILD

PEER = BUILD / "tests" / "domain_peer"
MODULE = BUILD / "lib" / "traincoll-mpi.so"

pytestmark = pytest.mark.skipif(not shutil.which("mpirun") or not MODULE.exists(),
                                reason="Open MPI (openmpi-bin, libopenmpi-dev) was not there when this was built")


class World:
    """One domain: mpirun and its ranks."""

    def __init__(self, cluster, group, domain, founders=2, rounds=5, policy="keep", count=50_000, pause=(), ranks=2, mpirun=()):
        self.folder, self.domain, self.ranks = pathlib.Path(cluster.folder), domain, ranks
        self.output = self.folder / f"mpirun-{domain}.log"
        arguments = [cluster.memberd.address, group, founders, domain, rounds, policy, count, self.folder, *pause]
        with open(self.output, "w") as log:
            self.process = subprocess.Popen(["mpirun", "--allow-run-as-root", "--oversubscribe", *mpirun, "-np", str(ranks), PEER,
                                             *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env={**cluster.environment, "OMPI_MCA_btl": "self,vader"})

    def lines(self, rank):
        path = self.folder / f"{self.domain}-{rank}.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def find(self, rank, key, value=None):
        return next((line for line in self.lines(rank) if key in line and value in (None, line[key])), None)

    def wait(self, key, value=None, ranks=None):
        """Until all ranks (or those given) said so."""
        def said():
            return all(self.find(rank, key, value) for rank in ranks or range(self.ranks))
        try:
            wait_for(said, f"world {self.domain} to say {key} {value}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()}") from None

    def said(self):
        return f"{[self.lines(rank)[-3:] for rank in range(self.ranks)]}\n{self.output.read_text()[-3000:]}"

    def rounds(self, rank):
        return {line["round"]: line for line in self.lines(rank) if "round" in line}

    def end(self, expected=0):
        try:
            assert self.process.wait(120) == expected, self.said()
        except subprocess.TimeoutExpired:
            raise AssertionError(f"world {self.domain} does not end\n{self.said()}") from None

    def kill(self, *ranks):
        """SIGKILL; without ranks the whole world, mpirun first so that it says nothing."""
        if not ranks:
            self.process.kill()
            self.process.wait()
        for rank in ranks or range(self.ranks):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.lines(rank)[0]["pid"], signal.SIGKILL)


@pytest.fixture
def cluster(tmp_path):
    with Cluster(tmp_path, nodes=0) as running:
        yield running


def new_group():
    return "g" + uuid.uuid4().hex[:8]


def check(*worlds, rounds, members=None):
    """All ranks committed all rounds with the same bits, right ones."""
    sums = {}
    for world in worlds:
        for rank in range(world.ranks):
            assert world.find(rank, "inside") == {"inside": 4, "wrong": 0}
            assert sorted(world.rounds(rank)) == list(range(1, rounds + 1))
            for number, line in world.rounds(rank).items():
                assert line["wrong"] == 0
                assert members is None or line["members"] == members
                assert sums.setdefault(number, line["sum"]) == line["sum"]


@pytest.mark.parametrize("policy", ["keep", "replay"])
@pytest.mark.parametrize("count", [0, 1, 300_001])
def test_exact_and_identical(cluster, policy, count):
    group = new_group()
    worlds = [World(cluster, group, domain, policy=policy, count=count) for domain in range(2)]
    for world in worlds:
        world.end()
    check(*worlds, rounds=5, members=4)


def test_unequal_domains(cluster):
    group = new_group()
    worlds = [World(cluster, group, 0, ranks=3, rounds=3), World(cluster, group, 1, ranks=1, rounds=3)]
    for world in worlds:
        world.end()
    lines = [world.rounds(rank)[3] for world in worlds for rank in range(world.ranks)]
    assert {line["members"] for line in lines} == {4} and len({line["sum"] for line in lines}) == 1


@pytest.mark.parametrize("policy", ["keep", "replay"])
def test_a_killed_world(cluster, policy):
    """In the middle of round 3. The other finishes it, exactly, and goes on alone."""
    group = new_group()
    first = World(cluster, group, 0, policy=policy)
    second = World(cluster, group, 1, policy=policy, pause=[3])
    first.wait("submitted", 3)
    second.wait("paused", 3)
    second.kill()
    first.end()
    check(first, rounds=5)
    for rank in range(2):
        assert [first.rounds(rank)[number]["members"] for number in (1, 2)] == [4, 4]
        assert [first.rounds(rank)[number]["members"] for number in (4, 5)] == [2, 2]
        assert first.rounds(rank)[5]["peers"] == 1
        if policy == "replay":
            assert first.rounds(rank)[3]["members"] == 2 and first.rounds(rank)[3]["restarts"] >= 1
            assert "round 3" in first.find(rank, "restart")["restart"]
    cluster.memberd.wait_log(f"on process-{second.lines(0)[0]['pid']}) is lost")


def test_a_joining_world(cluster):
    """The state that its leader receives reaches all its members."""
    group = new_group()
    first = World(cluster, group, 0, founders=1, rounds=1_000_000, count=1000)
    first.wait("round", 3)
    second = World(cluster, group, 1, founders=1, rounds=3, count=1000)
    second.end()
    first.kill()
    for rank in range(2):
        joined = second.rounds(rank)
        assert len(joined) == 3 and min(joined) > 3
        for number, line in joined.items():
            assert line["sum"] == first.rounds(0)[number]["sum"] and line["wrong"] == 0


@pytest.mark.parametrize("lost", [0, 1])
def test_a_dead_member_ends_its_world_and_is_named(cluster, lost):
    """mpirun is told not to end the world by itself, to see that the domain does."""
    world = World(cluster, new_group(), 0, founders=1, pause=[2, lost], mpirun=["-mca", "orte_enable_recovery", "1"])
    pid = (world.wait("paused", 2, ranks=[lost]), world.lines(lost)[0]["pid"])[1]
    world.wait("submitted", 2)
    world.kill(lost)
    world.wait("error", "TR_EPEERLOST", ranks=[1 - lost])
    text = world.find(1 - lost, "error")["text"]
    assert f"(pid {pid}) is gone" in text and ("leader" if lost == 0 else "member 1") in text
    world.kill()
