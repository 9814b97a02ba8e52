#!/usr/bin/env python3
"""Kills workers and daemons at random moments while a job trains, brings nodes back, and then asks the record whether
anything was lost: every round committed and recorded once, every sample counted once, the job done, no process left.

    make chaos KILLS=200 [SEED=7]

As many jobs run, one after the other, as the kills need. At least one active worker always stays alive: if all are lost a
job goes on from its checkpoint, which is another promise, with another test. The seed fixes the choices, not the timing.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

CONTEXT, BATCH_TOKENS, STEPS = 64, 2048, 400
TEXT = "/usr/share/doc/jargon-text/jargon.txt.gz"


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--build", default="build")
    parser.add_argument("--keep", action="store_true", help="keep the folder with all logs")
    return parser.parse_args()


def job_spec(folder, nodes, number):
    spec = pb.JobSpec(name=f"chaos-{number}")
    spec.train.model.MergeFrom(pb.Model(preset="gpt2", layers=2, width=64, heads=2, context=CONTEXT, vocab="bytes"))
    spec.train.data.MergeFrom(pb.Data(text=[TEXT], validation=0.05))
    spec.train.optimizer.MergeFrom(pb.Optimizer(steps=STEPS, batch_tokens=BATCH_TOKENS, lr=1e-3, warmup=20, clip=1.0, seed=1))
    spec.train.sync.MergeFrom(pb.Sync(mode="ddp", on_loss="replay"))
    spec.train.checkpoint.MergeFrom(pb.Checkpoint(every=0, keep=1, dir=str(folder / f"checkpoints-{number}")))
    spec.mesh.MergeFrom(pb.Mesh(nodes=nodes, min_nodes=1, threads=1))
    return spec


def run_job(chaos, options, folder, number):
    job = chaos.cluster.submit(job_spec(folder, options.nodes, number))
    chaos.say(f"job {job}: {STEPS} steps")
    while chaos.kills < options.kills:
        # Mostly into a whole group, now and then into one that is still being repaired.
        whole = chaos.random.random() < 0.7
        peers = chaos.await_victims(job, options.nodes if whole else 2)
        if peers is None:
            break
        chaos.kill_one(peers)
    return chaos.await_end(job)


def problems_of(job):
    """What the record of an ended job says that it must not say."""
    rounds, steps = job.rounds, STEPS
    samples = steps * BATCH_TOKENS // CONTEXT
    events = [event.text for event in job.events]
    checks = [
        (job.state == pb.JOB_STATE_DONE, f"state is {pb.JobState.Name(job.state)}: {job.reason}"),
        (job.progress.step == steps, f"step {job.progress.step} of {steps}"),
        # One round more, without samples, carries the checkpoint; another one if its writer died in it.
        (rounds.committed > steps, f"committed {rounds.committed} rounds, not more than {steps}"),
        (rounds.recorded == rounds.committed, f"recorded {rounds.recorded} of {rounds.committed} rounds"),
        (rounds.samples == samples, f"counted {rounds.samples} samples, not {samples}"),
        (rounds.partial_rounds == 0, f"{rounds.partial_rounds} rounds are partial under replay"),
        (rounds.last_digest != "", "no digest was recorded"),
        (0 < job.progress.loss < job.progress.first_loss, f"loss went {job.progress.first_loss} -> {job.progress.loss}"),
        (not any("digest" in text for text in events), "an event speaks of digests"),
        (not any("again from" in text for text in events), "training restarted from a checkpoint"),
    ]
    return [text for good, text in checks if not good] + checkpoint_problems(job)


def checkpoint_problems(job):
    """The trained state itself says how many tokens went into it: summed with the gradients, in the same rounds."""
    folder = pathlib.Path(job.progress.checkpoint)
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError) as error:
        return [f"no checkpoint: {error}"]
    expected = {"step": STEPS, "samples": STEPS * BATCH_TOKENS // CONTEXT, "tokens": STEPS * BATCH_TOKENS}
    return [f"checkpoint: {key} is {manifest.get(key)}, not {value}" for key, value in expected.items() if manifest.get(key) != value]


def main():
    options = parse_arguments()
    options.seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    print(f"chaos: seed {options.seed}, {options.kills} kills, {options.nodes} nodes", flush=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="traind-chaos-"))
    problems, replayed = [], 0
    with Cluster(folder, nodes=options.nodes) as cluster:
        chaos = Chaos(cluster, options.seed)
        number = 0
        while chaos.kills < options.kills:
            number += 1
            job = run_job(chaos, options, folder, number)
            replayed += job.rounds.replayed_rounds
            found = problems_of(job)
            chaos.say(f"job {job.id}: committed={job.rounds.committed} recorded={job.rounds.recorded} samples={job.rounds.samples} "
                      f"replayed={job.rounds.replayed_rounds} loss={job.progress.first_loss:.4f}->{job.progress.loss:.4f} "
                      f"digest={job.rounds.last_digest}")
            problems += [f"job {job.id}: {text}" for text in found]
            if found:
                print("\n".join(event.text for event in job.events))
                break
    for problem in problems:
        print(f"chaos: {problem}")
    if problems or options.keep:
        print(f"chaos: logs are in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    counts = " ".join(f"{kind}s={chaos.counts[kind]}" for kind in ("worker", "traind", "memberd"))
    print(f"chaos: {'failed' if problems else 'ok'} kills={chaos.kills} {counts} pauses={chaos.pauses} cuts={chaos.cuts} jobs={number} "
          f"replayed_rounds={replayed} seed={options.seed}")
    return 1 if problems else 0


if __name__ == "__main__":
    os.environ.setdefault("TRAIND_BUILD", str((ROOT / parse_arguments().build).resolve()))
    from chaos_kills import Chaos, Cluster, pb
    sys.exit(main())
