"""What `trainctl plan --as-is` predicts of the memory of every worker beside what that worker had resident at most: of a model so small that what is not of it counts, and of plans of many kinds."""
import os
import pathlib
import subprocess

import pytest

from harness import BIN, Cluster, trainctl, trainctl_json, wait_for
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


def huge_bytes(pid):
    """Of the memory that the worker shares with its engine, what is in huge pages."""
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("ShmemPmdMapped:"))


@pytest.mark.parametrize("mesh", ["workers_per_node: 1", "workers_per_node: 2, tp: 2", "workers_per_node: 2, pp: 2"])
def test_a_small_model(tmp_path, mesh):
    """Within 5 %. Found on 2026-11-30, on a machine with more work than cores, were 0.97 to 1.02; 0.81 and 0.84 before libraries, text and huge pages were counted. A whole model is counted with the huge pages that it
    fills: where memory is in pieces there are none, and of one worker alone 1.06 was found (no split one uses them)."""
    with Cluster(tmp_path / "cluster", nodes=1, slots=2) as cluster:
        environment = {**cluster.environment, "TRAIND_ADDRESS": cluster.memberd.address}
        file = write_job(tmp_path, mesh)
        plan = trainctl_json("plan", file, "--as-is", environment=environment)
        trainctl("launch", "--detach", file, environment=environment)
        reach(tmp_path / "run", 5)
        peers = active(cluster, 1)
        assert len(peers) == len(plan["ranks"])
        for rank, peer in zip(plan["ranks"], peers, strict=True):
            in_pieces = len(peers) == 1 and huge_bytes(peer.pid) < rank["memory"]["state"] / 2
            assert 0.95 < rank["memory_bytes"] / resident_bytes(peer.pid) < (1.1 if in_pieces else 1.05)


CONTEXT, WIDTH, MICRO = 128, 192, 2
STREAM = 4 * MICRO * CONTEXT * WIDTH  # bytes of a microbatch's residual stream
GPT2 = f"{{preset: gpt2, layers: 8, width: {WIDTH}, heads: 4, context: {CONTEXT}, vocab: bytes}}"
LLAMA = f"{{preset: llama, layers: 8, width: {WIDTH}, heads: 4, kv_heads: 2, context: {CONTEXT}, vocab: bytes}}"
SHARDS = "every: 2, sharded: true"
# model, workers, mesh, train, checkpoint. A replica has sixteen sequences or its part of them: microbatches of two, whose gradients are added up.
CASES = {
    "tp-llama": (LLAMA, 2, "tp: 2", "", ""),
    "pp-chunks": (GPT2, 2, "pp: 2, chunks: 2", "", ""),
    "shards": (GPT2, 4, "pp: 2, tp: 2", "", SHARDS),
    "dp": (GPT2, 2, "", "", ""),
    "dp-writer": (GPT2, 2, "", "", "every: 2"),
    "tp-4": (GPT2, 4, "tp: 4", "", ""),
    "tp-sequence": (GPT2, 2, "tp: 2, sequence_parallel: true", "", ""),
    "tp-bf16": (GPT2, 2, "tp: 2", "dtype: bf16, ", ""),
    "zero": (GPT2, 3, "zero_owners: 2", "", ""),
    "pp-recompute-llama": (LLAMA, 2, "pp: 2, recompute: true", "", ""),
    "gpipe-llama": (LLAMA, 2, "pp: 2, schedule: gpipe", "", ""),
    "strict": (GPT2, 4, "tp: 2", "strict: true, ", ""),
    "all-llama": (LLAMA, 12, "pp: 2, tp: 2, chunks: 2, zero_owners: 2, sequence_parallel: true, recompute: true", "", SHARDS),
}


def write_case(folder, case):
    model, workers, mesh, train, checkpoint = CASES[case]
    (folder / "text").write_bytes(os.urandom(1 << 20))
    file = folder / "job.yaml"
    keys = ", ".join(filter(None, ['balance: "off"', f"workers_per_node: {workers}", mesh]))
    file.write_text(f"""name: planned
model: {model}
data: {{text: [{folder}/text], validation: 1%}}
train: {{steps: 100000, batch_tokens: {16 * CONTEXT}, lr: 1e-3, seed: 1, {train}micro_sequences: {MICRO}}}
mesh: {{nodes: 1, threads: 1, {keys}}}
checkpoint: {{{", ".join(filter(None, [f"dir: {folder}/run", checkpoint]))}}}
""")
    return file


def measured_costs(folder, spec):
    """As `trainctl plan` has them measured, of the job's own tp and microbatches alone."""
    done = subprocess.run([BIN / "trainworker", "--measure", "1", str(max(1, spec.mesh.tp)), "1"], input=spec.SerializeToString(), capture_output=True, check=True)
    file = folder / "costs"
    file.write_bytes(done.stdout)
    return file


def most_and_shared(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    found = {line.split(":")[0]: 1024 * int(line.split()[1]) for line in lines if line.startswith(("VmHWM:", "RssShmem:"))}
    return found["VmHWM"], found["RssShmem"]


def assert_shared(rank, tp, shared):
    """Parameters, gradients and moments lie in memory that is shared with traind, as do messages, of which a plan has the most that there may be at once; and of sums over tp two buffers, and at each seat two inputs."""
    memory, sums = rank["memory"], (2 + 2 * tp) * STREAM if tp > 1 else 0
    assert 0.97 * (memory["state"] + sums) < shared < 1.03 * (memory["state"] + sums + memory["messages"]), (rank, shared)


@pytest.mark.parametrize("case", CASES)
def test_every_rank(tmp_path, case):
    """Within 5 %. Found on 2026-11-30 were 0.96 to 1.02, of shards and of who writes 0.98 to 1.04; these were 0.92 to 0.97 before the block that a file is written through was counted."""
    model, workers, mesh, train, checkpoint = CASES[case]
    with Cluster(tmp_path / "cluster", nodes=1, slots=workers) as cluster:
        environment = {**cluster.environment, "TRAIND_ADDRESS": cluster.memberd.address}
        file = write_case(tmp_path, case)
        trainctl("launch", "--detach", file, environment=environment)
        reach(tmp_path / "run", 3)
        if checkpoint:
            wait_for((tmp_path / "run" / "latest").exists, "a checkpoint")
        job = cluster.job(1)
        found = [most_and_shared(peer.pid) for peer in active(cluster, 1)]
        trainctl("cancel", 1, environment=environment)
        cluster.wait_job(1, "CANCELLED")
        plan = trainctl_json("plan", file, "--as-is", "--costs", measured_costs(tmp_path, job.spec), environment=environment)
    ranks = plan["ranks"]
    assert len(ranks) == len(found) == workers
    for rank, (most, shared) in zip(ranks, found, strict=True):
        planned = rank["memory_bytes"]
        assert planned == sum(rank["memory"].values())
        if checkpoint == SHARDS and rank["dp"] > 0:  # the first replica writes
            planned -= rank["memory"]["copy"]
        elif checkpoint and rank["rank"] == 0:
            planned = plan["writer_bytes"] if checkpoint != SHARDS else planned
        assert 0.95 < planned / most < 1.05, (case, rank, most)
        # Of strict jobs and of bf16 some of it is the worker's own, as copies are.
        if not train and not checkpoint:
            assert_shared(rank, plan["tp"], shared)
