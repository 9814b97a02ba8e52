"""Folders between `trainctl import`, `trainctl export` and Hugging Face's transformers: the same weights, the same logits, gradients as the
library's own, and text as the tokens that training saw."""

import importlib.util
import os
import pathlib
import random
import subprocess

import pytest

NEEDED = ("torch", "transformers", "tokenizers")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = [pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (make test TORCH=1)"),
              pytest.mark.xdist_group("torch")]

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("TRAIND_BUILD", ROOT / "build"))
CONTEXT = 80

GPT2 = {"n_layer": 2, "n_embd": 48, "n_head": 4, "n_positions": CONTEXT, "vocab_size": 256}
LLAMA = {"num_hidden_layers": 2, "hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 80,
         "max_position_embeddings": CONTEXT, "vocab_size": 256, "rms_norm_eps": 1e-5}
MODELS = {
    "gpt2": ("GPT2", GPT2),
    "gpt2-inner": ("GPT2", {**GPT2, "n_inner": 100, "layer_norm_epsilon": 1e-3}),
    "llama": ("Llama", {**LLAMA, "tie_word_embeddings": False}),
    "llama-tied": ("Llama", {**LLAMA, "tie_word_embeddings": True, "rms_norm_eps": 1e-6,
                             "rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}}),
}


@pytest.fixture(params=MODELS)
def model(request):
    """A model of transformers, with weights far from the start's symmetries."""
    import reference
    import transformers
    kind, settings = MODELS[request.param]
    names = {"GPT2": ("GPT2Config", "GPT2LMHeadModel"), "Llama": ("LlamaConfig", "LlamaForCausalLM")}[kind]
    config, made = (getattr(transformers, name) for name in names)
    # In training mode, so that nothing but the weights makes the logits.
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0} if kind == "GPT2" else {}
    model = made(config(**settings, **none, bos_token_id=None, eos_token_id=None))
    reference.randomize(model, seed=3, spread=0.08)
    return model.eval()


def trainctl(*words, says=None):
    done = subprocess.run([str(BUILD / "bin" / "trainctl"), *map(str, words)], capture_output=True, text=True, timeout=120)
    assert (done.returncode == 0) == (says is None), done.stderr
    if says is not None:
        assert says in done.stderr and done.stderr.count("\n") == 1, done.stderr
    return done.stdout


def batch_of(sequences=3):
    import torch
    return torch.randint(0, 256, (sequences, CONTEXT + 1), generator=torch.Generator().manual_seed(5))


def logits_of(model, batch):
    import torch
    with torch.no_grad():
        return model(batch[:, :-1]).logits


def relative(got, expected):
    return ((got - expected).abs().max() / expected.abs().max()).item()


def loaded(folder):
    import transformers
    model, report = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"], report
    return model.eval()


def test_there_and_back(model, tmp_path):
    """save_pretrained, import, export, from_pretrained: the same bits."""
    import torch
    model.save_pretrained(tmp_path / "saved")
    trainctl("import", tmp_path / "saved", "-o", tmp_path / "checkpoint")
    trainctl("export", tmp_path / "checkpoint", "--format", "hf", "-o", tmp_path / "exported")
    back = loaded(tmp_path / "exported")
    assert type(back) is type(model)
    for (name, one), (other_name, other) in zip(model.state_dict().items(), back.state_dict().items(), strict=True):
        assert name == other_name and torch.equal(one, other), name
    assert torch.equal(logits_of(model, batch_of()), logits_of(back, batch_of()))
    assert not [path for path in tmp_path.iterdir() if path.name not in ("saved", "checkpoint", "exported")]


def test_trainer_computes_the_same(model, tmp_path):
    """Logits, every gradient and ten AdamW losses of the trainer's model against transformers' own."""
    import reference
    import safetensors.torch
    model.save_pretrained(tmp_path)

    class Plain:
        """What reference() needs of a model."""
        parameters, named_parameters = model.parameters, model.named_parameters

        def __call__(self, tokens):
            return model(tokens).logits

    expected = reference.reference(Plain(), batch_of())
    safetensors.torch.save_file(expected, tmp_path / "in.safetensors", metadata={"format": "pt"})
    words = [BUILD / "tests" / "trainer_probe", "parity", tmp_path, tmp_path / "in.safetensors", tmp_path / "out.safetensors"]
    subprocess.run(list(map(str, words)), check=True, timeout=120)
    got = safetensors.torch.load_file(tmp_path / "out.safetensors")
    assert relative(got["logits"], expected["logits"].reshape(-1, 256)) < 1e-5
    worst = max(relative(got[name], expected[name]) for name in expected if name.endswith(".grad"))
    assert worst < 1e-4
    assert relative(got["losses"], expected["losses"]) < 1e-5


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_other_numbers_are_converted(model, tmp_path, dtype):
    import torch
    model.to(getattr(torch, dtype)).save_pretrained(tmp_path / "saved")
    trainctl("import", tmp_path / "saved", "-o", tmp_path / "checkpoint")
    trainctl("export", tmp_path / "checkpoint", "-o", tmp_path / "exported")
    for name, one in loaded(tmp_path / "exported").state_dict().items():
        assert one.dtype == torch.float32 and torch.equal(one, model.state_dict()[name].float()), name


def test_many_files_and_bare_names(model, tmp_path):
    """A model in parts (model.safetensors.index.json), and one without its head's class, whose names lack the first word."""
    import torch
    model.save_pretrained(tmp_path / "parts", max_shard_size="40KB")
    assert len(list((tmp_path / "parts").glob("model-*.safetensors"))) > 2
    model.base_model.save_pretrained(tmp_path / "bare")
    tied = model.config.tie_word_embeddings
    for name in ["parts", "bare"] if tied else ["parts"]:
        trainctl("import", tmp_path / name, "-o", tmp_path / f"{name}-checkpoint")
        trainctl("export", tmp_path / f"{name}-checkpoint", "-o", tmp_path / f"{name}-exported")
        assert torch.equal(logits_of(loaded(tmp_path / f"{name}-exported"), batch_of()), logits_of(model, batch_of()))
    if not tied:
        trainctl("import", tmp_path / "bare", "-o", tmp_path / "none", says="it has no tensor 'lm_head.weight'")


def test_tokenizer_makes_bytes(model, tmp_path):
    import transformers
    model.save_pretrained(tmp_path / "saved")
    trainctl("import", tmp_path / "saved", "-o", tmp_path / "checkpoint")
    trainctl("export", tmp_path / "checkpoint", "-o", tmp_path / "exported")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    assert len(tokenizer) == 256 and tokenizer.model_max_length == CONTEXT
    draw = random.Random(7)
    for text in ["hacker: n.", " two  blanks\n\ttab ", "".join(map(chr, range(256)))] + [
            "".join(chr(draw.choice([draw.randrange(0xd800), draw.randrange(0xe000, 0x110000)])) for _ in range(50))
            for _ in range(50)]:
        tokens = tokenizer(text)["input_ids"]
        assert tokens == list(text.encode()), text
        assert tokenizer.decode(tokens) == text
    back = loaded(tmp_path / "exported")
    made = back.generate(**tokenizer("a", return_tensors="pt"), do_sample=False)
    assert made.shape[1] == CONTEXT  # generation_config.json: not beyond the positions
