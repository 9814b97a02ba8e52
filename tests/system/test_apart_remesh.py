"""Replicas of several workers that train apart (mesh.tp, mesh.pp with sync.mode), of which so many are lost that no replica is left: they go on with a smaller mesh from the newest checkpoint (with fewer copies of it, out of memory), and with theirs, out of what
they hold, when enough have come. As in test_remesh_jobs.py, which does it to jobs that sum gradients at every step."""
import os
import re
import signal

import pytest

from harness import Cluster, trainctl, trainctl_json, wait_for
from mesh_jobs import BATCH, active, reach, rows_of, write_text
from test_mesh_sync import apart_spec
from test_remesh_jobs import goes_on, kill_node_of, moving
from test_samples import check_sums, counted_of

STEPS, INNER = 600, 10


def spec_of(tmp_path, pp=1, tp=2, mode="diloco", **sync):
    spec = apart_spec(write_text(tmp_path), tmp_path / "run", 1, pp, tp, inner=INNER, steps=STEPS, every=20)
    spec.mesh.nodes, spec.mesh.workers_per_node = pp * tp, 1
    spec.train.sync.mode = mode
    for key, value in sync.items():
        setattr(spec.train.sync, key, value)
    return spec


def larger(job_mesh):
    """The rounds are those since the other one has come: one, and those in which shards went to who writes a checkpoint."""
    return re.compile(r"mesh: 2 workers for \d rounds?: goes on with " + re.escape(job_mesh) + r"; ([0-9.]+) MB moved, ([0-9.]+) MB stayed where they were, in [0-9.]+ s; each replica begins from what was merged")


def becomes_larger(cluster, job, job_mesh):
    return wait_for(lambda: larger(job_mesh).search(cluster.events(cluster.job(job))), job_mesh)


def check_to_the_end(tmp_path, cluster, job, backs=1, contributors=2):
    """It has learned until it is done, went back so often, and each sample of all merges that lead to the end is counted once."""
    done = cluster.wait_job(job, "DONE")
    events, rows = cluster.events(done), rows_of(tmp_path / "run")
    assert "other numbers" not in events and "goes on from checkpoint" not in events, events
    assert events.count("goes back from step") == backs, events
    told = check_sums(trainctl_json("--address", cluster.memberd.address, "samples", job))
    assert not any(row["in_flight"] or row["dropped"] for row in told["epochs"]), told
    assert STEPS * BATCH * 0.9 < counted_of(told) <= STEPS * BATCH
    assert rows[STEPS]["contributors"] == contributors and rows[STEPS]["loss"] < rows[min(rows)]["loss"] / 2
    return events


@pytest.mark.parametrize("pp, tp, mode, sync", [
    (1, 2, "diloco", {"codec": "int2"}),
    (2, 1, "hdet", {"lr_spread": 0.3}),
    (1, 2, "local_sgd", {"inner_steps": 0, "inner_seconds": 0.1}),
    (2, 1, "streaming", {"fragments": 2, "overlap": 2, "carry": True}),
    (1, 2, "eager", {}),
], ids=["diloco", "hdet", "by-time", "streaming", "eager"])
def test_a_smaller_mesh_and_back(tmp_path, pp, tp, mode, sync):
    run, job_mesh = tmp_path / "run", "dp 1 x tp 2" if tp == 2 else "dp 1 x pp 2"
    with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        job = cluster.submit(spec_of(tmp_path, pp, tp, mode, **sync))
        reach(run, 60)
        kill_node_of(cluster, job, 1)
        goes_on(cluster, job, f"{job_mesh} cannot be: 1 worker; goes on with dp 1")
        shown = trainctl("--address", cluster.memberd.address, "status", job).stdout
        assert re.search(r"mesh  .* instead of dp 1 x ", shown), shown
        cluster.add_node()
        moved = becomes_larger(cluster, job, job_mesh)
        assert float(moved[1]) + float(moved[2]) > 0.1, moved[0]
        check_to_the_end(tmp_path, cluster, job)


@pytest.mark.parametrize("copies, tp, mode, sync, owners", [
    (2, 1, "diloco", {"codec": "int4"}, 0),
    (2, 2, "streaming", {"fragments": 2, "overlap": 2, "carry": True}, 0),
    (3, 1, "hdet", {"lr_spread": 0.3}, 2),
], ids=["two", "two-of-tp2", "three-zero1"])
def test_fewer_copies_and_back(tmp_path, copies, tp, mode, sync, owners):
    """The only replica loses one of its workers with its node. What is left holds all shards: so nothing is read, a replica of fewer copies begins from the newest merge with the moments that its workers made together; and
    one of the job's copies when there are enough again."""
    run, workers, left = tmp_path / "run", copies * tp, copies * tp - 1
    spec = spec_of(tmp_path, 1, tp, mode, **sync)
    spec.mesh.nodes, spec.mesh.copies, spec.mesh.zero_owners = workers, copies, owners
    mesh = " x tp 2" if tp == 2 else ""
    fewer = f"dp {left // tp}{mesh}" + (f", 1 replica of {left // tp} copies" if left // tp > 1 else "") + (", 1 spare" if left % tp else "")
    with Cluster(tmp_path / "cluster", nodes=workers) as cluster:
        job = cluster.submit(spec)
        reach(run, 60)
        kill_node_of(cluster, job, workers - 1)
        goes_on(cluster, job, f"dp {copies}{mesh} cannot be: {left} worker{'s' * (left > 1)}; goes on with {fewer}; " + ("0.0 MB moved" if not owners else ""))  # pieces of moments are put together
        shown = trainctl("--address", cluster.memberd.address, "status", job).stdout
        assert re.search(rf"mesh  .*, {left // tp} cop(y|ies) a replica instead of {copies}", shown), shown
        cluster.add_node()
        goes_on(cluster, job, f": goes on with dp {copies}{mesh}, 1 replica of {copies} copies; ")
        events = check_to_the_end(tmp_path, cluster, job, backs=0, contributors=workers)
        begins = re.findall("each replica begins from what was merged, with (.*)", events)
        assert len(begins) == 2 and all("moments" in words for words in begins), events
        assert "the moments of one" in begins[1], events


def test_a_kill_while_the_mesh_changes(tmp_path):
    """Halves are on their way out of what two replicas of one worker hold: the first is killed, so the change is not made, and the second trains on alone. Then the first is there again, and it is made."""
    with Cluster(tmp_path / "cluster", nodes=2, environment={"TRAIND_REMESH_PAUSE_MS": "700"}) as cluster:
        job = cluster.submit(spec_of(tmp_path))
        reach(tmp_path / "run", 60)
        kill_node_of(cluster, job, 1)
        goes_on(cluster, job, "dp 1 x tp 2 cannot be: 1 worker; goes on with dp 1")
        cluster.add_node()
        wait_for(lambda: len(active(cluster, job)) == 2, "two workers")
        peer = active(cluster, job)[0]
        wait_for(lambda: moving(cluster, peer), f"peer {peer.id} to move its shard")
        os.kill(peer.pid, signal.SIGKILL)
        goes_on(cluster, job, f"peer {peer.id} (")
        becomes_larger(cluster, job, "dp 1 x tp 2")
        check_to_the_end(tmp_path, cluster, job)


def test_bytes_of_merges_alone(tmp_path):
    """What two workers sent each other inside of a replica of three is of no merge, when they are two replicas of one."""
    run = tmp_path / "run"
    spec = apart_spec(write_text(tmp_path), run, 1, 1, 3, inner=INNER, steps=120, every=20, heads=3, width=48)
    spec.mesh.nodes, spec.mesh.workers_per_node = 3, 1
    with Cluster(tmp_path / "cluster", nodes=3) as cluster:
        job = cluster.submit(spec)
        reach(run, 40)
        kill_node_of(cluster, job, 2)
        goes_on(cluster, job, "dp 1 x tp 3 cannot be: 2 workers; goes on with dp 2")
        cluster.wait_job(job, "DONE")
    newest = rows_of(run)[120]
    assert newest["contributors"] == 2
    # A merge sends a tenth of what data parallel training would have sent.
    assert 0.05 < newest["sent_bytes"] / newest["dense_bytes"] < 0.2, newest
