"""Members that cannot dial each other get to each other through one that both can dial. Machines are network namespaces on a bridge; one
behind a NAT listens at an address that nobody else has a way to. Root is needed: without it these tests are skipped."""
import os
import re
import signal
import socket
import struct
import subprocess

import pytest

from bridge_lab import Lab, Place
from harness import trainctl, wait_for
from stubs import BUILD, ROOT

HIDDEN, PUBLIC = (2, 3), (4, 5)


@pytest.fixture
def lab(tmp_path):
    made = Lab(tmp_path)
    try:
        yield made
    finally:
        made.close()


def places_of(lab, numbers):
    made = [Place(lab, number) for number in numbers]
    for place, number in zip(made, numbers):
        if number in HIDDEN:
            place.hide()
    return made


def ways(log):
    """[(from, to, process)] as memberd named them."""
    return re.findall(r"peer p(\d+) gets to peer p(\d+) through node n\d+ \(process-(\d+)\)", log)


def go_on(peers, rounds, contributors):
    before = max(peer.newest() for peer in peers)
    wait_for(lambda: all(peer.newest() >= before + rounds for peer in peers), "rounds")
    for peer in peers:
        assert all(line["wrong"] == 0 for line in peer.rounds())
        assert peer.rounds()[-1]["contributors"] == contributors
    newest = min(peer.newest() for peer in peers)
    assert len({line["sum"] for peer in peers for line in peer.rounds() if line["round"] == newest}) == 1


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls") / "ca"
    trainctl("ca", "init", folder)
    trainctl("cert", "memberd", "--address", "10.77.0.1", folder)
    for number in HIDDEN:
        trainctl("cert", f"place-{number}", "--address", f"10.88.0.{number}", folder)
    for number in PUBLIC:
        trainctl("cert", f"place-{number}", "--address", f"10.77.0.{number}", folder)
    return folder


def certificates(ca):
    return lambda place: [f"tls={ca}/place-{place.listens.rsplit('.', 1)[1]}"] if ca else []


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_two_behind_nat(lab, ca, tls):
    """Six directions, four of which nobody can dial: each of the two to the other, and the third one to both."""
    lab.open(ca / "memberd" if tls else None)
    places = places_of(lab, (2, 3, 4))
    peers = lab.start(places, count=200000, more=certificates(ca if tls else None))
    go_on(peers, 20, 3)
    # The last one named counts: whose complaint comes alone is first offered its own node, which may well be one that can be dialled.
    relays = {(a, b): process for a, b, process in ways(lab.log())}
    assert relays and set(relays.values()) == {str(peers[2].process.pid)}, lab.log()
    assert " is lost: " not in lab.log()


def test_the_relay_dies(lab):
    """Another one takes over; when none is left, nor memberd to be, the words say who cannot reach whom and what to do."""
    lab.open(more=["--no-relay"])
    peers = lab.start(places_of(lab, (2, 3, 4, 5)))
    go_on(peers, 10, 4)
    relay = [int(process) for a, b, process in ways(lab.log()) if (int(a), int(b)) == (peers[0].id, peers[1].id)][-1]
    first = next(peer for peer in peers if peer.process.pid == relay)
    second = next(peer for peer in peers[2:] if peer is not first)
    first.process.send_signal(signal.SIGKILL)
    go_on([peers[0], peers[1], second], 10, 3)
    second.process.send_signal(signal.SIGKILL)
    wait_for(lambda: "nor does a relay: open its port, or start a traind that both reach" in lab.log(), "one of the two to be given up")
    left = wait_for(lambda: [p for p in peers[:2] if not re.search(rf"peer p{p.id} \([^)]*\) is lost", lab.log())], "one to be left")
    assert len(left) == 1
    go_on(left, 5, 1)


def ways_through_memberd(log):
    return {(int(a), int(b)) for a, b in re.findall(r"peer p(\d+) gets to peer p(\d+) through memberd", log)}


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_memberd_relays(lab, ca, tls):
    """Two see nobody but memberd. What it carries breaks when it dies, and goes on when it is back."""
    lab.open(ca / "memberd" if tls else None)
    peers = lab.start(places_of(lab, HIDDEN), count=200000, more=certificates(ca if tls else None))
    both = {(peers[0].id, peers[1].id), (peers[1].id, peers[0].id)}
    go_on(peers, 20, 2)
    assert ways_through_memberd(lab.log()) == both, lab.log()
    lab.restart()
    go_on(peers, 20, 2)
    assert " is lost: " not in lab.log()


def test_memberd_relays_when_no_daemon_is_left(lab):
    lab.open()
    peers = lab.start(places_of(lab, (2, 3, 4)))
    go_on(peers, 10, 3)
    assert ways(lab.log()) and not ways_through_memberd(lab.log()), lab.log()
    peers[2].process.send_signal(signal.SIGKILL)
    go_on(peers[:2], 10, 2)
    assert ways_through_memberd(lab.log()) == {(peers[0].id, peers[1].id), (peers[1].id, peers[0].id)}, lab.log()


def asks_relay(socket_path):
    """What a relay behind a daemon's API socket says to a call for a pair that it does not know."""
    with socket.socket(socket.AF_UNIX) as api:
        api.settimeout(60)
        api.connect(str(socket_path))
        api.sendall(b"TRELAY1\n" + struct.pack("<II5Q16x", 1, 0, 1, 2, 3, 4, 5))
        try:
            return api.recv(64)
        except ConnectionResetError:
            return b""


def test_a_job(lab, tmp_path):
    """Daemons: a job trains over two nodes behind NATs and one that is not."""
    lab.open()
    daemons = []
    try:
        for place in places_of(lab, (2, 3, 4)):
            folder = tmp_path / place.namespace
            folder.mkdir()
            with open(folder / "log", "wb") as log:
                daemons.append(subprocess.Popen(
                    ["ip", "netns", "exec", place.namespace, str(BUILD / "bin" / "traind"), "--memberd", lab.address, "--listen",
                     place.listens + ":0", "--insecure", "--dir", str(folder / "node"), "--slots", "1", "--name", place.namespace],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        text = tmp_path / "text.txt"
        text.write_text((ROOT / "docs" / "protocol.md").read_text())
        job = tmp_path / "job.yaml"
        job.write_text(f"""
name: nat
model: {{layers: 1, width: 32, heads: 2, context: 32, vocab: bytes}}
data: {{text: [{text}]}}
train: {{steps: 40, batch_tokens: 768, seed: 1}}
mesh: {{nodes: 3}}
checkpoint: {{dir: {tmp_path}/run}}
""")
        done = subprocess.run(["ip", "netns", "exec", lab.name, str(BUILD / "bin" / "trainctl"), "launch", job, "--address", lab.address, "--insecure"],
                              capture_output=True, text=True, timeout=240, env={**os.environ, "TRAIND_HOME": str(tmp_path / "home")})
        assert done.returncode == 0, done.stdout + done.stderr + lab.log()
        assert "step 40/40" in done.stdout and "peers 3" in done.stdout, done.stdout
        assert "gets to peer" in lab.log() and " is lost: cannot" not in lab.log()
        # Who may use the API is not thereby a peer.
        assert [asks_relay(socket_path) for socket_path in tmp_path.glob("*/node/api.sock")] == [b""] * 3
    finally:
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            daemon.wait()
