"""What `trainctl plan --as-is` predicts of a worker's memory beside what the worker had resident at most, of a model so small that what is not of it counts."""
import os
import pathlib

import pytest

from harness import BIN, Cluster, trainctl, trainctl_json
from mesh_jobs import active, reach

pytestmark = pytest.mark.skipif("-" in BIN.parent.name, reason="a sanitizer's own memory is in no plan")


def write_job(folder, mesh):
    text = folder / "text"
    text.write_bytes(os.urandom(1 << 21))
    file = folder / "job.yaml"
    file.write_text(f"""name: planned
model: {{preset: gpt2, layers: 4, width: 128, heads: 4, context: 128, vocab: bytes}}
data: {{text: [{text}], validation: 1%}}
train: {{steps: 100000, batch_tokens: 1024, lr: 1e-3, seed: 1, micro_sequences: 2}}
mesh: {{nodes: 1, threads: 1, balance: "off", {mesh}}}
checkpoint: {{dir: {folder}/run}}
""")
    return file


def resident_bytes(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


@pytest.mark.parametrize("mesh", ["workers_per_node: 1", "workers_per_node: 2, tp: 2", "workers_per_node: 2, pp: 2"])
def test_a_small_model(tmp_path, mesh):
    """Found were 0.95 and more, with pp 2 1.01; 0.81 and 0.84 before libraries, text and huge pages were counted. Where memory is in pieces there are fewer huge pages than are counted."""
    with Cluster(tmp_path / "cluster", nodes=1, slots=2) as cluster:
        environment = {**cluster.environment, "TRAIND_ADDRESS": cluster.memberd.address}
        file = write_job(tmp_path, mesh)
        plan = trainctl_json("plan", file, "--as-is", environment=environment)
        trainctl("launch", "--detach", file, environment=environment)
        reach(tmp_path / "run", 5)
        peers = active(cluster, 1)
        assert len(peers) == len(plan["ranks"])
        for rank, peer in zip(plan["ranks"], peers, strict=True):
            assert 0.93 < rank["memory_bytes"] / resident_bytes(peer.pid) < 1.1
