"""Machines that share no disk: a checkpoint is on that of whoever wrote it, and a job goes on from it all the same. Each node has a mount namespace of
its own, in which the job's folder is on a disk of its own."""
import json
import math
import os
import shutil
import signal
import subprocess

import pytest

from harness import Cluster, wait_for
from mesh_jobs import SLOW, active, alone, write_text
from stubs import pb
from test_training import BATCH, job_spec

MODES = ("ddp", "diloco", "streaming", "eager", "hdet", "local_sgd")
SPLIT = {"tp 2": {"tp": 2}, "pp 2": {"pp": 2}}  # each node has a part of the model
H = 5
pytestmark = pytest.mark.skipif(os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0,
                                reason="mount namespaces cannot be made here")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("text"))


class Disks:
    """`run`: the folder that the job file names."""

    def __init__(self, folder, nodes=2):
        self.run = folder / "run"
        self.own = [folder / f"disk-{number + 1}" for number in range(nodes)]
        for disk in (self.run, *self.own):
            disk.mkdir()

    def through(self, number):
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh",
                self.own[number], self.run]

    def cluster(self, folder):
        made = Cluster(folder, nodes=0)
        return made, lambda: [made.add_node(through=self.through(number)) for number in range(len(self.own))]

    def rows(self):
        """{step: row} of all disks; no step is on two."""
        found = {}
        for disk in self.own:
            path = disk / "metrics.jsonl"
            for line in path.read_text().splitlines(keepends=True) if path.exists() else []:
                if line.endswith("\n"):
                    row = json.loads(line)
                    found.setdefault(row["step"], []).append(row)
        return found

    def written(self):
        """Numbers of disks with a checkpoint."""
        return [number for number, disk in enumerate(self.own) if (disk / "latest").exists()]


def spec_of(text, run, mode, steps, every, lr=1e-3, **options):
    spec = job_spec(text, run, 2, steps, every=every, **options)
    spec.train.optimizer.lr = lr
    if mode in SPLIT:
        spec.mesh.MergeFrom(pb.Mesh(**SPLIT[mode]))
    elif mode != "ddp":
        spec.train.sync.MergeFrom(pb.Sync(mode=mode, inner_steps=H, **({"fragments": 2} if mode == "streaming" else {})))
    return spec


def counted(cluster, job, steps, mode):
    """All of every step; with an overlap who gets its state begins some steps after the round in which its part is its own."""
    samples = cluster.api().GetSamples(pb.GetSamplesRequest(job_id=job))
    all_of_it = sum(epoch.counted + epoch.dropped for epoch in samples.epochs)
    least = steps - 2 * H if mode in ("streaming", "eager") else steps
    assert least * BATCH <= all_of_it <= steps * BATCH
    assert not any(epoch.in_flight for epoch in samples.epochs)


@pytest.mark.parametrize("mode", (*MODES, *SPLIT))
def test_disks_with_different_checkpoints(tmp_path, text, mode):
    """One disk has step 10, the other one step 20: all go on from step 20, whoever has it. The loss goes on falling from there."""
    first = tmp_path / "first"
    with Cluster(tmp_path / "before", nodes=2) as cluster:
        cluster.wait_job(cluster.submit(spec_of(text, first, mode, 20, 10)), "DONE")
    disks = Disks(tmp_path)
    older, newest = sorted(folder.name for folder in first.glob("step-*"))
    for disk, step in zip(disks.own, (older, newest)):
        shutil.copytree(first / step, disk / step)
        (disk / "latest").symlink_to(step)
    cluster, add = disks.cluster(tmp_path / "cluster")
    with cluster:
        add()
        job = cluster.submit(spec_of(text, disks.run, mode, 40, 0, resume=disks.run))
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        counted(cluster, job, 40, mode)
    assert "other numbers" not in events and "held other" not in events, events
    rows = disks.rows()
    assert min(rows) > 20 and max(rows) == 40
    learned = [json.loads(line) for line in (first / "metrics.jsonl").read_text().splitlines()]
    assert rows[40][-1]["loss"] < learned[-1]["loss"] < learned[0]["loss"]


@pytest.mark.parametrize("mode", (*MODES, *SPLIT))
def test_only_one_disk_has_it(tmp_path, text, mode):
    """All machines lose their power; the one whose disk has the checkpoint comes back last."""
    disks, steps = Disks(tmp_path), 200
    exact = mode == "ddp" or mode in SPLIT
    calm = alone(tmp_path, text, steps=steps, lr=SLOW) if exact else None
    cluster, add = disks.cluster(tmp_path / "cluster")
    with cluster:
        nodes = add()
        job = cluster.submit(spec_of(text, disks.run, mode, steps, 20, lr=SLOW if exact else 1e-3, **({"heads": 4} if exact else {})))
        wait_for(lambda: len(disks.written()) > 0 and max(disks.rows(), default=0) > 45, "a checkpoint")
        [has] = disks.written()
        for node in nodes:
            os.kill(node.pid, signal.SIGKILL)
        for node in nodes:
            node.process.wait()
        for node in (nodes[1 - has], nodes[has]):
            node.start().wait_serving()
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        counted(cluster, job, steps, mode)
    assert "goes on from checkpoint" in events, events
    rows = disks.rows()
    if exact:
        assert sorted(rows) == list(range(1, steps + 1))
        own = disks.written()
        assert any((disks.own[number] / f"step-{steps:08}").exists() for number in own)
    else:
        assert max(rows) == steps
    assert all(math.isfinite(row["loss"]) for several in rows.values() for row in several)
    assert rows[steps][-1]["loss"] < rows[min(rows)][0]["loss"]
    if calm is not None:
        expected = {row["step"]: row["loss"] for row in map(json.loads, (calm / "metrics.jsonl").read_text().splitlines())}
        for step, several in rows.items():
            assert several[-1]["loss"] == pytest.approx(expected[step], rel=1e-6), step


@pytest.mark.parametrize("mode", ("ddp", "diloco", "pp 2"))
def test_nobody_has_it(tmp_path, text, mode):
    with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        job = cluster.submit(spec_of(text, tmp_path / "run", mode, 20, 0, resume=tmp_path / "typo"))
        failed = cluster.wait_job(job, "FAILED")
        words = cluster.events(failed) + failed.reason
    assert f"checkpoint.resume: {tmp_path}/typo" in words, words
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_back_to_it_in_mid_job(tmp_path, text):
    """A stage's only holder is killed. Who comes in its place finds no checkpoint on its node's disk."""
    disks, steps = Disks(tmp_path), 120
    calm = alone(tmp_path, text, steps=steps, lr=SLOW)
    cluster, add = disks.cluster(tmp_path / "cluster")
    with cluster:
        add()
        job = cluster.submit(spec_of(text, disks.run, "pp 2", steps, 20, lr=SLOW, heads=4))
        wait_for(lambda: len(disks.written()) > 0 and max(disks.rows(), default=0) > 45, "a checkpoint")
        [has] = disks.written()
        os.kill(next(peer.pid for peer in active(cluster, job) if peer.node_name == f"node-{2 - has}"), signal.SIGKILL)
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        counted(cluster, job, steps, "pp 2")
    assert "training goes back from step" in events and "a copy came over the network" in events, events
    expected = {row["step"]: row["loss"] for row in map(json.loads, (calm / "metrics.jsonl").read_text().splitlines())}
    assert sorted(disks.rows()) == list(range(1, steps + 1))
    for step, several in disks.rows().items():
        assert several[-1]["loss"] == pytest.approx(expected[step], rel=1e-6), step
