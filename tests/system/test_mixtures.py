"""What jobs may ask for at once, beyond the crossed ways of test_matrix_jobs.py: replicas that train apart whose stages are cut in other ways, bf16 without train.strict, shares with ZeRO-1 and chunks, a vocabulary
that tp does not divide, and checkpoints of one kind of job that another kind goes on from."""
import numpy
import pytest

from harness import Cluster
from mesh_jobs import alone, assert_same_training, keyed_spec, parameters, rows_of, sharded_spec, train
from test_mesh_copies import copied_spec
from test_mesh_streaming import stream_spec
from test_mesh_sync import apart_spec, assert_same_learning
from test_strict_jobs import assert_same_bits, strict_spec
from test_training import token_file

LLAMA = {"layers": 4, "preset": "llama", "tied": "false", "kv_heads": 2}
EVERYTHING = {"chunks": 2, "recompute": True, "sequence_parallel": True}


def asked(spec, dtype=None, dropout=None, **mesh):
    """Two sequences a microbatch: enough of them for stages of two chunks."""
    spec.train.optimizer.micro_sequences = 2
    for name, value in {"dtype": dtype, "dropout": dropout}.items():
        if value is not None:
            setattr(spec.train.optimizer, name, value)
    for name, value in mesh.items():
        if isinstance(value, list):
            getattr(spec.mesh, name).extend(value)
        else:
            setattr(spec.mesh, name, value)
    return spec


def farthest(left, right):
    left, right = parameters(left), parameters(right)
    assert left.keys() == right.keys()
    return max(float(numpy.abs(left[name].astype("f8") - right[name]).max()) for name in left)


APART = {
    "chunks": (2, 2, 1, {"chunks": 2}),
    "gpipe": (2, 2, 1, {"schedule": "gpipe", "recompute": True}),
    "layers": (2, 2, 1, {"layers": [3, 1]}),
    "everything": (2, 2, 2, EVERYTHING),
}


@pytest.mark.parametrize("case", APART)
def test_replicas_that_train_apart(tmp_path, text, case):
    dp, pp, tp, keys = APART[case]
    train(tmp_path / "whole", asked(apart_spec(text, tmp_path / "one", 2, 1, 1, **LLAMA), dropout=0.1), 2)
    _, events = train(tmp_path / "split", asked(apart_spec(text, tmp_path / "run", dp, pp, tp, **LLAMA), dropout=0.1, **keys), 2, slots=pp * tp)
    assert "other numbers" not in events, events
    assert_same_learning(tmp_path / "one", tmp_path / "run")


def test_replicas_of_several_copies(tmp_path, text):
    train(tmp_path / "whole", asked(apart_spec(text, tmp_path / "one", 2, 1, 1, **LLAMA), dropout=0.1), 2)
    _, events = train(tmp_path / "split", asked(copied_spec(text, tmp_path / "run", 2, 2, 2, **LLAMA), dropout=0.1, zero_owners=1, **EVERYTHING), 2, slots=8)
    assert "other numbers" not in events, events
    assert_same_learning(tmp_path / "one", tmp_path / "run")


@pytest.mark.parametrize("mode", ["streaming", "eager"])
def test_merges_that_they_train_on_through(tmp_path, text, mode):
    train(tmp_path / "whole", asked(stream_spec(text, tmp_path / "one", mode, 1, 1, layers=4)), 2)
    train(tmp_path / "split", asked(stream_spec(text, tmp_path / "run", mode, 2, 1, layers=4), chunks=2, recompute=True), 2, slots=2)
    assert_same_learning(tmp_path / "one", tmp_path / "run")


@pytest.mark.parametrize("dp, pp, tp, keys", [(2, 1, 1, {}), (1, 2, 1, {}), (1, 1, 2, {}), (2, 2, 2, {"zero_owners": 2, **EVERYTHING})], ids=["dp", "pp", "tp", "everything"])
def test_bf16(tmp_path, text, dp, pp, tp, keys):
    """Sums are made of other parts, rounded to 8 bits of mantissa: what that moves is less than what bf16 itself does. (Stages alone have one worker's bits.)"""
    train(tmp_path / "whole", asked(sharded_spec(text, tmp_path / "one", 1, **LLAMA), dtype="bf16"), 1)
    train(tmp_path / "f32", asked(sharded_spec(text, tmp_path / "exact", 1, **LLAMA)), 1)
    train(tmp_path / "split", asked(keyed_spec(text, tmp_path / "run", dp, pp, tp, **LLAMA), dtype="bf16", **keys), dp, slots=pp * tp)
    assert farthest(tmp_path / "one", tmp_path / "run") < 0.6 * farthest(tmp_path / "exact", tmp_path / "one")


def test_unequal_shares(tmp_path, text):
    one = alone(tmp_path, text, **LLAMA)
    keys = {"zero_owners": 2, "shares": [3, 1], "layers": [2, 2], "chunks": 2, "sequence_parallel": True}
    train(tmp_path / "split", asked(keyed_spec(text, tmp_path / "run", 2, 2, 2, **LLAMA), **keys), 2, slots=4)
    assert_same_training(one, tmp_path / "run")


@pytest.mark.parametrize("preset", ["gpt2", "llama"])
def test_a_vocabulary_that_tp_does_not_divide(tmp_path, text, preset):
    model = {"layers": 4} if preset == "gpt2" else LLAMA
    tokens = token_file(tmp_path / "tokens.bin", "gpt2", list(text.read_bytes()))

    def of_tokens(spec):
        del spec.train.data.text[:]
        spec.train.data.tokens.append(tokens)
        spec.train.model.vocab = "259"
        return spec

    train(tmp_path / "whole", of_tokens(sharded_spec(text, tmp_path / "one", 1, every=10, **model)), 1)
    for name, dp, pp, tp, keys in (("split", 1, 2, 2, {"sequence_parallel": True}), ("owned", 2, 1, 2, {"zero_owners": 2})):
        train(tmp_path / f"{name}-cluster", asked(of_tokens(keyed_spec(text, tmp_path / name, dp, pp, tp, every=10, **model)), **keys), dp, slots=pp * tp)
        assert_same_training(tmp_path / "one", tmp_path / name)
        goes_on = of_tokens(sharded_spec(text, tmp_path / f"{name}-on", 1, resume=tmp_path / name / "step-00000010", **model))
        train(tmp_path / f"{name}-on-cluster", goes_on, 1)
        assert farthest(tmp_path / "one", tmp_path / f"{name}-on") < 1e-5


def test_strict_bits(tmp_path, text):
    train(tmp_path / "whole", asked(strict_spec(text, tmp_path / "one", steps=10, layers=5), dtype="bf16", dropout=0.1), 1)
    split = strict_spec(text, tmp_path / "run", 2, 2, 2, "auto", 2, True, steps=10, layers=5)
    train(tmp_path / "split", asked(split, dtype="bf16", dropout=0.1, zero_owners=2, sequence_parallel=True, layers=[3, 2]), 2, slots=4)
    assert_same_bits(tmp_path / "one", tmp_path / "run")


KINDS = {
    "one": lambda text, folder, **more: (sharded_spec(text, folder, 1, **more), 1, 1),
    "crossed": lambda text, folder, **more: (asked(keyed_spec(text, folder, 2, 2, 2, **more), zero_owners=2, sequence_parallel=True, chunks=2), 2, 4),
    "owned": lambda text, folder, **more: (asked(keyed_spec(text, folder, 3, 1, 1, **more), zero_owners=2), 3, 1),
    "strict": lambda text, folder, **more: (asked(strict_spec(text, folder, 4, 1, 1, heads=4, **more), zero_owners=2), 4, 1),
    "copies": lambda text, folder, **more: (asked(copied_spec(text, folder, 2, 1, 2, inner=5, **more), zero_owners=1), 2, 4),
    "streaming": lambda text, folder, **more: (stream_spec(text, folder, "streaming", 2, 1, **more), 2, 2),
}


def trained(folder, made):
    spec, nodes, slots = made
    spec.train.optimizer.clip = 1.0
    with Cluster(folder, nodes=nodes, slots=slots) as cluster:
        return cluster.events(cluster.wait_job(cluster.submit(spec), "DONE"))


@pytest.mark.parametrize("first, then", [("one", "crossed"), ("crossed", "strict"), ("owned", "one"), ("strict", "owned"), ("copies", "crossed"), ("streaming", "owned"), ("crossed", "copies"), ("owned", "streaming")])
def test_checkpoints_between_kinds_of_jobs(tmp_path, text, first, then):
    """They learn on from where the others were. Where both sum gradients at each step, they end alike too."""
    trained(tmp_path / "first", KINDS[first](text, tmp_path / first, steps=20, every=10, layers=4))
    events = trained(tmp_path / "then", KINDS[then](text, tmp_path / f"{then}-on", steps=20, resume=tmp_path / first / "step-00000010", layers=4))
    rows = rows_of(tmp_path / f"{then}-on")
    assert "other numbers" not in events and min(rows) > 10 and max(rows) == 20, events
    before = rows_of(tmp_path / first)
    assert rows[20]["loss"] < before[max(step for step in before if step <= 10)]["loss"]
    if {first, then}.isdisjoint({"copies", "streaming"}):
        assert farthest(tmp_path / first, tmp_path / f"{then}-on") < 1e-5
