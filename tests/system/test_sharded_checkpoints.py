"""Checkpoints in shards (checkpoint.sharded): each worker of a replica writes its own; any mesh reads them; nothing is lost whoever dies."""
import json
import os
import signal

import grpc
import pytest

from harness import Cluster, trainctl, wait_for
from mesh_jobs import STEPS, active, alone, assert_near, assert_same_training, counted_once, keyed_spec, parameters, reach, rows_of, sharded_spec
from test_own_disks import Disks, pytestmark as needs_mounts

LAYERS = 8  # of pipelines with two stages a worker
MESHES = {"tp": (1, 1, 2, {}), "chunks": (1, 2, 2, {"chunks": 2, "sequence_parallel": True}), "zero": (3, 1, 2, {"zero_owners": 2})}


def in_shards(text, folder, dp, pp, tp, every=5, keys=None, nodes=None, **options):
    spec = keyed_spec(text, folder, dp, pp, tp, **{"layers": LAYERS, **options})
    if nodes:
        spec.mesh.nodes, spec.mesh.workers_per_node = nodes, dp * pp * tp // nodes
    spec.train.optimizer.micro_sequences = 2
    spec.train.checkpoint.sharded, spec.train.checkpoint.every = True, every
    for name, value in (keys or {}).items():
        setattr(spec.mesh, name, value)
    return spec


def files(folder):
    return sorted(path.name for path in (folder / "latest").iterdir())


def shards(count):
    return ["config.json", "manifest.json", *(f"shard-{number:05}.safetensors" for number in range(count))]


def finished(cluster, spec, steps=STEPS):
    job = cluster.submit(spec)
    done = cluster.wait_job(job, "DONE")
    counted_once(cluster, job, steps)
    return cluster.events(done)


@pytest.mark.parametrize("mesh", MESHES)
def test_as_one_worker_and_read_by_another_mesh(tmp_path, text, mesh):
    dp, pp, tp, keys = MESHES[mesh]
    one = alone(tmp_path, text, layers=LAYERS)
    with Cluster(tmp_path / "cluster", nodes=dp, slots=max(pp * tp, 4)) as cluster:
        events = finished(cluster, in_shards(text, tmp_path / "run", dp, pp, tp, every=10, keys=keys))
        assert "given up" not in events and "left out" not in events
        assert files(tmp_path / "run") == shards(pp * tp)
        assert_same_training(one, tmp_path / "run")
        names = {path.name for path in (tmp_path / "run").iterdir() if path.name.startswith("step-")}
        assert names == {"step-00000010", "step-00000020", "step-00000020-exported"}
        # From the middle on, on other meshes and in one piece.
        for number, (others, of) in enumerate([((1, 2, 1), True), ((1, 1, 4), False), ((1, 1, 1), False)]):
            spec = in_shards(text, tmp_path / f"other-{number}", *others)
            spec.train.checkpoint.sharded, spec.train.checkpoint.resume = of, str(tmp_path / "run" / "step-00000010")
            finished(cluster, spec)
            theirs, ours = parameters(tmp_path / f"other-{number}"), parameters(one)
            assert all(abs(theirs[name] - ours[name]).max() < 1e-5 for name in ours)
            rows, expected = rows_of(tmp_path / f"other-{number}"), rows_of(one)
            assert all(rows[step]["loss"] == pytest.approx(expected[step]["loss"], abs=1e-5) for step in range(11, STEPS + 1))


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGSTOP], ids=["kill", "stop"])
def test_each_writer_dies(tmp_path, text, signal_number):
    """While checkpoints are written all the time; what is there in the end is the last one, whole."""
    steps = 160
    with Cluster(tmp_path / "cluster", nodes=2, slots=2) as cluster:
        calm = in_shards(text, tmp_path / "calm", 1, 2, 2, every=2, steps=steps, nodes=2)
        finished(cluster, calm, steps)
        job = cluster.submit(in_shards(text, tmp_path / "run", 1, 2, 2, every=2, steps=steps, nodes=2))
        for victim in range(4):
            reach(tmp_path / "run", 12 * (victim + 1))
            wait_for(lambda: len(active(cluster, job)) == 4, "all workers")
            os.kill(active(cluster, job)[victim].pid, signal_number)
            wait_for(lambda: len(active(cluster, job)) < 4, "its loss")
        done = cluster.wait_job(job, "DONE")
        assert_near(tmp_path / "run", tmp_path / "calm", steps)
        assert files(tmp_path / "run") == shards(4)
        assert json.loads((tmp_path / "run" / "latest" / "manifest.json").read_text())["step"] == steps
        assert not [path.name for path in (tmp_path / "run").iterdir() if path.name.startswith(".step")]
        assert "without a checkpoint" not in cluster.events(done)


@pytest.mark.parametrize("mode", ["diloco", "streaming"])
def test_replicas_that_train_apart(tmp_path, text, mode):
    """Moments are one replica's: who goes on from the checkpoint begins with them, as from one in one piece."""
    def spec(folder, of):
        made = sharded_spec(text, folder, 2, nodes=2, workers=2)
        made.train.sync.mode, made.train.sync.inner_steps = mode, 5
        made.train.checkpoint.sharded, made.train.checkpoint.every = of, 10
        if mode == "streaming":
            made.train.sync.fragments = 2
        return made
    with Cluster(tmp_path / "cluster", nodes=2, slots=2) as cluster:
        for of in (False, True):
            cluster.wait_job(cluster.submit(spec(tmp_path / str(of), of)), "DONE")
        assert files(tmp_path / "True") == shards(2)
        assert_same_training(tmp_path / "False", tmp_path / "True", 1e-6, 1e-6)
        for of in (False, True):
            more = spec(tmp_path / f"more-{of}", of)
            more.train.checkpoint.resume = str(tmp_path / str(of) / "step-00000010")
            cluster.wait_job(cluster.submit(more), "DONE")
        assert_same_training(tmp_path / "more-False", tmp_path / "more-True", 1e-6, 1e-6)


@needs_mounts
def test_machines_that_share_no_folder(tmp_path, text):
    """The event says what to do, nothing is left, and the job says that it ends without one."""
    disks = Disks(tmp_path)
    cluster, add = disks.cluster(tmp_path / "cluster")
    with cluster:
        add()
        spec = in_shards(text, disks.run, 1, 2, 1, nodes=2)
        done = cluster.wait_job(cluster.submit(spec), "DONE")
        events = cluster.events(done)
        assert "checkpoint.sharded needs a checkpoint.dir that all nodes share" in events
        assert not any(path.name.lstrip(".").startswith("step-") for disk in disks.own for path in disk.iterdir())


def test_a_damaged_shard(tmp_path, text):
    with Cluster(tmp_path / "cluster", nodes=1, slots=2) as cluster:
        finished(cluster, in_shards(text, tmp_path / "run", 1, 1, 2))
        shard = tmp_path / "run" / "step-00000020" / "shard-00001.safetensors"
        damaged = bytearray(shard.read_bytes())
        damaged[-5] ^= 1
        shard.write_bytes(damaged)
        refused = trainctl("export", tmp_path / "run", "-o", tmp_path / "out", check=False)
        assert refused.returncode != 0 and "shard-00001.safetensors is damaged" in refused.stderr and "5 steps older" in refused.stderr
        spec = in_shards(text, tmp_path / "more", 1, 1, 2)
        spec.train.checkpoint.resume = str(tmp_path / "run")
        assert "the checkpoint of step 15 is taken instead" in finished(cluster, spec)


def test_only_with_a_mesh(tmp_path, text):
    with Cluster(tmp_path / "cluster", nodes=1, slots=2) as cluster, pytest.raises(grpc.RpcError, match="checkpoint.sharded: found true, allowed: false"):
        cluster.submit(in_shards(text, tmp_path / "run", 1, 1, 1))
