"""What tests of jobs over meshes share: their text, job files, what one worker learns of them, how a run is compared with that."""
import fcntl
import hashlib
import json
import os
import pathlib
import signal
import threading
import time

import numpy
import pytest
import safetensors.numpy

from harness import Cluster, trainctl, wait_for
from stubs import pb
from test_training import BATCH, WORDS, job_spec

STEPS = 20
SLOW = 5e-5  # learning rate of long runs: a last bit becomes 5e-9 of the loss within 600 steps; at 2e-4 it becomes half a percent, in any job


def write_text(folder):
    path = folder / "text.txt"
    path.write_text("".join(WORDS[i % 7:] + str(i * i) + "\n" for i in range(2000)))
    return path


def sharded_spec(text, folder, tp, nodes=1, workers=1, steps=STEPS, lr=1e-3, **options):
    spec = job_spec(text, folder, nodes, steps, **{"heads": 4, **options})
    spec.train.optimizer.lr = lr
    spec.mesh.MergeFrom(pb.Mesh(workers_per_node=workers, tp=tp))
    spec.train.optimizer.eval_every = 7
    return spec


def staged_spec(text, folder, pp, tp=1, **options):
    spec = sharded_spec(text, folder, tp, **options)
    spec.mesh.pp = pp
    return spec


def keyed_spec(text, folder, dp, pp, tp, schedule="auto", chunks=1, recompute=False, **options):
    spec = staged_spec(text, folder, pp, tp, nodes=dp, workers=pp * tp, **options)
    spec.mesh.schedule, spec.mesh.chunks, spec.mesh.recompute = schedule, chunks, recompute
    spec.train.optimizer.micro_sequences = 4
    return spec


def rows_of(folder):
    """{step: its newest row}: who goes back to a checkpoint writes steps again; a row whose end is still to come is none yet."""
    path = pathlib.Path(folder) / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")] if path.exists() else []
    return {row["step"]: row for row in rows}


def parameters(folder):
    latest = (pathlib.Path(folder) / "latest").resolve()
    if not (latest / "model.safetensors").exists():  # it is in shards
        whole = latest.parent / f"{latest.name}-exported"
        trainctl("export", latest, "-o", whole)
        latest = whole
    return safetensors.numpy.load_file(latest / "model.safetensors")


def assert_same_training(one, other, loss=1e-5, numbers=1e-5):
    ours, theirs = rows_of(one), rows_of(other)
    assert sorted(ours) == sorted(theirs)
    for step, row in ours.items():
        assert theirs[step]["loss"] == pytest.approx(row["loss"], abs=loss), step
        assert theirs[step]["grad_norm"] == pytest.approx(row["grad_norm"], rel=1e-3), step
    left, right = parameters(one), parameters(other)
    assert left.keys() == right.keys()
    for name in left:
        assert numpy.abs(left[name] - right[name]).max() < numbers, name


def counted_once(cluster, job, steps):
    """The account of samples: all of every step, once."""
    samples = cluster.api().GetSamples(pb.GetSamplesRequest(job_id=job))
    assert sum(epoch.counted for epoch in samples.epochs) == steps * BATCH
    assert not any(epoch.dropped or epoch.in_flight for epoch in samples.epochs)


class Throttled:
    """A worker that is stopped most of the time."""

    def __init__(self, pid):
        self.pid, self.ended = pid, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.ended.is_set():
            os.kill(self.pid, signal.SIGSTOP)
            time.sleep(0.06)
            os.kill(self.pid, signal.SIGCONT)
            time.sleep(0.005)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def train(folder, spec, nodes, slots=1):
    with Cluster(folder, nodes=nodes, slots=slots) as cluster:
        job = cluster.submit(spec)
        done = cluster.wait_job(job, "DONE")
        counted_once(cluster, job, spec.train.optimizer.steps)
        return done, cluster.events(done)


def alone(tmp_path, text, **options):
    """Where one worker has learned that text: trained once for all tests that ask for the same, also of other processes of the same pytest."""
    everyones = tmp_path.parents[1 if "PYTEST_XDIST_WORKER" in os.environ else 0] / "alone"
    folder = everyones / hashlib.sha256(text.read_bytes() + repr(sorted(options.items())).encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "trained").exists():
            train(folder / "cluster", sharded_spec(text, folder / "one", 1, **options), 1)
            (folder / "trained").touch()
    return folder / "one"


def active(cluster, job):
    """By id: as long as nobody was lost, by rank."""
    return sorted((peer for peer in cluster.job(job).peers if peer.state == "active"), key=lambda peer: peer.id)


def reach(folder, step):
    wait_for(lambda: max(rows_of(folder), default=0) >= step, f"step {step} in {folder}")


def assert_near(folder, calm, steps):
    """Both at SLOW. Losses see what is trained, the last parameters what is written too. A step moves a number by up to the learning rate (AdamW), which is near SLOW where tests kill: that is ten times
    the bound; other orders of sums made 3e-7 at most in 100 to 300 steps with losses, measured. To the bit they are the same in strict jobs alone (test_strict_jobs.py)."""
    rows, expected = rows_of(folder), rows_of(calm)
    assert sorted(rows) == list(range(1, steps + 1))
    for step in expected:
        assert rows[step]["loss"] == pytest.approx(expected[step]["loss"], rel=1e-6), step
    left, right = parameters(folder), parameters(calm)
    assert left.keys() == right.keys()
    for name in left:
        assert numpy.abs(left[name] - right[name]).max() < SLOW / 10, name


def shared_kib(pid):
    """Of the worker's memory, what it shares with its engine: parameters, gradients, moments."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssShmem"))
