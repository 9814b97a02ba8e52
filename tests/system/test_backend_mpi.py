"""Domains that are worlds of Open MPI: real mpirun, real memberd, one group of the worlds' leaders (tests/system/domain_peer.c).
Exact results with every member's data, a world that is killed, one that joins, a member that dies, and calls that differ."""
import functools
import shutil
import subprocess

import domains
import pytest

from domains import Domain, check_joined, new_group
from harness import Cluster
from stubs import BUILD

MODULE = BUILD / "lib" / "traincoll-mpi.so"

pytestmark = pytest.mark.skipif(not shutil.which("mpirun") or not MODULE.exists(),
                                reason="Open MPI (openmpi-bin, libopenmpi-dev) was not there when this was built")

check = functools.partial(domains.check, inside=4 * 5 * 4)  # not f16 and bf16


class World(Domain):
    """mpirun and its ranks. Each has a folder of its own for Open MPI's sessions: one that ends removes what it shares with one that starts."""

    def start(self, cluster, arguments, log, mpirun=()):
        sessions = self.folder / f"mpi-{self.domain}"
        sessions.mkdir(exist_ok=True)
        return [subprocess.Popen(["mpirun", "--allow-run-as-root", "--oversubscribe", *mpirun, "-np", str(self.ranks), domains.PEER, *arguments],
                                 stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**cluster.environment, "OMPI_MCA_btl": "self,vader", "OMPI_MCA_orte_tmpdir_base": str(sessions)})]


@pytest.fixture
def cluster(tmp_path):
    with Cluster(tmp_path, nodes=0) as running:
        yield running


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
    second.kill_all()
    first.end()
    check(first, rounds=5)
    for rank in range(2):
        assert [first.rounds(rank)[number]["members"] for number in (1, 2)] == [4, 4]
        assert [first.rounds(rank)[number]["members"] for number in (4, 5)] == [2, 2]
        assert first.rounds(rank)[5]["peers"] == 1
        if policy == "replay":
            assert first.rounds(rank)[3]["members"] == 2 and first.rounds(rank)[3]["restarts"] >= 1
            assert "round 3" in first.find(rank, "restart")["restart"]
    cluster.memberd.wait_log(f"on process-{second.pid(0)}) is lost")


def test_a_joining_world(cluster):
    """The state that its leader receives reaches all its members."""
    group = new_group()
    first = World(cluster, group, 0, founders=1, rounds=1_000_000, count=1000)
    first.wait("round", 3)
    second = World(cluster, group, 1, founders=1, rounds=3, count=1000)
    check_joined(first, second)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_dead_member_ends_its_world_and_is_named(cluster, lost):
    """mpirun is told not to end the world by itself, to see that the domain does."""
    world = World(cluster, new_group(), 0, founders=1, pause=[2, lost], mpirun=["-mca", "orte_enable_recovery", "1"])
    pid = (world.wait("paused", 2, ranks=[lost]), world.pid(lost))[1]
    world.wait("submitted", 2)
    world.kill(lost)
    world.wait("error", "TR_EPEERLOST", ranks=[1 - lost])
    text = world.find(1 - lost, "error")["text"]
    assert f"(pid {pid}) is gone" in text and ("leader" if lost == 0 else "member 1") in text
    world.kill_all()
