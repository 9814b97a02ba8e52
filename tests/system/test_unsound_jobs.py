"""Native jobs in which the top bit of the exponent of one of a worker's own parameters flips, so that it is of the size of 1e38, while its replica trains apart from the others: what that replica learns of it is NaN, and
none of it reaches the others with a merge."""
import math
import time

import numpy
import pytest

from harness import Cluster, wait_for
from mesh_jobs import active, parameters, reach, rows_of, write_text
from test_mesh_sync import apart_spec

TOP_BIT, NUMBERS = 1 << 30, 24
STEPS, INNER, EVERY = 400, 50, 50


def shared_memory(pid):
    """What the worker shares with traind, and where it begins."""
    with open(f"/proc/{pid}/maps") as file:
        spans = [[int(x, 16) for x in line.split()[0].split("-")] for line in file if "memfd:traind-tensors" in line]
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        parts = []
        for low, high in spans:
            file.seek(low)
            parts.append((low, numpy.frombuffer(file.read(high - low), numpy.float32)))
        return parts


def places_like(memory, first):
    """Where numbers like these lie: not zeros, and no gradients or moments."""
    at = numpy.arange(max(0, len(memory) - NUMBERS))
    with numpy.errstate(all="ignore"):  # not all of it is numbers
        for k in numpy.argsort(-numpy.abs(first)):
            at = at[numpy.abs(memory[at + k] - first[k]) < 0.02]
    return [i for i in at if memory[i:i + NUMBERS].std() > 0 and numpy.corrcoef(memory[i:i + NUMBERS], first)[0, 1] > 0.8]


def own_parameter(pid, tensors):
    """Where one lies: what looks like the newest checkpoint's and changes between two merges. None: they merged meanwhile, or nothing looks like it."""
    before = shared_memory(pid)
    time.sleep(0.02)
    after = dict(shared_memory(pid))
    for name in ("transformer.h.0.mlp.c_fc.weight", "transformer.h.1.mlp.c_fc.weight"):
        first = tensors[name].ravel()[:NUMBERS]
        for low, memory in before:
            at = places_like(memory, first)
            moved = [i for i in at if not numpy.array_equal(memory[i:i + NUMBERS], after[low][i:i + NUMBERS])]
            if len(moved) == 1 and len(at) > 1:
                return low + 4 * int(moved[0] + numpy.argmax(numpy.abs(first)))
    return None


def flip(pid, folder):
    at = own_parameter(pid, parameters(folder))
    if at is None:
        return False
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as file:
        file.seek(at)
        bits = int.from_bytes(file.read(4), "little")
        file.seek(at)
        file.write((bits ^ TOP_BIT).to_bytes(4, "little"))
    return True


HOW = {"diloco": dict(mode="diloco", inner_steps=INNER), "streaming": dict(mode="streaming", inner_steps=INNER - 2, fragments=3, overlap=5), "eager": dict(mode="eager", inner_steps=INNER)}


@pytest.mark.parametrize("how,pp,tp", [("eager", 1, 1), ("diloco", 1, 2), ("streaming", 2, 1)])
def test_what_is_not_finite_stays_with_who_has_it(tmp_path, how, pp, tp):
    text, run = write_text(tmp_path), tmp_path / "run"
    spec = apart_spec(text, run, 2, pp, tp, steps=STEPS, every=EVERY)
    for key, value in HOW[how].items():
        setattr(spec.train.sync, key, value)
    with Cluster(tmp_path / "cluster", nodes=2, slots=pp * tp) as cluster:
        job = cluster.submit(spec)
        reach(run, EVERY)
        wait_for(lambda: (run / "latest" / "manifest.json").exists(), "a checkpoint")
        spoilt = active(cluster, job)[-1 if pp > 1 else 0]
        wait_for(lambda: flip(spoilt.pid, run), "a parameter in its memory")
        done = cluster.wait_job(job, "DONE")
        events = cluster.events(done)
    assert ("its movement does not count" if pp * tp == 1 else "its shard has no part in the merge") in events and "are not finite" in events, events
    assert events.count("are not finite") <= (1 if pp * tp == 1 else 3), events  # a fragment at a time
    rows = rows_of(run)
    assert max(rows) == STEPS and all(numpy.isfinite(numbers).all() and numpy.abs(numbers).max() < 10 for numbers in parameters(run).values())
    assert math.isfinite(rows[STEPS]["loss"]) and rows[STEPS]["loss"] < rows[min(rows)]["loss"]
