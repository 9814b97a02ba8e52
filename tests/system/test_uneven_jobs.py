"""Unequal workers get unequal work (mesh.shares, mesh.layers; chosen by `mesh: auto`): what a job learns is what one worker learns, each sample counts once, whoever dies."""
import os
import re
import signal

import pytest

from harness import Cluster, wait_for
from mesh_jobs import SLOW, STEPS, Throttled, active, alone, assert_near, assert_same_training, counted_once, reach, shared_kib, sharded_spec, staged_spec, train
from node_lab import NodeLab
from stubs import pb
from test_auto import costs_file, job_file, worker_of_speed
from test_samples import check_once, consumed
from test_training import BATCH


def uneven_spec(text, folder, dp, pp, tp, shares=(), stages=(), **options):
    spec = staged_spec(text, folder, pp, tp, nodes=dp, workers=pp * tp, **options)
    spec.mesh.shares.extend(shares)
    spec.mesh.layers.extend(stages)
    spec.train.optimizer.micro_sequences = 8
    return spec


def logging_cluster(tmp_path, name, dp, slots):
    folder = tmp_path / name
    (folder / "samples").mkdir(parents=True)
    return Cluster(folder / "cluster", nodes=dp, slots=slots, environment={"TRAIND_SAMPLES_LOG": str(folder / "samples")})


# dp, pp, tp, shares, layers of 3, sequences of 32 that each replica gets
CASES = [(3, 1, 1, (3, 1, 2), (), (16, 5, 11)), (2, 1, 2, (3, 1), (), (24, 8)), (1, 2, 1, (), (1, 2), (32,)), (2, 2, 1, (1, 4), (1, 2), (6, 26)),
         (1, 2, 2, (), (1, 2), (32,))]


@pytest.mark.parametrize("preset", ["gpt2", "llama"])
def test_as_one_worker(tmp_path, text, preset):
    assert BATCH == 32
    one = alone(tmp_path, text, preset=preset, layers=3)
    for number, (dp, pp, tp, shares, stages, each) in enumerate(CASES):
        run = tmp_path / f"run-{number}"
        with logging_cluster(tmp_path, f"cluster-{number}", dp, pp * tp) as cluster:
            job = cluster.submit(uneven_spec(text, run, dp, pp, tp, shares, stages, preset=preset, layers=3))
            done = cluster.wait_job(job, "DONE")
            counted_once(cluster, job, STEPS)
            assert (done.rounds.committed, done.rounds.samples) == (STEPS + 1, STEPS * BATCH)
        assert_same_training(one, run)
        used = consumed(tmp_path / f"cluster-{number}")
        assert check_once(used.values()) == set(range(STEPS * BATCH))
        assert sorted(len(numbers) for numbers in used.values() if numbers) == sorted(STEPS * share for share in each), each


def test_a_small_stage_takes_little_memory(tmp_path, text):
    """Each worker has room for the largest stage, but what it does not use has no pages."""
    run = tmp_path / "run"
    with Cluster(tmp_path / "cluster", nodes=1, slots=2) as cluster:
        job = cluster.submit(uneven_spec(text, run, 1, 2, 1, (), (3, 1), layers=4, width=256, steps=1000, every=1000))
        reach(run, 4)
        most, least = sorted((shared_kib(peer.pid) for peer in active(cluster, job)), reverse=True)
        cluster.api().CancelJob(pb.CancelJobRequest(job_id=job))
    layer = 12 * 256 * 256 * 16 // 1024  # with gradient and moments
    assert most >= 3 * layer
    assert least <= most - 1.5 * layer, (most, least, layer)


@pytest.mark.parametrize("rank", range(4))
def test_a_kill_of_each_rank(tmp_path, text, rank):
    """The replica that is left computes the whole batch, and its share again when there is another worker."""
    steps, run = 200, tmp_path / "run"
    calm = alone(tmp_path, text, steps=steps, lr=SLOW)
    with Cluster(tmp_path / "cluster", nodes=2, slots=2) as cluster:
        job = cluster.submit(uneven_spec(text, run, 2, 1, 2, (3, 1), steps=steps, lr=SLOW))
        reach(run, 20)
        victim = active(cluster, job)[rank]
        os.kill(victim.pid, signal.SIGKILL)
        done = cluster.wait_job(job, "DONE")
        assert f"takes rank {rank} (tp {rank % 2} of replica {rank // 2})" in cluster.events(done)
        assert done.rounds.samples == steps * BATCH and done.rounds.committed == done.rounds.recorded == steps + 1
        counted_once(cluster, job, steps)
    assert_near(run, calm, steps)


def test_workers_of_whole_models(tmp_path, text):
    """Three replicas of one worker: kills of two of them, one after the other."""
    steps, run = 200, tmp_path / "run"
    calm = alone(tmp_path, text, steps=steps, lr=SLOW)
    with Cluster(tmp_path / "cluster", nodes=3) as cluster:
        job = cluster.submit(uneven_spec(text, run, 3, 1, 1, (3, 1, 2), steps=steps, lr=SLOW))
        for number, rank in enumerate((0, 2)):
            reach(run, 20 + 60 * number)
            os.kill(active(cluster, job)[rank].pid, signal.SIGKILL)
            wait_for(lambda: cluster.events(cluster.job(job)).count(" takes rank ") == number + 1, "another worker")
        cluster.wait_job(job, "DONE")
        counted_once(cluster, job, steps)
    assert_near(run, calm, steps)


def test_a_slow_machine_gets_less(tmp_path, text):
    """Of three machines one has measured a quarter of the others' speed: `mesh: auto` gives it less of each step, and it is one worker's training; also when it dies and comes again."""
    steps = 200
    calm = alone(tmp_path, text, steps=steps, lr=SLOW)
    with NodeLab(tmp_path) as lab:
        # layers of seconds, beside which no link is slow: each node is worth taking
        for number, speed in ((2, 0.01), (3, 0.0025), (4, 0.01)):
            lab.add_node(number, more=worker_of_speed(tmp_path, number, speed))
        file = job_file(tmp_path, text, "{auto: true, threads: 1}", steps=steps)
        lab.trainctl("launch", file, "--set", f"train.lr={SLOW}", "--costs", costs_file(tmp_path, 100), "--detach")
        run = tmp_path / "run"
        reach(run, 20)
        job = lab.json("status", 1)
        events = "\n".join(event["text"] for event in job["events"])
        assert re.search(r"mesh: dp 3, shares (\d+) : (\d+) : (\d+)", events), events
        victim = next(peer for peer in job["peers"] if peer["node"] == "node-3")
        os.kill(victim["pid"], signal.SIGKILL)
        wait_for(lambda: lab.json("status", 1)["state"] == "done", "the end")
        told = lab.json("samples", 1)
        assert sum(row["counted"] for row in told["epochs"]) == steps * BATCH
    assert_near(run, calm, steps)


def shares_of(cluster, job):
    """What each balancing gave."""
    return [tuple(map(int, found)) for found in re.findall(r"balance: .*, shares (\d+) : (\d+)", cluster.events(cluster.job(job)))]


@pytest.mark.parametrize("pp", [1, 2])
def test_shares_follow_speeds(tmp_path, text, pp):
    """One worker becomes slow in the middle of the job: its replica gets less of each step, and dies; who comes instead gets its share again when it is seen to be as fast as the others."""
    steps, run = 600, tmp_path / "run"
    calm = alone(tmp_path, text, steps=steps, lr=SLOW)
    with Cluster(tmp_path / "cluster", nodes=2, slots=pp) as cluster:
        spec = uneven_spec(text, run, 2, pp, 1, steps=steps, lr=SLOW)
        spec.mesh.balance = "on"
        job = cluster.submit(spec)
        reach(run, 20)
        slow = active(cluster, job)[1]
        with Throttled(slow.pid):
            wait_for(lambda: any(other < 0.3 * BATCH for _, other in shares_of(cluster, job)), "a smaller share")
            dealt = shares_of(cluster, job)
        os.kill(slow.pid, signal.SIGKILL)
        wait_for(lambda: any(other > dealt[-1][1] + 3 for _, other in shares_of(cluster, job)[len(dealt):]), "the share of who came instead")
        done = cluster.wait_job(job, "DONE")
        assert re.search(r"balance: a sequence takes replica 1 .* ms, replica 0 .* ms; .* ms of a step's computing become .* ms, shares", cluster.events(done))
        assert done.rounds.samples == steps * BATCH
        counted_once(cluster, job, steps)
    assert_near(run, calm, steps)


def layers_of(cluster, job):
    """What each change of layers made of them."""
    return [tuple(map(int, found)) for found in re.findall(r"goes on with dp \d(?: x [pt]p \d)+, layers (\d+) : (\d+);", cluster.events(cluster.job(job)))]


def test_layers_follow_speeds(tmp_path, text):  # noqa: F811
    """One worker of a pipeline becomes slow in the middle of the job: its stage gets fewer layers, out of workers' memory; when it is as fast as the other again, it gets some back. Moments moved
    with them: the parameters are those of one worker, bit for bit, as stages of a model whose table is not tied change none."""
    steps, run, model = 240, tmp_path / "run", {"preset": "llama", "tied": "false", "layers": 6}
    one = sharded_spec(text, tmp_path / "one", 1, steps=steps, lr=SLOW, **model)
    one.train.optimizer.micro_sequences = 8
    train(tmp_path / "alone", one, 1)
    with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        spec = uneven_spec(text, run, 1, 2, 1, steps=steps, lr=SLOW, **model)
        spec.mesh.nodes, spec.mesh.workers_per_node, spec.mesh.balance = 2, 1, "on"
        job = cluster.submit(spec)
        reach(run, 20)
        with Throttled(active(cluster, job)[1].pid):
            wait_for(lambda: any(own < 3 for _, own in layers_of(cluster, job)), "fewer layers")
            dealt = layers_of(cluster, job)
        wait_for(lambda: any(own > dealt[-1][1] for _, own in layers_of(cluster, job)[len(dealt):]), "more layers")
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        assert re.search(r"mesh: of a step stage 1 computes [0-9.]+ ms, stage 0 [0-9.]+ ms: goes on with .*; [0-9.]+ MB moved, [0-9.]+ MB stayed where they were, in [0-9.]+ s; "
                         r"\d+ steps are left, each [0-9.]+ ms shorter: .* s, for a change of ", events), events
        assert "goes back" not in events, events
        counted_once(cluster, job, steps)
    assert_same_training(tmp_path / "one", run, loss=0, numbers=1e-45)
