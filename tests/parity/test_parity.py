"""The native trainer against PyTorch, live: for random models and batches the logits (1e-5), every gradient (1e-4) and ten AdamW losses
agree. Where PyTorch is not installed, tests/unit/test_model_parity.c compares with a golden file instead."""

import importlib.util
import json
import os
import pathlib
import subprocess

import pytest

# Imported by the test itself: that takes seconds, in each process of pytest.
pytestmark = [pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: make test TORCH=1"),
              pytest.mark.xdist_group("torch")]

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("TRAIND_BUILD", ROOT / "build"))

# layers, width, heads, context, sequences: the head's width not a multiple of a vector's, one head, a context over several
# attention tiles and one that is not a multiple of anything.
GPT2 = [(1, 24, 2, 17, 3, {}), (2, 64, 1, 64, 2, {}), (3, 48, 6, 150, 2, {}), (4, 128, 4, 128, 2, {})]
LLAMA = [
    (1, 24, 2, 17, 3, {"tied": False, "hidden": 20}),
    (2, 64, 4, 64, 2, {"kv_heads": 1}),
    (3, 60, 6, 150, 2, {"kv_heads": 2, "tied": False, "eps": 1e-3, "theta": 500.0}),
    (4, 128, 4, 300, 2, {"kv_heads": 2}),
]
MODELS = [("gpt2", shape) for shape in GPT2] + [("llama", shape) for shape in LLAMA]


@pytest.fixture(scope="module")
def probe():
    path = BUILD / "tests" / "trainer_probe"
    sanitizer = BUILD.name.partition("-")[2]
    subprocess.run(["make", "-s", "trainer-probe", f"BUILD={BUILD.name}", f"SAN={sanitizer}"], cwd=ROOT, check=True, timeout=600,
                   stdout=subprocess.DEVNULL)
    return path


def relative(got, expected):
    """Largest difference, relative to the largest number expected."""
    return ((got - expected).abs().max() / expected.abs().max()).item()


def make(preset, layers, width, heads, context, extra):
    import gpt2_torch
    import llama_torch
    model = {"gpt2": gpt2_torch.Gpt2, "llama": llama_torch.Llama}[preset]
    return model(layers, width, heads, context, **extra)


def native(probe, folder, *words):
    import safetensors.torch
    run = [probe, "parity", folder, folder / "in.safetensors", folder / "out.safetensors", *words]
    subprocess.run(list(map(str, run)), check=True, timeout=120)
    return safetensors.torch.load_file(folder / "out.safetensors")


@pytest.mark.parametrize("preset, shape", MODELS, ids=lambda s: s if isinstance(s, str) else "x".join(map(str, s[:5])))
def test_parity(probe, tmp_path, preset, shape):
    import reference
    import safetensors.torch
    import torch
    *sizes, sequences, extra = shape
    torch.set_num_threads(1)
    model = make(preset, *sizes, extra)
    reference.randomize(model, seed=sum(shape[:5]), spread=0.05)
    batch = torch.randint(0, 256, (sequences, sizes[3] + 1), generator=torch.Generator().manual_seed(sizes[1]))
    expected = reference.reference(model, batch)
    safetensors.torch.save_file(expected, tmp_path / "in.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(model.config))
    got = native(probe, tmp_path)
    assert relative(got["logits"], expected["logits"].reshape(-1, 256)) < 1e-5
    gradients = [name for name in expected if name.endswith(".grad")]
    assert set(gradients) == {name for name in got if name.endswith(".grad")}
    for name in gradients:
        # A key's bias does not change the softmax: its gradient is rounding on both sides, next to those of query and value.
        assert relative(got[name], expected[name]) < 1e-4, name
    assert relative(got["losses"], expected["losses"]) < 1e-5


def distance(got, expected, names):
    """Length of the difference of all these together, relative to that of what is expected."""
    return (sum(((got[n].double() - expected[n].double()) ** 2).sum() for n in names) / sum((expected[n].double() ** 2).sum() for n in names)).sqrt().item()


@pytest.mark.parametrize("preset, shape", [MODELS[3], MODELS[7]], ids=["gpt2", "llama"])
def test_bf16_is_as_near_to_f32_as_autocast(probe, tmp_path, preset, shape):
    """train.dtype bf16: the gradient is no further from that of f32 than PyTorch's with bf16 autocast."""
    import reference
    import safetensors.torch
    import torch
    *sizes, sequences, extra = shape
    torch.set_num_threads(1)
    model = make(preset, *sizes, extra)
    reference.randomize(model, seed=3, spread=0.05)
    batch = torch.randint(0, 256, (sequences, sizes[3] + 1), generator=torch.Generator().manual_seed(4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        theirs = model(batch[:, :-1].long())
        reference.mean_loss(theirs.float(), batch[:, 1:].long()).backward()
    autocast = {f"{name}.grad": p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    expected = reference.reference(model, batch)
    safetensors.torch.save_file(expected, tmp_path / "in.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(model.config))
    got = native(probe, tmp_path, "bf16")
    ours, peer = distance(got, expected, autocast), distance(autocast, expected, autocast)
    assert 1e-4 < ours < peer < 0.05, (ours, peer)
    assert relative(got["losses"], expected["losses"]) < 5e-3
