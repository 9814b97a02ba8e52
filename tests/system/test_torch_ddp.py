"""A PyTorch script that works under torchrun works under `trainctl launch -n`."""
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from harness import DEADLINE_S, Cluster, trainctl

# Not imported here: that takes seconds, in each process of pytest. One after another: each fills the processors for long.
pytestmark = [pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: make test TORCH=1"),
              pytest.mark.xdist_group("torch")]

SCRIPT = pathlib.Path(__file__).resolve().parent / "torch_ddp.py"
SHOW = "import json, os; print(json.dumps(dict(os.environ)), flush=True)"
# Of torchrun's own agent: its files, its signals, and that it serves the store, which without it rank 0 does.
AGENT_ONLY = {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE", "TORCHELASTIC_USE_AGENT_STORE", "_"}
# What differs from run to run.
PER_RUN = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}


def environment(**more):
    kept = {key: value for key, value in os.environ.items() if key not in ("OMP_NUM_THREADS", "NO_COLOR", "TRAIND_ADDRESS")}
    return {**kept, **more}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("torch"), nodes=1, slots=2) as cluster:
        yield cluster


def launch(cluster, *command):
    done = trainctl("--address", cluster.memberd.address, "launch", "-n", "2", "--", sys.executable, *command,
                    environment=environment(), timeout=4 * DEADLINE_S)
    rows = {int(rank): json.loads(text) for rank, text in re.findall(r"^\[(\d)\] (\{.*\})$", done.stdout, re.MULTILINE)}
    assert sorted(rows) == [0, 1], done.stdout + done.stderr
    return rows


@pytest.mark.timeout(5 * DEADLINE_S)
def test_ddp_trains(cluster):
    rows = launch(cluster, str(SCRIPT))
    for rank, row in rows.items():
        assert row["rank"] == rank == row["local"] and row["world"] == 2
        # data-parallel over two ranks is the whole batch on one
        assert row["difference"] < 1e-12, row
    assert rows[0]["first"] == rows[1]["first"] and rows[0]["last"] == rows[1]["last"]


@pytest.mark.timeout(5 * DEADLINE_S)
def test_environment_is_torchruns(cluster, tmp_path):
    script = tmp_path / "show.py"
    script.write_text(SHOW)
    reference = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--log-dir", tmp_path / "log",
                                "--redirects", "3", str(script)], env=environment(), capture_output=True, text=True,
                               stdin=subprocess.DEVNULL, timeout=4 * DEADLINE_S)
    assert reference.returncode == 0, reference.stderr
    texts = [path.read_text() for path in sorted((tmp_path / "log").rglob("stdout.log"))]
    theirs = {int(row["RANK"]): row for row in map(json.loads, texts)}
    ours = launch(cluster, str(script))
    for rank in (0, 1):
        wanted = {key: value for key, value in theirs[rank].items() if key not in os.environ and key not in AGENT_ONLY}
        assert {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"} <= set(wanted)
        missing = set(wanted) - set(ours[rank])
        assert not missing, f"torchrun sets {missing} for rank {rank}"
        different = {key: (value, ours[rank][key]) for key, value in wanted.items() if key not in PER_RUN and value != ours[rank][key]}
        assert not different, f"(torchrun's, ours): {different}"
        assert ours[rank]["TORCHELASTIC_USE_AGENT_STORE"] == "False"
    assert ours[0]["MASTER_PORT"] == ours[1]["MASTER_PORT"] and int(ours[0]["MASTER_PORT"]) > 0
