"""The API of real daemons: memberd, and traind that forwards to it."""
import collections
import contextlib

import grpc
import pytest

from api_harness import GARBAGE, channel, connect, fails, health_pb2, health_pb2_grpc
from harness import DEADLINE_S, Cluster, wait_for
from stubs import BUILD, pb, rpc


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("api"), nodes=2) as made:
        yield made


@pytest.fixture(params=["memberd", "traind", "traind-unix"])
def daemon_address(request, cluster):
    node = cluster.nodes[1]
    return {"memberd": cluster.memberd.address, "traind": node.address,
            "traind-unix": f"unix:{node.folder}/api.sock"}[request.param]


def test_daemons_serve_every_method(cluster, daemon_address, tmp_path):
    with channel(daemon_address) as made:
        api = rpc.TrainerStub(made)
        assert {node.name for node in api.ListNodes(pb.ListNodesRequest(), timeout=DEADLINE_S).nodes} == {"node-1", "node-2"}
        spec = pb.JobSpec(name="hello")
        spec.command.argv.extend(["sh", "-c", "echo hello from $RANK; seq 100000; exec sleep 1000"])
        spec.command.directory = str(tmp_path)
        spec.mesh.workers = 2
        request = pb.SubmitJobRequest(request_id=str(tmp_path)[-60:], spec=spec)
        job = api.SubmitJob(request, timeout=DEADLINE_S).job_id
        again = api.SubmitJob(request, timeout=DEADLINE_S)
        assert again.job_id == job and again.existed
        watch = api.WatchJob(pb.WatchJobRequest(job_id=job), timeout=DEADLINE_S)
        assert next(seen for seen in watch if seen.state == pb.JOB_STATE_RUNNING).id == job
        logs = api.StreamLogs(pb.StreamLogsRequest(job_id=job, follow=True, one_rank=True, rank=1), timeout=DEADLINE_S)
        output = b""
        while b"\n100000\n" not in output:
            output += next(logs).data
        assert output == b"hello from 1\n" + b"".join(b"%d\n" % i for i in range(1, 100001))
        ended = api.CancelJob(pb.CancelJobRequest(job_id=job, reason="seen enough"), timeout=DEADLINE_S)
        assert ended.id == job
        assert collections.deque(watch, 1)[0].state == pb.JOB_STATE_CANCELLED
        list(logs)  # ends, as the job has
        assert api.ListJobs(pb.ListJobsRequest(), timeout=DEADLINE_S).jobs[0].id == job
        assert api.GetJob(pb.GetJobRequest(job_id=job), timeout=DEADLINE_S).state == pb.JOB_STATE_CANCELLED
        fails(grpc.StatusCode.NOT_FOUND, api.GetJob, pb.GetJobRequest(job_id=4711))
        fails(grpc.StatusCode.INVALID_ARGUMENT, api.SubmitJob, pb.SubmitJobRequest())
        for service in ["", "traind.v1.Trainer"]:
            health = health_pb2_grpc.HealthStub(made).Check(health_pb2.HealthCheckRequest(service=service), timeout=DEADLINE_S)
            assert health.status == health_pb2.HealthCheckResponse.SERVING


def test_daemons_drop_garbage(cluster):
    for daemon in (cluster.memberd, cluster.nodes[0]):
        for bytes_ in GARBAGE.values():
            with connect(daemon.address) as hostile, contextlib.suppress(ConnectionError):
                hostile.sendall(bytes_)
                while hostile.recv(65536):
                    pass
        daemon.wait_log("dropped")
    assert len(cluster.wait_nodes(alive=2)) == 2


def test_slow_reader_of_real_logs(cluster, tmp_path):
    """30 MiB of output to clients that do not read: no daemon on the way keeps it in memory."""
    if "-" in BUILD.name:
        pytest.skip("a sanitizer keeps freed memory")
    total = 30 << 20
    job = cluster.submit_command(["sh", "-c", f"yes 0123456 | head -c {total}"], directory=tmp_path)
    cluster.wait_job(job, "DONE")
    daemons = [cluster.memberd, *cluster.nodes]
    before = [daemon.rss_kib() for daemon in daemons]
    with channel(cluster.nodes[0].address) as made:
        api = rpc.TrainerStub(made)
        calls = [api.StreamLogs(pb.StreamLogsRequest(job_id=job), timeout=DEADLINE_S) for _ in range(4)]
        firsts = [next(call) for call in calls]
        for _ in range(100):  # time in which an unbounded daemon would run away
            api.ListNodes(pb.ListNodesRequest(), timeout=DEADLINE_S)
        grown = [daemon.rss_kib() - was for daemon, was in zip(daemons, before)]
        assert max(grown) < 16 << 10, f"{grown} KiB"
        for first, call in zip(firsts, calls):
            assert first.data + b"".join(chunk.data for chunk in call) == b"0123456\n" * (total // 8)


def test_memberd_away_and_back(tmp_path):
    with Cluster(tmp_path, nodes=1) as cluster:
        with channel(cluster.nodes[0].address) as made:
            api = rpc.TrainerStub(made)
            spec = pb.JobSpec(name="sleeps")
            spec.command.argv.extend(["sleep", "1000"])
            spec.command.directory = str(tmp_path)
            spec.mesh.workers = 1
            job = api.SubmitJob(pb.SubmitJobRequest(spec=spec), timeout=DEADLINE_S).job_id
            watch = api.WatchJob(pb.WatchJobRequest(job_id=job), timeout=DEADLINE_S)
            next(watch)
            address = cluster.memberd.address
            cluster.kill_memberd()
            text = fails(grpc.StatusCode.UNAVAILABLE, lambda timeout: list(watch))
            assert text == f"memberd at {address} is not reachable; training goes on; try again"
            assert fails(grpc.StatusCode.UNAVAILABLE, api.ListNodes, pb.ListNodesRequest()) == text
            cluster.restart_memberd()

            def answers():
                with contextlib.suppress(grpc.RpcError):
                    return api.GetJob(pb.GetJobRequest(job_id=job), timeout=DEADLINE_S)
            assert wait_for(answers, "traind to reach memberd again").spec.name == "sleeps"
