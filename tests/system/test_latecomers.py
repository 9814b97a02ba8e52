"""A worker is lost early, and late: the one that follows the first is taken, the place of the second stays free, and an event says why. In jobs of whole models without ranks, and of replicas that train apart."""
import os
import re
import signal

import pytest

from harness import BIN, Cluster, wait_for
from mesh_jobs import active, reach, rows_of, write_text
from test_mesh_sync import apart_spec
from test_training import job_spec

STEPS, INNER, STARTS_S = 400, 10, 2  # all of the steps take longer than a start, the last six do not, however busy the machine is


def slow_to_start(folder):
    """Workers as others, but that they take so long to start."""
    program = folder / "trainworker"
    program.write_text(f"#!/bin/sh\nsleep {STARTS_S}\nexec {BIN}/trainworker \"$@\"\n")
    program.chmod(0o755)
    return ["--trainworker", program]


def whole(text, folder, mode):
    spec = job_spec(text, folder, 2, STEPS, layers=4, width=128)
    spec.train.sync.mode = mode
    spec.train.sync.inner_steps = 0 if mode == "ddp" else INNER
    return spec


def apart(text, folder, mode):
    spec = apart_spec(text, folder, 2, 1, 2, inner=INNER, steps=STEPS, layers=4, width=128)
    spec.train.sync.mode = mode
    return spec


def newest(run):
    rows = rows_of(run)
    return rows[max(rows)]


@pytest.mark.parametrize("make, mode", [(whole, "ddp"), (whole, "diloco"), (apart, "diloco"), (apart, "streaming")],
                         ids=["ddp", "diloco", "apart", "apart-streaming"])
def test_who_comes_early_and_late(tmp_path, make, mode):
    run, workers = tmp_path / "run", 4 if make is apart else 2
    with Cluster(tmp_path / "cluster", nodes=2, slots=workers // 2, traind=slow_to_start(tmp_path)) as cluster:
        job = cluster.submit(make(write_text(tmp_path), run, mode))
        reach(run, 2 * INNER)
        os.kill(active(cluster, job)[-1].pid, signal.SIGKILL)
        wait_for(lambda: any(row["contributors"] == workers - 1 for row in rows_of(run).values()), "steps without it")
        wait_for(lambda: newest(run)["contributors"] == workers, "another worker to train")
        assert "stays free" not in cluster.events(cluster.job(job))
        reach(run, STEPS - (2 * INNER if mode == "diloco" else 6))  # of two merges whoever comes sits out both
        os.kill(active(cluster, job)[-1].pid, signal.SIGKILL)
        events = cluster.events(cluster.wait_job(job, "DONE"))
    assert events.count("as a replacement") == 1 and "taken after all" not in events, events
    said = re.search(r"the place on node-\d stays free: (\d+) steps are left, [0-9.e-]+ s, and a worker needs ([0-9.]+) s to start and get its state", events)
    assert said, events
    left, takes = said.groups()
    assert int(left) < STEPS / 4 and float(takes) >= STARTS_S, events
    assert events.count("the place on") == 1 and rows_of(run)[STEPS]["contributors"] == workers - 1, events
