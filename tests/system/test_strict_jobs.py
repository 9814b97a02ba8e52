"""train.strict on real daemons: one worker's parameters, bit for bit, on any mesh of powers of two, with any keys of the mesh, whoever dies."""
import hashlib
import os
import signal

import pytest

from harness import Cluster
from test_mesh_keys import keyed_spec
from test_sharded_jobs import STEPS, active, counted_once, parameters, reach, rows_of, text, train  # noqa: F401 (text is a fixture)
from test_training import BATCH

MODELS = {"gpt2": {"preset": "gpt2"}, "llama": {"preset": "llama", "tied": "false", "kv_heads": 4, "heads": 8}}


def strict_spec(text, folder, dp=1, pp=1, tp=1, *keys, threads=1, **options):  # noqa: F811
    options = {"heads": 8, "layers": 3, **options}
    spec = keyed_spec(text, folder, dp, pp, tp, *keys, **options)
    spec.train.optimizer.strict = True
    spec.train.optimizer.clip = 0.5
    spec.mesh.threads = threads
    return spec


def digest(folder):
    """Of all parameters' bits."""
    whole = hashlib.sha256()
    for name, numbers in sorted(parameters(folder).items()):
        whole.update(name.encode() + numbers.tobytes())
    return whole.hexdigest()


def told(folder):
    return {step: (row["loss"], row["grad_norm"], row.get("val_loss")) for step, row in rows_of(folder).items()}


def run(tmp_path, text, name, *mesh, **options):  # noqa: F811
    spec = strict_spec(text, tmp_path / name, *mesh, **options)
    done, _ = train(tmp_path / f"cluster-{name}", spec, spec.mesh.nodes, slots=spec.mesh.workers_per_node)
    assert (done.rounds.committed, done.rounds.samples) == (STEPS + 1, STEPS * BATCH)
    return tmp_path / name


MESHES = {"dp2": (2, 1, 1), "dp4": (4, 1, 1), "tp2": (1, 1, 2), "tp4": (1, 1, 4), "dp2tp2": (2, 1, 2), "pp2tp2": (1, 2, 2), "dp2pp2": (2, 2, 1),
          "interleaved": (1, 2, 1, "auto", 1, True), "gpipe": (1, 3, 1, "gpipe")}


@pytest.mark.parametrize("model", MODELS)
def test_any_mesh_has_one_workers_bits(tmp_path, text, model):  # noqa: F811
    one = run(tmp_path, text, "one", threads=3, **MODELS[model])
    for name, mesh in MESHES.items():
        other = run(tmp_path, text, name, *mesh, **MODELS[model])
        assert told(other) == told(one), name
        assert digest(other) == digest(one), name
