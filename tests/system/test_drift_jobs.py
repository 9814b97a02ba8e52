"""Native jobs in which a bit of one worker's memory flips: an event names the tensor and the peer, and the job ends well with the right state everywhere
(else its commit would fail)."""
import json
import re
import struct

import numpy
import pytest

from harness import Cluster, wait_for
from test_rare_training import rare
from test_training import job_spec, metrics, reach_file, text  # noqa: F401 (a fixture)

BIT = 21


def flip(pid, find):
    """Flips a bit of a float in the memory that the worker shares with traind. find(memory): where, or None."""
    with open(f"/proc/{pid}/maps") as file:
        low, high = next([int(x, 16) for x in line.split()[0].split("-")] for line in file if "memfd:traind-tensors" in line)
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as file:
        file.seek(low)
        at = find(file.read(high - low))
        if at is None:
            return False
        file.seek(low + at)
        bits, = struct.unpack("<I", file.read(4))
        file.seek(low + at)
        file.write(struct.pack("<I", bits ^ 1 << BIT))
        return True


def a_parameter(memory):
    """Where one lies: the first numbers that could be are parameters; gradients and moments come behind them."""
    numbers = numpy.abs(numpy.frombuffer(memory, numpy.float32))
    others = numpy.flatnonzero(~((numbers > 1e-8) & (numbers < 1)))
    gaps = numpy.flatnonzero(numpy.diff(others) > 1000)
    return 4 * (int(others[gaps[0]]) + 500) if len(gaps) else None


def tensor_of(checkpoint, name):
    """Its bytes."""
    data = (checkpoint / "model.safetensors").read_bytes()
    size, = struct.unpack("<Q", data[:8])
    tensors = json.loads(data[8:8 + size])
    assert name in tensors, sorted(tensors)
    first, last = tensors[name]["data_offsets"]
    return data[8 + size + first:8 + size + last]


def a_worker(cluster, job):
    return next((peer for peer in cluster.job(job).peers if peer.state == "active"), None)


def test_a_job_that_talks_rarely(tmp_path, text):  # noqa: F811
    steps, nodes, run = 240, 2, tmp_path / "run"
    with Cluster(tmp_path / "cluster", nodes=nodes) as cluster:
        job = cluster.submit(rare("diloco", text, run, nodes, steps, "replay", 80, inner_steps=80))
        spoilt = wait_for(lambda: a_worker(cluster, job), "a worker")

        def outer_parameters(memory):
            """What the newest checkpoint holds, until the next merge. The worker's own parameters, which may be the same yet, come before them."""
            at = memory.rfind(tensor_of(run / "latest", "transformer.h.1.mlp.c_fc.weight"))
            return at + 400 if at >= 0 else None
        wait_for(lambda: (run / "latest" / "manifest.json").exists() and flip(spoilt.pid, outer_parameters), "the tensor in its memory")
        done = cluster.wait_job(job, "DONE")
        assert re.search(rf"peer {spoilt.id} held other outer parameters of transformer\.h\.1\.mlp\.c_fc\.weight \(put right by peer \d+\); "
                         "its movement does not count", cluster.events(done)), cluster.events(done)
    assert metrics(run)[steps]["loss"] < metrics(run)[80]["loss"]


@pytest.mark.parametrize("nodes,on_loss", [(2, "replay"), (3, "replay"), (3, "drop")])
def test_a_data_parallel_job(tmp_path, text, nodes, on_loss):  # noqa: F811
    """Looked at before each checkpoint. A majority puts it right, and a step is not applied; two that differ go back to the checkpoint."""
    steps, run = 300, tmp_path / "run"
    with Cluster(tmp_path / "cluster", nodes=nodes) as cluster:
        job = cluster.submit(job_spec(text, run, nodes, steps, on_loss, every=120))
        reach_file(run, 122)  # so there are 118 steps, on a busy machine too, to flip the bit in
        spoilt = a_worker(cluster, job)
        assert flip(spoilt.pid, a_parameter)
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
        assert re.search(r"round 240: peer \d+ held other parameters of [a-z0-9_.]+ \((put right by|than) peer \d+\)", events), events
        if nodes == 3:
            assert f"peer {spoilt.id} held other" in events and "step 240 was not applied: some worker's parameters were wrong" in events
        else:  # both ended by the commit, none by a signal
            assert "there is no majority" in events and "goes on from checkpoint" in events and "signal" not in events, events
    written = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert written[-1] == steps and (len(written) > len(set(written))) == (nodes == 2)  # back once, or never


@pytest.mark.parametrize("nodes", [2, 3])
def test_the_last_checkpoint(tmp_path, text, nodes):  # noqa: F811
    """Of a job that writes no other. Contributor 0 has it wrong: the others know it before that is written, and the round is done once more; of two nobody
    knows who is right, and what was trained is not thrown away."""
    steps, run = 800, tmp_path / "run"  # nearly as many to flip the bit in, on a busy machine too
    with Cluster(tmp_path / "cluster", nodes=nodes) as cluster:
        job = cluster.submit(job_spec(text, run, nodes, steps))
        reach_file(run, 10)
        spoilt = min((peer for peer in cluster.job(job).peers if peer.state == "active"), key=lambda peer: peer.id)
        assert flip(spoilt.pid, a_parameter)
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
    verdict = f"peer {spoilt.id} held other parameters" if nodes == 3 else f"there is no checkpoint to go back to: the last one has what peer {spoilt.id} holds"
    assert verdict in events and f"round {steps + 1}: peer" in events, events
    assert done.rounds.committed == steps + nodes - 1 and done.progress.checkpoint.endswith(f"step-{steps:08}")
    assert sorted(metrics(run)) == list(range(1, steps + 1))


def test_the_first_checkpoint(tmp_path, text):  # noqa: F811
    """Two differ before a job has any: what contributor 0 holds is taken as it is, and before the next one both go back to that."""
    steps, every, run = 700, 300, tmp_path / "run"
    with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        job = cluster.submit(job_spec(text, run, 2, steps, every=every))
        reach_file(run, 2)
        spoilt = max((peer for peer in cluster.job(job).peers if peer.state == "active"), key=lambda peer: peer.id)
        assert flip(spoilt.pid, a_parameter)
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
    assert "there is no checkpoint to go back to: the first one has what peer" in events and f"round {every}: peer" in events, events
    assert f"round {2 * every}: peer" in events and "goes on from checkpoint" in events and f"step-{every:08}" in events, events
    written = {json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()}  # steps that were done again have two rows
    assert done.progress.checkpoint.endswith(f"step-{steps:08}") and written == set(range(1, steps + 1))
