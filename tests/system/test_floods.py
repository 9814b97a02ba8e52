"""Whoever sends much, or asks for much at once, costs the others nothing."""
import ctypes
import os
import resource
import socket
import struct
import subprocess
import threading

import grpc
import pytest

from harness import DEADLINE_S, Cluster, wait_for
from stubs import BUILD, pb

XXH3 = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
XXH3.restype, XXH3.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]

HEARTBEATS = 1_000_000
SANITIZED = "-" in BUILD.name


def frame(kind, payload):
    head = struct.pack("<IH", len(payload), kind)
    return head + struct.pack("<H", XXH3(head, len(head)) & 0xFFFF) + payload


def field(number, value):
    """A number or bytes of less than 128 bytes, in protobuf's wire form."""
    if isinstance(value, bytes):
        return bytes([number << 3 | 2, len(value)]) + value
    out = bytearray([number << 3])
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def register(memberd, name):
    """A node that speaks by itself; returns its socket."""
    hello = field(2, int.from_bytes(os.urandom(7), "little")) + field(3, name.encode()) + field(4, b"127.0.0.1:1")
    connection = socket.create_connection(("127.0.0.1", memberd.port), DEADLINE_S)
    connection.sendall(b"TRAIND6\n" + frame(1, field(1, hello)))
    return connection


def read_away(connection):
    try:
        while connection.recv(1 << 20):
            pass
    except OSError:
        pass


def most_kib(daemon):
    """The most memory that it ever had."""
    with open(f"/proc/{daemon.pid}/status") as status:
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1])


@pytest.mark.skipif(SANITIZED, reason="a sanitizer keeps freed memory")
def test_a_peer_that_floods_memberd_costs_no_memory_and_silences_nobody(tmp_path):
    with Cluster(tmp_path, nodes=1) as cluster:
        with register(cluster.memberd, "flood") as flood:
            cluster.wait_nodes(alive=2)
            before = most_kib(cluster.memberd)
            threading.Thread(target=read_away, args=(flood,), daemon=True).start()
            beats = frame(1, field(2, field(1, 1))) * 10_000
            for _ in range(HEARTBEATS // 10_000):
                flood.sendall(beats)
            assert most_kib(cluster.memberd) - before < 32 * 1024
            assert len(cluster.wait_nodes(alive=2)) == 2
        assert "(node-1) is lost" not in cluster.memberd.log()


@pytest.mark.parametrize("bytes_sent", [b"garbage!", b"TRAIND6\n" + b"\xff" * 64,
                                        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64], ids=["bytes", "frames", "HTTP/2"])
def test_strangers_do_not_fill_the_log(tmp_path, bytes_sent):
    """Of a thousand connections that are dropped a few have a line, and one line counts the others."""
    with Cluster(tmp_path, nodes=1) as cluster:
        for daemon in [cluster.memberd, cluster.nodes[0]]:
            def connect():
                with socket.create_connection(("127.0.0.1", daemon.port), DEADLINE_S) as connection:
                    connection.sendall(bytes_sent)
                    read_away(connection)
            for _ in range(1000):
                connect()

            def counted():
                connect()
                return "lines like the next were left out" in daemon.log()
            wait_for(counted, "a line that counts those without one")
            assert sum("dropped" in line for line in daemon.log().splitlines()) < 500


def test_a_burst_of_jobs_does_not_silence_a_node(tmp_path):
    """A thousand processes to start are seconds of work; heartbeats go out in between."""
    count = 300 if SANITIZED else 1500
    with Cluster(tmp_path, nodes=1) as cluster:
        spec = pb.JobSpec(name="burst")
        spec.command.argv.append("true")
        spec.command.directory = str(tmp_path)
        spec.mesh.workers = 1
        calls = [cluster.api().SubmitJob.future(pb.SubmitJobRequest(spec=spec), timeout=DEADLINE_S) for _ in range(count)]
        jobs = {call.result().job_id for call in calls}
        assert len(jobs) == count

        def ended():
            """The newest first; all fit into one answer."""
            rows = cluster.api().ListJobs(pb.ListJobsRequest(), timeout=DEADLINE_S).jobs
            states = {row.id: pb.JobState.Name(row.state) for row in rows}
            assert "JOB_STATE_FAILED" not in states.values(), [row.reason for row in rows if row.exit_code][:3]
            return len(states) == count and set(states.values()) == {"JOB_STATE_DONE"}
        wait_for(ended, "all jobs to be done", 3 * DEADLINE_S)
        assert "(node-1) is lost" not in cluster.memberd.log()


@pytest.mark.skipif(SANITIZED, reason="a sanitizer needs more address space than the limit leaves")
def test_memberd_without_memory_loses_nothing(tmp_path):
    """It says so to clients, or ends: half a state in memory is worse than none, as all of it is in the log."""
    with Cluster(tmp_path, nodes=1) as cluster:
        with open(f"/proc/{cluster.memberd.pid}/status") as status:
            size = int(next(line for line in status if line.startswith("VmSize")).split()[1]) * 1024
        subprocess.run(["prlimit", "--pid", str(cluster.memberd.pid), f"--as={size + (24 << 20)}"], check=True)
        spec = pb.JobSpec(name="large")
        spec.command.argv.extend(["true", "x" * 100_000])
        spec.command.directory, spec.mesh.workers = str(tmp_path), 1
        address, api, accepted, refused = cluster.memberd.address, cluster.api(), [], []
        while len(refused) < 20 and cluster.memberd.running():
            try:
                accepted.append(api.SubmitJob(pb.SubmitJobRequest(spec=spec), timeout=DEADLINE_S).job_id)
            except grpc.RpcError as refusal:
                assert refusal.code() != grpc.StatusCode.DEADLINE_EXCEEDED, refusal
                refused.append(refusal)
        assert accepted
        assert "out of memory" in cluster.memberd.log() or any(refusal.code() == grpc.StatusCode.RESOURCE_EXHAUSTED or "out of memory" in refusal.details() or
                                                               "cannot be written" in refusal.details() for refusal in refused), refused
        cluster.memberd.kill9()
        cluster.close_channels()
        cluster.start_memberd(listen=address)
        cluster.wait_nodes(alive=1)
        for job in accepted:
            cluster.wait_job(job, "DONE")


def test_three_hundred_workers_of_a_node_outlive_memberd(tmp_path):
    """All are in the node's hello; and all that end while memberd is away are told of when it is back."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with Cluster(tmp_path, nodes=1) as cluster:
        jobs = [cluster.submit_command(["cat", str(fifo)], workers=150) for _ in range(2)]
        for job in jobs:
            cluster.wait_job(job, "RUNNING")
        cluster.kill_memberd()
        cluster.nodes[0].wait_log("went away")
        cluster.restart_memberd()
        cluster.wait_nodes(alive=1)
        wait_for(lambda: all(peer.state == "active" for job in jobs for peer in cluster.job(job).peers), "all to be found")
        cluster.kill_memberd()
        os.close(os.open(fifo, os.O_WRONLY))
        wait_for(lambda: not cluster.workers(), "all workers to end")
        cluster.restart_memberd()
        for job in jobs:
            cluster.wait_job(job, "DONE")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_of_memberd_evicts_nobody(tmp_path):
    """Submissions are refused with the reason; nodes stay; what runs ends; once there is room, all is as before."""
    disk, fifo = tmp_path / "memberd", tmp_path / "fifo"
    disk.mkdir()
    os.mkfifo(fifo)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", disk], capture_output=True).returncode != 0:
        pytest.skip("cannot mount a small file system")
    try:
        with Cluster(tmp_path, nodes=2) as cluster:
            running = cluster.submit_command(["sh", "-c", f"cat {fifo}; exit 9"], workers=2)
            cluster.wait_job(running, "RUNNING")
            with pytest.raises(OSError), open(disk / "fill", "wb", buffering=0) as fill:
                while True:
                    fill.write(bytes(1 << 16))
            accepted, refused = [], 0
            while refused < 20:
                try:
                    accepted.append(cluster.submit_command(["true", "x" * 100_000]))
                except grpc.RpcError as refusal:
                    assert "no space left" in refusal.details(), refusal
                    refused += 1
            os.close(os.open(fifo, os.O_WRONLY))
            wait_for(lambda: not cluster.workers(), "the workers to end")
            assert len(cluster.wait_nodes(alive=2)) == 2
            (disk / "fill").unlink()
            assert cluster.wait_job(running, "FAILED").exit_code == 9
            for job in accepted:
                cluster.wait_job(job, "DONE")
            assert "is lost: silent" not in cluster.memberd.log()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def set_descriptors(daemon, count):
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (count, count))


def test_idle_connections_do_not_take_the_last_descriptors(tmp_path):
    """memberd's log needs some for its next files."""
    with Cluster(tmp_path, nodes=1) as cluster:
        set_descriptors(cluster.memberd, cluster.memberd.open_fds() + 40)
        held = [socket.create_connection(("127.0.0.1", cluster.memberd.port), DEADLINE_S) for _ in range(60)]
        for connection in held:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        api = cluster.api()
        cluster.memberd.wait_log("cannot accept")
        spec = pb.JobSpec(name="large")
        spec.command.argv.extend(["true", "x" * 100_000])
        spec.command.directory, spec.mesh.workers = str(tmp_path), 1
        held.pop().close()
        jobs = [api.SubmitJob(pb.SubmitJobRequest(spec=spec), timeout=DEADLINE_S, wait_for_ready=True).job_id
                for _ in range(200)]
        for connection in held:
            connection.close()
        for job in jobs:
            cluster.wait_job(job, "DONE")
        assert "cannot be written" not in cluster.memberd.log()


def test_memberd_gets_over_a_time_without_descriptors(tmp_path):
    """The log cannot open its next file: submissions are refused with the reason, until it can."""
    with Cluster(tmp_path, nodes=1) as cluster:
        api, accepted, refusal = cluster.api(), [], None
        cluster.wait_nodes(alive=1)
        allowed = resource.prlimit(cluster.memberd.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(cluster.memberd.pid, resource.RLIMIT_NOFILE, (cluster.memberd.open_fds(), allowed[1]))
        spec = pb.JobSpec(name="large")
        spec.command.argv.extend(["true", "x" * 100_000])
        spec.command.directory, spec.mesh.workers = str(tmp_path), 1
        while refusal is None:
            try:
                accepted.append(api.SubmitJob(pb.SubmitJobRequest(spec=spec), timeout=DEADLINE_S).job_id)
            except grpc.RpcError as refused:
                refusal = refused
        assert accepted and "too many open files" in refusal.details()
        resource.prlimit(cluster.memberd.pid, resource.RLIMIT_NOFILE, allowed)
        for job in accepted:
            cluster.wait_job(job, "DONE")
        cluster.memberd.wait_log("can be written again")
        cluster.wait_job(cluster.submit_command(["true"]), "DONE")
