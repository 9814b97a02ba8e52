"""`trainctl export` and `trainctl import`: a model goes out of a job and into another one. What transformers makes of folders that no job has trained is in
tests/parity/test_huggingface.py."""
import importlib.util
import json
import pathlib
import re
import subprocess

import numpy
import pytest
import safetensors.numpy

from harness import BIN, DEADLINE_S, Cluster, trainctl, trainctl_json
from mesh_jobs import parameters, staged_spec
from stubs import BUILD

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
    odd = subprocess.run([str(BIN / "trainctl"), "import", tmp_path / "saved", "-o", "a: {b}"], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert f'\ncheckpoint: {{resume: "{tmp_path}/a: {{b}}"}}\n' in odd.stdout  # of a job file in any folder
    again = trainctl_json("import", tmp_path / "saved", "-o", tmp_path / "begin", environment=there.environment)
    assert again["model"]["tied"] is False
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

    # The same folder again, fewer steps: both jobs' checkpoints and losses are there.
    whole = job.read_text()
    job.write_text(whole.replace("steps: 5", "steps: 3"))
    there("launch", job)
    for number, steps in ((1, 5), (2, 3)):
        told = trainctl_json("export", number, "-o", tmp_path / f"of-{number}", environment=there.environment)
        assert told["step"] == steps and told["checkpoint"] == str(tmp_path / "run" / f"step-{steps:08d}")
        told = trainctl_json("plot", number, "-o", tmp_path / f"{number}.svg", environment=there.environment)
        assert told["runs"] == [{"name": f"job {number}  from-weights", "steps": steps}]

    # And the same file again: its last checkpoint takes the place of the first job's.
    job.write_text(whole)
    there("launch", job)
    refused = there("export", 1, "-o", tmp_path / "third", check=False)
    assert refused.returncode == 1 and not (tmp_path / "third").exists()
    assert refused.stderr == (f"trainctl: job 1: its newest checkpoint, {tmp_path / 'run'}/step-00000005, is not there any more: job 3 ('from-weights') "
                              f"has written in its folder since; `trainctl export {tmp_path / 'run'} -o FOLDER` takes what is there now\n")
    assert trainctl_json("plot", 1, "-o", tmp_path / "loss.svg", environment=there.environment)["runs"][0]["steps"] == 5

    # What older workers wrote does not say whose it is.
    for path in (tmp_path / "run" / "metrics.jsonl", tmp_path / "run" / "latest" / "manifest.json"):
        path.write_text(re.sub(r',"job":(\d+,"submitted_unix_ms":\d+|{[^}]*})|,"digest":"\w+"', "", path.read_text()))
    for verb, file in (("export", tmp_path / "third"), ("plot", tmp_path / "third.svg")):
        refused = there(verb, 1, "-o", file, check=False)
        assert refused.returncode == 2 and not file.exists()
        assert refused.stderr == ("trainctl: job 1: job 3 has the same checkpoint.dir and has written there since, on this machine or another: "
                                  f"give 3, or the folder's path to take what is here: {tmp_path / 'run'}\n")
        there(verb, 3, "-o", file)
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
    assert "config.json: cannot read: Not a directory" in refused("import", tmp_path / "saved" / "config.json", "-o", tmp_path / "x")
    (tmp_path / "saved" / "config.json").write_text(json.dumps({**CONFIG, "model_type": "mamba"}))
    assert 'model_type: found "mamba", allowed: gpt2 or llama' in refused("import", tmp_path / "saved", "-o", tmp_path / "x")
    assert sorted(path.name for path in pathlib.Path(tmp_path).iterdir()) == ["cluster", "saved"]
    (tmp_path / "run" / "step-00000060").mkdir(parents=True)
    (tmp_path / "run" / "step-00000060" / "manifest.json").write_text("{}")
    assert "has checkpoints of a job (step-00000060), and would begin again at step 0" in refused("import", tmp_path / "saved", "-o", tmp_path / "run")


def gpt2_config(model):
    return {"model_type": "gpt2", "n_layer": model.layers, "n_embd": model.width, "n_head": model.heads, "n_positions": model.context, "vocab_size": 256}


def llama_config(model):
    return {"model_type": "llama", "num_hidden_layers": model.layers, "hidden_size": model.width, "num_attention_heads": model.heads,
            "num_key_value_heads": model.kv_heads, "intermediate_size": model.hidden, "max_position_embeddings": model.context, "vocab_size": 256,
            "tie_word_embeddings": False, "rms_norm_eps": 1e-5}


TRAINED = {"gpt2": (gpt2_config, {}), "llama": (llama_config, {"tied": "false", "kv_heads": 2, "hidden": 80})}


def trainer_logits(folder, config, weights, batch):
    """What the trainer's model computes from a checkpoint's own tensors, and from a shape that is not taken from the export."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.numpy.save_file({**weights, "batch": batch}, folder / "in.safetensors", metadata={"format": "pt"})
    words = [BUILD / "tests" / "trainer_probe", "parity", folder, folder / "in.safetensors", folder / "out.safetensors"]
    subprocess.run(list(map(str, words)), check=True, timeout=DEADLINE_S)
    return safetensors.numpy.load_file(folder / "out.safetensors")["logits"]


@pytest.mark.skipif(any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")), reason="not installed: make test TORCH=1")
@pytest.mark.xdist_group("torch")
@pytest.mark.parametrize("preset", TRAINED)
def test_transformers_load_what_a_split_job_has_trained(tmp_path, text, preset):
    """Five steps over pp 2 x tp 2, `trainctl export JOB`: from_pretrained misses nothing, and its logits are those of the trainer's model."""
    import torch
    import transformers
    config_of, options = TRAINED[preset]
    spec = staged_spec(text, tmp_path / "run", 2, 2, workers=4, preset=preset, layers=3, steps=5, **options)
    with Cluster(tmp_path / "cluster", nodes=1, slots=4) as cluster:
        job = cluster.submit(spec)
        cluster.wait_job(job, "DONE")
        trainctl("export", job, "--format", "hf", "-o", tmp_path / "exported", environment={**cluster.environment, "TRAIND_ADDRESS": cluster.memberd.address})
    model, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exported", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"], report
    batch = numpy.random.default_rng(5).integers(0, 256, (3, spec.train.model.context + 1), numpy.int32)
    ours = trainer_logits(tmp_path / "probe", config_of(spec.train.model), parameters(tmp_path / "run"), batch)
    with torch.no_grad():
        theirs = model.eval()(torch.from_numpy(batch[:, :-1].astype(numpy.int64))).logits.reshape(-1, 256).numpy()
    assert abs(ours).max() > 0.1
    assert abs(theirs - ours).max() < 1e-5 * abs(ours).max()
