#!/usr/bin/env python3
"""Kills workers and daemons at random moments, some nodes for good, lets them stand still and cuts clusters into halves, while models are trained that are split over meshes; then asks whether anything was lost: each sample counted
once, each step's loss and the last parameters those of one worker that nobody disturbed (of strict jobs to the bit; of replicas that train apart, whose merges go by who was there: each sample used once, replicas alike, and it has learned), no process and no memory left behind. And how long it took from each fault to the next step; logs of jobs in which that was long are kept.

    make chaos-sharded KILLS=200 [SEED=7]

As many jobs run, one after the other, as the kills need: kinds of jobs in the dice's order, each once before any comes again (200 kills are enough for all), with models in turn. Where the only holder of a shard is lost training goes back to the newest
checkpoint. Every second job (JOBS) is on machines of its own kind: they have one slot each, so who is lost for good is missed, and are network namespaces, which can be split (root is needed; elsewhere nobody is split). The seed fixes the choices, not the timing.
"""
import argparse
import collections
import itertools
import os
import pathlib
import random
import shutil
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SLOW_MS = 5000  # to the next step: that is said of each, and the job's logs are kept
DRIFT_STEPS = "3"  # so that even a job of some seconds is planned anew
NODES, SLOTS = 4, 3  # where slots are to spare; else one slot each


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--build", default="build")
    parser.add_argument("--only", default="", help="jobs whose name has this in it")
    parser.add_argument("--keep", action="store_true", help="keep the folder with all logs")
    parser.add_argument("--slow", type=pathlib.Path, default=None, help="where logs of jobs are kept in which a step came late (build/chaos-slow)")
    return parser.parse_args()


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


def submit(chaos, folder, kind, model):
    spec = job_spec(pb, folder, kind, model)
    nodes = chaos.cluster.wait_nodes(alive=NODES)
    if kind.auto:
        plan(pb, spec, kind, [node.id for node in nodes], chaos.cluster.slots, chaos.random)
    else:
        spread(spec, kind, nodes)
    return chaos.cluster.submit(spec)


def strike(chaos, job, kind, folder, events):
    """A kill, and what may come with it. False: the job has ended."""
    # Mostly into a whole group, now and then into one that is still being repaired, or will be whole with a new node alone.
    whole = chaos.random.random() < 0.7
    if whole and not await_steps(chaos, job, folder, events, chaos.random.randint(1, 8)):
        return False
    if chaos.missing_nodes() > 0 and chaos.random.random() < 0.4:
        chaos.new_node()
    gone = chaos.missing_nodes()
    peers = chaos.await_victims(job, kind.workers if whole and gone == 0 else 1 if gone else 2)
    if peers is None:
        return False
    events.note(chaos.job_now(job))
    chaos.kill_one(peers, kind.for_good)
    return True


def run_job(chaos, folder, kind, model, most):
    """`most`: kills."""
    chaos.strikes = []
    job, events, first = submit(chaos, folder, kind, model), Events(), chaos.kills
    chaos.say(f"job {job}: {kind.name}, {model[0]}{', tied' if model[1] == 'true' else ''}")
    # Before, a shard that is lost ends the job, rightly.
    wait_for(lambda: (folder / "latest").exists(), f"the first checkpoint of job {job}", 300)
    await_steps(chaos, job, folder, events, 3)
    while chaos.kills < first + most and strike(chaos, job, kind, folder, events):
        pass
    now = chaos.await_end(job)
    events.note(now)
    return now, events.all()


# ---- all jobs

class Run:
    def __init__(self, chaos, options, folder, clusters):
        self.chaos, self.options, self.folder, self.clusters = chaos, options, folder, clusters
        self.calm, self.problems, self.recoveries, self.moves = {}, [], [], []
        self.sums, self.untimed, self.struck, self.slow = collections.Counter(), collections.Counter(), set(), []
        self.number, self.kinds = 0, 0

    def calm_of(self, model, strict):
        """What one worker learns, undisturbed."""
        if (model, strict) not in self.calm:
            folder = self.calm[model, strict] = self.folder / f"calm-{len(self.calm)}"
            job = submit(self.chaos, folder, Kind(1, 1, 1, strict=strict), model)
            self.chaos.cluster.wait_job(job, "DONE", deadline_s=600)
        return self.calm[model, strict]

    def one(self, place, kind, model, most):
        self.number += 1
        cluster, samples, before = self.clusters[place], self.folder / place / "samples", self.chaos.kills
        self.chaos.use(cluster)
        calm, folder, noted = None if kind.sync else self.calm_of(model, kind.strict), self.folder / f"job-{self.number}", set(samples.iterdir())
        job, events = run_job(self.chaos, folder, kind, model, most)
        found, rows = problems_of(self.chaos, job, events, folder, kind, calm, set(samples.iterdir()) - noted), rows_of(folder)
        self.problems += [f"job {job.id} ({place}): {text}" for text in found]
        if self.chaos.kills > before:
            self.struck.add((place, kind))
        lost = self.count(job, kind, rows, events)
        recovered = self.time(f"job {job.id} ({place}: {kind.name})", rows, events)
        self.chaos.say(f"job {job.id}: {len(self.chaos.strikes)} strikes, {len(rows)} rows, {lost} lacking, a row each {recovery.usual_ms(rows):.0f} ms, "
                       f"{times_back(rows, events)} times back to a checkpoint, replayed={job.rounds.replayed_rounds}" + (": WRONG" if found else ""))
        write_story(folder, self.chaos.strikes, events)
        self.tell_slow(f"{place}-job-{job.id}", job, folder, recovered)
        if found:
            print("\n".join(text for _, text in events))
        self.chaos.restart_missing()

    def count(self, job, kind, rows, events):
        """What the job adds to the sums of all; returns how many rows it lacks."""
        lost = rows_lost(kind, rows, events)
        changed, stayed = plans_of(events)
        self.sums["merges_untold" if kind.sync else "rows_lost"] += lost
        self.sums.update(unrecorded=job.rounds.committed - job.rounds.recorded, replanned=changed + stayed, changed=changed)
        return lost

    def time(self, name, rows, events):
        found, untimed = recovery.recoveries(self.chaos.strikes, rows, events, name)
        self.recoveries += found
        self.untimed += untimed
        self.moves += recovery.moves(rows, events)
        return found

    def tell_slow(self, name, job, folder, recovered):
        slow = [one for one in recovered if one.total > SLOW_MS]
        for one in slow:
            self.chaos.say(f"job {job.id}: {one.total:.0f} ms to the next step from the {one.kind} at unix_ms {one.unix_ms:.0f}")
        if slow:
            where = self.options.slow / f"seed-{self.options.seed}-{name}"
            keep_logs(where, self.chaos.cluster, job.id, folder)
            self.slow.append(where)

    def all(self):
        models = itertools.cycle(MODELS)
        while self.chaos.kills < self.options.kills and not self.problems:
            kinds = in_turn(self.chaos.random, self.options.only)
            self.kinds = len(kinds)
            for number, (place, kind) in enumerate(kinds):
                left = self.options.kills - self.chaos.kills
                if left <= 0 or self.problems:
                    break
                self.one(place, kind, next(models), kills_of_next(left, len(kinds) - number))

    def report(self):
        print("\n".join(recovery.table(self.recoveries)))
        if self.moves:
            megabytes = sorted({size for size, _ in self.moves})
            print(f"rounds in which a shard came ({megabytes[0]} to {megabytes[-1]} MB), longer than usual by, ms: n={len(self.moves)} "
                  f"{recovery.spread(ms for _, ms in self.moves)}")
        lines = [f"{len(self.struck)} of {self.kinds} kinds of jobs struck",
                 f"planned jobs were planned anew {self.sums['replanned']} times, {self.sums['changed']} of them to another mesh",
                 *recovery.summary(self.recoveries, self.untimed)]
        lines += [f"logs of a job in which a step came more than {SLOW_MS / 1e3:.0f} s late are in {where}" for where in self.slow]
        for text in lines + self.problems:
            print(f"chaos: {text}")


def run_in(folder, options, lab):
    for place in ("tight", "wide"):
        (folder / place / "samples").mkdir(parents=True)
    noted = [{"TRAIND_SAMPLES_LOG": str(folder / place / "samples"), "TRAIND_DRIFT_STEPS": DRIFT_STEPS} for place in ("tight", "wide")]
    few = {"nodes": NODES, "slots": 1, "environment": noted[0]}
    with (Machines(folder / "tight", lab, **few) if lab else Cluster(folder / "tight", **few)) as tight, \
            Cluster(folder / "wide", nodes=NODES, slots=SLOTS, environment=noted[1]) as wide:
        run = Run(Chaos(wide, options.seed), options, folder, {"tight": tight, "wide": wide})
        run.all()
    return run


def main(options):
    options.seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    options.slow = options.slow or pathlib.Path(os.environ["TRAIND_BUILD"]) / "chaos-slow"
    print(f"chaos: seed {options.seed}, {options.kills} kills over sharded jobs", flush=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="traind-chaos-"))
    lab = enter_laboratory(folder)
    try:
        run = run_in(folder, options, lab)
    finally:
        if lab:
            lab.close()
    run.report()
    if run.problems or options.keep:
        print(f"chaos: logs are in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    counts = " ".join(f"{kind}s={run.chaos.counts[kind]}" for kind in ("worker", "traind", "memberd", "node"))
    print(f"chaos: {'failed' if run.problems else 'ok'} kills={run.chaos.kills} {counts} newcomers={run.chaos.newcomers} pauses={run.chaos.pauses} "
          f"splits={run.chaos.splits if lab else 'none: no namespaces here'} jobs={run.number} rows_lost={run.sums['rows_lost']} merges_untold={run.sums['merges_untold']} "
          f"unrecorded={run.sums['unrecorded']} seed={options.seed}")
    return 1 if run.problems else 0


if __name__ == "__main__":
    OPTIONS = parse_arguments()
    os.environ.setdefault("TRAIND_BUILD", str((ROOT / OPTIONS.build).resolve()))
    import chaos_recovery as recovery
    from chaos_kills import Chaos, Cluster, pb, wait_for
    from chaos_checks import plans_of, problems_of, rows_of
    from chaos_jobs import MODELS, Kind, in_turn, job_spec, kills_of_next, plan, spread
    from chaos_logs import keep_logs, write_story
    from chaos_machines import Machines, enter_laboratory
    from chaos_rows import rows_lost, times_back
    sys.exit(main(OPTIONS))
