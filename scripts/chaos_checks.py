"""What must be true of a job of scripts/chaos_sharded.py once it has ended, whatever struck it."""
import collections
import itertools
import json
import os
import re

import numpy
import safetensors.numpy

from chaos_jobs import BATCH
from chaos_rows import times_back, unrecorded_most
from harness import wait_for
from stubs import pb


def rows_of(folder):
    """Of metrics.jsonl in their order: steps that were done again stand there again."""
    try:
        lines = (folder / "metrics.jsonl").read_text().split("\n")[:-1]
    except OSError:
        return []
    return [json.loads(line) for line in lines]


def plans_of(events):
    """(how often the job was planned anew and went on with another mesh, how often it stayed with its own)."""
    return tuple(sum(bool(re.match(rf"mesh: (with \d+ workers? )?a step takes .*: {verb} with ", text)) for _, text in events) for verb in ("goes on", "stays"))


def loss_problems(rows, calm, steps):
    """Each step that was reported, each time, beside one worker's. A worker that is killed between a commit and its row takes the row with it."""
    expected, seen = {row["step"]: row for row in calm}, {row["step"] for row in rows}
    for row in rows:
        want = expected[row["step"]]["loss"]
        if abs(row["loss"] - want) > 1e-5:
            yield f"step {row['step']}: loss {row['loss']}, one worker has {want}"
    if not seen <= set(expected) or steps not in seen:
        yield f"steps {sorted(seen - set(expected))} are none, the last one is {max(seen, default=0)}"


def parameter_problems(folder, calm, most):
    ours, theirs = (safetensors.numpy.load_file(run / "latest" / "model.safetensors") for run in (folder, calm))
    if ours.keys() != theirs.keys():
        yield "the last checkpoint has other tensors than one worker's"
        return
    for name in ours:
        difference = numpy.abs(ours[name] - theirs[name]).max()
        if not difference <= most:
            yield f"{name} differs by {difference:.2g} from one worker's"


def account_of(chaos, job):
    return wait_for(lambda: chaos.cluster.api().GetSamples(pb.GetSamplesRequest(job_id=job.id)), "the account of samples")


def account_problems(chaos, job, steps):
    samples = account_of(chaos, job)
    counted = sum(epoch.counted for epoch in samples.epochs)
    if counted != steps * BATCH:
        yield f"{counted} samples were counted, not {steps * BATCH}"
    if any(epoch.dropped or epoch.in_flight for epoch in samples.epochs):
        yield "samples were dropped, or are in flight"


# ---- replicas that train apart

def learning_problems(rows, steps):
    """How much they have learned goes by who was there: but they have. Steps that were done again stand there twice."""
    last = max((row["step"] for row in rows), default=0)
    if last != steps:
        yield f"the last step is {last}"
    losses = [row["loss"] for row in rows]
    if not all(numpy.isfinite(losses)) or not losses or not losses[-1] < losses[0] - 0.5:
        yield f"losses from {losses[:1]} to {losses[-1:]}"


def tensors_problems(folder):
    for name, array in safetensors.numpy.load_file(folder / "latest" / "model.safetensors").items():
        if not numpy.isfinite(array).all():
            yield f"{name} is not finite"


def counted_problems(chaos, job, steps, used, rows, events, most):
    """A merge counts what its replicas have used. Without a way back what they noted is that, but for rounds that went on without who was lost: the lost ones had no time to note theirs. With one, what was
    used after the checkpoint is used again; at the end all is counted or left."""
    samples = account_of(chaos, job)
    counted = sum(epoch.counted for epoch in samples.epochs)
    if any(epoch.dropped or epoch.in_flight for epoch in samples.epochs):
        yield "samples were dropped, or are in flight"
    for epoch in samples.epochs:
        told = epoch.counted + epoch.in_flight + epoch.dropped + epoch.left
        if told != (epoch.through - epoch.epoch + 1) * samples.per_epoch:
            yield f"the account of epoch {epoch.epoch} sums to {told} of {samples.per_epoch} samples"
    if not steps * BATCH // 2 <= counted <= steps * BATCH:
        yield f"{counted} samples were counted, of at most {steps * BATCH}"
    if times_back(rows, events):
        return
    twice = [number for number, times in used.items() if times > 1]
    if twice:
        yield f"{len(twice)} samples were used more than once, from {min(twice)} on"
    if max(used, default=0) >= counted:
        yield f"sample {max(used)} was used, and {counted} were counted"
    without = sum(bool(re.search(r"round \d+ goes on: .* was lost", text)) for _, text in events)
    if counted - len(used) > most * without:
        yield f"{counted} samples were counted, {len(used)} used; {without} rounds went on without somebody"


def used_of(files):
    """{number: times} of samples, by what workers noted (TRAIND_SAMPLES_LOG)."""
    used = collections.Counter()
    for path in files:
        for word in (word for line in path.read_text().splitlines() for word in line.split()[1:]):
            first, last = word.split("-")
            used.update(range(int(first), int(last)))
    return used


# ---- all

def left_behind(chaos):
    """Of a job that has ended, in daemons that live: shared memory."""
    for node in chaos.cluster.nodes:
        def maps(pid=node.pid):
            try:
                return [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
            except OSError:
                return []
        try:
            wait_for(lambda: not any("memfd" in name for name in maps()), "shared memory to be given back", 20)
        except AssertionError:
            yield f"{node.folder.name} still has {[name for name in maps() if 'memfd' in name]}"


def problems_of(chaos, job, events, folder, kind, calm, files):
    """`calm`: the run of one worker, of jobs that sum gradients at every step; `files`: in which the job's workers noted what they used."""
    if job.state != pb.JOB_STATE_DONE:
        return [f"state is {pb.JobState.Name(job.state)}: {job.reason}"]
    if kind.sync:
        found = list(learning_problems(rows_of(folder), kind.steps)) + list(tensors_problems(folder))
        inner = kind.sync.get("inner_steps", 50)
        found += counted_problems(chaos, job, kind.steps, used_of(files), rows_of(folder), events, 2 * inner * BATCH)
    else:
        found = list(itertools.islice(loss_problems(rows_of(folder), rows_of(calm), kind.steps), 5))
        found += parameter_problems(folder, calm, 0 if kind.strict else 1e-5)
        found += account_problems(chaos, job, kind.steps)
    found += left_behind(chaos)
    if not 0 <= job.rounds.committed - job.rounds.recorded <= unrecorded_most(rows_of(folder), events):
        found.append(f"recorded {job.rounds.recorded} of {job.rounds.committed} rounds")
    if any("other numbers than the majority" in text for _, text in events):
        found.append("workers held different numbers")
    found += [f"a worker ended by itself: {text}" for _, text in events if "was lost: exit code" in text]
    return found
