"""One run on a cluster of its own on loopback: a memberd, a traind for each worker. It can be stopped at any moment and goes on from its last
checkpoint; the first moments of AdamW are then those of one worker for all, which the result says (`resumed`)."""
import json
import pathlib
import re
import shutil
import time

import plan
import store
import throttle
import variants
from harness import Cluster, trainctl_json
from stubs import BUILD, pb

POLL_S, POLL_FIRST_S = 2, 0.05  # first often, so that a short run is seen too
# Nobody is given up: these runs stand still while others use the machine.
PATIENCE = ("--heartbeat-timeout-ms", "600000", "--progress-timeout-ms", "600000")
STOPPED_FOR_EVER = ("--stopped-timeout-ms", "0")  # throttle.py stops workers
TRAFFIC = re.compile(rb"traffic: sent (\d+) bytes by tcp, (\d+) by shm")


class Disturbed(Exception):
    """Not what the settings say: a worker was lost on the way."""


def yaml_of(job):
    """Values in JSON are YAML."""
    return "\n".join(f"{section}: {json.dumps(keys)}" for section, keys in job.items()) + "\n"


def rows_of(folder):
    """{step: row} of metrics.jsonl; of a step that was done again after a stop, the newest."""
    path = pathlib.Path(folder) / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return {row["step"]: row for row in rows}


def cpu_s(pid):
    """CPU time of a process, all its threads (clock_getcpuclockid(3)); None: it is gone."""
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return None


class Job:
    """One job of a run, over all attempts; what must outlast a stop is in state.json beside the checkpoints."""

    def __init__(self, run, replica, folder, text):
        self.run, self.replica, self.folder, self.text = run, replica, folder / f"replica-{replica}", text
        self.folder.mkdir(parents=True, exist_ok=True)
        self.state_path = self.folder / "state.json"
        self.state = {"cpu_s": 0.0, "wall_s": 0.0, "resumed": [], "samples": 0, "done": None}
        if self.state_path.exists():
            self.state = json.loads(self.state_path.read_text())
        self.id, self.cpu, self.began = None, {}, 0.0

    def done(self):
        return self.state["done"] is not None

    def launch(self, cluster):
        checkpoints = self.folder / "checkpoints"
        job = plan.job_of(self.run, self.text, checkpoints, self.replica)
        if "resume" in job["checkpoint"]:
            self.state["resumed"].append(json.loads((checkpoints / "latest" / "manifest.json").read_text())["step"])
        elif self.state["wall_s"]:
            shutil.rmtree(checkpoints, ignore_errors=True)  # nothing to go on from
            self.state.update(cpu_s=0.0, wall_s=0.0, resumed=[])
        path = self.folder / "job.yaml"
        path.write_text(yaml_of(job))
        self.began = time.monotonic()
        self.id = trainctl_json("--address", cluster.memberd.address, "launch", path, "--detach")["id"]

    def look(self, job):
        """At the CPU time of those that live."""
        for peer in job.peers:
            used = cpu_s(peer.pid) if peer.pid else None
            if used is not None:
                self.cpu[peer.pid] = used

    def poll(self, cluster):
        """Whether it has ended well; not well is an error."""
        job = cluster.job(self.id)
        self.look(job)
        name = pb.JobState.Name(job.state).removeprefix("JOB_STATE_")
        if name in ("FAILED", "CANCELLED"):
            raise Disturbed(f"the job is {name}: {job.reason}")
        if name == "DONE":
            self.finish(cluster, job)
        return name == "DONE"

    def pause(self):
        self.state["cpu_s"] += sum(self.cpu.values())
        self.state["wall_s"] += time.monotonic() - self.began
        self.state_path.write_text(json.dumps(self.state))

    def finish(self, cluster, job):
        sent = [list(map(int, found)) for found in TRAFFIC.findall(cluster.logs(self.id))]
        rows = rows_of(self.folder / "checkpoints")
        if any(row["contributors"] != self.run.arm.nodes for row in rows.values()):
            raise Disturbed("a worker was missing in some round")
        first = self.state["resumed"][-1] if self.state["resumed"] else 0
        self.state["done"] = {
            "val_loss": job.progress.val_loss, "rounds": job.rounds.committed, "samples": job.rounds.samples,
            "sent": {"from_step": first, "tcp_bytes": sum(s[0] for s in sent), "shm_bytes": sum(s[1] for s in sent), "workers": len(sent)},
            "curve": store.thin([(step, rows[step]["loss"]) for step in sorted(rows)]),
            "validation": [[step, round(row["val_loss"], 5)] for step, row in sorted(rows.items()) if row["val_loss"] is not None]}
        self.pause()


def result_of(run, jobs, began):
    """What is kept of a run: means over its replicas, sums of what they cost."""
    done = [job.state["done"] for job in jobs]
    steps, batch = run.settings["train"]["steps"], run.settings["train"]["batch_tokens"]
    context = run.settings["model"]["context"]
    resumed = sorted({step for job in jobs for step in job.state["resumed"]})
    # Whatever part of it each takes; by speed it is steps that workers take more or less of, and what was before a stop is not known.
    equal = not run.settings.get("slowness") or run.settings["sync"].get("share_by_speed")
    return {
        "commit": store.commit_of(BUILD.parent), "machine": store.machine(), "began": began, "parameters": plan.parameters_of(run.settings["model"]),
        "tokens": steps * batch if equal else sum(one["samples"] for one in done) * context, "resumed": resumed,
        "val_loss": sum(one["val_loss"] for one in done) / len(done), "val_losses": [one["val_loss"] for one in done],
        "rounds": [one["rounds"] for one in done], "sent": [one["sent"] for one in done],
        "wall_s": round(max(job.state["wall_s"] for job in jobs), 1), "cpu_s": round(sum(job.state["cpu_s"] for job in jobs), 3),
        "curve": done[0]["curve"], "validation": done[0]["validation"]}


def execute(run, folder, text, stop):
    """The result; None: `stop` (a threading.Event) came first."""
    folder = pathlib.Path(folder) / run.key
    jobs = [Job(run, replica, folder, text) for replica in range(run.arm.replicas)]
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    waiting = [job for job in jobs if not job.done()]
    arguments = ["--trainworker", variants.trainworker(run.arm.program)] if run.arm.program else []
    shutil.rmtree(folder / "cluster", ignore_errors=True)
    if waiting:
        with Cluster(folder / "cluster", nodes=run.workers, memberd=PATIENCE, traind=[*STOPPED_FOR_EVER, *arguments]) as cluster:
            for job in waiting:
                job.launch(cluster)
            with throttle.Throttle(run, lambda: cluster.job(jobs[0].id).peers):
                pause_s = POLL_FIRST_S
                while waiting and not stop.wait(pause_s):
                    waiting = [job for job in waiting if not job.poll(cluster)]
                    pause_s = min(POLL_S, 1.5 * pause_s)
            for job in waiting:
                job.look(cluster.job(job.id))
                job.pause()
    if waiting:
        return None
    result = result_of(run, jobs, began)
    shutil.rmtree(folder)
    return result
