"""memberd and traind as processes: registration, workers and their ends, logs, restarts, hostile input, bad arguments."""
import os
import pathlib
import resource
import signal
import socket
import struct
import subprocess
import time
import urllib.error
import urllib.request

import grpc
import pytest

from harness import BIN, DEADLINE_S, Cluster, Daemon, alive, wait_for
from stubs import BUILD, pb

# Says so, forks away from its session and its parent, and is deaf to TERM, as is its parent.
STUBBORN = """trap '' TERM
(setsid sh -c 'trap "" TERM; echo grandchild $$; while :; do sleep 1; done' &)
echo worker $$; while :; do sleep 1; done"""


@pytest.fixture
def cluster(tmp_path):
    with Cluster(tmp_path, nodes=2) as running:
        yield running


def run_daemon(program, *arguments, **keywords):
    return subprocess.run([str(BIN / program), *map(str, arguments)], capture_output=True, text=True, timeout=DEADLINE_S,
                          stdin=subprocess.DEVNULL, **keywords)


def still_works(cluster):
    """A job on every node ends well."""
    job = cluster.submit_command(["true"], workers=len(cluster.nodes))
    cluster.wait_job(job, "DONE")


# ---- registration


def test_nodes_register_and_are_listed(cluster):
    rows = {node.name: node for node in cluster.list_nodes()}
    assert sorted(rows) == ["node-1", "node-2"]
    for daemon, name in zip(cluster.nodes, sorted(rows)):
        row = rows[name]
        assert row.id > 0 and row.state == "alive" and row.slots == 1
        assert row.address == daemon.address and row.pid == daemon.pid
        assert int((daemon.folder / "pid").read_text()) == daemon.pid
        assert row.cores >= 1 and row.memory_bytes > 1 << 20
        assert any(device.startswith("cpu: ") for device in row.devices)


def test_a_node_keeps_its_id(cluster):
    before = {node.name: node.id for node in cluster.list_nodes()}
    node = cluster.nodes[0]
    kept = node.folder / "node-id"
    wait_for(kept.exists, "the id to be kept")
    assert int(kept.read_text()) == before["node-1"]
    node.kill9()
    cluster.wait_nodes(alive=1)
    node.start().wait_serving()
    after = {row.name: row for row in cluster.wait_nodes(alive=2)}
    assert after["node-1"].id == before["node-1"] and after["node-1"].pid == node.pid


def test_a_node_that_others_cannot_dial_says_so(tmp_path):
    """memberd is on another machine, and --listen was forgotten."""
    for listen, told in (["127.0.0.1:0"], 1), (["0.0.0.0:0", "--advertise", "node.invalid"], 0):
        node = Daemon("traind", tmp_path / str(told), ["--memberd", "memberd.invalid:7070", "--insecure", "--dir", tmp_path / str(told),
                                                       "--listen", *listen], dict(os.environ))
        node.start().wait_serving()
        node.wait_log("cannot reach memberd")
        node.stop()
        assert node.log().count("other machines cannot dial this node at 127.0.0.1:") == told


@pytest.mark.parametrize("name", ["x" * 64, "a\nb", "\x1b[31m"])
def test_a_name_that_is_no_name_is_refused(tmp_path, name):
    done = subprocess.run([BIN / "traind", "--name", name, "--dir", tmp_path / "node"], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 2 and "--name" in done.stderr and not (tmp_path / "node" / "node-id").exists()


def test_memberd_is_sought_for_ever_and_said_once(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with Cluster(tmp_path, nodes=0) as cluster:
        folder = tmp_path / "early"
        early = Daemon("traind", folder, ["--memberd", address, "--dir", folder, "--name", "early"], cluster.environment)
        early.start().wait_serving()
        early.wait_log("is it running? trying again")
        cluster.memberd.terminate()
        cluster.close_channels()
        cluster.start_memberd(listen=address)
        cluster.wait_nodes(alive=1)
        early.stop()
        assert early.log().count("cannot reach memberd at " + address) == 1


# ---- workers


def test_kill_9_of_traind_leaves_no_process(cluster):
    job = cluster.submit_command(["sh", "-c", STUBBORN], workers=2, per_node=1)
    cluster.wait_job(job, "RUNNING")
    wait_for(lambda: cluster.logs(job).count(b"grandchild") == 2, "both grandchildren to run")
    for node in cluster.nodes:
        node.kill9()
    wait_for(lambda: list(cluster.processes()) == [cluster.memberd.pid], "everything but memberd to be gone")
    cluster.nodes.clear()


def test_term_ends_workers_and_traind(cluster):
    job = cluster.submit_command(["sh", "-c", STUBBORN], workers=1)
    cluster.wait_job(job, "RUNNING")
    wait_for(lambda: b"grandchild" in cluster.logs(job), "the grandchild to run")
    for node in cluster.nodes:
        assert node.terminate() == 0
        assert not (node.folder / "address").exists() and not (node.folder / "pid").exists()
    assert not cluster.workers()
    cluster.wait_nodes(alive=0)
    assert cluster.memberd.terminate() == 0


def test_a_second_term_does_not_cut_the_end_short(cluster):
    """timeout(1), for one, sends it to the process and to its group."""
    job = cluster.submit_command(["sh", "-c", STUBBORN], workers=1)
    wait_for(lambda: b"grandchild" in cluster.logs(job), "the grandchild to run")
    busy = next(node for node in cluster.nodes if node.folder.name == cluster.job(job).peers[0].node_name)
    busy.signal(signal.SIGTERM)
    busy.wait_log("traind ends: SIGTERM")
    assert busy.terminate() == 0  # a worker that ignores TERM takes 3 s
    cluster.memberd.wait_log("it left: SIGTERM")


def test_cancel_ends_the_whole_tree(cluster):
    job = cluster.submit_command(["sh", "-c", STUBBORN], workers=2)
    cluster.wait_job(job, "RUNNING")
    wait_for(lambda: cluster.logs(job).count(b"grandchild") == 2, "both grandchildren to run")
    cluster.api().CancelJob(pb.CancelJobRequest(job_id=job, reason="test"), timeout=DEADLINE_S)
    cluster.wait_job(job, "CANCELLED")
    wait_for(lambda: not cluster.workers(), "all processes of the job to be gone")
    still_works(cluster)


def test_a_killed_shepherd_takes_its_worker_along(cluster):
    job = cluster.submit_command(["sh", "-c", STUBBORN], workers=1)
    cluster.wait_job(job, "RUNNING")
    wait_for(lambda: b"grandchild" in cluster.logs(job), "the grandchild to run")
    for pid, command in cluster.processes().items():
        if "--shepherd" in command:
            os.kill(pid, signal.SIGKILL)
    cluster.wait_job(job, "FAILED")
    wait_for(lambda: not cluster.workers(), "all processes of the job to be gone")


def test_what_outlived_both_traind_and_shepherd_is_ended_by_the_next_traind(cluster):
    node = cluster.nodes[0]
    if "without cgroups" in node.log():
        pytest.skip("no cgroup v2 that we may use")
    job = cluster.submit_command(["sh", "-c", STUBBORN], workers=2, per_node=1)
    cluster.wait_job(job, "RUNNING")
    wait_for(lambda: cluster.logs(job).count(b"grandchild") == 2, "both grandchildren to run")
    shepherds = [pid for pid, command in cluster.processes().items() if "--shepherd" in command]
    for pid in [node.pid, *shepherds]:
        os.kill(pid, signal.SIGSTOP)
    for pid in [node.pid, *shepherds]:
        os.kill(pid, signal.SIGKILL)
    node.process.wait()
    node.start().wait_serving()
    wait_for(lambda: not cluster.workers(), "all processes of the job to be gone")
    cluster.wait_nodes(alive=2)


def test_an_exit_is_reported_with_code_and_last_lines(cluster):
    job = cluster.submit_command(["sh", "-c", "echo fine; echo 'ValueError: no such tokens' >&2; exit 7"], workers=1)
    ended = cluster.wait_job(job, "FAILED")
    assert ended.exit_code == 7
    assert "exit code 7" in ended.reason and "ValueError: no such tokens" in ended.reason


def test_a_death_is_reported_with_its_signal(cluster):
    ended = cluster.wait_job(cluster.submit_command(["sh", "-c", "kill -SEGV $$"]), "FAILED")
    assert "SIGSEGV" in ended.reason


def test_a_program_that_is_not_there(cluster):
    ended = cluster.wait_job(cluster.submit_command(["/no/such/program"]), "FAILED")
    assert ended.exit_code == 127 and "/no/such/program" in ended.reason


def test_workers_get_the_environment_of_torchrun(cluster):
    job = cluster.submit_command(["sh", "-c", "env; pwd; cat; ulimit -n"], workers=4, per_node=2,
                                 env=["GREETING=a b", "MASTER_PORT=1234"]) if cluster.slots > 1 else \
        cluster.submit_command(["sh", "-c", "env; pwd; cat; ulimit -n"], workers=2, env=["GREETING=a b"])
    cluster.wait_job(job, "DONE")
    for rank in (0, 1):
        lines = cluster.logs(job, rank=rank).decode().splitlines()
        values = dict(line.split("=", 1) for line in lines if "=" in line)
        assert values["RANK"] == str(rank) and values["WORLD_SIZE"] == "2" and values["LOCAL_RANK"] == "0"
        assert values["GROUP_RANK"] == str(rank) and values["LOCAL_WORLD_SIZE"] == "1"
        assert values["ROLE_NAME"] == "default" and values["TORCHELASTIC_USE_AGENT_STORE"] == "False"
        assert values["MASTER_ADDR"] == "127.0.0.1" and 0 < int(values["MASTER_PORT"]) < 65536
        assert values["GREETING"] == "a b"
        assert values["OMP_NUM_THREADS"] == os.environ.get("OMP_NUM_THREADS", "1")
        assert str(cluster.folder) in lines
        assert lines[-1] == str(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


# ---- logs


def test_logs_are_rotated_and_the_newest_part_is_served(cluster):
    script = "i=0; while [ $i -lt 60 ]; do head -c 1048575 /dev/zero | tr '\\0' x; echo; i=$((i + 1)); done; echo the end"
    job = cluster.submit_command(["sh", "-c", script])
    cluster.wait_job(job, "DONE")
    *files, place = [path for node in cluster.nodes for path in sorted((node.folder / "logs" / f"job-{job}").glob("*"))]
    assert [path.suffix for path in [*files, place]] == [".log", ".1", ".2", ".at"]
    assert int(place.read_text()) + files[0].stat().st_size == (60 << 20) + 8
    assert all(0 < path.stat().st_size <= 16 << 20 for path in files)
    output = cluster.logs(job)
    assert output.endswith(b"x\nthe end\n") and 32 << 20 < len(output) <= 48 << 20
    request = pb.StreamLogsRequest(job_id=job, tail_bytes=8)
    chunks = list(cluster.api().StreamLogs(request, timeout=DEADLINE_S))
    assert b"".join(chunk.data for chunk in chunks) == b"the end\n" and chunks[-1].end == (60 << 20) + 8


def test_logs_are_followed_to_the_end(cluster):
    fifo = cluster.folder / "fifo"
    os.mkfifo(fifo)
    job = cluster.submit_command(["sh", "-c", f"echo begun; cat {fifo}; echo ended"])
    chunks = cluster.api(cluster.nodes[1]).StreamLogs(pb.StreamLogsRequest(job_id=job, follow=True), timeout=DEADLINE_S)
    seen = b""
    while b"begun\n" not in seen:
        seen += next(chunks).data
    fifo.write_text("through the pipe\n")
    seen += b"".join(chunk.data for chunk in chunks)
    assert seen == b"begun\nthrough the pipe\nended\n"
    cluster.wait_job(job, "DONE")


def test_lines_of_both_streams_stay_whole(cluster):
    script = "for i in $(seq 300); do echo out $i; echo err $i >&2; done"
    job = cluster.submit_command(["sh", "-c", script], workers=2)
    cluster.wait_job(job, "DONE")
    for rank in (0, 1):
        lines = cluster.logs(job, rank=rank).decode().splitlines()
        for stream in ("out", "err"):
            assert [line for line in lines if line.startswith(stream)] == [f"{stream} {i}" for i in range(1, 301)]


def test_a_slow_reader_of_logs_costs_no_memory(cluster):
    job = cluster.submit_command(["sh", "-c", "head -c 40000000 /dev/zero | tr '\\0' x; echo"])
    cluster.wait_job(job, "DONE")
    chunks = cluster.api().StreamLogs(pb.StreamLogsRequest(job_id=job), timeout=DEADLINE_S)
    next(chunks)
    before = cluster.memberd.rss_kib()
    still_works(cluster)
    assert cluster.memberd.rss_kib() - before < 12 << 10 or "-" in BUILD.name
    chunks.cancel()


# ---- memberd away


def test_memberd_restarts_and_workers_run_on(cluster):
    fifo = cluster.folder / "fifo"
    os.mkfifo(fifo)
    job = cluster.submit_command(["sh", "-c", f"echo $$; cat {fifo}"], workers=1)
    cluster.wait_job(job, "RUNNING")
    pid = int(wait_for(lambda: cluster.logs(job), "the worker to speak").split()[0])
    cluster.kill_memberd()
    for node in cluster.nodes:
        node.wait_log("went away")
    cluster.restart_memberd()
    cluster.wait_nodes(alive=2)
    assert alive(pid)
    fifo.write_text("on we go\n")
    cluster.wait_job(job, "DONE")
    assert cluster.logs(job).endswith(b"on we go\n")
    for node in cluster.nodes:
        assert node.log().count("went away") == 1 and node.log().count("back with memberd") == 1
    still_works(cluster)


def test_an_exit_while_memberd_was_away_is_reported(cluster):
    fifo = cluster.folder / "fifo"
    os.mkfifo(fifo)
    job = cluster.submit_command(["sh", "-c", f"echo $$; cat {fifo}; exit 9"], workers=1)
    cluster.wait_job(job, "RUNNING")
    pid = int(wait_for(lambda: cluster.logs(job), "the worker to speak").split()[0])
    cluster.kill_memberd()
    fifo.write_text("now\n")
    wait_for(lambda: not alive(pid), "the worker to end")
    cluster.restart_memberd()
    ended = cluster.wait_job(job, "FAILED")
    assert ended.exit_code == 9 and "exit code 9" in ended.reason


def test_a_stopped_memberd_blames_nobody_when_it_wakes(tmp_path):
    with Cluster(tmp_path, nodes=2, memberd=["--heartbeat-timeout-ms", "500"]) as cluster:
        cluster.memberd.signal(signal.SIGSTOP)
        time.sleep(2)  # not to wait for anything: this is how long it is stopped
        cluster.memberd.signal(signal.SIGCONT)
        still_works(cluster)
        assert "lost" not in cluster.memberd.log()


def test_a_stopped_traind_is_lost_and_comes_back(tmp_path):
    with Cluster(tmp_path, nodes=2, memberd=["--heartbeat-timeout-ms", "500"]) as cluster:
        cluster.nodes[0].signal(signal.SIGSTOP)
        cluster.wait_nodes(alive=1)
        row = next(node for node in cluster.list_nodes() if node.name == "node-1")
        assert row.state == "suspected" and "silent" in row.reason
        cluster.memberd.wait_log("node-1) is lost: silent")
        cluster.nodes[0].signal(signal.SIGCONT)
        cluster.wait_nodes(alive=2)
        still_works(cluster)


# ---- the API on nodes, health


def test_every_daemon_serves_the_api(cluster):
    targets = [cluster.memberd, *cluster.nodes, f"unix:{cluster.nodes[0].folder}/api.sock"]
    for target in targets:
        answer = cluster.api(target).ListNodes(pb.ListNodesRequest(), timeout=DEADLINE_S)
        assert sorted(node.name for node in answer.nodes) == ["node-1", "node-2"]
    with pytest.raises(grpc.RpcError) as refused:
        cluster.api(cluster.nodes[0]).GetJob(pb.GetJobRequest(job_id=12345), timeout=DEADLINE_S)
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND


def test_healthz(cluster):
    for daemon in [cluster.memberd, *cluster.nodes]:
        with urllib.request.urlopen(f"http://{daemon.address}/healthz", timeout=DEADLINE_S) as answer:
            assert answer.status == 200 and answer.read() == b"ok\n"
        with pytest.raises(urllib.error.HTTPError) as missing:
            urllib.request.urlopen(f"http://{daemon.address}/secrets", timeout=DEADLINE_S)
        assert missing.value.code == 404


# ---- hostile and careless input


def frame(length, kind, payload=b"", check=None):
    head = struct.pack("<IH", length, kind)
    return head + struct.pack("<H", 0 if check is None else check) + payload


HOSTILE = {
    "garbage": os.urandom(4096),
    "half a greeting": b"TRAI",
    "a greeting and garbage": b"TRAIND6\n" + b"\xff" * 64,
    "half a frame": b"TRAIND6\n" + b"\x10\x00",
    "a length of 4 GiB": b"TRAIND6\n" + frame(0xFFFFFFFF, 1),
    "half an HTTP/2 preface": b"PRI * HT",
    "an HTTP/2 preface and garbage": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(512),
    "a huge HTTP line": b"GET /" + b"a" * 100000,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_bytes_are_dropped(cluster, kind):
    held = []
    for daemon in [cluster.memberd, *cluster.nodes]:
        for _ in range(3):
            held.append(socket.create_connection(("127.0.0.1", daemon.port), DEADLINE_S))
            held[-1].sendall(HOSTILE[kind])
    still_works(cluster)
    # Each of them is closed in the end: at once, or because it says nothing more.
    for connection in held:
        connection.settimeout(DEADLINE_S)
        try:
            while connection.recv(4096):
                pass
        except ConnectionError:
            pass
        connection.close()
    assert len(cluster.wait_nodes(alive=2)) == 2


@pytest.mark.parametrize("bytes_sent", [b"\x00" * 64, b"TRAIND6\n" + b"\xff" * 64], ids=["garbage", "bad frame"])
def test_the_reason_of_a_drop_is_logged(cluster, bytes_sent):
    for daemon in [cluster.memberd, cluster.nodes[0]]:
        with socket.create_connection(("127.0.0.1", daemon.port), DEADLINE_S) as connection:
            connection.sendall(bytes_sent)
            port = connection.getsockname()[1]
            daemon.wait_log(f"127.0.0.1:{port}")


@pytest.mark.parametrize("greeting", [b"", b"TRAIND6\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
                         ids=["silent", "frames", "HTTP/2"])
def test_ten_thousand_idle_connections_harm_nobody(tmp_path, greeting):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    count = min(10000, hard - 1000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with Cluster(tmp_path, nodes=1) as cluster:
        for daemon in [cluster.memberd, cluster.nodes[0]]:
            held = []
            try:
                for _ in range(count):
                    held.append(socket.create_connection(("127.0.0.1", daemon.port), DEADLINE_S))
                    held[-1].sendall(greeting)
                still_works(cluster)
                cluster.api(daemon).ListNodes(pb.ListNodesRequest(), timeout=DEADLINE_S)
            finally:
                for connection in held:
                    connection.close()
        assert len(cluster.wait_nodes(alive=1)) == 1


# ---- arguments


@pytest.mark.parametrize("program", ["memberd", "traind"])
def test_help_and_version(program):
    answer = run_daemon(program, "--help")
    assert answer.returncode == 0 and "--listen ADDR" in answer.stdout and answer.stderr == ""
    answer = run_daemon(program, "--version")
    assert answer.returncode == 0 and answer.stdout.startswith(program + " ")


@pytest.mark.parametrize("program, arguments, words", [
    ("memberd", ["--lisen", "x"], "unknown argument '--lisen'"),
    ("traind", ["--slots", "many"], "--slots: found 'many', allowed: a number from 0 to 256"),
    ("traind", ["--slots"], "--slots needs a value"),
    ("memberd", ["--log-level", "loud"], "--log-level: found 'loud', allowed: debug, info, warn, error"),
    ("memberd", ["--listen", "127.0.0.1"], "port"),
    ("traind", ["--memberd", "nowhere"], "port"),
    ("memberd", ["--listen", "0.0.0.0:0"], "insecure"),
    ("memberd", ["--listen", "192.0.2.1:0", "--insecure"], "192.0.2.1:0 is not one of this machine"),
    ("traind", ["--listen", "192.0.2.1:0", "--insecure"], "192.0.2.1:0 is not one of this machine"),
    ("traind", ["--listen", "0.0.0.0:0"], "insecure"),
    ("traind", ["--listen", "0.0.0.0:0", "--insecure"], "--advertise HOST"),
    ("traind", ["--trainworker", "/nowhere/trainworker"], "--trainworker: found '/nowhere/trainworker', which cannot be run (No such file"),
    ("traind", ["--api-socket", "/nowhere/api.sock"], "address unix:/nowhere/api.sock: there is no such folder"),
    ("memberd", ["--dir", "/dev/null/d"], "cannot make folder /dev/null/d"),
    ("traind", ["--dir", "/dev/null/d"], "cannot make folder /dev/null/d"),
    ("traind", ["--memberd", "192.0.2.1:7070"], "192.0.2.1:7070 is not a loopback address: give --tls DIR"),
])
def test_bad_arguments_get_one_line(tmp_path, program, arguments, words):
    answer = run_daemon(program, "--dir", tmp_path / "d", *arguments)
    assert answer.returncode == 2
    lines = answer.stderr.splitlines()
    assert len(lines) == 1 and words in lines[0], answer.stderr


@pytest.mark.parametrize("program", ["memberd", "traind"])
def test_a_port_in_use_gets_one_line(tmp_path, program):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        answer = run_daemon(program, "--dir", tmp_path / "d", "--listen", address)
    assert answer.returncode == 2
    assert len(answer.stderr.splitlines()) == 1 and address in answer.stderr and "in use" in answer.stderr


@pytest.mark.parametrize("program", ["memberd", "traind"])
def test_two_daemons_cannot_share_a_folder(cluster, program):
    first = cluster.memberd if program == "memberd" else cluster.nodes[0]
    answer = run_daemon(program, "--dir", first.folder, "--listen", "127.0.0.1:0")
    assert answer.returncode == 2
    assert len(answer.stderr.splitlines()) == 1 and f"pid {first.pid}" in answer.stderr
    assert first.running() and (first.folder / "address").exists()
    still_works(cluster)


@pytest.mark.parametrize("program", ["memberd", "traind"])
def test_a_daemon_without_standard_files(tmp_path, program):
    """As some supervisors start it: nothing that it opens is taken for stderr, and it ends in order."""
    where = ["--memberd", "127.0.0.1:1"] if program == "traind" else []
    process = subprocess.Popen([str(BIN / program), "--listen", "127.0.0.1:0", "--dir", str(tmp_path / "d"), *where],
                               preexec_fn=lambda: os.closerange(0, 3))
    try:
        wait_for(lambda: (tmp_path / "d" / "address").exists(), "it to serve")
        assert [os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in range(3)] == ["/dev/null"] * 3
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()


def test_json_logs(tmp_path):
    import json
    with Cluster(tmp_path, nodes=1, memberd=["--log-format", "json"], traind=["--log-format=json"]) as cluster:
        for daemon in [cluster.memberd, cluster.nodes[0]]:
            # A thread of its own writes it: a moment after the daemon serves, and whole lines.
            rows = [json.loads(line) for line in wait_for(daemon.log, "a line of its log").splitlines()]
            assert rows and all({"time", "level", "subsystem", "message"} <= set(row) for row in rows)


@pytest.mark.parametrize("program", ["memberd", "traind"])
def test_nobody_reads_what_a_daemon_logs(cluster, program):
    """Ctrl-S, or a pager: here a pipe that is full from the start. All goes on, lines come when somebody reads, and SIGTERM ends the daemon as ever."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writer, b"." * 4096)
    os.set_blocking(writer, True)
    daemon = cluster.memberd if program == "memberd" else cluster.nodes[0]
    daemon.arguments[daemon.arguments.index("--listen") + 1] = daemon.address
    daemon.kill9()
    cluster.close_channels()
    daemon.stderr = writer
    daemon.start().wait_serving()
    cluster.wait_nodes(alive=2)
    still_works(cluster)
    got = b""
    while b"info" not in got:
        got = os.read(reader, 65536)
    assert daemon.terminate() == 0
    os.close(reader)
    os.close(writer)


# ---- cost


def test_idle_daemons_are_small(cluster):
    still_works(cluster)
    if "-" in BUILD.name:
        pytest.skip("sanitizers cost memory")
    for daemon in [cluster.memberd, *cluster.nodes]:
        assert daemon.rss_kib() < 15 << 10, f"{daemon.program}: {daemon.rss_kib()} KiB"


def test_jobs_leave_no_descriptors_behind(cluster):
    still_works(cluster)
    daemons = [cluster.memberd, *cluster.nodes]
    before = [daemon.open_fds() for daemon in daemons]
    for _ in range(5):
        still_works(cluster)
    wait_for(lambda: all(daemon.open_fds() <= count for daemon, count in zip(daemons, before)),
             f"descriptors to be closed again: {before}, now {[daemon.open_fds() for daemon in daemons]}")
