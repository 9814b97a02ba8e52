"""Replicas that train apart and are several data-parallel copies of the mesh each (mesh.copies): what they learn is what replicas of one copy learn of the same batches, whoever dies, and as much goes
from one replica to another."""
import os
import re
import signal

import numpy
import pytest

from harness import Cluster, wait_for
from mesh_jobs import BATCH, STEPS, active, parameters, reach, rows_of, shared_kib, train, write_text
from stubs import pb
from test_mesh_streaming import HOW, stream_spec
from test_mesh_sync import INNER, apart_spec, assert_same, assert_same_learning, check_samples, check_to_the_end, distance, rates, whole  # noqa: F401 (fixture)
from test_zero_jobs import assert_same_bits


def copied_spec(text, folder, copies, pp, tp, inner=INNER, **options):
    """Two replicas, a node each."""
    return copied(apart_spec(text, folder, 2, pp, tp, inner=inner, **options), copies)


def copied(spec, copies):
    spec.mesh.workers_per_node, spec.mesh.copies = copies * spec.mesh.workers_per_node, copies
    return spec


def sent_a_merge(folder):
    """Bytes from replicas to others; a merge's are told with the next one."""
    rows = rows_of(folder)
    return (rows[STEPS]["sent_bytes"] - rows[2 * INNER]["sent_bytes"]) / ((STEPS - 2 * INNER) // INNER)


def split_without_copies(text, folder, pp, tp):
    train(folder / "cluster", apart_spec(text, folder / "run", 2, pp, tp), 2, slots=pp * tp)
    return sent_a_merge(folder / "run")


@pytest.mark.parametrize("copies,pp,tp", [(2, 1, 1), (2, 1, 2), (3, 1, 2), (2, 2, 1)])
def test_copies_learn_what_one_does(tmp_path, whole, copies, pp, tp):  # noqa: F811
    text, one = whole
    spec = copied_spec(text, tmp_path / "run", copies, pp, tp)
    spec.mesh.sequence_parallel = copies * tp == 4
    done, events = train(tmp_path / "cluster", spec, 2, slots=copies * pp * tp)
    assert done.rounds.committed == STEPS // INNER + 1 and "other numbers" not in events, events
    assert f"2 replicas of {copies} copies" in events, events
    assert_same(one, tmp_path / "run")
    model = sum(array.nbytes for array in parameters(tmp_path / "run").values())
    sent = sent_a_merge(tmp_path / "run")
    print(f"{copies} copies, pp {pp}, tp {tp}: {sent:.0f} bytes a merge, movements {2 * model}")
    assert 2 * model <= sent < 2.2 * model


def test_as_much_goes_between_replicas(tmp_path, whole):  # noqa: F811
    """Movements are sent once, whatever the copies: what is more are the headers and words of more workers."""
    text = whole[0]
    train(tmp_path / "cluster", copied_spec(text, tmp_path / "run", 2, 1, 2), 2, slots=4)
    one, two = split_without_copies(text, tmp_path / "one", 1, 2), sent_a_merge(tmp_path / "run")
    print(f"tp 2: {one:.0f} bytes a merge with one copy, {two:.0f} with two")
    assert two < 1.05 * one


@pytest.mark.parametrize("how,copies,pp,tp", [("streaming", 2, 1, 2), ("carried", 2, 2, 1), ("eager", 2, 1, 1), ("late", 2, 1, 2)])
def test_copies_that_train_on_while_they_merge(tmp_path, whole, how, copies, pp, tp):  # noqa: F811
    train(tmp_path / "one-cluster", stream_spec(whole[0], tmp_path / "one", how, 1, 1), 2)
    spec = copied(stream_spec(whole[0], tmp_path / "run", how, pp, tp), copies)
    _, events = train(tmp_path / "cluster", spec, 2, slots=copies * pp * tp)
    assert "other numbers" not in events, events
    merges = assert_same_learning(tmp_path / "one", tmp_path / "run")
    assert merges[-1] == STEPS and len(merges) > 2


def test_copies_have_their_replicas_learning_rate(tmp_path, whole):  # noqa: F811
    """hdet: what a replica says of its loss is all its copies'."""
    train(tmp_path / "one-cluster", rates(apart_spec(whole[0], tmp_path / "one", 2, 1, 1)), 2)
    train(tmp_path / "cluster", rates(copied_spec(whole[0], tmp_path / "run", 2, 1, 2)), 2, slots=4)
    assert_same(tmp_path / "one", tmp_path / "run")
    ours, theirs = rows_of(tmp_path / "run"), rows_of(tmp_path / "one")
    assert [ours[step]["lr"] for step in sorted(ours)] == pytest.approx([theirs[step]["lr"] for step in sorted(theirs)], rel=1e-4)


@pytest.mark.parametrize("copies,pp,tp,owners", [(2, 1, 2, 1), (3, 1, 1, 2), (2, 2, 1, 1)])
def test_the_bits_without_zero(tmp_path, whole, copies, pp, tp, owners):  # noqa: F811
    """Moments are cut over the copies of a replica, and a checkpoint has them all."""
    runs = {}
    for number in (0, owners):
        runs[number] = tmp_path / f"run-{number}"
        spec = copied_spec(whole[0], runs[number], copies, pp, tp, every=8)
        spec.mesh.zero_owners = number
        spec.train.sync.deterministic = True  # sums of three have one order in any run
        done, events = train(tmp_path / f"cluster-{number}", spec, 2, slots=copies * pp * tp)
        assert "other numbers" not in events, events
    assert_same_bits(runs[0], runs[owners])
    assert_same(whole[1], runs[owners])


def test_moments_that_are_not_owned_take_no_memory(tmp_path, whole):  # noqa: F811
    """Of two copies each has half of them."""
    resident = {}
    for owners in (0, 1):
        with Cluster(tmp_path / f"cluster-{owners}", nodes=2, slots=2) as cluster:
            run = tmp_path / f"run-{owners}"
            # No checkpoint: who writes one has what came for it from the others.
            spec = copied_spec(whole[0], run, 2, 1, 1, steps=1000, every=1000, width=256)
            spec.mesh.zero_owners = owners
            job = cluster.submit(spec)
            reach(run, 2 * INNER)
            resident[owners] = [shared_kib(peer.pid) for peer in active(cluster, job)]
            cluster.api().CancelJob(pb.CancelJobRequest(job_id=job))
    saved = 8 / 2 * 12 * 256 * 256 * 2 // 1024  # KiB, of the layers alone
    for few, every in zip(resident[1], resident[0]):
        assert few < every - 0.9 * saved, (resident, saved)
    print(resident)


def test_it_goes_on_from_a_checkpoint(tmp_path, whole):  # noqa: F811
    """One replica of two copies, moments by pieces, goes on as one replica of one: nothing is missing in it."""
    text, run, rest = whole[0], tmp_path / "run", tmp_path / "rest"
    spec = apart_spec(text, run, 1, 1, 2, every=8)
    spec = copied(spec, 2)
    spec.mesh.zero_owners = 1
    train(tmp_path / "cluster", spec, 1, slots=4)
    again = apart_spec(text, rest, 1, 2, 1, resume=run / "step-00000016")
    with Cluster(tmp_path / "again", nodes=1, slots=2) as cluster:
        cluster.wait_job(cluster.submit(again), "DONE")
    back = copied(apart_spec(text, tmp_path / "back", 1, 1, 1, resume=run / "step-00000016"), 2)
    back.mesh.zero_owners = 1
    with Cluster(tmp_path / "again-with", nodes=1, slots=2) as cluster:
        cluster.wait_job(cluster.submit(back), "DONE")
    for other in (rest, tmp_path / "back"):
        left, right = parameters(run), parameters(other)
        assert all(numpy.abs(left[name] - right[name]).max() < 1e-5 for name in left)


def test_copies_with_a_codec(tmp_path, whole):  # noqa: F811
    """What coding makes of a part all copies get as it came, and what it lost goes with the next movement."""
    far = {}
    for feedback in (0, -1):
        spec = copied_spec(whole[0], tmp_path / f"run{feedback}", 2, 1, 2)
        spec.train.sync.codec, spec.train.sync.feedback = "int2", feedback
        done, events = train(tmp_path / f"cluster{feedback}", spec, 2, slots=4)
        assert done.rounds.committed == STEPS // INNER + 1 and "other numbers" not in events, events
        far[feedback] = distance(whole[1], tmp_path / f"run{feedback}")
    assert far[0] < 0.9 * far[-1], far


def kill_each(cluster, job, run, workers):
    for number in range(workers):
        reach(run, 12 + 40 * number)
        came = cluster.events(cluster.job(job)).count(" takes rank ")
        os.kill(active(cluster, job)[number].pid, signal.SIGKILL)
        wait_for(lambda: cluster.events(cluster.job(job)).count(" takes rank ") > came, "another worker", 30)


def check_shards_come_once(events, tp):
    """Of those who take a replica's ranks together each shard comes from another replica once, and is handed on from copy to copy."""
    group, handed = [], 0
    for line in [*events.splitlines(), ""]:
        found = re.search(r"peer (\d+) takes rank (\d+) .* from peer (\d+)$", line)
        if found:
            group.append([int(number) for number in found.groups()])
        elif group:
            came = {peer for peer, _, _ in group}
            far = [(rank // (2 * tp), rank % tp) for _, rank, donor in group if donor not in came]
            assert len(far) == len(set(far)), group
            handed, group = handed + len(came) - len(far), []
    assert handed > 0


@pytest.mark.parametrize("tp,codec,by_speed,owners", [(1, "none", False, 0), (2, "int4", True, 1)])
def test_kills_of_each_rank(tmp_path, whole, tp, codec, by_speed, owners):  # noqa: F811
    """The other replica goes on with what it has of the round, who comes gets its shard out of memory; no sample is in two merges, none is lost."""
    text, run, steps, inner, workers = whole[0], tmp_path / "run", 1000, 10, 4 * tp  # not over before the last kill
    (tmp_path / "samples").mkdir()
    with Cluster(tmp_path / "cluster", nodes=2, slots=workers // 2, environment={"TRAIND_SAMPLES_LOG": str(tmp_path / "samples")}) as cluster:
        spec = copied_spec(text, run, 2, 1, tp, inner=inner, steps=steps, every=50)
        spec.train.sync.codec, spec.train.sync.by_speed, spec.mesh.zero_owners = codec, by_speed, owners
        job = cluster.submit(spec)
        kill_each(cluster, job, run, workers)
        check_to_the_end(tmp_path, cluster, job, inner, steps)
        check_shards_come_once(cluster.events(cluster.job(job)), tp)


def test_kills_while_they_train_on(tmp_path, whole):  # noqa: F811
    """Streaming, two fragments carried: what was taken by the other replica's copies is submitted again, part by part."""
    run, how = tmp_path / "run", "carried"
    (tmp_path / "samples").mkdir()
    with Cluster(tmp_path / "cluster", nodes=2, slots=2, environment={"TRAIND_SAMPLES_LOG": str(tmp_path / "samples")}) as cluster:
        spec = copied(stream_spec(whole[0], run, how, 1, 1, steps=700, every=50), 2)
        spec.train.sync.codec = "int2"
        job = cluster.submit(spec)
        kill_each(cluster, job, run, 4)
        check_samples(tmp_path, cluster, job, 2 * HOW[how]["inner_steps"] * BATCH)
    assert max(rows_of(run)) == 700
