#!/usr/bin/env python3
"""Writes the seed corpus of fuzz_http2 (tests/fuzz/corpus/http2): what Python's grpcio really sends, as client and as server,
recorded by a relay in between; then some hand-made hostile frames. Needs `make build/tests/api_server build/tests/api_client`."""
import concurrent.futures
import contextlib
import pathlib
import socket
import struct
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "system"))
import grpc  # noqa: E402
from stubs import BUILD, pb, rpc  # noqa: E402

CORPUS = ROOT / "tests" / "fuzz" / "corpus" / "http2"
SERVER_ROLE, CLIENT_ROLE, PREFACE, HOLD, CLOSE = 0, 1, 2, 4, 8
SIZE_MAX = 20000


def write(name, flags, data, step=0, pause_ms=0):
    CORPUS.mkdir(parents=True, exist_ok=True)
    (CORPUS / name).write_bytes(bytes([flags, step, pause_ms]) + data[:SIZE_MAX])


class Relay:
    """Passes one connection on and keeps what went each way."""

    def __init__(self, target):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.target, self.up, self.down = target, bytearray(), bytearray()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        near, _ = self.listener.accept()
        host, port = self.target.rsplit(":", 1)
        far = socket.create_connection((host, int(port)))
        pumps = [threading.Thread(target=self.pump, args=pair) for pair in ((near, far, self.up), (far, near, self.down))]
        for pump in pumps:
            pump.start()
        for pump in pumps:
            pump.join()
        near.close(), far.close(), self.listener.close()

    @staticmethod
    def pump(source, sink, record):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                record += data
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def record_client(name, use, flags=SERVER_ROLE, **options):
    server = subprocess.Popen([str(BUILD / "tests" / "api_server"), "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    relay = Relay(server.stdout.readline().strip())
    with grpc.insecure_channel(relay.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        with contextlib.suppress(grpc.RpcError):
            use(rpc.TrainerStub(channel))
    relay.thread.join()
    server.terminate()
    server.wait()
    write(name, flags, bytes(relay.up), **options)


class Trainer(rpc.TrainerServicer):
    def ListNodes(self, request, context):
        return pb.ListNodesResponse(nodes=[pb.Node(name="a")])

    def GetJob(self, request, context):
        context.abort(grpc.StatusCode.NOT_FOUND, "no job 7: 50%")

    def WatchJob(self, request, context):
        for step in range(30):
            yield pb.Job(progress=pb.Progress(step=step))


def record_server(name, method, flags=CLIENT_ROLE, **options):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    rpc.add_TrainerServicer_to_server(Trainer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    relay = Relay(f"127.0.0.1:{port}")
    subprocess.run([str(BUILD / "tests" / "api_client"), relay.address, f"/traind.v1.Trainer/{method}", "20000"], input=b"",
                   capture_output=True, check=True)
    relay.thread.join()
    server.stop(None).wait()
    write(name, flags, bytes(relay.down), **options)


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name, value):
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


REQUEST = b"".join(literal(*pair) for pair in [
    (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/traind.v1.Trainer/GetJob"), (b":authority", b"x"),
    (b"te", b"trailers"), (b"content-type", b"application/grpc"), (b"grpc-timeout", b"50m")])
RESPONSE = literal(b":status", b"200") + literal(b"content-type", b"application/grpc")
TRAILERS = literal(b"grpc-status", b"5") + literal(b"grpc-message", b"50%25")
MESSAGE = b"\0\0\0\0\2\x08\x07"


def main():
    job = pb.SubmitJobRequest(request_id="r1", spec=pb.JobSpec(name="ticks", command=pb.CommandSpec(argv=["true"])))

    def several(api):
        api.SubmitJob(job)
        api.GetJob(pb.GetJobRequest(job_id=1), timeout=5)
        list(api.StreamLogs(pb.StreamLogsRequest(job_id=1, tail_bytes=40000)))
        api.GetJob(pb.GetJobRequest(job_id=9), timeout=5)

    record_client("grpcio-list-nodes", lambda api: api.ListNodes(pb.ListNodesRequest()))
    record_client("grpcio-several", several)
    record_client("grpcio-held", several, SERVER_ROLE | HOLD, step=100, pause_ms=20)
    record_client("grpcio-deadline", lambda api: api.SubmitJob(pb.SubmitJobRequest(spec=pb.JobSpec(name="hang")), timeout=0.1),
                  SERVER_ROLE | HOLD | CLOSE, step=37, pause_ms=200)
    record_client("grpcio-large", lambda api: api.SubmitJob(pb.SubmitJobRequest(request_id="x" * 60000)))
    record_server("grpcio-server-unary", "ListNodes")
    record_server("grpcio-server-status", "GetJob")
    record_server("grpcio-server-stream", "WatchJob", CLIENT_ROLE | HOLD, step=50, pause_ms=1)

    call = frame(1, 4, 1, REQUEST) + frame(0, 1, 1, MESSAGE)
    write("call", PREFACE, call)
    write("call-held-reset", PREFACE | HOLD, call + frame(3, 0, 1, b"\0\0\0\x08"), step=1)
    write("two-messages", PREFACE, frame(1, 4, 1, REQUEST) + frame(0, 0, 1, MESSAGE) + frame(0, 1, 1, MESSAGE))
    write("continuation", PREFACE, frame(1, 0, 1, REQUEST[:40]) + frame(9, 4, 1, REQUEST[40:]) + frame(0, 1, 1, MESSAGE))
    write("padded", PREFACE, frame(1, 4, 1, REQUEST) + frame(0, 9, 1, b"\x03" + MESSAGE + b"\0\0\0"))
    write("ping-goaway", PREFACE | CLOSE, frame(6, 0, 0, bytes(8)) + frame(7, 0, 0, bytes(8)) + call)
    write("window", PREFACE | HOLD, call + frame(8, 0, 0, b"\x7f\xff\xff\xff") + frame(4, 0, 0, b"\0\4\0\0\0\1"))
    settings = frame(4, 0, 0)
    answer = frame(1, 4, 1, RESPONSE) + frame(0, 0, 1, MESSAGE) + frame(1, 5, 1, TRAILERS)
    write("answer", CLIENT_ROLE, settings + answer)
    write("answer-paused", CLIENT_ROLE | HOLD, settings + answer.replace(b"\0\0\0\0\2", b"\0\0\0\0\1"), step=9)
    write("answer-reset", CLIENT_ROLE, settings + frame(1, 4, 3, RESPONSE) + frame(3, 0, 3, b"\0\0\0\x0b") + answer)
    write("answer-goaway", CLIENT_ROLE, settings + frame(7, 0, 0, b"\0\0\0\1\0\0\0\0bye") + answer)


if __name__ == "__main__":
    main()
