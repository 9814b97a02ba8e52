"""The worked examples (examples/*.c), as three processes each; what they print is what they should have computed."""
import json
import signal
import subprocess

import pytest

from harness import Cluster, wait_for
from line_process import LineProcess, group_of
from stubs import BUILD

EXAMPLES = BUILD / "examples"


@pytest.fixture
def start(tmp_path):
    """start(name, group, ...) runs an example as a process of a cluster that has a memberd and no nodes."""
    processes = []
    with Cluster(tmp_path, nodes=0) as cluster:
        def run(name, *arguments):
            process = subprocess.Popen([EXAMPLES / name, cluster.memberd.address, *map(str, arguments)], text=True,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       env=cluster.environment)
            processes.append(process)
            return process

        yield run
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


def results(processes):
    done = []
    for process in processes:
        out, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        done.append(json.loads(out))
    return done


def test_allreduce(start):
    for line in results([start("allreduce", "sum", 3) for _ in range(3)]):
        assert (line["contributors"], line["last"], line["wrong"], line["rounds"]) == (3, 2997, 0, 1)
        assert "among 3 peers" in line["why"]
        assert len(line["links"]) == 2
        assert {link["transport"] for link in line["links"]} <= {"none", "tcp", "shm"}
        assert sum(link["sent"] for link in line["links"]) > 1000  # a third of 4000 bytes at least, and headers


def test_data_parallel_with_a_joiner(start):
    """Three peers fit a line through 16 dimensions; a fourth comes in the middle and ends with the same bits."""
    peers = [start("data_parallel", "fit", 3, 20000) for _ in range(3)]
    peers.append(start("data_parallel", "fit", 3, 20000))
    done = results(peers)
    assert all(line == done[0] for line in done[1:])
    assert done[0]["loss"] < 1e-6
    assert done[0]["weights"] == pytest.approx(range(1, 17), rel=1e-3)


def test_sharded(start):
    """The parameters come to the mean of the peers' targets, the same on all; the columns beside them are not touched."""
    done = results([start("sharded", "shards", 3, 60) for _ in range(3)])
    assert len({line["sum"] for line in done}) == 1
    peers = [line["peer"] for line in done]
    mean = sum(peer * 7 % 13 for peer in peers) / 3
    assert done[0]["first"] == pytest.approx(mean, abs=0.05)
    assert all(line["beside"] == 0 and line["contributors"] == 3 for line in done)


class Diloco(LineProcess):
    """Says a line for each merge."""

    def __init__(self, cluster, *words):
        super().__init__([EXAMPLES / "diloco", cluster.memberd.address, *words], cluster.environment)


@pytest.fixture
def group(tmp_path):
    with group_of(Diloco, tmp_path) as start:
        yield start


def check_fit(peers, steps):
    """They end with the same bits, said the same of every merge, and learned something."""
    for peer in peers:
        peer.end()
    assert [peer.said("done")[0] for peer in peers] == [{"done": steps, "digest": peers[0].said("done")[0]["digest"]}] * len(peers)
    merges = [[(line["step"], line["loss"]) for line in peer.said("loss")] for peer in peers]
    assert all(own == merges[0] for own in merges)
    assert [step for step, _ in merges[0]] == list(range(50, steps + 1, 50))
    assert merges[0][0][1] > 0.6 and merges[0][-1][1] < 0.15, merges[0]  # a coin's is 0.69


def test_diloco(group):
    peers = [group("fit", 3, 2000) for _ in range(3)]
    check_fit(peers, 2000)
    assert all(line["contributors"] == 3 for peer in peers for line in peer.said("loss"))


def test_diloco_goes_on_without_one_that_is_killed(group):
    peers = [group("fit", 3, 20000) for _ in range(3)]
    wait_for(lambda: len(peers[2].said("loss")) >= 5, "merges")
    peers[2].process.send_signal(signal.SIGKILL)
    check_fit(peers[:2], 20000)
    assert [peers[0].said("loss")[at]["contributors"] for at in (0, -1)] == [3, 2]
