"""Jobs of `mesh: auto` all of whose workers are lost, and nodes of whose plan are gone for good: they go on where there are slots, on the same mesh or a smaller one."""
import re

import pytest

from harness import Cluster, wait_for
from mesh_jobs import SLOW, alone, assert_near, counted_once, reach, staged_spec
from test_replan_jobs import STEPS, planned_spec


def lose_all(cluster, job, run):
    """All its nodes for good, once there is a checkpoint."""
    reach(run, 12)
    wait_for(lambda: cluster.job(job).progress.checkpoint, "a checkpoint")
    for node in cluster.nodes:
        node.kill9()
    wait_for(lambda: "every worker was lost" in cluster.events(cluster.job(job)), "the job to be queued again")


@pytest.mark.parametrize("come", [1, 2])
def test_all_are_lost_and_other_nodes_come(tmp_path, text, come):
    """A job of two stages goes on from its checkpoint on the node that comes, as one stage; on two as two."""
    run, one = tmp_path / "run", alone(tmp_path, text, steps=STEPS, lr=SLOW)
    with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        spec = planned_spec(cluster, text, run, 1000)
        spec.train.checkpoint.every = 10
        job = cluster.submit(spec)
        lose_all(cluster, job, run)
        for _ in range(come):
            cluster.add_node()
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        assert f", where its plan has workers, is not there: {come} of 2 workers start, on {come} node" in events, events
        assert ("mesh: dp 1 x pp 2 cannot be: 1 worker; goes on with dp 1" in events) == (come == 1), events
        counted_once(cluster, job, STEPS)
    assert_near(run, one, STEPS)


def test_all_are_lost_and_fewer_come(tmp_path, text):
    """The same without a plan: after a while who is there goes on, as when its partner alone had been lost."""
    run, one = tmp_path / "run", alone(tmp_path, text, steps=STEPS, lr=SLOW)
    with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        job = cluster.submit(staged_spec(text, run, 2, nodes=2, steps=STEPS, every=10, lr=SLOW))
        lose_all(cluster, job, run)
        cluster.add_node()
        wait_for(lambda: "needs 2 free slots on as many nodes, 1 there; if others do not come within 10 s it goes on with these" in cluster.job(job).reason, "the job to say what it waits for")
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        assert "1 of 2 nodes are there: 1 of 2 workers start" in events, events
        assert "mesh: dp 1 x pp 2 cannot be: 1 worker; goes on with dp 1" in events, events
        counted_once(cluster, job, STEPS)
    assert_near(run, one, STEPS)


def test_who_is_missing_and_cannot_be_replaced_is_not_waited_for(tmp_path, text):
    """One of two stages is lost with its node, and no slot is free for another: the job goes on with one stage after a round of too few, not after twenty."""
    run, one = tmp_path / "run", alone(tmp_path, text, steps=STEPS, lr=SLOW)
    with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        job = cluster.submit(staged_spec(text, run, 2, nodes=2, steps=STEPS, every=5, lr=SLOW))
        reach(run, 12)
        cluster.nodes[1].kill9()
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        assert "mesh: dp 1 x pp 2 cannot be: 1 worker; goes on with dp 1" in events, events
        back = re.search(r"goes back from step (\d+) to the checkpoint of step (\d+)", events)
        again = int(back[1]) - int(back[2])
        assert 0 < done.rounds.committed - STEPS - again < 15, events
        counted_once(cluster, job, STEPS)
    assert_near(run, one, STEPS)


def test_who_is_left_is_planned_for(tmp_path, text):
    """Three replicas, planned with links over which sums take far longer than computing, though no steps drift: when one is lost with its node, what is left is planned anew, one worker that talks to nobody."""
    run, one = tmp_path / "run", alone(tmp_path, text, steps=STEPS, lr=SLOW)
    with Cluster(tmp_path / "cluster", nodes=3) as cluster:
        job = cluster.submit(planned_spec(cluster, text, run, 1000, pp=1, bytes_per_s=1e5))
        reach(run, 10)
        cluster.nodes[2].kill9()
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        lost, anew = events.index("was lost"), events.index("mesh: with 2 workers a step takes ")
        assert lost < anew and "goes back" not in events, events
        assert re.search(r"mesh: with 2 workers a step takes .* ms, planned were 1e\+06 ms.*: goes on with dp 1 instead of dp 2\S*, by prediction .* ms instead of .* ms; ", events), events
        assert events.count("mesh: with 2 workers") == 1, events
        counted_once(cluster, job, STEPS)
    assert_near(run, one, STEPS)


def test_who_is_left_lacks_room_by_the_plan(tmp_path, text):
    """There is no mesh for one worker but one that takes more memory than its plan says that a worker has: the job goes on with it, as it did, and says the figures."""
    run = tmp_path / "run"
    with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        spec = planned_spec(cluster, text, run, 1000, memory=2 << 20)
        spec.train.checkpoint.every = 5
        job = cluster.submit(spec)
        reach(run, 12)
        cluster.nodes[1].kill9()
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        said = re.search(r"mesh: dp 1 x pp 2 cannot be: 1 worker; goes on with dp 1, as by its plan a worker of dp 1 takes ([0-9.]+) MiB and has 2, and there is none that takes less", events)
        assert said and float(said[1]) > 2, events
        counted_once(cluster, job, STEPS)
