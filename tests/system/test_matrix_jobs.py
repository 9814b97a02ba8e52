"""Ways to split a job, crossed: dp, pp and tp with mesh.zero_owners, mesh.sequence_parallel, mesh.chunks, mesh.recompute and both presets at once. What they learn is what
one worker of the same preset learns. (One way at a time: test_pipeline_jobs.py, test_zero_jobs.py, test_sequence_parallel_jobs.py, test_mesh_keys.py.)"""
import os
import signal

import pytest

from harness import Cluster
from mesh_jobs import SLOW, STEPS, active, alone, assert_near, assert_same_training, counted_once, keyed_spec, reach, train
from test_training import BATCH

LLAMA = {"preset": "llama", "layers": 5, "kv_heads": 2}  # two heads share keys and values
MODELS = {"gpt2": [{"preset": "gpt2", "layers": 5}], "llama": [{**LLAMA, "tied": "true"}, {**LLAMA, "tied": "false"}]}  # by turns
# dp, pp, tp, keys
CASES = {
    "all": (3, 2, 2, {"zero_owners": 2, "sequence_parallel": True, "chunks": 2, "recompute": True}),
    "mesh": (2, 2, 2, {}),
    "gpipe-zero-sequence": (2, 2, 2, {"schedule": "gpipe", "zero_owners": 2, "sequence_parallel": True}),
    "zero-sequence-recompute": (2, 1, 2, {"zero_owners": 2, "sequence_parallel": True, "recompute": True}),
    "zero-sequence": (3, 1, 2, {"zero_owners": 2, "sequence_parallel": True}),
    "zero-chunks-recompute": (2, 2, 1, {"zero_owners": 2, "chunks": 2, "recompute": True}),
    "zero-chunks": (3, 2, 1, {"zero_owners": 3, "chunks": 2}),
    "zero-recompute": (3, 1, 1, {"zero_owners": 2, "recompute": True}),
    "zero-tp": (2, 1, 2, {"zero_owners": 2}),
    "zero-pp": (3, 2, 1, {"zero_owners": 2}),
    "sequence-chunks": (1, 2, 2, {"sequence_parallel": True, "chunks": 2}),
    "sequence-recompute": (1, 1, 2, {"sequence_parallel": True, "recompute": True}),
}


def crossed_spec(text, folder, dp, pp, tp, keys, **options):
    spec = keyed_spec(text, folder, dp, pp, tp, **options)
    for name, value in keys.items():
        setattr(spec.mesh, name, value)
    # Eight microbatches or more at each of two replicas: enough for stages of two chunks.
    spec.train.optimizer.micro_sequences = 2
    return spec


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("case", CASES)
def test_as_one_worker(tmp_path, text, case, model):
    options = MODELS[model][list(CASES).index(case) % len(MODELS[model])]
    one = alone(tmp_path, text, **options)
    dp, pp, tp, keys = CASES[case]
    done, events = train(tmp_path / "cluster", crossed_spec(text, tmp_path / "run", dp, pp, tp, keys, **options), dp, slots=pp * tp)
    assert (done.rounds.committed, done.rounds.samples) == (STEPS + 1, STEPS * BATCH)
    assert "mesh: dp " + " x ".join([str(dp), *[f"{axis} {size}" for axis, size in (("pp", pp), ("tp", tp)) if size > 1]]) in events or dp == 1, events
    assert "other numbers" not in events, events  # what several hold, compared before each checkpoint
    assert_same_training(one, tmp_path / "run")


@pytest.mark.parametrize("case, rank", [("zero-sequence-recompute", 0), ("zero-sequence-recompute", 3), ("all", 5)])
def test_a_kill(tmp_path, text, case, rank):
    """What the lost worker held comes from the other replica, and is checked against it; nothing is read from a checkpoint."""
    steps, run = 100, tmp_path / "run"
    calm = alone(tmp_path, text, steps=steps, lr=SLOW, layers=4)
    dp, pp, tp, keys = CASES[case]
    with Cluster(tmp_path / "cluster", nodes=dp, slots=pp * tp) as cluster:
        job = cluster.submit(crossed_spec(text, run, dp, pp, tp, keys, steps=steps, lr=SLOW, layers=4, every=10))
        reach(run, 15)
        victim = active(cluster, job)[rank]
        os.kill(victim.pid, signal.SIGKILL)
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        assert f"peer {victim.id} (" in events and f"takes rank {rank} (" in events, events
        assert "goes back" not in events and "other numbers" not in events, events
        counted_once(cluster, job, steps)
    assert_near(run, calm, steps)
