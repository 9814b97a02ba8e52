"""The API with Python's own gRPC (grpcio) and stubs generated from proto/, against a server with jobs in memory (api_server.c) over TCP,
IPv6 and UNIX sockets, and through forwarding as traind does it."""
import collections
import concurrent.futures
import contextlib
import os
import shutil
import socket
import tempfile

import grpc
import pytest

from api_harness import MIB, channel, fails, health_pb2, health_pb2_grpc, serving, spec_of, streams, submit
from harness import DEADLINE_S, wait_for
from stubs import BUILD, pb, rpc


def has_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module", params=["tcp", "ipv6", "unix", "forwarded"])
def target(request):
    """(Server with the jobs, address to call)"""
    if request.param == "ipv6" and not has_ipv6():
        pytest.skip("no IPv6 on loopback here")
    folder = tempfile.mkdtemp()
    listen = {"unix": f"unix:{folder}/socket", "ipv6": "[::1]:0"}.get(request.param, "127.0.0.1:0")
    try:
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(serving(listen))
            address = server.address
            if request.param == "forwarded":
                address = stack.enter_context(serving(f"unix:{folder}/forward", forward_to=address)).address
            yield server, address
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def api(target):
    with channel(target[1]) as made:
        yield rpc.TrainerStub(made)


# ---- every method

def test_submit_and_get(api):
    made = submit(api, name="first", padding=10)
    assert made.job_id > 0 and not made.existed
    job = api.GetJob(pb.GetJobRequest(job_id=made.job_id), timeout=DEADLINE_S)
    assert job.id == made.job_id and job.spec.name == "first" and job.state == pb.JOB_STATE_RUNNING


def test_request_id_is_idempotent(api):
    first = submit(api, request_id="same " + str(os.urandom(4)))
    again_id = "again " + str(os.urandom(4))
    again = [submit(api, request_id=again_id) for _ in range(2)]
    assert not first.existed and not again[0].existed and again[1].existed
    assert again[0].job_id == again[1].job_id != first.job_id


def test_list_jobs_newest_first(api):
    newest = submit(api).job_id
    ids = [job.id for job in api.ListJobs(pb.ListJobsRequest(), timeout=DEADLINE_S).jobs]
    assert ids[0] == newest and ids == sorted(ids, reverse=True)


def test_cancel(api):
    made = submit(api).job_id
    job = api.CancelJob(pb.CancelJobRequest(job_id=made, reason="enough"), timeout=DEADLINE_S)
    assert job.id == made and job.state == pb.JOB_STATE_CANCELLED


def test_watch_until_the_end(api):
    made = submit(api, name="ticks", steps=60).job_id
    seen = list(api.WatchJob(pb.WatchJobRequest(job_id=made), timeout=DEADLINE_S))
    steps = [job.progress.step for job in seen]
    assert seen[-1].state == pb.JOB_STATE_DONE and steps[-1] == 60
    assert steps == sorted(steps)
    assert len(seen) < 60  # 200 changes a second were put together to about ten


def test_watch_an_ended_job(api):
    made = submit(api).job_id
    api.CancelJob(pb.CancelJobRequest(job_id=made), timeout=DEADLINE_S)
    seen = list(api.WatchJob(pb.WatchJobRequest(job_id=made), timeout=DEADLINE_S))
    assert [job.state for job in seen] == [pb.JOB_STATE_CANCELLED]


def expected_log(total):
    return bytes((left % 251) for left in range(total, 0, -1))


@pytest.mark.parametrize("total", [0, 1, 100_000, 9 * MIB])
def test_logs(api, total):
    made = submit(api).job_id
    chunks = list(api.StreamLogs(pb.StreamLogsRequest(job_id=made, tail_bytes=total), timeout=DEADLINE_S))
    data = b"".join(chunk.data for chunk in chunks)
    assert len(data) == total and data == expected_log(total)
    assert {chunk.node_name for chunk in chunks} <= {"node-1"}


# ---- statuses

def test_status_codes_and_messages(api):
    assert "there is no job 4711" in fails(grpc.StatusCode.NOT_FOUND, api.GetJob, pb.GetJobRequest(job_id=4711))
    assert "no such job" in fails(grpc.StatusCode.NOT_FOUND, api.CancelJob, pb.CancelJobRequest(job_id=4711))
    assert "name: found ''" in fails(grpc.StatusCode.INVALID_ARGUMENT, submit, api, name="", padding=1)
    assert "4711" in fails(grpc.StatusCode.NOT_FOUND, lambda **k: list(api.WatchJob(pb.WatchJobRequest(job_id=4711), **k)))
    assert "4711" in fails(grpc.StatusCode.NOT_FOUND, lambda **k: list(api.StreamLogs(pb.StreamLogsRequest(job_id=4711), **k)))


def raw(api_channel, path, request, **options):
    call = api_channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
    return call(request, timeout=DEADLINE_S, **options)


def test_unknown_method_and_malformed_requests(target):
    with channel(target[1]) as made:
        fails(grpc.StatusCode.UNIMPLEMENTED, lambda timeout: raw(made, "/traind.v1.Trainer/Nothing", b""))
        fails(grpc.StatusCode.UNIMPLEMENTED, lambda timeout: raw(made, "/", b""))
        text = fails(grpc.StatusCode.INVALID_ARGUMENT, lambda timeout: raw(made, "/traind.v1.Trainer/GetJob", b"\xff\xff"))
        assert "traind.v1.GetJobRequest" in text
        not_text = pb.SubmitJobRequest(request_id="abcd").SerializeToString().replace(b"abcd", b"\xff\xfe\xfdd")
        text = fails(grpc.StatusCode.INVALID_ARGUMENT, lambda timeout: raw(made, "/traind.v1.Trainer/SubmitJob", not_text))
        assert "request_id" in text and "UTF-8" in text


def test_compressed_requests_are_refused(target):
    request = pb.SubmitJobRequest(spec=spec_of("job", padding=10000)).SerializeToString()
    with channel(target[1]) as made:
        fails(grpc.StatusCode.UNIMPLEMENTED,
              lambda timeout: raw(made, "/traind.v1.Trainer/SubmitJob", request, compression=grpc.Compression.Gzip))


def test_text_that_is_not_utf8_is_repaired(api):
    made = submit(api, name="bad-text").job_id
    assert api.GetJob(pb.GetJobRequest(job_id=made), timeout=DEADLINE_S).reason == "? said \u00e9?"


def test_several_request_messages_are_refused(target):
    with channel(target[1]) as made:
        call = made.stream_unary("/traind.v1.Trainer/GetJob", request_serializer=bytes, response_deserializer=bytes)
        fails(grpc.StatusCode.UNIMPLEMENTED, call, iter([b"", b""]))
        fails(grpc.StatusCode.UNIMPLEMENTED, call, iter([]))


# ---- deadlines and cancellation

def test_deadline(api):
    fails(grpc.StatusCode.DEADLINE_EXCEEDED, api.SubmitJob, pb.SubmitJobRequest(spec=spec_of("hang")), timeout=0.2)


def test_cancelled_stream_is_closed_at_the_backend(api):
    made = submit(api).job_id
    open_before, closed_before = streams(api)
    call = api.StreamLogs(pb.StreamLogsRequest(job_id=made, follow=True, tail_bytes=10), timeout=DEADLINE_S)
    assert len(next(call).data) == 10
    assert streams(api) == (open_before + 1, closed_before)
    call.cancel()
    wait_for(lambda: streams(api) == (open_before, closed_before + 1), "the backend to hear of the cancellation")


def test_lost_client_is_noticed(target, api):
    made = submit(api).job_id
    open_before, closed_before = streams(api)
    with channel(target[1]) as other:
        call = rpc.TrainerStub(other).StreamLogs(pb.StreamLogsRequest(job_id=made, follow=True, tail_bytes=10))
        next(call)
    wait_for(lambda: streams(api) == (open_before, closed_before + 1), "the backend to hear of the lost client")


# ---- load

def test_twenty_calls_at_once(api):
    def one(number):
        made = submit(api, name="ticks", steps=20).job_id
        last = collections.deque(api.WatchJob(pb.WatchJobRequest(job_id=made), timeout=DEADLINE_S), 1)[0]
        data = b"".join(c.data for c in api.StreamLogs(pb.StreamLogsRequest(job_id=made, tail_bytes=MIB), timeout=DEADLINE_S))
        return last.id == made and last.state == pb.JOB_STATE_DONE and data == expected_log(MIB)
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        assert all(pool.map(one, range(20)))


def test_messages_of_three_mib(api):
    made = submit(api, name="large", padding=3 * MIB).job_id
    job = api.GetJob(pb.GetJobRequest(job_id=made), timeout=DEADLINE_S)
    assert len(job.spec.command.argv[0]) == 3 * MIB


def test_a_list_too_long_for_a_message_is_cut(api):
    ids = [submit(api, name="large", padding=3 * MIB).job_id for _ in range(2)]
    assert [job.id for job in api.ListJobs(pb.ListJobsRequest(), timeout=DEADLINE_S).jobs] == [ids[1]]


def test_too_large_a_message(api):
    text = fails(grpc.StatusCode.RESOURCE_EXHAUSTED, submit, api, padding=5 * MIB)
    assert "4 MiB" in text


def test_slow_reader_costs_little(target, api):
    """A client that does not read: the server stops, and holds no more than its queue and windows."""
    if "-" in BUILD.name:
        pytest.skip("a sanitizer keeps freed memory")
    server, _ = target
    made = submit(api).job_id
    before = server.rss_kib()
    calls = [api.StreamLogs(pb.StreamLogsRequest(job_id=made, tail_bytes=64 * MIB), timeout=DEADLINE_S) for _ in range(4)]
    firsts = [next(call) for call in calls]
    for _ in range(200):  # time in which an unbounded server would run away
        streams(api)
    grown = server.rss_kib() - before
    assert grown < 4 * (2 << 10) + (6 << 10), f"{grown} KiB"
    totals = [len(first.data) + sum(len(chunk.data) for chunk in call) for first, call in zip(firsts, calls)]
    assert totals == [64 * MIB] * 4


# ---- health

def test_health(target):
    with channel(target[1]) as made:
        health = health_pb2_grpc.HealthStub(made)
        for service in ["", "traind.v1.Trainer"]:
            answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=DEADLINE_S)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        fails(grpc.StatusCode.NOT_FOUND, health.Check, health_pb2.HealthCheckRequest(service="other"))
        for service, status in [("", "SERVING"), ("other", "SERVICE_UNKNOWN")]:
            watch = health.Watch(health_pb2.HealthCheckRequest(service=service), timeout=DEADLINE_S)
            assert health_pb2.HealthCheckResponse.ServingStatus.Name(next(watch).status) == status
            watch.cancel()
