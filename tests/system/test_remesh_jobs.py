"""Split jobs with fewer workers than one replica of their mesh takes: they go on with a smaller mesh, and with theirs when enough have come. As in test_sharded_jobs.py: losses are those
of one worker, each sample counts once."""
import re

import pytest

from harness import Cluster, trainctl, trainctl_json, wait_for
from test_pipeline_jobs import staged_spec
from test_sharded_jobs import SLOW, active, alone, assert_near, counted_once, reach, rows_of, text  # noqa: F401 (text is a fixture)


def kill_node_of(cluster, job, rank):
    """The node of a rank and the worker on it; by rank, as long as nobody was lost."""
    victim = active(cluster, job)[rank]
    cluster.nodes[int(victim.node_name.removeprefix("node-")) - 1].kill9()
    return victim


def goes_on(cluster, job, words):
    wait_for(lambda: words in cluster.events(cluster.job(job)), words)


@pytest.mark.parametrize("pp, tp, victim, smaller, larger", [
    (1, 4, 2, "dp 1 x tp 4 cannot be: 3 workers; goes on with dp 1 x tp 2, 1 spare", "goes on with dp 1 x tp 4"),
    (3, 1, 1, "dp 1 x pp 3 cannot be: 2 workers; goes on with dp 1 x pp 2", "goes on with dp 1 x pp 3"),
    (2, 2, 3, "dp 1 x pp 2 x tp 2 cannot be: 3 workers; goes on with dp 1 x tp 2, 1 spare", "goes on with dp 1 x pp 2 x tp 2"),
])
def test_a_smaller_mesh_and_back(tmp_path, text, pp, tp, victim, smaller, larger):
    """One of a replica is lost with its node: back to the newest checkpoint, as shards of a smaller mesh; another node, and the shards of the job's mesh come out of those."""
    steps, run = 220, tmp_path / "run"
    calm = alone(tmp_path, text, steps=steps, lr=SLOW, layers=3)
    with Cluster(tmp_path / "cluster", nodes=pp * tp) as cluster:
        job = cluster.submit(staged_spec(text, run, pp, tp, nodes=pp * tp, steps=steps, every=10, lr=SLOW, layers=3))
        reach(run, 25)
        kill_node_of(cluster, job, victim)
        goes_on(cluster, job, smaller)
        reach(run, 60)
        shown = trainctl("--address", cluster.memberd.address, "status", job).stdout
        assert re.search(r"mesh  .* instead of dp 1 .*x tp %d" % tp, shown), shown
        cluster.add_node()
        goes_on(cluster, job, larger)
        before = max(rows_of(run))
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        moved = re.search(larger + r"; ([0-9.]+) MB moved, ([0-9.]+) MB stayed where they were, in [0-9.]+ s", events)
        assert moved and float(moved[1]) + float(moved[2]) > 1 and (tp == 2 or float(moved[1]) > 0.1), events
        assert "goes on from checkpoint" not in events, "memberd had to start it again"
        counted_once(cluster, job, steps)
        assert before < steps and done.rounds.committed == done.rounds.recorded
    assert rows_of(run)[steps]["contributors"] == pp * tp
    assert_near(run, calm, steps)
