"""Connections of the API that break, close, are hostile, or are too many."""
import contextlib
import socket

import grpc
import pytest

from api_harness import GARBAGE, Server, channel, connect, fails, health_pb2, health_pb2_grpc, serving, streams, submit
from harness import DEADLINE_S, wait_for
from stubs import ROOT, pb, rpc


# ---- forwarding without memberd

def test_forwarding_when_memberd_is_away(tmp_path):
    with serving(f"unix:{tmp_path}/memberd") as memberd, serving(forward_to=memberd.address) as traind:
        with channel(traind.address) as made:
            api = rpc.TrainerStub(made)
            job = submit(api).job_id
            watch = api.WatchJob(pb.WatchJobRequest(job_id=job), timeout=DEADLINE_S)
            next(watch)
            memberd.process.kill()
            memberd.process.wait()
            text = fails(grpc.StatusCode.UNAVAILABLE, lambda timeout: list(watch))
            assert text == f"memberd at {memberd.address} is not reachable; training goes on; try again"
            assert fails(grpc.StatusCode.UNAVAILABLE, submit, api) == text
            health = health_pb2_grpc.HealthStub(made).Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S)
            assert health.status == health_pb2.HealthCheckResponse.SERVING
            (tmp_path / "memberd").unlink(missing_ok=True)
            with serving(memberd.address):
                assert submit(api).job_id == 1
        memberd.stop = lambda: None  # it was killed


def test_the_server_says_that_it_closes():
    with contextlib.ExitStack() as stack:
        server = Server()
        made = stack.enter_context(channel(server.address))
        api = rpc.TrainerStub(made)
        watch = api.WatchJob(pb.WatchJobRequest(job_id=submit(api).job_id), timeout=DEADLINE_S)
        next(watch)
        server.stop()
        assert "shutting down" in fails(grpc.StatusCode.UNAVAILABLE, lambda timeout: list(watch))


# ---- hostile bytes

@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_dropped_with_a_reason(name):
    with serving() as server, channel(server.address) as made:
        api = rpc.TrainerStub(made)
        submit(api)
        with connect(server.address) as hostile:
            with contextlib.suppress(ConnectionError):
                hostile.sendall(GARBAGE[name])
                while hostile.recv(65536):
                    pass
        wait_for(lambda: "dropped" in server.errors(), "the reason in the log")
        submit(api)  # others are unharmed


@pytest.mark.parametrize("bytes_sent", [0, 3, 4, 10, 23, 24, 32])
def test_half_a_greeting_is_dropped(bytes_sent):
    """Of any length: preface and SETTINGS are whole in 5 s, or the place goes to others."""
    greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
    with serving() as server, connect(server.address) as silent:
        silent.sendall(greeting[:bytes_sent])
        while silent.recv(65536):
            pass
        wait_for(lambda: "in time" in server.errors(), "the reason in the log")


def test_a_client_that_closed_its_sending_side_is_answered():
    recorded = (ROOT / "tests" / "fuzz" / "corpus" / "http2" / "call").read_bytes()[3:]
    with serving() as server, connect(server.address) as client:
        client.sendall(GARBAGE["no-settings"][:24] + b"\0\0\0\4\0\0\0\0\0" + recorded)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        while data := client.recv(65536):
            answer += data
    kinds = []
    while answer:
        length = int.from_bytes(answer[:3], "big")
        kinds.append((answer[3], answer[4], int.from_bytes(answer[5:9], "big")))
        answer = answer[9 + length:]
    assert (1, 5, 1) in kinds  # HEADERS with END_STREAM on stream 1: NOT_FOUND


def test_more_connections_than_allowed():
    """Idle ones make room; one with a call under way stays."""
    with serving() as server, channel(server.address) as made, contextlib.ExitStack() as stack:
        api = rpc.TrainerStub(made)
        call = api.StreamLogs(pb.StreamLogsRequest(job_id=submit(api).job_id, follow=True, tail_bytes=1), timeout=DEADLINE_S)
        next(call)
        for _ in range(600):
            idle = stack.enter_context(connect(server.address))
            idle.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        wait_for(lambda: "connections are open" in server.errors(), "idle connections to be dropped")
        assert streams(api)[0] == 1
