"""trainctl and answers that no memberd gives, or that it rarely does (fake_trainer.py)."""
import json

import pytest

from fake_trainer import FakeTrainer, training_job
from harness import trainctl
from stubs import pb


@pytest.fixture
def fake():
    with FakeTrainer() as service:
        yield service


def fake_run(fake, *arguments):
    return trainctl("--address", fake.address, *arguments, check=False)


@pytest.mark.parametrize("sizes", [{"tp": 65536, "pp": 65536}, {"tp": 2}])
def test_a_mesh_that_cannot_be(fake, sizes):
    job = training_job(step=1)
    job.spec.mesh.MergeFrom(pb.Mesh(workers=4, **sizes))
    job.progress.plan.MergeFrom(pb.PlanNow(dp=0, pp=0, tp=0))
    fake.add(job)
    for words in (["status", "1"], ["status", "1", "--json"], ["jobs", "--json"]):
        done = fake_run(fake, *words)
        assert done.returncode == 0, (words, done.stderr)
    assert json.loads(done.stdout)[0]["mesh"] is None


def test_a_job_that_has_made_no_step(fake, tmp_path):
    """What is in its folder is another job's; how many steps it is to make is known."""
    (tmp_path / "metrics.jsonl").write_text('{"step":1,"loss":3}\n{"step":2,"loss":2}\n')
    job = training_job()
    job.progress.steps = 0  # no worker has said it
    job.spec.train.checkpoint.dir = str(tmp_path)
    fake.add(job)
    done = fake_run(fake, "plot", "1", "-o", tmp_path / "loss.svg")
    assert done.returncode == 1 and done.stderr == "trainctl: job 1 has made no step yet\n"
    assert not (tmp_path / "loss.svg").exists()
    assert " 0/10 " in fake_run(fake, "jobs").stdout and "step        0 of 10\n" in fake_run(fake, "status", "1").stdout
    assert json.loads(fake_run(fake, "status", "1", "--json").stdout)["steps"] == 10


def test_samples_of_an_epoch_of_none(fake):
    fake.samples = pb.Samples(job_id=1, known=True, anew=3, epochs=[pb.SampleEpoch(counted=1)])
    done = fake_run(fake, "samples", "1")
    assert done.returncode == 0 and "began anew with number 3" in done.stdout, done.stderr
