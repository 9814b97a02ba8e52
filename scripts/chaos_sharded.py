#!/usr/bin/env python3
"""Kills workers and daemons at random moments, and lets them stand still, while models are trained that are split over meshes; then asks whether anything was lost: each sample counted
once, each step's loss and the last parameters those of one worker that nobody disturbed (of strict jobs to the bit), no process and no memory left behind. And how long it took from each kill to the next step.

    make chaos-sharded KILLS=200 [SEED=7]

As many jobs run, one after the other, as the kills need: all meshes in turn, with models in turn. Where the only holder of a shard is lost training goes back to the newest
checkpoint. The seed fixes the choices, not the timing.
"""
import argparse
import itertools
import json
import math
import os
import pathlib
import random
import re
import shutil
import sys
import tempfile

import numpy
import safetensors.numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXT = "/usr/share/doc/jargon-text/jargon.txt.gz"
CONTEXT, BATCH, STEPS, EVERY = 32, 32, 150, 10  # tokens, sequences; steps of a job, between checkpoints
LEARNING_RATE = 2e-4  # higher ones make a percent of a last bit within so many steps, in any job
KILLS_A_JOB = 12
NODES, SLOTS = 4, 3
MESHES = (  # dp, pp, tp, keys of the mesh, strict
    ((2, 1, 2), {}, False),
    ((2, 2, 1), {}, False),
    ((1, 2, 2), {}, False),
    ((3, 1, 2), {}, False),
    ((1, 1, 2), {}, False),
    ((2, 1, 2), {"zero_owners": 2, "sequence_parallel": True, "recompute": True}, False),
    ((2, 2, 1), {"chunks": 2, "recompute": True}, False),
    ((2, 3, 1), {}, False),
    ((2, 2, 2), {"zero_owners": 2, "sequence_parallel": True, "chunks": 2, "recompute": True}, False),
    ((3, 2, 2), {"zero_owners": 2, "sequence_parallel": True, "chunks": 2, "recompute": True}, False),
    ((3, 2, 1), {"zero_owners": 2}, False),
    ((2, 1, 2), {}, True),
    ((2, 2, 1), {"schedule": "gpipe"}, False),
    ((3, 1, 1), {"zero_owners": 2, "recompute": True}, False),
)
MODELS = (("gpt2", "true"), ("llama", "false"), ("llama", "true"))  # preset, tied


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--build", default="build")
    parser.add_argument("--keep", action="store_true", help="keep the folder with all logs")
    return parser.parse_args()


def name_of(mesh):
    (dp, pp, tp), keys, strict = mesh
    words = [name if value is True else f"{name} {value}" for name, value in keys.items()] + ["strict"] * strict
    return ", ".join([f"dp {dp} x pp {pp} x tp {tp}", *words])


def job_spec(folder, mesh, model):
    (dp, pp, tp), keys, strict = mesh
    workers = dp * pp * tp
    nodes = min(workers, NODES) if workers != 6 else 3
    spec = pb.JobSpec(name=folder.name)
    spec.train.model.MergeFrom(pb.Model(preset=model[0], tied=model[1], layers=4, width=64, heads=4, context=CONTEXT, vocab="bytes"))
    spec.train.data.MergeFrom(pb.Data(text=[TEXT], validation=0.05))
    spec.train.optimizer.MergeFrom(pb.Optimizer(steps=STEPS, batch_tokens=BATCH * CONTEXT, micro_sequences=4, lr=LEARNING_RATE, warmup=5,
                                                clip=1.0, seed=1, strict=strict))
    spec.train.sync.MergeFrom(pb.Sync(mode="ddp", on_loss="replay"))
    spec.train.checkpoint.MergeFrom(pb.Checkpoint(every=EVERY, keep=2, dir=str(folder)))
    spec.mesh.MergeFrom(pb.Mesh(nodes=nodes, workers_per_node=workers // nodes, min_nodes=1, threads=1, pp=pp, tp=tp, **keys))
    return spec


def rows_of(folder):
    """Of metrics.jsonl in their order: steps that were done again stand there again."""
    try:
        lines = (folder / "metrics.jsonl").read_text().split("\n")[:-1]
    except OSError:
        return []
    return [json.loads(line) for line in lines]


class Events:
    """All events of a job: memberd keeps the newest alone."""

    def __init__(self):
        self.seen = {}

    def note(self, job):
        for event in job.events if job else ():
            self.seen.setdefault((event.unix_ms, event.text), None)

    def all(self):
        return sorted(self.seen, key=lambda event: event[0])


# ---- one job

def await_steps(chaos, job, folder, events, more):
    """Until so many rows more stand in metrics.jsonl. False: the job has ended."""
    until = len(rows_of(folder)) + more

    def there():
        events.note(chaos.job_now(job))
        return "ended" if chaos.ended(job) else len(rows_of(folder)) >= until
    return wait_for(there, f"{more} more steps of job {job}", 300) != "ended"


def run_job(chaos, folder, mesh, model, kills):
    workers = math.prod(mesh[0])
    chaos.strikes = []
    job, events, first = chaos.cluster.submit(job_spec(folder, mesh, model)), Events(), chaos.kills
    chaos.say(f"job {job}: {name_of(mesh)}, {model[0]}{', tied' if model[1] == 'true' else ''}")
    # Before, a shard that is lost ends the job, rightly.
    wait_for(lambda: (folder / "latest").exists(), f"the first checkpoint of job {job}", 300)
    await_steps(chaos, job, folder, events, 3)
    while chaos.kills < min(kills, first + KILLS_A_JOB):
        # Mostly into a whole group, now and then into one that is still being repaired.
        whole = chaos.random.random() < 0.7
        if whole and not await_steps(chaos, job, folder, events, chaos.random.randint(1, 8)):
            break
        peers = chaos.await_victims(job, workers if whole else 2)
        if peers is None:
            break
        events.note(chaos.job_now(job))
        chaos.kill_one(peers)
    now = chaos.await_end(job)
    events.note(now)
    return now, events.all()


# ---- what must be

def loss_problems(rows, calm):
    """Each step that was reported, each time, beside one worker's. A worker that is killed between a commit and its row takes the row with it."""
    expected, seen = {row["step"]: row for row in calm}, {row["step"] for row in rows}
    for row in rows:
        want = expected[row["step"]]["loss"]
        if abs(row["loss"] - want) > 1e-5:
            yield f"step {row['step']}: loss {row['loss']}, one worker has {want}"
    if not seen <= set(expected) or STEPS not in seen:
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


def account_problems(chaos, job):
    samples = wait_for(lambda: chaos.cluster.api().GetSamples(pb.GetSamplesRequest(job_id=job.id)), "the account of samples")
    counted = sum(epoch.counted for epoch in samples.epochs)
    if counted != STEPS * BATCH:
        yield f"{counted} samples were counted, not {STEPS * BATCH}"
    if any(epoch.dropped or epoch.in_flight for epoch in samples.epochs):
        yield "samples were dropped, or are in flight"


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


def problems_of(chaos, job, events, folder, calm, strict):
    if job.state != pb.JOB_STATE_DONE:
        return [f"state is {pb.JobState.Name(job.state)}: {job.reason}"]
    found = list(itertools.islice(loss_problems(rows_of(folder), rows_of(calm)), 5))
    found += parameter_problems(folder, calm, 0 if strict else 1e-5)
    found += account_problems(chaos, job)
    found += left_behind(chaos)
    if job.rounds.recorded != job.rounds.committed:
        found.append(f"recorded {job.rounds.recorded} of {job.rounds.committed} rounds")
    if any("other numbers than the majority" in text for _, text in events):
        found.append("workers held different numbers")
    return found


# ---- all jobs

class Run:
    def __init__(self, chaos, options, folder):
        self.chaos, self.options, self.folder = chaos, options, folder
        self.calm, self.problems, self.recoveries, self.moves, self.missing = {}, [], [], [], 0
        self.number = 0

    def calm_of(self, model, strict):
        """What one worker learns, undisturbed."""
        if (model, strict) not in self.calm:
            folder = self.calm[model, strict] = self.folder / f"calm-{len(self.calm)}"
            job = self.chaos.cluster.submit(job_spec(folder, ((1, 1, 1), {}, strict), model))
            self.chaos.cluster.wait_job(job, "DONE", deadline_s=600)
        return self.calm[model, strict]

    def one(self, mesh, model):
        self.number += 1
        strict = mesh[2]
        calm, folder = self.calm_of(model, strict), self.folder / f"job-{self.number}"
        job, events = run_job(self.chaos, folder, mesh, model, self.options.kills)
        found, rows = problems_of(self.chaos, job, events, folder, calm, strict), rows_of(folder)
        self.problems += [f"job {job.id}: {text}" for text in found]
        self.missing += STEPS - len({row["step"] for row in rows})
        self.recoveries += recovery.recoveries(self.chaos.strikes, rows, events)
        self.moves += recovery.moves(rows, events)
        backs = sum(bool(re.search("goes back|goes on from checkpoint", text)) for _, text in events)
        self.chaos.say(f"job {job.id}: {len(self.chaos.strikes)} strikes, {len(rows)} steps, a step {recovery.usual_ms(rows):.0f} ms, "
                       f"{backs} times back to a checkpoint, replayed={job.rounds.replayed_rounds}" + (": WRONG" if found else ""))
        if found:
            print("\n".join(text for _, text in events))

    def all(self):
        for mesh, model in zip(itertools.cycle(MESHES), itertools.cycle(MODELS)):
            if self.chaos.kills >= self.options.kills or self.problems:
                return
            self.one(mesh, model)

    def report(self):
        print("\n".join(recovery.table(self.recoveries)))
        if self.moves:
            megabytes = sorted({size for size, _ in self.moves})
            print(f"rounds in which a shard came ({megabytes[0]} to {megabytes[-1]} MB), longer than usual by, ms: n={len(self.moves)} "
                  f"{recovery.spread(ms for _, ms in self.moves)}")


def main(options):
    options.seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    print(f"chaos: seed {options.seed}, {options.kills} kills over sharded jobs", flush=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="traind-chaos-"))
    with Cluster(folder, nodes=NODES, slots=SLOTS) as cluster:
        run = Run(Chaos(cluster, options.seed), options, folder)
        run.all()
    run.report()
    for problem in run.problems:
        print(f"chaos: {problem}")
    if run.problems or options.keep:
        print(f"chaos: logs are in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    counts = " ".join(f"{kind}s={run.chaos.counts[kind]}" for kind in ("worker", "traind", "memberd"))
    print(f"chaos: {'failed' if run.problems else 'ok'} kills={run.chaos.kills} {counts} pauses={run.chaos.pauses} jobs={run.number} "
          f"rows_lost={run.missing} seed={options.seed}")
    return 1 if run.problems else 0


if __name__ == "__main__":
    OPTIONS = parse_arguments()
    os.environ.setdefault("TRAIND_BUILD", str((ROOT / OPTIONS.build).resolve()))
    import chaos_recovery as recovery
    from chaos_kills import Chaos, Cluster, pb, wait_for
    sys.exit(main(OPTIONS))
