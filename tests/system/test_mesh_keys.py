"""mesh.schedule, mesh.chunks and mesh.recompute in jobs: what they learn is what one worker learns, on any mesh; checkpoints are of the whole model as ever."""
import numpy
import pytest

from harness import Cluster
from mesh_jobs import STEPS, alone, assert_same_training, counted_once, keyed_spec, parameters, rows_of, train
from test_training import BATCH

MODELS = {"gpt2": {"preset": "gpt2", "layers": 5}, "llama": {"preset": "llama", "layers": 5, "tied": "false"}}


def run(tmp_path, text, name, dp, pp, tp, *keys, **options):
    spec = keyed_spec(text, tmp_path / name, dp, pp, tp, *keys, **options)
    done, _ = train(tmp_path / f"cluster-{name}", spec, dp, slots=pp * tp)
    assert (done.rounds.committed, done.rounds.samples) == (STEPS + 1, STEPS * BATCH)
    return tmp_path / name


CASES = [(1, 2, 1, "auto", 2, False), (2, 2, 1, "interleaved", 2, True), (1, 2, 2, "auto", 2, True), (1, 2, 1, "gpipe", 1, True),
         (1, 1, 2, "auto", 1, True), (2, 1, 1, "auto", 1, True)]


@pytest.mark.parametrize("model", MODELS)
def test_as_one_worker(tmp_path, text, model):
    one = alone(tmp_path, text, **MODELS[model])
    for number, case in enumerate(CASES):
        assert_same_training(one, run(tmp_path, text, f"run-{number}", *case, **MODELS[model]))


def test_the_same_bits(tmp_path, text):
    """Stages, in any order, and what is computed again are one worker's to the bit: microbatches are summed in the same order. (dp and tp sum in another one; a tied table has two parts.)"""
    meshes = {"one": (1, 1, 1), "again": (1, 1, 1, "auto", 1, True), "stages": (1, 2, 1), "gpipe": (1, 2, 1, "gpipe"),
              "interleaved": (1, 2, 1, "auto", 2, True)}
    runs = {name: parameters(run(tmp_path, text, name, *mesh, **MODELS["llama"])) for name, mesh in meshes.items()}
    for name, numbers in runs.items():
        assert all((numbers[tensor] == runs["one"][tensor]).all() for tensor in numbers), name


def test_any_mesh_goes_on_from_interleaved_stages(tmp_path, text):
    one = alone(tmp_path, text, layers=4)
    with Cluster(tmp_path / "half", nodes=1, slots=2) as cluster:
        spec = keyed_spec(text, tmp_path / "run", 1, 2, 1, chunks=2, layers=4, every=10)
        cluster.wait_job(cluster.submit(spec), "DONE")
    half = tmp_path / "run" / "step-00000010"
    for dp, pp, tp, chunks in ((1, 2, 1, 1), (1, 2, 2, 2), (1, 1, 1, 1)):
        rest = tmp_path / f"rest-{pp}-{tp}"
        with Cluster(tmp_path / f"cluster-{pp}-{tp}", nodes=dp, slots=pp * tp) as cluster:
            job = cluster.submit(keyed_spec(text, rest, dp, pp, tp, chunks=chunks, layers=4, resume=half))
            cluster.wait_job(job, "DONE")
            counted_once(cluster, job, STEPS)
        assert sorted(rows_of(rest)) == list(range(11, STEPS + 1))
        left, right = parameters(one), parameters(rest)
        assert all(numpy.abs(left[name] - right[name]).max() < 1e-5 for name in left)


def test_too_few_microbatches(tmp_path, text):
    with Cluster(tmp_path / "cluster", nodes=1, slots=2) as cluster:
        spec = keyed_spec(text, tmp_path / "run", 1, 2, 1, chunks=2, layers=4)
        spec.train.optimizer.micro_sequences = BATCH
        with pytest.raises(Exception, match="mesh.chunks: found 2, allowed: 1, since a replica has 1 microbatches and mesh.pp is 2"):
            cluster.submit(spec)
