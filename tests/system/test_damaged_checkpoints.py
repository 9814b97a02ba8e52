"""A checkpoint with a byte that is not what was written: the one before it is taken, people are told, the damaged one stays to be looked at."""
import os
import shutil
import signal

import numpy
import pytest

from harness import Cluster, wait_for
from mesh_jobs import SLOW, active, alone, assert_near, counted_once, parameters, reach, rows_of, sharded_spec, write_text

STEPS = 20


def flip(path):
    """A byte of a tensor."""
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size - 100)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("cluster"), nodes=1, slots=2) as made:
        yield made


@pytest.fixture(scope="module")
def begun(tmp_path_factory, cluster, text):
    """Checkpoints of step 15 and 20, each a job's last one, which no busy disk leaves out."""
    run = tmp_path_factory.mktemp("begun") / "run"
    for steps in (STEPS - 5, STEPS):
        resume = {"resume": run / f"step-{STEPS - 5:08}"} if steps == STEPS else {}
        cluster.wait_job(cluster.submit(sharded_spec(text, run, 2, workers=2, steps=steps, **resume)), "DONE")
    return run


@pytest.mark.parametrize("tp, file", ((2, "optimizer.safetensors"), (1, "model.safetensors"), (2, "manifest.json"), (1, "config.json")))
def test_a_job_begins_with_the_one_before(tmp_path, cluster, begun, text, tp, file):
    """Of shards, of whole models; where digests show it, and where the manifest does."""
    copy, run = tmp_path / "copy", tmp_path / "run"
    shutil.copytree(begun, copy, symlinks=True)
    if file == "config.json":  # other heads: nothing but its digest tells
        config = copy / "step-00000020" / file
        config.write_text(config.read_text().replace('"n_head":4', '"n_head":2'))
    else:
        flip(copy / "step-00000020" / file)
    job = cluster.submit(sharded_spec(text, run, tp, workers=2, steps=STEPS, resume=copy))
    done = cluster.wait_job(job, "DONE")
    events = cluster.events(done)
    assert file in events and ("is taken instead, 5 steps before it" in events), events
    assert sorted(rows_of(run)) == list(range(16, STEPS + 1))
    ours, whole = parameters(run), parameters(begun)
    assert all(numpy.abs(ours[name] - whole[name]).max() < 1e-5 for name in whole)
    assert (copy / "step-00000020.damaged" / file).exists() and (copy / "latest").resolve().name == "step-00000015"


@pytest.mark.parametrize("tp", (1, 2))
def test_none_is_whole(tmp_path, cluster, begun, text, tp):
    copy = tmp_path / "copy"
    shutil.copytree(begun, copy, symlinks=True)
    for step in ("step-00000015", "step-00000020"):
        flip(copy / step / "model.safetensors")
    job = cluster.submit(sharded_spec(text, tmp_path / "run", tp, workers=2, steps=STEPS, resume=copy))
    failed = cluster.wait_job(job, "FAILED")
    words = cluster.events(failed) + failed.reason
    assert "step-00000020: model.safetensors is damaged: its digest is " in words, words
    assert "is taken instead, 5 steps before it" in words, words
    assert any("step-00000015: model.safetensors" in line and "there is none before it" in line for line in words.splitlines()), words


def test_back_to_the_one_before(tmp_path, text, cluster):
    """A shard is lost with its only holder, and the newest checkpoint is damaged."""
    steps, run = 100, tmp_path / "run"
    calm = alone(tmp_path, text, steps=steps, lr=SLOW)
    job = cluster.submit(sharded_spec(text, run, 2, workers=2, steps=steps, every=30, lr=SLOW))
    reach(run, 62)
    wait_for(lambda: "step-00000060" in cluster.job(job).progress.checkpoint, "the checkpoint of step 60")
    flip(run / "step-00000060" / "model.safetensors")
    os.kill(active(cluster, job)[1].pid, signal.SIGKILL)
    done = cluster.wait_job(job, "DONE")
    events = cluster.events(done)
    assert "to the checkpoint of step 60" in events and "model.safetensors is damaged" in events, events
    assert "the checkpoint of step 30 is taken instead, 30 steps before it" in events, events
    assert "training goes back from step 60 to the checkpoint of step 30" in events, events
    counted_once(cluster, job, steps)
    assert_near(run, calm, steps)
    assert (run / "step-00000060.damaged").exists()
    assert sorted(path.name for path in run.glob("step-*[0-9]")) == ["step-00000090", "step-00000100"]
