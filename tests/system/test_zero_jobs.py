"""Jobs with mesh.zero_owners (ZeRO-1) on real daemons: the bits of the same mesh without it, whoever dies and comes; moments alone are held by pieces."""
import os
import pathlib
import signal

import pytest
import safetensors.numpy

from harness import Cluster, wait_for
from mesh_jobs import (SLOW, STEPS, Throttled, active, alone, assert_near, assert_same_training, counted_once, parameters,
                       reach, rows_of, shared_kib, staged_spec, train)
from stubs import pb
from test_training import BATCH


def zero_spec(text, folder, owners, pp=1, tp=1, deterministic=True, **options):
    spec = staged_spec(text, folder, pp, tp, **options)
    spec.mesh.zero_owners = owners
    spec.mesh.threads = 1
    # So that the sums of three have one order in any run, whatever the links are.
    spec.train.sync.deterministic = deterministic
    return spec


def state_of(folder):
    """Parameters and moments by name."""
    latest = pathlib.Path(folder) / "latest"
    state = safetensors.numpy.load_file(latest / "model.safetensors")
    return {**state, **safetensors.numpy.load_file(latest / "optimizer.safetensors")}


def assert_same_bits(one, other, events=""):
    left, right = state_of(one), state_of(other)
    assert left.keys() == right.keys()
    for name in left:
        assert (left[name] == right[name]).all(), f"{name}\n{events}"


@pytest.mark.parametrize("mesh", [(3, 1, 1), (2, 1, 2), (3, 1, 2), (3, 2, 1)], ids=lambda mesh: "dp{}-pp{}-tp{}".format(*mesh))
def test_the_bits_of_the_mesh_without_it(tmp_path, text, mesh):
    dp, pp, tp = mesh
    runs, told = {}, ""
    for owners in (0, 2):
        runs[owners] = tmp_path / f"run-{owners}"
        spec = zero_spec(text, runs[owners], owners, pp, tp, nodes=1, workers=dp * pp * tp, every=7)
        done, events = train(tmp_path / f"cluster-{owners}", spec, 1, slots=dp * pp * tp)
        assert (done.rounds.committed, done.rounds.samples) == (STEPS + 1, STEPS * BATCH)
        assert "other numbers" not in events, events
        told += events
    assert_same_bits(runs[0], runs[2], told)
    for step, row in rows_of(runs[0]).items():
        other = rows_of(runs[2])[step]
        assert (other["loss"], other["grad_norm"]) == (row["loss"], row["grad_norm"]), step


def test_any_owners_learn_the_same(tmp_path, text):
    """Llama over four replicas: two owners, three, or all."""
    one = alone(tmp_path, text, preset="llama")
    for owners in (2, 3, 4):
        run = tmp_path / f"run-{owners}"
        train(tmp_path / f"cluster-{owners}", zero_spec(text, run, owners, nodes=1, workers=4, preset="llama"), 1, slots=4)
        assert_same_training(one, run)
        if owners > 2:
            assert_same_bits(tmp_path / "run-2", run)


def test_any_mesh_goes_on_from_any_checkpoint(tmp_path, text):
    """Half with pieces of moments and the rest without them, on another mesh; and the other way round."""
    one = alone(tmp_path, text)
    meshes = {"zero": (2, 3, 1, 2), "none": (0, 1, 1, 1), "tp": (0, 2, 1, 2), "stages": (2, 3, 2, 1)}
    for first, then in (("zero", "none"), ("zero", "tp"), ("tp", "stages"), ("none", "zero"), ("stages", "zero")):
        run, rest = tmp_path / f"{first}-{then}", tmp_path / f"{first}-{then}-rest"
        for folder, name, options in ((run, first, {"every": 10}), (rest, then, {"resume": run / "step-00000010"})):
            owners, dp, pp, tp = meshes[name]
            with Cluster(tmp_path / f"cluster-{folder.name}", nodes=1, slots=dp * pp * tp) as cluster:
                job = cluster.submit(zero_spec(text, folder, owners, pp, tp, nodes=1, workers=dp * pp * tp, **options))
                cluster.wait_job(job, "DONE")
                counted_once(cluster, job, STEPS)
        assert sorted(rows_of(rest)) == list(range(11, STEPS + 1))
        left, right = state_of(one), state_of(rest)
        assert all(abs(left[name] - right[name]).max() < 1e-5 for name in left), (first, then)


LONG = 100


@pytest.fixture
def calm(tmp_path, text):
    return text, alone(tmp_path, text, steps=LONG, lr=SLOW)


@pytest.mark.parametrize("dp, tp, rank", [*((2, 2, rank) for rank in range(4)), *((3, 1, rank) for rank in range(3))])
def test_a_kill_of_each_rank(tmp_path, calm, dp, tp, rank):
    """Nothing is lost, and who comes gets its shard and all of the moments while the others train on."""
    (words, undisturbed), run = calm, tmp_path / "run"
    with Cluster(tmp_path / "cluster", nodes=1, slots=dp * tp) as cluster:
        job = cluster.submit(zero_spec(words, run, 2, 1, tp, nodes=1, workers=dp * tp, steps=LONG, lr=SLOW, every=10))
        reach(run, 25)
        victim = active(cluster, job)[rank]
        os.kill(victim.pid, signal.SIGKILL)
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        assert f"peer {victim.id} (tp {rank % tp} of replica {rank // tp}) is lost: goes on with dp {dp - 1}" in events, events
        assert f"takes rank {rank} (" in events and "in which the others trained on" in events, events
        assert "goes back" not in events and "other numbers" not in events, events
        assert (done.rounds.samples, done.rounds.committed) == (LONG * BATCH, LONG + 1)
        counted_once(cluster, job, LONG)
    assert rows_of(run)[LONG]["contributors"] == dp * tp
    assert_near(run, undisturbed, LONG)


def kill_at_once(cluster, job, ranks):
    """No round is committed between the first and the last of them: somebody else stands still."""
    there = active(cluster, job)
    witness = next(peer for rank, peer in enumerate(there) if rank not in ranks)
    os.kill(witness.pid, signal.SIGSTOP)
    for rank in ranks:
        os.kill(there[rank].pid, signal.SIGKILL)
    os.kill(witness.pid, signal.SIGCONT)


@pytest.mark.parametrize("owners, lost", [(2, True), (3, False)])
def test_neighbours_are_lost_at_once(tmp_path, calm, owners, lost):
    """Of four replicas two: with two owners a piece is gone, and training goes back to the newest checkpoint; with three everything is there."""
    (words, undisturbed), run = calm, tmp_path / "run"
    with Cluster(tmp_path / "cluster", nodes=1, slots=4) as cluster:
        job = cluster.submit(zero_spec(words, run, owners, nodes=1, workers=4, steps=LONG, lr=SLOW, every=10))
        reach(run, 25)
        kill_at_once(cluster, job, (1, 2))
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        assert ("no worker is left that holds the moments of transformer." in events) == lost, events
        assert ("training goes back from step" in events) == lost and "goes on from checkpoint" not in events, events
        counted_once(cluster, job, LONG)
    assert_near(run, undisturbed, LONG)


def test_lost_moments_and_no_checkpoint(tmp_path, text):
    with Cluster(tmp_path / "cluster", nodes=1, slots=3) as cluster:
        job = cluster.submit(zero_spec(text, tmp_path / "run", 2, nodes=1, workers=3, steps=100000))
        reach(tmp_path / "run", 10)
        kill_at_once(cluster, job, (0, 1))
        failed = cluster.wait_job(job, "FAILED")
        words = cluster.events(failed) + failed.reason
        assert "no worker is left that holds the moments of " in words and "set checkpoint.every" in words, words


def test_a_smaller_mesh_and_back(tmp_path, calm):
    """Three of four workers are lost: one goes on alone from the newest checkpoint; others come, and the shards of the job's mesh are made out of their pieces."""
    (words, undisturbed), run = calm, tmp_path / "run"
    with Cluster(tmp_path / "cluster", nodes=4) as cluster:
        job = cluster.submit(zero_spec(words, run, 2, 1, 2, nodes=4, steps=LONG, lr=SLOW, every=10))
        reach(run, 25)
        for node in cluster.nodes[1:]:
            node.kill9()
        wait_for(lambda: "dp 1 x tp 2 cannot be: 1 worker; goes on with dp 1" in cluster.events(cluster.job(job)), "a smaller mesh")
        (survivor,) = active(cluster, job)
        with Throttled(survivor.pid):  # else it might have learned everything before they have come
            for _ in range(3):
                cluster.add_node(wait=False)
            wait_for(lambda: "goes on with dp 2 x tp 2" in cluster.events(cluster.job(job)), "the job's mesh")
        done = cluster.wait_job(job, "DONE")
        assert "goes on from checkpoint" not in cluster.events(done)
        counted_once(cluster, job, LONG)
    assert_near(run, undisturbed, LONG)


def test_moments_that_are_not_owned_take_no_memory(tmp_path, text):
    """Four replicas; of two owners' moments half has no pages, and a quarter of the parameters is there a second time."""
    model, resident = {"width": 256, "layers": 4}, {}
    for owners in (2, 4):
        with Cluster(tmp_path / f"cluster-{owners}", nodes=1, slots=4) as cluster:
            run = tmp_path / f"run-{owners}"
            # No checkpoint: who writes one has what came for it from the others.
            job = cluster.submit(zero_spec(text, run, owners, nodes=1, workers=4, steps=1000, every=1000, **model))
            reach(run, 8)
            resident[owners] = [shared_kib(peer.pid) for peer in active(cluster, job)]
            cluster.api().CancelJob(pb.CancelJobRequest(job_id=job))
    parameters = 12 * 256 * 256 * 4 // 1024  # thousands, of the layers alone
    saved = (8 / 2 - 4 / 4) * parameters
    for few, all_ in zip(resident[2], resident[4]):
        assert few < all_ - 0.9 * saved, (resident, saved)
