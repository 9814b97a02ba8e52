"""For the tests of the API: api_server as a process, channels, and short forms of calls."""
import contextlib
import pathlib
import socket
import subprocess
import tempfile

import grpc
import pytest

from harness import DEADLINE_S
from stubs import BUILD, pb

from grpc import health_pb2, health_pb2_grpc  # noqa: F401  ours, beside Python's own grpc package

SERVER, CLIENT = BUILD / "tests" / "api_server", BUILD / "tests" / "api_client"
OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 200)]
MIB = 1 << 20


class Server:
    """api_server as a process; ends clean or the test fails."""

    def __init__(self, listen="127.0.0.1:0", forward_to=None):
        argv = [str(SERVER), listen] + (["--forward", forward_to] if forward_to else [])
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.address = self.process.stdout.readline().strip()
        assert self.address, self.errors()

    def errors(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def rss_kib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])

    def stop(self):
        self.process.terminate()
        try:
            code = self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()
            self.process.stdout.close()
        assert code == 0, self.errors()


@contextlib.contextmanager
def serving(*arguments, **options):
    server = Server(*arguments, **options)
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def channel(address):
    made = grpc.insecure_channel(address, OPTIONS)
    try:
        yield made
    finally:
        made.close()


def spec_of(name, steps=0, padding=0):
    spec = pb.JobSpec(name=name)
    if padding:
        spec.command.argv.append("x" * padding)
    else:
        spec.train.optimizer.steps = steps
    return spec


def submit(api, name="job", request_id="", timeout=DEADLINE_S, **fields):
    return api.SubmitJob(pb.SubmitJobRequest(request_id=request_id, spec=spec_of(name, **fields)), timeout=timeout)


def fails(code, call, *arguments, **options):
    with pytest.raises(grpc.RpcError) as raised:
        call(*arguments, **{"timeout": DEADLINE_S, **options})
    assert raised.value.code() == code, raised.value
    return raised.value.details()


def streams(api):
    """(open, closed by their client): what api_server says of streams of logs."""
    node = api.ListNodes(pb.ListNodesRequest(), timeout=DEADLINE_S).nodes[0]
    return node.slots, node.cores


GARBAGE = {
    "not-http2": b"PRI nonsense" + b"\0" * 100,
    "no-settings": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64,
    "huge-frame": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" + b"\xff\xff\xff\0\0\0\0\0\1",
    "bad-headers": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" + b"\0\0\4\1\4\0\0\0\1\xff\xff\xff\xff",
    "ping-flood": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" + (b"\0\0\10\6\0\0\0\0\0" + b"x" * 8) * 3000,
    "settings-flood": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" * 3000,
}


def connect(address):
    host, port = address.rsplit(":", 1)
    made = socket.create_connection((host, int(port)), DEADLINE_S)
    made.settimeout(DEADLINE_S)
    return made
