"""TLS on the one port, as an operator sets it up: `trainctl ca init` and `trainctl cert`, daemons, programs and grpcio with those folders; who
is refused, and that both ends say why in a line."""
import http.client
import json
import pathlib
import socket
import ssl
import subprocess

import grpc
import pytest

from harness import BIN, Cluster, Daemon, trainctl, wait_for
from line_process import LineProcess
from stubs import BUILD, pb, rpc

NODES = ["memberd", "node-1", "node-2", "operator", "peer"]


def make_ca(folder, nodes):
    trainctl("ca", "init", folder)
    for node in nodes:
        trainctl("cert", node, folder)
    return pathlib.Path(folder)


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    return make_ca(tmp_path_factory.mktemp("tls") / "ca", NODES)


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    """A CA of somebody else."""
    return make_ca(tmp_path_factory.mktemp("tls") / "others", ["stranger"])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, ca):
    with Cluster(tmp_path_factory.mktemp("cluster"), nodes=2, memberd=["--tls", ca / "memberd"], traind=["--tls", ca / "node-1"],
                 tls=ca / "operator") as cluster:
        yield cluster


def expired(ca, folder):
    """A certificate of the CA whose time is over, which `trainctl cert` does not make."""
    folder.mkdir()
    subprocess.run(["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                    folder / "node.key", "-out", folder / "csr", "-subj", "/CN=old"], check=True, capture_output=True)
    subprocess.run(["openssl", "x509", "-req", "-in", folder / "csr", "-CA", ca / "ca.crt", "-CAkey", ca / "ca.key", "-days", "-1",
                    "-out", folder / "node.crt"], check=True, capture_output=True)
    return folder


def client_context(ca, node=None):
    context = ssl.create_default_context(cafile=str(ca / "ca.crt"))
    if node is not None:
        context.load_cert_chain(node / "node.crt", node / "node.key")
    return context


@pytest.fixture(scope="module")
def plain_program(cluster):
    """Tries to join without TLS, which takes the ten seconds that it gives memberd; the others' tests run meanwhile."""
    program = LineProcess([BUILD / "tests" / "library_peer", cluster.memberd.address, "plain", 1, 1, "replay", "auto"], cluster.environment)
    yield program
    program.process.kill()
    program.process.wait()


# ---- a cluster


def test_jobs_run_and_trainctl_and_grpcio_reach_every_daemon(cluster, ca, plain_program):
    for target in [cluster.memberd, *cluster.nodes]:
        listed = json.loads(trainctl("nodes", "--json", "--address", target.address, "--tls", ca / "operator").stdout)
        assert [node["state"] for node in listed] == ["alive", "alive"]
        assert len(cluster.api(target).ListNodes(pb.ListNodesRequest(), timeout=60).nodes) == 2
    job = cluster.submit_command(["sh", "-c", "echo rank $RANK; yes 0123456789 | head -c 3000000"], workers=2)
    cluster.wait_job(job, "DONE")
    text = cluster.logs(job, target=cluster.nodes[1])
    assert len(text) > 6000000 and b"rank 0" in text and b"rank 1" in text
    assert trainctl("jobs", environment={**cluster.environment, "TRAIND_ADDRESS": cluster.memberd.address,
                                         "TRAIND_TLS": str(ca / "operator")}).returncode == 0


def test_healthz_and_the_unix_socket(cluster, ca):
    for daemon in [cluster.memberd, cluster.nodes[0]]:
        connection = http.client.HTTPSConnection("localhost", daemon.port, context=client_context(ca, ca / "operator"), timeout=60)
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b"ok\n"
        connection.close()
    assert trainctl("nodes", "--address", f"unix:{cluster.nodes[0].folder}/api.sock").returncode == 0  # file modes guard it


def test_a_killed_node_is_noticed_at_once(tmp_path, ca):
    """By its lifeline, which speaks TLS as well: that one closes first."""
    with Cluster(tmp_path, nodes=2, memberd=["--tls", ca / "memberd", "--heartbeat-timeout-ms", "600000"],
                 traind=["--tls", ca / "node-2"], tls=ca / "operator") as cluster:
        cluster.nodes[0].kill9()
        cluster.wait_nodes(alive=1)
        cluster.kill_memberd()
        cluster.restart_memberd()
        cluster.wait_nodes(alive=1)


class Peer(LineProcess):
    def __init__(self, cluster, size, rounds, *words):
        super().__init__([BUILD / "tests" / "library_peer", cluster.memberd.address, "g", size, rounds, "replay", "auto", 50000, 0, 0,
                          "127.0.0.1:0", *words], cluster.environment)


def test_programs_sum_over_tls_while_one_dies(cluster, ca):
    """Three peers whose lanes are TCP; the fourth is killed, a fifth comes and gets the state. They go on until the test
    ends them: with a number of rounds, the three may be through before the fifth has come, which then waits for others."""
    words = ("tcp", "sockets=2", f"tls={ca / 'peer'}")
    peers = [Peer(cluster, 4, 10**9, *words) for _ in range(4)]
    try:
        wait_for(lambda: len(peers[3].said("round")) >= 3, "the peers to be in their rounds")
        peers[3].process.kill()
        wait_for(lambda: len(peers[0].said("round")) >= 10, "the others to go on")
        peers.append(Peer(cluster, 4, 10**9, *words))
        wait_for(lambda: len(peers[4].said("round")) >= 20, "rounds with the fifth")
        alive, came = [*peers[:3], peers[4]], peers[4].said("round")[0]["round"]
        wait_for(lambda: all(any(line["contributors"] == 4 and line["round"] >= came for line in peer.said("round")) for peer in alive), "a round of all four")
        for peer in alive:
            assert peer.process.poll() is None and not peer.said("error"), peer.story()
    finally:
        for peer in peers:
            peer.stop()
    histories = [{line["round"]: line for line in peer.said("round")} for peer in alive]
    common = set.intersection(*(set(history) for history in histories))
    assert len(common) >= 10
    for history in histories:
        assert all(line["wrong"] == 0 for line in history.values())
        assert all(history[number]["sum"] == histories[0][number]["sum"] for number in common)


def test_collbench_speaks_tls(ca):
    answer = subprocess.run([BUILD / "bin" / "collbench", "--transport", "tcp", "--iters", "2", "--bytes", "300000", "--json", "--tls", ca / "peer"],
                            capture_output=True, text=True, timeout=120, check=True)
    line = json.loads(answer.stdout)
    assert line["tls"] and line["identical"]


# ---- who is refused


@pytest.mark.parametrize("who, words, alert", [
    ("nobody", "it has no certificate: give --tls DIR there", "certificate required"),
    ("stranger", "its certificate (stranger) was signed by another CA than ours", "unknown ca"),
    ("old", "its certificate (old) has expired", "certificate expired"),
])
def test_certificates_that_are_refused(cluster, ca, strangers, tmp_path, who, words, alert):
    node = {"nobody": None, "stranger": strangers / "stranger", "old": None}[who]
    node = expired(ca, tmp_path / "old") if who == "old" else node
    with socket.create_connection(("127.0.0.1", cluster.memberd.port)) as plain:
        with pytest.raises(OSError) as refused:
            with client_context(ca, node).wrap_socket(plain, server_hostname="localhost") as stream:
                stream.sendall(b"TRAIND6\n")
                assert stream.recv(1) != b"", "it was let in"
                raise AssertionError("it was let in")
        assert alert in str(refused.value).lower()
    cluster.memberd.wait_log(words)


def test_old_versions_are_refused(cluster, ca):
    context = client_context(ca, ca / "operator")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(("127.0.0.1", cluster.memberd.port)) as plain, pytest.raises(OSError):
        context.wrap_socket(plain, server_hostname="localhost")
    cluster.memberd.wait_log("it does not speak TLS 1.3")


def test_a_node_of_another_cluster(cluster, strangers, tmp_path):
    folder = tmp_path / "node"
    node = Daemon("traind", folder, ["--memberd", cluster.memberd.address, "--dir", folder, "--tls", strangers / "stranger"],
                  cluster.environment).start()
    try:
        node.wait_log("its certificate (memberd) was signed by another CA than ours")
        cluster.memberd.wait_log("it refused our certificate: signed by another CA than its own")
    finally:
        node.stop()


def test_plain_to_tls_and_tls_to_plain_get_one_line(cluster, ca, tmp_path):
    answer = trainctl("nodes", "--address", cluster.memberd.address, check=False)
    assert answer.returncode == 3 and len(answer.stderr.splitlines()) == 1
    assert "it speaks TLS only: give --tls DIR" in answer.stderr
    cluster.memberd.wait_log("it does not speak TLS, and this port does: give --tls DIR there")
    with pytest.raises(grpc.RpcError):
        with grpc.insecure_channel(cluster.memberd.address) as channel:
            rpc.TrainerStub(channel).ListNodes(pb.ListNodesRequest(), timeout=60)
    folder = tmp_path / "node"
    node = Daemon("traind", folder, ["--memberd", cluster.memberd.address, "--dir", folder], cluster.environment).start()
    try:
        node.wait_log("it speaks TLS only: give --tls DIR")
        node.wait_serving()
        answer = trainctl("nodes", "--address", node.address, "--tls", ca / "operator", check=False)
        assert answer.returncode == 3 and len(answer.stderr.splitlines()) == 1
        assert "it does not speak TLS: it was started without --tls DIR" in answer.stderr
        node.wait_log("it speaks TLS, and this port does not: give --tls DIR here")
    finally:
        node.stop()


# ---- folders and addresses


def run_daemon(program, folder, *arguments):
    return subprocess.run([str(BIN / program), "--dir", str(folder), *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("program, arguments, words", [
    ("memberd", ["--tls", "/no/such/folder"], "cannot read /no/such/folder/ca.crt"),
    ("traind", ["--tls", "/no/such/folder"], "cannot read /no/such/folder/ca.crt"),
    ("traind", ["--tls", "{ca}/node-1", "--listen", "0.0.0.0:0"], "--advertise HOST"),
    ("traind", ["--tls", "{ca}/node-1", "--listen", "0.0.0.0:0", "--advertise", "10.9.8.7"],
     "`trainctl cert node-1 --address 10.9.8.7`"),
    ("memberd", ["--listen", "0.0.0.0:0"], "--tls DIR"),
])
def test_bad_settings_get_one_line(tmp_path, ca, program, arguments, words):
    answer = run_daemon(program, tmp_path / "d", *(argument.format(ca=ca) for argument in arguments))
    assert answer.returncode == 2
    assert len(answer.stderr.splitlines()) == 1 and words in answer.stderr, answer.stderr


def test_all_addresses_may_be_listened_on_with_tls(tmp_path, ca):
    memberd = Daemon("memberd", tmp_path / "m", ["--listen", "0.0.0.0:0", "--dir", tmp_path / "m", "--tls", ca / "memberd"], None)
    try:
        memberd.start().wait_serving()
        assert trainctl("nodes", "--address", f"localhost:{memberd.port}", "--tls", ca / "operator").returncode == 0
    finally:
        memberd.stop()


def test_trainctl_makes_what_is_asked_once(tmp_path):
    ca = tmp_path / "deep" / "ca"
    made = json.loads(trainctl("ca", "init", ca, "--json").stdout)
    assert made["folder"] == str(ca) and made["expires"] > "2030"
    made = json.loads(trainctl("cert", "n1", ca, "--address", "10.0.0.5", "--address", "n1.example.org", "--days", "3", "--json").stdout)
    assert made["node"] == "n1" and made["folder"] == str(ca / "n1") and made["addresses"] == ["10.0.0.5", "n1.example.org"]
    assert sorted(path.name for path in (ca / "n1").iterdir()) == ["ca.crt", "node.crt", "node.key"]
    before = (ca / "ca.key").read_bytes(), (ca / "n1" / "node.key").read_bytes()
    for words in (["ca", "init", ca], ["cert", "n1", ca], ["cert", "n/1", ca], ["cert", "n2", tmp_path], ["ca", "make"],
                  ["cert", "n2", ca, "--address", "10.0.0.5:70"], ["cert", "n2", ca, "--days", "0"], ["cert"], ["ca"],
                  ["ca", "init", "/proc/x"]):
        answer = trainctl(*words, check=False)
        assert answer.returncode == 2 and len(answer.stderr.splitlines()) == 1 and answer.stdout == "", words
    assert before == ((ca / "ca.key").read_bytes(), (ca / "n1" / "node.key").read_bytes())
    assert not (ca / "n2").exists()
    line = trainctl("cert", "n2", ca).stdout
    assert len(line.splitlines()) == 1 and str(ca / "n2") in line and "--tls" in line


def test_trainctl_with_a_bad_folder(tmp_path):
    answer = trainctl("nodes", "--address", "127.0.0.1:1", "--tls", tmp_path, check=False)
    assert answer.returncode == 2 and answer.stderr.startswith("trainctl: --tls: cannot read ")


def test_a_program_that_speaks_plainly_is_told_why(plain_program):
    wait_for(lambda: plain_program.said("error"), "the program to give up")
    assert "it speaks TLS only: give --tls DIR" in plain_program.said("error")[-1]["text"]
