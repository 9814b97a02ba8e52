"""`trainctl export` and `trainctl import`: a model goes out of a job and into another one. What transformers makes of such folders is in
tests/parity/test_huggingface.py."""
import json
import pathlib

import numpy
import pytest
import safetensors.numpy

from harness import Cluster, trainctl, trainctl_json

WIDTH, HIDDEN, CONTEXT = 32, 48, 32
CONFIG = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": WIDTH, "num_attention_heads": 4, "num_key_value_heads": 2,
          "intermediate_size": HIDDEN, "max_position_embeddings": CONTEXT, "vocab_size": 256, "tie_word_embeddings": False}
JOB = """name: from-weights
model: {model}
data: {{text: [text.txt]}}
train: {{steps: {steps}, batch_tokens: 64, lr: 1e-3}}
checkpoint: {{resume: {resume}, dir: {dir}}}
"""


def saved(folder):
    """A folder as save_pretrained writes it."""
    draw = numpy.random.default_rng(3)
    shapes = {"model.embed_tokens.weight": (256, WIDTH), "model.norm.weight": (WIDTH,), "lm_head.weight": (256, WIDTH)}
    for i in range(2):
        shapes.update({f"model.layers.{i}.{name}.weight": shape for name, shape in {
            "self_attn.q_proj": (WIDTH, WIDTH), "self_attn.k_proj": (WIDTH // 2, WIDTH), "self_attn.v_proj": (WIDTH // 2, WIDTH),
            "self_attn.o_proj": (WIDTH, WIDTH), "mlp.gate_proj": (HIDDEN, WIDTH), "mlp.up_proj": (HIDDEN, WIDTH),
            "mlp.down_proj": (WIDTH, HIDDEN), "input_layernorm": (WIDTH,), "post_attention_layernorm": (WIDTH,)}.items()})
    folder.mkdir()
    tensors = {name: draw.normal(0, 0.05, shape).astype(numpy.float32) for name, shape in shapes.items()}
    safetensors.numpy.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return tensors


@pytest.fixture
def there(tmp_path):
    """A cluster and a way to call trainctl on it."""
    with Cluster(tmp_path / "cluster", nodes=1) as cluster:
        environment = {**cluster.environment, "TRAIND_ADDRESS": cluster.memberd.address}

        def run(*words, check=True):
            return trainctl(*words, environment=environment, check=check)
        run.environment = environment
        yield run


def test_weights_in_and_out_of_jobs(tmp_path, there):
    tensors = saved(tmp_path / "saved")
    (tmp_path / "text.txt").write_text("all work and no play makes jack a dull boy\n" * 50)
    told = there("import", tmp_path / "saved", "-o", tmp_path / "begin").stdout
    lines = dict(line.split(": ", 1) for line in told.splitlines() if ": " in line)
    assert lines["checkpoint"] == f"{{resume: {tmp_path / 'begin'}}}"
    again = trainctl_json("import", tmp_path / "saved", "-o", tmp_path / "begin", environment=there.environment)
    assert again["checkpoint"] == str(tmp_path / "begin" / "step-00000000") and again["model"]["kv_heads"] == 2
    job = tmp_path / "job.yaml"
    job.write_text(JOB.format(model=lines["model"], steps=5, resume=tmp_path / "begin", dir=tmp_path / "run"))
    there("launch", job)
    assert "wrote" in there("export", 1, "-o", tmp_path / "exported").stdout
    out = safetensors.numpy.load_file(tmp_path / "exported" / "model.safetensors")
    assert out.keys() == tensors.keys()
    for name, before in tensors.items():
        # Five steps of AdamW at 1e-3 from there: not the same, and not far.
        moved = abs(out[name] - before).max()
        assert 0 < moved < 6e-3, name
    config = json.loads((tmp_path / "exported" / "config.json").read_text())
    assert {key: config[key] for key in CONFIG} == CONFIG

    # The same file again: its folder holds the second job's now.
    there("launch", job)
    for verb, file in (("export", tmp_path / "second"), ("plot", tmp_path / "loss.svg")):
        refused = there(verb, 1, "-o", file, check=False)
        assert refused.returncode == 2 and not file.exists()
        assert refused.stderr == ("trainctl: job 1: job 2 has the same checkpoint.dir and has written there since, on this machine or another: "
                                  f"give 2, or the folder's path to take what is here: {tmp_path / 'run'}\n")
        there(verb, 2, "-o", file)
        assert file.exists()

    # Another shape of attention, of which no tensor tells.
    job.write_text(JOB.format(model=lines["model"].replace("rope_theta: 10000", "rope_theta: 500000"), steps=5,
                              resume=tmp_path / "begin", dir=tmp_path / "run"))
    failed = there("launch", job, check=False)
    assert failed.returncode == 2
    assert failed.stderr == f"{job}:2: model.rope_theta: found 500000, allowed: 10000, as the weights are\n"


def test_bad_words(tmp_path, there):
    saved(tmp_path / "saved")

    def refused(*words, code=2):
        done = there(*words, check=False)
        assert done.returncode == code and done.stderr.count("\n") == 1, done
        return done.stderr
    assert "--output: found nothing" in refused("export", tmp_path)
    assert "--output: found nothing" in refused("import", tmp_path / "saved")
    assert "--format: found 'onnx', allowed: hf" in refused("export", tmp_path, "-o", tmp_path / "x", "--format", "onnx")
    assert "found no manifest.json in it" in refused("export", tmp_path / "saved", "-o", tmp_path / "x")
    assert "no job 7" in refused("export", 7, "-o", tmp_path / "x", code=4)
    assert "config.json: cannot read: No such file" in refused("import", tmp_path, "-o", tmp_path / "x")
    (tmp_path / "saved" / "config.json").write_text(json.dumps({**CONFIG, "model_type": "mamba"}))
    assert 'model_type: found "mamba", allowed: gpt2 or llama' in refused("import", tmp_path / "saved", "-o", tmp_path / "x")
    assert sorted(path.name for path in pathlib.Path(tmp_path).iterdir()) == ["cluster", "saved"]
    (tmp_path / "run" / "step-00000060").mkdir(parents=True)
    (tmp_path / "run" / "step-00000060" / "manifest.json").write_text("{}")
    assert "has checkpoints of a job (step-00000060), and would begin again at step 0" in refused("import", tmp_path / "saved", "-o", tmp_path / "run")
