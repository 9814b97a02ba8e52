"""Jobs whose layers are split into stages (mesh.pp) on real daemons, alone and with tensor and data parallelism: as in test_sharded_jobs.py."""
import os
import random
import re
import signal

import numpy
import pytest

from harness import Cluster, trainctl, wait_for
from mesh_jobs import SLOW, STEPS, active, alone, assert_near, assert_same_training, counted_once, parameters, reach, rows_of, staged_spec, train
from test_training import BATCH


@pytest.mark.parametrize("preset", ["gpt2", "llama"])
def test_a_pipeline_computes_what_one_worker_does(tmp_path, text, preset):
    one = alone(tmp_path, text, preset=preset, layers=3)
    for dp, pp, tp in ((1, 2, 1), (1, 3, 1), (2, 2, 1), (1, 2, 2)):
        run = tmp_path / f"dp{dp}-pp{pp}-tp{tp}"
        spec = staged_spec(text, run, pp, tp, nodes=dp, workers=pp * tp, preset=preset, layers=3)
        done, events = train(tmp_path / f"cluster-{dp}-{pp}-{tp}", spec, dp, slots=pp * tp)
        assert f"mesh: dp {dp} x pp {pp}" + (f" x tp {tp}" if tp > 1 else "") in events
        assert (done.rounds.committed, done.rounds.samples) == (STEPS + 1, STEPS * BATCH)
        assert_same_training(one, run)


def test_many_microbatches_in_a_round(tmp_path, text):
    """More messages than ops that a round may have: those that both ends have are released."""
    for pp in (1, 2):
        spec = staged_spec(text, tmp_path / f"pp{pp}", pp, workers=pp, steps=2, width=16)
        spec.train.optimizer.batch_tokens *= 70
        spec.train.optimizer.micro_sequences = spec.train.optimizer.warmup = 1
        with Cluster(tmp_path / f"cluster-{pp}", nodes=1, slots=pp) as cluster:
            cluster.wait_job(cluster.submit(spec), "DONE")
    ours, theirs = rows_of(tmp_path / "pp2"), rows_of(tmp_path / "pp1")
    assert sorted(ours) == sorted(theirs) == [1, 2]
    for step, row in ours.items():
        assert theirs[step]["loss"] == pytest.approx(row["loss"], abs=1e-5)


def test_many_microbatches_in_a_validation(tmp_path, text):
    """Only forward passes, so nothing comes back from the next stage but the words that messages have come: more messages than ops that a round may have."""
    text.write_text(text.read_text() * 3)
    assert text.stat().st_size / 2 / 8 > 5000
    for pp in (1, 2, 3):
        spec = staged_spec(text, tmp_path / f"pp{pp}", pp, workers=pp, steps=2, layers=3, width=16)
        spec.train.model.context = 8
        spec.train.data.validation = 0.5
        spec.train.optimizer.micro_sequences = spec.train.optimizer.warmup = 1
        spec.train.optimizer.batch_tokens = 64
        spec.train.optimizer.eval_sequences = 5000
        with Cluster(tmp_path / f"cluster-{pp}", nodes=1, slots=pp) as cluster:
            cluster.wait_job(cluster.submit(spec), "DONE")
    one = rows_of(tmp_path / "pp1")
    for pp in (2, 3):
        assert rows_of(tmp_path / f"pp{pp}")[2]["val_loss"] == pytest.approx(one[2]["val_loss"], abs=1e-5)


def test_any_mesh_goes_on_from_a_pipelines_checkpoint(tmp_path, text):
    one = alone(tmp_path, text)
    with Cluster(tmp_path / "half", nodes=1, slots=2) as cluster:
        cluster.wait_job(cluster.submit(staged_spec(text, tmp_path / "run", 2, workers=2, every=10)), "DONE")
    half = tmp_path / "run" / "step-00000010"
    for dp, pp, tp in ((1, 1, 1), (1, 1, 2), (1, 2, 2), (2, 2, 1)):
        run = tmp_path / f"rest-{dp}-{pp}-{tp}"
        with Cluster(tmp_path / f"cluster-{dp}-{pp}-{tp}", nodes=dp, slots=pp * tp) as cluster:
            job = cluster.submit(staged_spec(text, run, pp, tp, nodes=dp, workers=pp * tp, resume=half))
            cluster.wait_job(job, "DONE")
            counted_once(cluster, job, STEPS)
        rows, whole = rows_of(run), rows_of(one)
        assert sorted(rows) == list(range(11, STEPS + 1))
        for step, row in rows.items():
            assert row["loss"] == pytest.approx(whole[step]["loss"], abs=1e-5), step
        left, right = parameters(one), parameters(run)
        assert all(numpy.abs(left[name] - right[name]).max() < 1e-5 for name in left)


def lose_one(tmp_path, text, rank, pp, steps, reached, **options):
    """Of dp 2 one holder of a stage is lost, which comes from the other replica: the job's events."""
    run = tmp_path / "run"
    model = {key: options[key] for key in options if key != "every"}
    calm = alone(tmp_path, text, steps=steps, lr=SLOW, **model)
    with Cluster(tmp_path / "cluster", nodes=2, slots=pp) as cluster:
        job = cluster.submit(staged_spec(text, run, pp, nodes=2, workers=pp, steps=steps, lr=SLOW, **options))
        reach(run, reached)
        victim = active(cluster, job)[rank]
        os.kill(victim.pid, signal.SIGKILL)
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        place = f"pp {rank // 2} of replica {rank % 2}"  # ranks count along dp before pp
        assert f"peer {victim.id} ({place}) is lost: goes on with dp 1" in events, events
        assert re.search(rf"takes rank {rank} \({place}\): (its [0-9.]+ MB came in|[0-9.]+ MB from peer) ", events), events
        assert done.rounds.samples == steps * BATCH and done.rounds.committed == done.rounds.recorded == steps + 1
        counted_once(cluster, job, steps)
    assert_near(run, calm, steps)
    return events


@pytest.mark.parametrize("rank", range(4))
def test_a_kill_of_each_rank(tmp_path, text, rank):
    lose_one(tmp_path, text, rank, 2, 200, 20)


@pytest.mark.parametrize("rank", [2, 3])
def test_a_kill_in_the_middle(tmp_path, text, rank):
    """Of a stage with others before and behind it. Checkpoints are there, and nobody reads one."""
    events = lose_one(tmp_path, text, rank, 3, 100, 15, layers=3, every=10)
    assert "goes back" not in events and "goes on from checkpoint" not in events, events


def test_the_only_holder_of_a_stage_is_lost(tmp_path, text):
    """dp 1: training waits for a worker, and goes back to the newest checkpoint."""
    steps, run = 100, tmp_path / "run"
    calm = alone(tmp_path, text, steps=steps, lr=SLOW)
    with Cluster(tmp_path / "cluster", nodes=1, slots=2) as cluster:
        job = cluster.submit(staged_spec(text, run, 2, workers=2, steps=steps, every=10, lr=SLOW))
        reach(run, 35)
        victim = active(cluster, job)[1]
        os.kill(victim.pid, signal.SIGKILL)
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        assert f"peer {victim.id} (pp 1 of replica 0) is lost" in events
        assert "waits for workers: 1 of the 2 that one replica takes are there" in events
        assert "holds transformer.h.1.ln_1.weight, among others: training goes back" in events, events
        counted_once(cluster, job, steps)
    assert_near(run, calm, steps)


def test_without_a_replacement(tmp_path, text):
    """A node is lost: one replica goes on, what is left of the other is a spare until another node is there. Both get their shards while the others take steps."""
    steps, run = 300, tmp_path / "run"
    calm = alone(tmp_path, text, steps=steps, lr=SLOW)
    with Cluster(tmp_path / "cluster", nodes=4, slots=1) as cluster:
        job = cluster.submit(staged_spec(text, run, 2, nodes=4, workers=1, steps=steps, lr=SLOW))
        reach(run, 20)
        cluster.nodes[3].kill9()
        wait_for(lambda: "goes on with dp 1 until a worker joins" in cluster.events(cluster.job(job)), "dp 1")
        reach(run, max(rows_of(run)) + 20)
        shown = trainctl("--address", cluster.memberd.address, "status", job).stdout
        assert "mesh        dp 1 of 2 x pp 2" in shown and "1 spare" in shown, shown
        cluster.add_node()
        done = cluster.wait_job(job, "DONE")
        assert done.rounds.samples == steps * BATCH
        counted_once(cluster, job, steps)
    rows = rows_of(run)
    assert rows[steps]["contributors"] == 4
    came = re.findall(r"takes rank \d \(pp \d of replica \d\): its [0-9.]+ MB came in (\d+) steps, ", cluster.events(done))
    assert len(came) == 2 and all(int(count) > 1 for count in came), cluster.events(done)
    assert_near(run, calm, steps)


@pytest.mark.parametrize("node", range(2))
def test_a_node_has_a_whole_replica(tmp_path, text, node):
    """Two nodes of two workers, dp 2 x pp 2: whichever is lost, the other one holds each stage, and nothing is read from a checkpoint."""
    steps, run = 300, tmp_path / "run"
    calm = alone(tmp_path, text, steps=steps, lr=SLOW)
    with Cluster(tmp_path / "cluster", nodes=2, slots=2) as cluster:
        job = cluster.submit(staged_spec(text, run, 2, nodes=2, workers=2, steps=steps, lr=SLOW, every=10))
        reach(run, 35)
        cluster.nodes[node].kill9()
        wait_for(lambda: "goes on with dp 1" in cluster.events(cluster.job(job)), "dp 1")
        reach(run, max(rows_of(run)) + 20)
        cluster.add_node(slots=2)
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        assert "goes back" not in events and "goes on from checkpoint" not in events, events
        assert done.rounds.samples == steps * BATCH
        counted_once(cluster, job, steps)
    assert_near(run, calm, steps)


def test_kills_at_random_moments(tmp_path, text):
    """Ten kills in a job of dp 2 x pp 2: every sample of every step counted once, the curve that of one worker."""
    steps, run, kills = 350, tmp_path / "run", 10
    draw = random.Random(int(os.environ.get("SHARDED_SEED", "1")))
    calm = alone(tmp_path, text, steps=steps, lr=SLOW)
    with Cluster(tmp_path / "cluster", nodes=2, slots=2) as cluster:
        job = cluster.submit(staged_spec(text, run, 2, nodes=2, workers=2, steps=steps, every=25, lr=SLOW))
        for _ in range(kills):
            last = max(rows_of(run), default=0)
            reach(run, last + draw.randint(5, 30))
            there = active(cluster, job)
            if there:
                os.kill(draw.choice(there).pid, signal.SIGKILL)
        done = cluster.wait_job(job, "DONE")
        counted_once(cluster, job, steps)
        assert done.rounds.committed == done.rounds.recorded
    assert_near(run, calm, steps)
