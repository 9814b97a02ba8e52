"""A Trainer service in Python that says what a test tells it to: for trainctl's own behaviour (screen, keys, exit codes) in
situations that real daemons get into rarely.

    with FakeTrainer() as fake:
        job = fake.add(training_job(step=3))
        fake.update(job, lambda job: setattr(job.progress, "step", 4))
"""
import concurrent.futures
import copy
import math
import threading

import grpc

from stubs import pb, rpc

OVER = (pb.JOB_STATE_DONE, pb.JOB_STATE_FAILED, pb.JOB_STATE_CANCELLED, 99)  # of which trainctl knows three


def training_job(step=0, steps=10, state=pb.JOB_STATE_RUNNING, **progress):
    job = pb.Job(state=state, view=2)
    job.spec.name = "fake"
    job.spec.train.optimizer.batch_tokens = 1024
    job.spec.train.optimizer.steps = steps
    figures = {"loss": math.nan, "val_loss": math.nan, "first_loss": math.nan, **progress}
    job.progress.MergeFrom(pb.Progress(step=step, steps=steps, **figures))
    for rank in range(3):
        job.peers.add(id=rank + 1, node_id=rank + 1, node_name=f"node-{rank + 1}", rank=rank, pid=100 + rank, state="active")
    return job


class FakeTrainer(rpc.TrainerServicer):
    def __init__(self):
        self.jobs, self.logs, self.nodes = {}, {}, []
        self.samples = pb.Samples()
        self.submitted, self.cancelled, self.watchers = [], [], 0
        self.on_submit = lambda spec: training_job()
        self.links = pb.Links()  # or why they cannot be measured
        self.changed = threading.Condition()
        self.asked, self.answer = threading.Event(), threading.Event()  # a call that is held has come, and may be answered
        self.held = None
        self.logs_break = False  # streams of output, behind their job's end
        self.server, self.port = None, 0

    # ---- for the test

    def __enter__(self):
        return self.start()

    def __exit__(self, *cause):
        self.stop()

    def start(self):
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
        rpc.add_TrainerServicer_to_server(self, self.server)
        self.port = self.server.add_insecure_port(f"127.0.0.1:{self.port}")
        self.server.start()
        return self

    def stop(self):
        server, self.server = self.server, None
        self.answer.set()
        with self.changed:
            self.changed.notify_all()
        if server:
            server.stop(None).wait()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def add(self, job):
        with self.changed:
            job.id = len(self.jobs) + 1
            self.jobs[job.id] = job
            self.logs[job.id] = []
            self.changed.notify_all()
        return job.id

    def update(self, job, change):
        with self.changed:
            change(self.jobs[job])
            self.changed.notify_all()

    def end(self, job, state=pb.JOB_STATE_DONE, reason="", exit_code=0):
        def change(row):
            row.state, row.reason, row.exit_code = state, reason, exit_code
        self.update(job, change)

    def log(self, job, rank, data, position=None):
        with self.changed:
            end = 0 if position is None else position + len(data)
            self.logs[job].append(pb.LogChunk(rank=rank, peer_id=rank + 1, node_name="node-1", data=data, end=end))
            self.changed.notify_all()

    def hold(self, method):
        """Calls of `method` are answered once `answer` is set."""
        self.held = method

    def hold_here(self, method):
        if self.held == method:
            self.asked.set()
            self.answer.wait()

    # ---- the service

    def job_or_abort(self, id, context):
        if id not in self.jobs:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no job {id}")
        return self.jobs[id]

    def SubmitJob(self, request, context):
        self.hold_here("SubmitJob")
        self.submitted.append(request)
        job = self.on_submit(request.spec)
        if isinstance(job, str):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, job)
        if not job.HasField("spec"):
            job.spec.CopyFrom(request.spec)
        return pb.SubmitJobResponse(job_id=self.add(job))

    def GetJob(self, request, context):
        return self.job_or_abort(request.job_id, context)

    def ListJobs(self, request, context):
        return pb.ListJobsResponse(jobs=[self.jobs[id] for id in sorted(self.jobs, reverse=True)])

    def ListNodes(self, request, context):
        return pb.ListNodesResponse(nodes=self.nodes)

    def GetSamples(self, request, context):
        return self.samples

    def MeasureLinks(self, request, context):
        self.hold_here("MeasureLinks")
        if isinstance(self.links, str):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, self.links)
        return self.links

    def CancelJob(self, request, context):
        job = self.job_or_abort(request.job_id, context)
        self.cancelled.append((request.job_id, request.reason))
        self.end(request.job_id, pb.JOB_STATE_CANCELLED, request.reason)
        return job

    def WatchJob(self, request, context):
        self.job_or_abort(request.job_id, context)
        server, shown = self.server, None
        with self.changed:
            self.watchers += 1
            self.changed.notify_all()
        while self.server is server and context.is_active():
            with self.changed:
                job = copy.deepcopy(self.jobs[request.job_id])
                if job == shown:
                    self.changed.wait(0.05)
                    continue
            yield job
            shown = job
            if job.state in OVER:
                return

    def StreamLogs(self, request, context):
        self.job_or_abort(request.job_id, context)
        server, at = self.server, 0
        while self.server is server and context.is_active():
            with self.changed:
                chunks = self.logs[request.job_id][at:]
                over = self.jobs[request.job_id].state in OVER or not request.follow
                if not chunks and not over:
                    self.changed.wait(0.05)
                    continue
            at += len(chunks)
            yield from (chunk for chunk in chunks if not request.one_rank or chunk.rank == request.rank)
            if over and not chunks:
                if self.logs_break and self.jobs[request.job_id].state in OVER:
                    context.abort(grpc.StatusCode.UNAVAILABLE, "it went away")
                return
