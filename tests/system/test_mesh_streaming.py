"""Replicas of several workers that train on while a fragment is merged (mesh.tp, mesh.pp with sync.mode streaming, eager, or an overlap): what they learn is what workers that hold the whole model
learn with the same settings, whoever dies."""
import os
import signal

import pytest

from harness import Cluster, wait_for
from mesh_jobs import BATCH, STEPS, active, reach, rows_of, train, write_text
from test_mesh_sync import apart_spec, assert_same_learning, check_samples

# Takes and merges of 20 steps, the last ones at once: streaming 2, 4, 6 and 4, 6, 8; carried 2, 4 and 3, 5; eager 4 and 8; late diloco 5 and 8.
HOW = {
    "streaming": dict(mode="streaming", inner_steps=6, fragments=3, overlap=2),
    "carried": dict(mode="streaming", inner_steps=4, fragments=2, overlap=1, carry=True),
    "eager": dict(mode="eager", inner_steps=4),
    "late": dict(mode="diloco", inner_steps=5, overlap=3),
}


def stream_spec(text, folder, how, pp, tp, **options):
    spec = apart_spec(text, folder, 2, pp, tp, inner=HOW[how]["inner_steps"], **options)
    for key, value in HOW[how].items():
        setattr(spec.train.sync, key, value)
    return spec


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The text, and what two workers that hold the whole model learn of it, as asked for."""
    folder, known = tmp_path_factory.mktemp("whole"), {}
    text = write_text(folder)

    def learned(how):
        if how not in known:
            known[how] = folder / how
            train(folder / f"{how}-cluster", stream_spec(text, known[how], how, 1, 1), 2)
        return text, known[how]

    return learned


@pytest.mark.parametrize("how,pp,tp", [("streaming", 1, 2), ("streaming", 2, 1), ("streaming", 2, 2), ("carried", 1, 2), ("carried", 2, 1),
                                       ("eager", 1, 2), ("eager", 2, 1), ("late", 1, 2)])
def test_replicas_of_several_workers_learn_what_single_workers_do(tmp_path, whole, how, pp, tp):
    text, one = whole(how)
    _, events = train(tmp_path / "cluster", stream_spec(text, tmp_path / "run", how, pp, tp), 2, slots=pp * tp)
    assert "other numbers" not in events, events
    merges = assert_same_learning(one, tmp_path / "run")
    assert merges[-1] == STEPS and len(merges) > 2


@pytest.mark.parametrize("how,pp,tp,codec", [("streaming", 1, 2, "int2"), ("carried", 2, 1, "none"), ("eager", 1, 2, "none"), ("eager", 2, 1, "int4")])
def test_kills_of_each_rank(tmp_path, whole, how, pp, tp, codec):
    """The other replica goes on with what it has of the round, and what it has taken of it; who comes gets its shard from there, and its replica begins anew with the next merge."""
    text, run, steps = whole("streaming")[0], tmp_path / "run", 700  # not over before the last kill
    (tmp_path / "samples").mkdir()
    with Cluster(tmp_path / "cluster", nodes=2, slots=2, environment={"TRAIND_SAMPLES_LOG": str(tmp_path / "samples")}) as cluster:
        spec = stream_spec(text, run, how, pp, tp, steps=steps, every=50)
        spec.train.sync.codec = codec
        job = cluster.submit(spec)
        for number in range(4):
            reach(run, 12 + 40 * number)
            came = cluster.events(cluster.job(job)).count(" takes rank ")
            os.kill(active(cluster, job)[number].pid, signal.SIGKILL)
            wait_for(lambda: cluster.events(cluster.job(job)).count(" takes rank ") > came, "another worker")
        check_samples(tmp_path, cluster, job, 2 * HOW[how]["inner_steps"] * BATCH)
    rows = rows_of(run)
    assert max(rows) == steps and rows[steps]["loss"] < rows[min(rows)]["loss"] / 2


@pytest.mark.parametrize("how", ["streaming", "eager"])
def test_it_goes_on_from_a_checkpoint(tmp_path, whole, how):
    """Another mesh, another schedule of merges from there on, as whole workers have it: what was on its way is lost, parameters and outer momentum are not."""
    text, run, rest = whole(how)[0], tmp_path / "run", tmp_path / "rest"
    train(tmp_path / "cluster", stream_spec(text, run, how, 1, 2, every=8), 2, slots=2)
    steps = [int(name[5:]) for name in os.listdir(run) if name.startswith("step-")]
    before = sorted(step for step in steps if step < STEPS)[-1]
    again = stream_spec(text, rest, how, 2, 1, resume=run / f"step-{before:08d}")
    with Cluster(tmp_path / "again", nodes=2, slots=2) as cluster:
        done = cluster.wait_job(cluster.submit(again), "DONE")
    assert "other numbers" not in cluster.events(done)
    rows = rows_of(rest)
    assert min(rows) > before and max(rows) == STEPS
    assert rows[STEPS]["loss"] == pytest.approx(rows_of(run)[STEPS]["loss"], rel=0.05)


@pytest.mark.parametrize("how", ["streaming", "eager"])
def test_nothing_is_left_of_fewer_steps(tmp_path, whole, how):
    """Than the checkpoint has: nothing is trained."""
    text, run, rest = whole(how)[0], tmp_path / "run", tmp_path / "rest"
    train(tmp_path / "cluster", stream_spec(text, run, how, 1, 2), 2, slots=2)
    with Cluster(tmp_path / "again", nodes=2, slots=2) as cluster:
        spec = stream_spec(text, rest, how, 1, 2, steps=STEPS // 2, resume=run / f"step-{STEPS:08d}")
        events = cluster.events(cluster.wait_job(cluster.submit(spec), "DONE"))
    assert "nothing is left to train" in events and not (rest / "metrics.jsonl").exists(), events


def test_the_sum_is_under_way_while_replicas_train(tmp_path, whole):
    """Of the time from take to merge a part is not waited for."""
    text, one = whole("streaming")
    train(tmp_path / "cluster", stream_spec(text, tmp_path / "run", "streaming", 1, 2), 2, slots=2)
    assert rows_of(tmp_path / "run")[STEPS]["hidden"] > 0
