"""Our gRPC client (api_client.c) against a server of Python's grpcio."""
import concurrent.futures
import subprocess
import threading

import grpc
import pytest

from api_harness import CLIENT, MIB, spec_of
from harness import DEADLINE_S
from stubs import pb, rpc


class Trainer(rpc.TrainerServicer):
    """Answers that the tests below look for."""

    def __init__(self):
        self.metadata, self.cancelled = {}, threading.Event()

    def ListNodes(self, request, context):
        self.metadata = dict(context.invocation_metadata())
        return pb.ListNodesResponse(nodes=[pb.Node(name="a", memory_bytes=int(context.time_remaining() or 0))])

    def GetJob(self, request, context):
        context.abort(grpc.StatusCode.NOT_FOUND, "no job 7:\n50% \u00e9")

    def SubmitJob(self, request, context):
        assert len(request.spec.command.argv[0]) == 3 * MIB
        return pb.SubmitJobResponse(job_id=7)

    def CancelJob(self, request, context):
        self.cancelled.wait(DEADLINE_S)
        return pb.Job()

    def WatchJob(self, request, context):
        context.add_callback(self.cancelled.set)
        for step in range(request.job_id):
            yield pb.Job(progress=pb.Progress(step=step))
        if request.job_id == 5:
            self.cancelled.wait(DEADLINE_S)

    def StreamLogs(self, request, context):
        for _ in range(3):
            yield pb.LogChunk(data=b"y" * 3 * MIB)


@pytest.fixture(params=["tcp", "unix"])
def python_server(request, tmp_path):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    servicer = Trainer()
    rpc.add_TrainerServicer_to_server(servicer, server)
    address = f"unix:{tmp_path}/socket" if request.param == "unix" else "127.0.0.1:0"
    port = server.add_insecure_port(address)
    server.start()
    yield servicer, address if request.param == "unix" else f"127.0.0.1:{port}"
    servicer.cancelled.set()
    server.stop(None).wait()


def our_call(address, method, request=b"", deadline_ms=60000, arguments=()):
    argv = [str(CLIENT), address, f"/traind.v1.Trainer/{method}", str(deadline_ms), *map(str, arguments)]
    done = subprocess.run(argv, input=request, capture_output=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    messages, _, status = done.stdout.decode().partition("status ")
    return [bytes.fromhex(message) for message in messages.splitlines()], status.removesuffix("\n")


def test_our_client_headers_and_deadline(python_server):
    servicer, address = python_server
    messages, status = our_call(address, "ListNodes", deadline_ms=30000)
    assert status == "OK " and len(messages) == 1
    node = pb.ListNodesResponse.FromString(messages[0]).nodes[0]
    assert node.name == "a" and 0 < node.memory_bytes <= 30
    assert servicer.metadata["user-agent"].startswith("traind/")


def test_our_client_status(python_server):
    assert our_call(python_server[1], "GetJob") == ([], "NOT_FOUND no job 7:\n50% \u00e9")


def test_our_client_large_messages(python_server):
    request = pb.SubmitJobRequest(spec=spec_of("large", padding=3 * MIB)).SerializeToString()
    messages, status = our_call(python_server[1], "SubmitJob", request)
    assert status == "OK " and pb.SubmitJobResponse.FromString(messages[0]).job_id == 7
    messages, status = our_call(python_server[1], "StreamLogs")
    assert status == "OK " and [len(pb.LogChunk.FromString(m).data) for m in messages] == [3 * MIB] * 3


def test_our_client_streams(python_server):
    request = pb.WatchJobRequest(job_id=50).SerializeToString()
    messages, status = our_call(python_server[1], "WatchJob", request)
    assert status == "OK "
    assert [pb.Job.FromString(message).progress.step for message in messages] == list(range(50))


def test_our_client_cancels(python_server):
    servicer, address = python_server
    request = pb.WatchJobRequest(job_id=5).SerializeToString()
    messages, status = our_call(address, "WatchJob", request, arguments=["--cancel-after", 3])
    assert status.startswith("CANCELLED") and len(messages) == 3
    assert servicer.cancelled.wait(DEADLINE_S)


def test_our_client_deadline_passes(python_server):
    assert our_call(python_server[1], "CancelJob", deadline_ms=200)[1].startswith("DEADLINE_EXCEEDED")


def test_our_client_unknown_method(python_server):
    assert our_call(python_server[1], "Nothing")[1].startswith("UNIMPLEMENTED")
