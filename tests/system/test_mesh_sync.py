"""Replicas of several workers that train apart (mesh.tp, mesh.pp with sync.mode): what they learn is what replicas of one worker learn with the same settings, whoever dies; nothing goes
from one replica to another but with a merge."""
import os
import re
import signal

import numpy
import pytest

from harness import Cluster, trainctl_json, wait_for
from mesh_jobs import BATCH, STEPS, Throttled, active, parameters, reach, rows_of, staged_spec, train, write_text
from node_lab import NodeLab
from test_samples import check_once, check_sums, consumed, counted_of

INNER = 4


def apart_spec(text, folder, dp, pp, tp, inner=INNER, **options):
    spec = staged_spec(text, folder, pp, tp, nodes=dp, workers=pp * tp, **options)
    spec.train.sync.mode, spec.train.sync.inner_steps = "diloco", inner
    spec.train.optimizer.micro_sequences = 4
    return spec


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The text, and what two workers that hold the whole model learn of it, apart from each other."""
    folder = tmp_path_factory.mktemp("whole")
    text = write_text(folder)
    train(folder / "cluster", apart_spec(text, folder / "run", 2, 1, 1), 2)
    return text, folder / "run"


def rates(spec):
    """HDET: what a replica learns with its own learning rate moves the base of the rates."""
    spec.train.sync.mode, spec.train.sync.lr_spread, spec.train.sync.lr_temperature = "hdet", 0.3, 0.05
    return spec


def assert_same_learning(one, other):
    """Parameters, and losses of the same merges."""
    left, right = parameters(one), parameters(other)
    assert left.keys() == right.keys()
    for name in left:
        assert numpy.abs(left[name] - right[name]).max() < 1e-5, name
    ours, theirs = rows_of(one), rows_of(other)
    assert sorted(ours) == sorted(theirs)
    for step in ours:
        assert theirs[step]["loss"] == pytest.approx(ours[step]["loss"], abs=1e-5), step
    return sorted(ours)


def assert_same(one, other):
    assert assert_same_learning(one, other) == list(range(INNER, STEPS + 1, INNER))


def assert_nothing_between_merges(folder):
    """From one replica to the other and back goes the movement of a merge, not one of each step; headers, votes and what a tensor-parallel group has twice beside it."""
    rows, bytes_of_model = rows_of(folder), sum(array.nbytes for array in parameters(folder).values())
    merges = (STEPS - 2 * INNER) // INNER  # a merge's bytes are told with the next one
    sent = (rows[STEPS]["sent_bytes"] - rows[2 * INNER]["sent_bytes"]) / merges
    assert 2 * bytes_of_model <= sent < 2.2 * bytes_of_model
    # And data parallel training: at each step. The first merge's are told with the second one, whose own are not in it.
    assert rows[2 * INNER]["dense_bytes"] == 2 * bytes_of_model * INNER and rows[2 * INNER]["sent_bytes"] < 3 * bytes_of_model


@pytest.mark.parametrize("pp,tp", [(1, 2), (2, 1), (2, 2)])
def test_replicas_of_several_workers_learn_what_single_workers_do(tmp_path, whole, pp, tp):
    text, one = whole
    spec = apart_spec(text, tmp_path / "run", 2, pp, tp)
    spec.mesh.sequence_parallel = pp * tp == 4
    done, events = train(tmp_path / "cluster", spec, 2, slots=pp * tp)
    assert done.rounds.committed == STEPS // INNER + 1, events
    assert_same(one, tmp_path / "run")
    assert_nothing_between_merges(tmp_path / "run")


@pytest.fixture(scope="module")
def rated(tmp_path_factory, whole):
    """What two workers that hold the whole model learn with learning rates of their own. It has layers for two chunks of two stages."""
    folder = tmp_path_factory.mktemp("rated")
    train(folder / "cluster", rates(apart_spec(whole[0], folder / "run", 2, 1, 1, layers=4)), 2)
    return folder / "run"


@pytest.mark.parametrize("pp,tp,chunks,sequence", [(1, 2, 1, False), (2, 1, 1, False), (2, 1, 2, False), (1, 2, 1, True), (2, 2, 2, True)])
def test_a_replica_has_the_learning_rate_that_a_worker_would_have(tmp_path, whole, rated, pp, tp, chunks, sequence):
    """hdet: from merge to merge, and the base moves as it does for whole workers."""
    spec = rates(apart_spec(whole[0], tmp_path / "run", 2, pp, tp, layers=4))
    spec.mesh.chunks, spec.mesh.sequence_parallel = chunks, sequence
    _, events = train(tmp_path / "cluster", spec, 2, slots=pp * tp)
    assert "other numbers" not in events, events
    assert_same(rated, tmp_path / "run")
    ours, theirs = rows_of(tmp_path / "run"), rows_of(rated)
    assert [ours[step]["lr"] for step in sorted(ours)] == pytest.approx([theirs[step]["lr"] for step in sorted(theirs)], rel=1e-4)
    plain, step = rows_of(whole[1]), STEPS - INNER  # the last one's rate is 0
    assert abs(ours[step]["lr"] / plain[step]["lr"] - 1) > 0.01, "the base has moved"


@pytest.fixture(scope="module")
def averaged(tmp_path_factory, whole):
    """What two workers that hold the whole model learn of the same text by local_sgd, which is not what they learn by diloco."""
    folder = tmp_path_factory.mktemp("averaged")
    train(folder / "cluster", averaging(apart_spec(whole[0], folder / "run", 2, 1, 1, layers=4)), 2)
    train(folder / "other-cluster", apart_spec(whole[0], folder / "other", 2, 1, 1, layers=4), 2)
    assert distance(folder / "run", folder / "other") > 0.1
    return folder / "run"


def averaging(spec):
    spec.train.sync.mode = "local_sgd"
    return spec


@pytest.mark.parametrize("pp,tp,chunks,sequence", [(1, 2, 1, False), (2, 1, 1, False), (2, 1, 2, False), (1, 2, 1, True)])
def test_replicas_average_what_workers_would(tmp_path, whole, averaged, pp, tp, chunks, sequence):
    """local_sgd: after each merge a shard is the mean of what its replicas made of it."""
    spec = averaging(apart_spec(whole[0], tmp_path / "run", 2, pp, tp, layers=4))
    spec.mesh.chunks, spec.mesh.sequence_parallel = chunks, sequence
    done, events = train(tmp_path / "cluster", spec, 2, slots=pp * tp)
    assert done.rounds.committed == STEPS // INNER + 1 and "other numbers" not in events, events
    assert_same(averaged, tmp_path / "run")
    assert_nothing_between_merges(tmp_path / "run")


def test_what_several_workers_hold_stays_the_same_with_a_codec(tmp_path, whole):
    """What a codec makes of a number depends on those beside it, which are others at each worker: norms would differ, be found before the next round, and take rounds to mend."""
    spec = apart_spec(whole[0], tmp_path / "run", 2, 1, 2)
    spec.train.sync.codec = "int4"
    done, events = train(tmp_path / "cluster", spec, 2, slots=2)
    assert done.rounds.committed == STEPS // INNER + 1 and "other numbers" not in events, events


def distance(one, other):
    left, right = parameters(one), parameters(other)
    return float(numpy.sqrt(sum(((left[name] - right[name]) ** 2).sum() for name in left)))


def coded(whole, folder, pp, tp, feedback):
    """How far from f32's parameters those are that int2 leads to."""
    spec = apart_spec(whole[0], folder / "run", 2, pp, tp)
    spec.train.sync.codec, spec.train.sync.feedback = "int2", feedback
    _, events = train(folder / "cluster", spec, 2, slots=pp * tp)
    assert "other numbers" not in events, events
    return distance(whole[1], folder / "run")


@pytest.mark.parametrize("pp,tp", [(1, 2), (2, 1)])
def test_what_coding_loses_goes_with_later_merges(tmp_path, whole, pp, tp):
    """int2 sends no small movements beside large ones. With error feedback, which it has unless a job says otherwise, they add up; as with workers that hold the whole model,
    but that blocks of numbers are cut elsewhere."""
    kept, lost = coded(whole, tmp_path / "kept", pp, tp, 0), coded(whole, tmp_path / "lost", pp, tp, -1)
    assert kept < 0.9 * lost
    assert kept == pytest.approx(coded(whole, tmp_path / "single", 1, 1, 0), rel=0.02)


def check_to_the_end(tmp_path, cluster, job, inner, steps):
    """It learns until it is done, replicas alike, and each sample is used once; how many were."""
    used = check_samples(tmp_path, cluster, job, inner * BATCH)
    rows = rows_of(tmp_path / "run")
    assert sorted(rows) == list(range(inner, steps + 1, inner))
    assert rows[steps]["loss"] < rows[inner]["loss"] / 2
    return used


def check_samples(tmp_path, cluster, job, most):
    """Replicas stay alike until it is done, and each sample is used once; how many were. A round has `most` of them: one that goes on though a worker was lost, since all had voted, may have samples of
    its replica that it had no time to note."""
    done = cluster.wait_job(job, "DONE")
    events = cluster.events(done)
    assert "other numbers" not in events and "goes back" not in events, events
    told = check_sums(trainctl_json("--address", cluster.memberd.address, "samples", job))
    used, counted = check_once(consumed(tmp_path).values()), counted_of(told)
    assert counted == done.rounds.samples and used <= set(range(counted)), "what a replica did not train on is trained on by others"
    assert counted - len(used) <= most * len(re.findall(r"round \d+ goes on: [^\n]* was lost", events)), events
    return counted


@pytest.mark.parametrize("pp,tp,mode,codec", [(1, 2, "hdet", "none"), (2, 1, "diloco", "int2")])
def test_kills_of_each_rank(tmp_path, whole, pp, tp, mode, codec):
    """The other replica goes on with what it has of the round, who comes gets its shard from there; no sample is in two merges, none is lost."""
    text, run, steps, inner = whole[0], tmp_path / "run", 700, 10  # not over before the last kill
    (tmp_path / "samples").mkdir()
    with Cluster(tmp_path / "cluster", nodes=2, slots=2, environment={"TRAIND_SAMPLES_LOG": str(tmp_path / "samples")}) as cluster:
        spec = apart_spec(text, run, 2, pp, tp, inner=inner, steps=steps, every=50)
        spec.train.sync.mode, spec.train.sync.codec = mode, codec
        job = cluster.submit(spec)
        for number in range(4):
            reach(run, 10 + 40 * number)
            came = cluster.events(cluster.job(job)).count(" takes rank ")
            os.kill(active(cluster, job)[number].pid, signal.SIGKILL)
            wait_for(lambda: cluster.events(cluster.job(job)).count(" takes rank ") > came, "another worker", 30)
        check_to_the_end(tmp_path, cluster, job, inner, steps)


def lose_behind_a_cable(folder, mbit):
    """One worker of the second replica dies; its shard comes over such a cable. All samples of all merges, and what the events say."""
    run, steps = folder / "run", 80
    folder.mkdir()
    file = folder / "job.yaml"
    file.write_text(f"""name: apart
model: {{preset: gpt2, layers: 2, width: 64, heads: 4, context: 32, vocab: bytes}}
data: {{text: [{write_text(folder)}], validation: 10%}}
train: {{steps: {steps}, batch_tokens: {BATCH * 32}, lr: 1e-3, warmup: 5, clip: 1.0, seed: 7, micro_sequences: 4}}
mesh: {{nodes: 2, workers_per_node: 2, tp: 2, threads: 1}}
sync: {{mode: diloco, inner_steps: {INNER}}}
checkpoint: {{dir: {run}}}
""")
    with NodeLab(folder) as lab:
        for node in [lab.add_node(number, slots=2) for number in (2, 3)]:
            lab.slow_down(node, f"{mbit}mbit")
        lab.trainctl("launch", "--detach", file)
        reach(run, 5 * INNER)
        os.kill(next(peer["pid"] for peer in lab.json("status", 1)["peers"] if peer["rank"] == 3), signal.SIGKILL)
        wait_for(lambda: lab.json("status", 1)["state"] not in ("queued", "running"), "its end")
        done = lab.json("status", 1)
    events = "\n".join(event["text"] for event in done["events"])
    assert done["state"] == "done" and "other numbers" not in events and "goes back" not in events, events
    assert sorted(rows_of(run)) == list(range(INNER, steps + 1, INNER))
    return steps * BATCH - done["rounds"]["samples"], events


def test_a_shard_over_a_slow_cable(tmp_path):
    """It takes longer than its replica would save by training: the other replica takes the round's steps meanwhile, alone, and both go on from that merge; no sample is left out. A
    machine that stands still may make steps slower than the cable, or memberd take one for lost: then once more, behind a slower one."""
    apart = re.compile(r"merge at step \d+ without one of 2 replicas: its shards came while they trained, and goes on from what the others merged")
    for mbit in (20, 10, 5):
        missing, events = lose_behind_a_cable(tmp_path / str(mbit), mbit)
        if apart.search(events):
            break
    assert apart.search(events), events
    # The merge of the round in which the worker died is of half a batch a step, unless nobody had taken one yet; the one after it, in which the shards came, of a whole one.
    assert missing in (0, INNER * BATCH // 2), (missing, events)


def test_a_slow_replica_takes_fewer_steps(tmp_path):
    """By speed: one of its workers is stopped most of the time, so it has fewer samples of each merge than the other one, and none of them is lost or used twice."""
    text, run, steps, inner = write_text(tmp_path), tmp_path / "run", 600, 10
    (tmp_path / "samples").mkdir()
    with Cluster(tmp_path / "cluster", nodes=2, slots=2, environment={"TRAIND_SAMPLES_LOG": str(tmp_path / "samples")}) as cluster:
        spec = apart_spec(text, run, 2, 2, 1, inner=inner, steps=steps, every=100)
        spec.train.sync.by_speed = True
        job = cluster.submit(spec)
        reach(run, 20)
        with Throttled(active(cluster, job)[-1].pid):
            reach(run, 120)
        assert check_to_the_end(tmp_path, cluster, job, inner, steps) < steps * BATCH - inner * BATCH


def test_rounds_by_time(tmp_path):
    """One step to begin with, then as many as fit into the time, to the job's last one; also where a worker dies. Steps count as the fastest replica's, so others may have used fewer samples."""
    text, run, steps = write_text(tmp_path), tmp_path / "run", 400
    (tmp_path / "samples").mkdir()
    with Cluster(tmp_path / "cluster", nodes=2, slots=2, environment={"TRAIND_SAMPLES_LOG": str(tmp_path / "samples")}) as cluster:
        spec = apart_spec(text, run, 2, 1, 2, inner=0, steps=steps, every=50)
        spec.train.sync.inner_seconds = 0.2
        job = cluster.submit(spec)
        reach(run, 100)
        os.kill(active(cluster, job)[3].pid, signal.SIGKILL)
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        assert "other numbers" not in events and "goes back" not in events, events
        told = check_sums(trainctl_json("--address", cluster.memberd.address, "samples", job))
    merged = sorted(rows_of(run))
    assert merged[0] == 1 and merged[-1] == steps == done.progress.step
    assert max(later - before for before, later in zip(merged, merged[1:])) > 2
    used = check_once(consumed(tmp_path).values())
    assert counted_of(told) == done.rounds.samples == len(used) and sorted(used) == list(range(len(used)))
    assert any("step-00000" in name for name in os.listdir(run)), "checkpoints lie between merges"


def test_another_mesh_goes_on_from_a_checkpoint(tmp_path, whole):
    """Of one replica all is in a checkpoint: parameters, moments, outer momentum. The newest that is kept beside the last one is of step 16."""
    text, run = whole[0], tmp_path / "run"
    train(tmp_path / "cluster", apart_spec(text, run, 1, 1, 2, every=8), 1, slots=2)
    rest = tmp_path / "rest"
    spec = apart_spec(text, rest, 1, 2, 1, resume=run / "step-00000016")
    with Cluster(tmp_path / "again", nodes=1, slots=2) as cluster:
        cluster.wait_job(cluster.submit(spec), "DONE")
    left, right = parameters(run), parameters(rest)
    assert all(numpy.abs(left[name] - right[name]).max() < 1e-5 for name in left)
    assert rows_of(rest)[STEPS]["loss"] == pytest.approx(rows_of(run)[STEPS]["loss"], abs=1e-5)
