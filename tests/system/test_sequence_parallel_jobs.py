"""Jobs with mesh.sequence_parallel on real daemons: what they learn is what one worker learns, whoever dies; as many bytes are sent as without."""
import os
import signal

import pytest

from harness import Cluster
from mesh_jobs import SLOW, STEPS, active, alone, assert_near, assert_same_training, counted_once, reach, staged_spec, train
from test_training import BATCH


def sequence_spec(text, folder, tp, pp=1, **options):
    spec = staged_spec(text, folder, pp, tp, **options)
    spec.mesh.sequence_parallel = True
    return spec


@pytest.mark.parametrize("preset", ["gpt2", "llama"])
def test_own_rows_learn_what_one_worker_does(tmp_path, text, preset):
    """Microbatches of 3 sequences, so that the last one of each replica is smaller."""
    one = alone(tmp_path, text, preset=preset)
    for dp, pp, tp in ((1, 1, 2), (2, 1, 2), (1, 2, 2), (1, 1, 4)):
        run = tmp_path / f"dp{dp}-pp{pp}-tp{tp}"
        spec = sequence_spec(text, run, tp, pp, nodes=dp, workers=pp * tp, preset=preset)
        spec.train.optimizer.micro_sequences = 3
        done, _ = train(tmp_path / f"cluster-{dp}-{pp}-{tp}", spec, dp, slots=pp * tp)
        assert (done.rounds.committed, done.rounds.samples) == (STEPS + 1, STEPS * BATCH)
        assert_same_training(one, run)


# One replica's loss is as another's; a stage alone holds what it does.
@pytest.mark.parametrize("dp, pp, rank", [(2, 1, 0), (2, 1, 3), (1, 2, 0), (1, 2, 1), (1, 2, 2), (1, 2, 3)])
def test_a_kill_of_each_rank(tmp_path, text, dp, pp, rank):
    """Who comes in its place has the highest id, and so other rows than the one before it: with stages those go to another member of the next one."""
    steps, run = 200 if dp == 2 else 80, tmp_path / "run"
    calm = alone(tmp_path, text, steps=steps, lr=SLOW)
    with Cluster(tmp_path / "cluster", nodes=2, slots=2) as cluster:
        spec = sequence_spec(text, run, 2, pp, nodes=2, workers=2, steps=steps, lr=SLOW, every=10)
        spec.mesh.too_few = "wait"
        job = cluster.submit(spec)
        reach(run, 35)
        victim = active(cluster, job)[rank]
        os.kill(victim.pid, signal.SIGKILL)
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        assert f"peer {victim.id} (" in events and "is lost" in events, events
        assert ("takes rank" if dp == 2 else "training goes back") in events, events
        assert "other numbers" not in events, events  # what all of a stage hold, compared before each checkpoint
        counted_once(cluster, job, steps)
    assert_near(run, calm, steps)
