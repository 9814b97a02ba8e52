#!/usr/bin/env python3
"""Kills workers and daemons at random moments while a job trains, brings nodes back, and then asks the record whether
anything was lost: every round committed and recorded once, every sample counted once, the job done, no process left.

    make chaos KILLS=200 [SEED=7]

As many jobs run, one after the other, as the kills need. At least one active worker always stays alive: if all are lost a
job goes on from its checkpoint, which is another promise, with another test. The seed fixes the choices, not the timing.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "system"))

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


class Chaos:
    def __init__(self, cluster, options, folder):
        self.cluster, self.options, self.folder = cluster, options, folder
        self.random = random.Random(options.seed)
        self.counts = collections.Counter()
        self.killed_peers = set()
        self.pauses, self.paused_peers = 0, set()
        self.returning = []  # threads that bring something back
        self.began = time.monotonic()

    def say(self, text):
        print(f"{time.monotonic() - self.began:7.2f} s  {text}", flush=True)

    @property
    def kills(self):
        return sum(self.counts.values())

    # ---- what is there to kill

    def job_now(self, job):
        """The job as memberd tells it, or None while memberd is away."""
        try:
            return self.cluster.api().GetJob(pb.GetJobRequest(job_id=job), timeout=10)
        except FileNotFoundError:  # its address: it starts just now
            return None
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
                return None
            raise

    def active_peers(self, now):
        return [peer for peer in now.peers if peer.state == "active" and peer.id not in self.killed_peers | self.paused_peers]

    def await_victims(self, job, enough):
        """Waits for `enough` active peers; returns them, or None once the job has ended."""
        def there():
            now = self.job_now(job)
            if now is None:
                return None
            if now.state not in (pb.JOB_STATE_QUEUED, pb.JOB_STATE_STARTING, pb.JOB_STATE_RUNNING):
                return "ended"
            peers = self.active_peers(now)
            return peers if now.progress.step > 0 and len(peers) >= enough else None
        found = wait_for(there, f"{enough} active peers of job {job}", 120)
        return None if found == "ended" else found

    # ---- kills

    def kill_worker(self, peer):
        if peer.pid not in self.cluster.processes():
            return False
        self.killed_peers.add(peer.id)
        os.kill(peer.pid, signal.SIGKILL)
        self.say(f"kill {self.kills + 1}: worker of peer {peer.id} on {peer.node_name} (pid {peer.pid})")
        return True

    def kill_traind(self, peer):
        node = next((node for node in self.cluster.nodes if node.running() and node.folder.name == peer.node_name), None)
        if node is None:
            return False
        self.killed_peers.add(peer.id)
        node.kill9()
        self.say(f"kill {self.kills + 1}: traind {peer.node_name} under peer {peer.id}")
        self.bring_back(node.start, f"traind {peer.node_name}", 1.0)
        return True

    def kill_memberd(self, _):
        if not self.cluster.memberd.running() or any(thread.name == "memberd" for thread in self.alive_threads()):
            return False
        self.cluster.kill_memberd()
        self.say(f"kill {self.kills + 1}: memberd")
        self.bring_back(self.cluster.restart_memberd, "memberd", 0.5)
        return True

    def pause(self, peer):
        """Stops a traind or a worker for a while: short ones must not be evicted, long ones must."""
        node = next((node for node in self.cluster.nodes if node.running() and node.folder.name == peer.node_name), None)
        pid = node.pid if node is not None and self.random.random() < 0.5 else peer.pid
        if pid not in self.cluster.processes():
            return
        os.kill(pid, signal.SIGSTOP)
        self.paused_peers.add(peer.id)
        seconds = self.random.choice((0.2, 1.0, 3.0))
        self.say(f"        {'worker' if pid == peer.pid else 'traind'} of peer {peer.id} stands still for {seconds} s")
        self.pauses += 1

        def go_on():
            time.sleep(seconds)
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
            self.paused_peers.discard(peer.id)

        thread = threading.Thread(target=go_on, name="pause")
        thread.start()
        self.returning.append(thread)

    def bring_back(self, start, name, within_s):
        delay = self.random.uniform(0, within_s)

        def later():
            time.sleep(delay)
            start()
            self.say(f"        {name} is back")

        thread = threading.Thread(target=later, name=name)
        thread.start()
        self.returning.append(thread)

    def alive_threads(self):
        return [thread for thread in self.returning if thread.is_alive()]

    def kill_one(self, peers):
        """One kill by the dice, if the victim is still there; now and then a pause before it."""
        kind = self.random.choices(("worker", "traind", "memberd"), (5, 4, 1))[0]
        victim = self.random.choice(peers)
        time.sleep(self.random.uniform(0, 0.3))
        others = [peer for peer in peers if peer.id != victim.id]
        if self.random.random() < 0.1 and len(others) > 1:
            self.pause(self.random.choice(others))
        if getattr(self, f"kill_{kind}")(victim):
            self.counts[kind] += 1

    def run_job(self, number):
        spec = job_spec(self.folder, self.options.nodes, number)
        job = self.cluster.submit(spec)
        self.say(f"job {job}: {STEPS} steps")
        while self.kills < self.options.kills:
            # Mostly into a whole group, now and then into one that is still being repaired.
            whole = self.random.random() < 0.7
            peers = self.await_victims(job, self.options.nodes if whole else 2)
            if peers is None:
                break
            self.kill_one(peers)
        now = wait_for(lambda: self.ended(job), f"job {job} to end", 600)
        for thread in self.returning:
            thread.join()
        self.returning = []
        return now

    def ended(self, job):
        now = self.job_now(job)
        return now if now and now.state in (pb.JOB_STATE_DONE, pb.JOB_STATE_FAILED, pb.JOB_STATE_CANCELLED) else None


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
        chaos = Chaos(cluster, options, folder)
        number = 0
        while chaos.kills < options.kills:
            number += 1
            job = chaos.run_job(number)
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
    print(f"chaos: {'failed' if problems else 'ok'} kills={chaos.kills} {counts} pauses={chaos.pauses} jobs={number} "
          f"replayed_rounds={replayed} seed={options.seed}")
    return 1 if problems else 0


if __name__ == "__main__":
    os.environ.setdefault("TRAIND_BUILD", str((ROOT / parse_arguments().build).resolve()))
    import grpc
    from harness import Cluster, wait_for
    from stubs import pb
    sys.exit(main())
