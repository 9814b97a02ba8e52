"""Split jobs with fewer workers than one replica of their mesh takes: they go on with a smaller mesh, and with theirs when enough have come. As in test_sharded_jobs.py: losses are those
of one worker, each sample counts once."""
import os
import random
import re
import signal

import pytest

from harness import Cluster, trainctl, wait_for
from mesh_jobs import SLOW, Throttled, active, alone, assert_near, counted_once, reach, rows_of, staged_spec


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
], ids=["tp4", "pp3", "pp2tp2"])
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


def moving(cluster, peer):
    """Whether that worker is in the middle of a round that changes the mesh: it says so when it begins to move shards."""
    folder = cluster.nodes[int(peer.node_name.removeprefix("node-")) - 1].folder / "logs"
    return any("moves to dp " in path.read_text() for path in folder.glob(f"job-*/*.peer-{peer.id}.log"))


# Two who hold halves of the model, and two who got them when the fourth came.
@pytest.mark.parametrize("victim", range(4))
def test_a_kill_while_the_mesh_changes(tmp_path, text, victim):
    """Three of four workers have gone on with tp 2; when a fourth is there and shards of tp 4 are on their way, one is killed: the round is abandoned, tp 2 stays in force. Whoever was
    killed comes again, and then it is tp 4."""
    steps, run = 150, tmp_path / "run"
    calm = alone(tmp_path, text, steps=steps, lr=SLOW)
    with Cluster(tmp_path / "cluster", nodes=4, environment={"TRAIND_REMESH_PAUSE_MS": "700"}) as cluster:
        job = cluster.submit(staged_spec(text, run, 1, 4, nodes=4, steps=steps, every=10, lr=SLOW))
        reach(run, 12)
        kill_node_of(cluster, job, 3)
        goes_on(cluster, job, "goes on with dp 1 x tp 2, 1 spare")
        cluster.add_node()
        wait_for(lambda: len(active(cluster, job)) == 4, "four workers")
        peer = active(cluster, job)[victim]
        wait_for(lambda: moving(cluster, peer), f"peer {peer.id} to move its shard")
        os.kill(peer.pid, signal.SIGKILL)
        goes_on(cluster, job, f"peer {peer.id} (")
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        lost, there = events.index("was lost"), events.index("goes on with dp 1 x tp 4")
        assert lost < there and events.count("workers for 10 rounds") == 1, events
        assert events.count("goes back from step") == 1, events  # by then there were two replicas of tp 2
        counted_once(cluster, job, steps)
    assert rows_of(run)[steps]["contributors"] == 4
    assert_near(run, calm, steps)


def test_a_change_that_does_not_pay(tmp_path, text):
    """Changes of mesh take five seconds here. A node comes, is lost and comes again: first there is no telling how long a change takes, and the job goes on with its mesh; the second time what is left of
    it would not save that much, so it stays with the smaller one, and says so."""
    steps, run, pause_ms = 400, tmp_path / "run", 5000
    calm = alone(tmp_path, text, steps=steps, lr=SLOW)
    with Cluster(tmp_path / "cluster", nodes=2, environment={"TRAIND_REMESH_PAUSE_MS": str(pause_ms)}) as cluster:
        job = cluster.submit(staged_spec(text, run, 1, 2, nodes=2, steps=steps, every=5, lr=SLOW))
        reach(run, 12)
        for number in (1, 2):
            kill_node_of(cluster, job, 1)
            wait_for(lambda: cluster.events(cluster.job(job)).count("cannot be: 1 worker; goes on with dp 1") == number, "the smaller mesh")
            cluster.add_node()
            goes_on(cluster, job, f"mesh: 2 workers for {10 * number} rounds: ")
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        assert re.search(r"mesh: 2 workers for 10 rounds: goes on with dp 1 x tp 2; .* MB moved, .* steps are left, each [0-9.]+ ms shorter: .* s, for a change of ", events), events
        stays = re.search(r"mesh: 2 workers for 20 rounds: stays with dp 2; dp 1 x tp 2 is not worth it: (\d+) steps are left, each ([0-9.]+) ms shorter: ([0-9.e-]+) s, "
                          r"for a change of ([0-9.]+) s", events)
        assert stays and float(stays[3]) < float(stays[4]) and float(stays[4]) > 1e-3 * pause_ms, events
        counted_once(cluster, job, steps)
    assert rows_of(run)[steps]["contributors"] == 2
    assert_near(run, calm, steps)


def test_a_join_that_does_not_pay(tmp_path, text):
    """Whoever gets a shard waits twenty seconds for it here, and all wait with it. A worker is killed and replaced, twice: the second time it is known what that takes, and what is left of the job would not
    save as much; the replacement stays a spare, and the job says so."""
    steps, run, pause_ms = 150, tmp_path / "run", 20000
    calm = alone(tmp_path, text, steps=steps, lr=SLOW)
    with Cluster(tmp_path / "cluster", nodes=2, slots=2, environment={"TRAIND_JOIN_PAUSE_MS": str(pause_ms)}) as cluster:
        job = cluster.submit(staged_spec(text, run, 1, 2, nodes=2, workers=2, steps=steps, lr=SLOW))
        reach(run, 10)
        for words in (" takes rank 3 (tp 1 of replica 1): ", "mesh: 4 workers: stays with dp 1 x tp 2, 2 spares; dp 2 x tp 2 is not worth it: "):
            os.kill(active(cluster, job)[3].pid, signal.SIGKILL)
            goes_on(cluster, job, words)
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        kept_out = re.search(r"is not worth it: \d+ steps are left, each [0-9.]+ ms shorter: ([0-9.e-]+) s, for a change of ([0-9.]+) s", events)
        assert kept_out and float(kept_out[1]) < float(kept_out[2]) and float(kept_out[2]) > 1e-3 * pause_ms, events
        assert events.count("stays with") == 1, events
        counted_once(cluster, job, steps)
    assert_near(run, calm, steps)


def test_a_join_that_makes_steps_longer(tmp_path, text):
    """A worker is killed, and who comes instead is slow: its replica is taken back after some steps, as they take longer than those of one replica. The slow one is killed too, and the next one is as fast as
    the others: it works, and stays. What a job learns is what one worker learns."""
    steps, run = 500, tmp_path / "run"
    calm = alone(tmp_path, text, steps=steps, lr=SLOW)
    with Cluster(tmp_path / "cluster", nodes=2, slots=2, environment={"TRAIND_JOIN_PAUSE_MS": "1000"}) as cluster:
        job = cluster.submit(staged_spec(text, run, 1, 2, nodes=2, workers=2, steps=steps, lr=SLOW))
        reach(run, 30)
        os.kill(active(cluster, job)[3].pid, signal.SIGKILL)
        goes_on(cluster, job, "is to work with")  # it has a second to become slow in
        slow = active(cluster, job)[-1]
        with Throttled(slow.pid):
            goes_on(cluster, job, ": goes on with dp 1 x tp 2, 2 spares, until workers come or go")
        events = cluster.events(cluster.job(job))
        longer = re.search(r"mesh: steps take ([0-9.e+]+) ms with dp 2 x tp 2, and took ([0-9.e+]+) ms before: goes on with dp 1 x tp 2, 2 spares", events)
        assert longer and float(longer[1]) > 1.1 * float(longer[2]), events
        os.kill(slow.pid, signal.SIGKILL)
        wait_for(lambda: cluster.events(cluster.job(job)).count(" takes rank 3 (tp 1 of replica 1): ") == 2, "another worker")
        done = cluster.wait_job(job, "DONE")
        assert cluster.events(done).count("steps take") == 1, cluster.events(done)
        counted_once(cluster, job, steps)
    assert_near(run, calm, steps)


def test_nodes_come_and_go_at_random(tmp_path, text):
    """A job of pp 2 x tp 2 whose nodes are killed and added at random moments: over whatever meshes it goes, it learns what one worker does, every sample counted once."""
    steps, run, changes = 250, tmp_path / "run", 8
    draw = random.Random(int(os.environ.get("SHARDED_SEED", "1")))
    calm = alone(tmp_path, text, steps=steps, lr=SLOW)
    with Cluster(tmp_path / "cluster", nodes=4) as cluster:
        job = cluster.submit(staged_spec(text, run, 2, 2, nodes=4, steps=steps, every=5, lr=SLOW))
        reach(run, 12)  # before, there is no checkpoint to go back to
        for _ in range(changes):
            reach(run, min(max(rows_of(run), default=0) + draw.randint(3, 25), steps))
            alive = [node for node in cluster.nodes if node.running()]
            if len(alive) == 4 or (len(alive) > 1 and draw.random() < 0.5):
                draw.choice(alive).kill9()
            else:
                cluster.add_node()
        while sum(node.running() for node in cluster.nodes) < 4:
            cluster.add_node()
        done = cluster.wait_job(job, "DONE")
        counted_once(cluster, job, steps)
        assert "cannot be" in cluster.events(done) and done.rounds.committed == done.rounds.recorded, cluster.events(done)
    assert_near(run, calm, steps)
