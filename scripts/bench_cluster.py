"""What the benchmarks on real daemons share: the quickstart's model as a job, its steps by its own metrics, CPU of a process.
TRAIND_BUILD is to be set before it is imported."""
import json
import pathlib
import signal
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "system"))

from harness import BIN, Cluster, wait_for  # noqa: E402,F401
from stubs import pb  # noqa: E402

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `with Cluster` ends what it started

TEXT = "/usr/share/doc/jargon-text/jargon.txt.gz"
MODEL = "4 layers, 128 wide, context 128"
GRADIENT_MB = 3.2
POLL_S = 0.5  # of a file: asking for progress more often would take the CPU that is measured


def job_spec(folder, nodes, threads, steps, batch_tokens):
    spec = pb.JobSpec(name=f"bench-{nodes}x{threads}")
    spec.train.model.MergeFrom(pb.Model(preset="gpt2", layers=4, width=128, heads=4, context=128, vocab="bytes"))
    spec.train.data.MergeFrom(pb.Data(text=[TEXT]))
    spec.train.optimizer.MergeFrom(pb.Optimizer(steps=steps, batch_tokens=batch_tokens, micro_sequences=4, lr=1e-3, clip=1.0,
                                                seed=1))
    spec.train.checkpoint.MergeFrom(pb.Checkpoint(dir=str(folder), keep=1))
    spec.mesh.MergeFrom(pb.Mesh(nodes=nodes, threads=threads))
    return spec


def metrics(folder):
    """The rows of the steps that are committed, without one that is being written."""
    path = pathlib.Path(folder) / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def rows(folder):
    """[(step, seconds)] of the steps that are committed."""
    return [(row["step"], row["unix_ms"] / 1000) for row in metrics(folder)]


def wait_step(cluster, job, folder, step):
    """The newest step, once it is this one or a later one."""
    while True:
        newest = max((row[0] for row in rows(folder)), default=0)
        if newest >= step:
            return newest
        row = cluster.job(job)
        if pb.JobState.Name(row.state) in ("JOB_STATE_FAILED", "JOB_STATE_CANCELLED"):
            raise SystemExit(f"bench: the job failed: {row.reason}")
        time.sleep(POLL_S)


def cpu_s(pid):
    """CPU time of a process, all of its threads, to the nanosecond: clock_getcpuclockid(3)."""
    return time.clock_gettime(~pid << 3 | 2)
