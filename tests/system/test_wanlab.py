"""The laboratory of wide-area networks gives what it was asked for, keeps its packets to itself, and leaves nothing behind. Times are
taken where the scheduler does not reach: the kernel stamps packets when the relay hands them over."""
import os
import pathlib
import signal
import socket
import statistics
import struct
import subprocess
import threading
import time

import pytest

from harness import wait_for
from stubs import ROOT
from wan_lab import CONFIGS, WANLAB, WanLab, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
SO_TIMESTAMPNS, TCP_CONGESTION = 35, 13
PACKET, PAYLOAD = 1500, 1448  # bytes of a full packet, and of TCP's payload in it


def stamp_of(ancillary):
    """The kernel's time of arrival, in seconds."""
    for _, kind, data in ancillary:
        if kind == SO_TIMESTAMPNS:
            seconds, nanoseconds = struct.unpack("qq", data[:16])
            return seconds + nanoseconds / 1e9
    raise AssertionError("no time stamp")


def one_way_delays(lab, a, b, count):
    sender, receiver = lab.socket(a, socket.SOCK_DGRAM), lab.socket(b, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    receiver.settimeout(60)
    delays = []
    with sender, receiver:
        for _ in range(count):
            sent = time.clock_gettime(time.CLOCK_REALTIME)
            sender.sendto(b"ping", receiver.getsockname())
            _, ancillary, _, _ = receiver.recvmsg(16, 64)
            delays.append(stamp_of(ancillary) - sent)
    return delays


def tcp_rate(lab, a, b, seconds, settle_s):
    """Bits/s of IP packets of one stream, by the times at which they arrived: the median of pieces, what came before `settle_s` left out."""
    with lab.socket(b, socket.SOCK_STREAM) as listener, lab.socket(a, socket.SOCK_STREAM) as sender:
        listener.listen(1)
        sender.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, b"cubic")
        sender.connect(listener.getsockname())
        receiver, _ = listener.accept()
        receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)

        def send():
            try:
                while True:
                    sender.send(bytes(1 << 16))
            except OSError:
                pass  # the other end has had enough
        thread = threading.Thread(target=send)
        thread.start()
        marks, got, first = [], 0, None
        while first is None or marks[-1][0] < first + settle_s + seconds:
            data, ancillary, _, _ = receiver.recvmsg(1 << 14, 64)
            got += len(data)
            marks.append((stamp_of(ancillary), got))
            first = first or marks[0][0]
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        receiver.close()
        thread.join()
    pieces, start = [], None
    for at, count in marks:
        if at < first + settle_s:
            continue
        if start is None:
            start = (at, count)
        elif at - start[0] >= 0.25:
            pieces.append((count - start[1]) / (at - start[0]))
            start = (at, count)
    return statistics.median(pieces) * 8 * PACKET / PAYLOAD


def lost_of(lab, a, b, count):
    """Which of so many datagrams did not come."""
    sender, receiver = lab.socket(a, socket.SOCK_DGRAM), lab.socket(b, socket.SOCK_DGRAM)
    receiver.setblocking(False)
    came = set()
    with sender, receiver:
        for start in range(0, count, 100):  # no more than fit into the receiver's buffer
            for number in range(start, start + 100):
                sender.sendto(number.to_bytes(4, "little"), receiver.getsockname())
            wait_for(lambda: sum(lab.show()[a, b][key] for key in ("arrived", "lost")) >= start + 100, "packets to be counted")
            while True:
                try:
                    came.add(int.from_bytes(receiver.recv(16), "little"))
                except BlockingIOError:
                    break
    return set(range(count)) - came


def test_round_trips_are_as_long_as_asked():
    with WanLab("site a\nsite b\nlink a b delay=40ms jitter=4ms\nset b a delay=20ms jitter=0ms") as lab:
        there, back = one_way_delays(lab, "a", "b", 100), one_way_delays(lab, "b", "a", 100)
        assert min(there) >= 0.0359 and min(back) >= 0.0199
        assert statistics.median(there) == pytest.approx(0.040, rel=0.05)
        assert statistics.median(back) == pytest.approx(0.020, rel=0.05)
        lab.do("set b a delay=30ms")
        assert statistics.median(one_way_delays(lab, "b", "a", 50)) == pytest.approx(0.030, rel=0.05)


@pytest.mark.parametrize("topology, rate", [
    ("site a\nsite b\nlink a b delay=5ms rate=40mbit", 40e6),
    ("site a up=20mbit\nsite b down=30mbit\nlink a b delay=5ms", 20e6),
    ("site a up=90mbit\nsite b down=30mbit\nlink a b delay=5ms rate=80mbit", 30e6)])
def test_one_stream_gets_the_rate_that_was_asked(topology, rate):
    with WanLab(topology) as lab:
        assert tcp_rate(lab, "a", "b", seconds=3, settle_s=1) == pytest.approx(rate, rel=0.05)


def test_losses_are_as_many_as_asked_and_the_same_again():
    topology, count = "site a\nsite b\nset a b loss=10%", 20000
    with WanLab(topology) as lab:
        lost = lost_of(lab, "a", "b", count)
        counters = lab.show()["a", "b"]
    assert len(lost) == pytest.approx(count * 0.1, rel=0.05)
    assert counters["lost"] == len(lost) and counters["dropped"] == 0 and counters["arrived"] == count - len(lost)
    with WanLab(topology) as lab:
        assert lost_of(lab, "a", "b", 1000) == {number for number in lost if number < 1000}
    with WanLab(topology, seed=2) as lab:
        assert lost_of(lab, "a", "b", 1000) != {number for number in lost if number < 1000}


def heard(receiver, sender, word):
    """Whether the word comes within a time in which it would, by far."""
    sender.sendto(word, receiver.getsockname())
    try:
        while receiver.recv(64) != word:
            pass
        return True
    except TimeoutError:
        return False


def test_holes_and_cuts_come_and_go():
    with WanLab("site a\nsite b\nsite c\nlink all all delay=1ms") as lab:
        ends = {site: lab.socket(site, socket.SOCK_DGRAM) for site in "abc"}
        for end in ends.values():
            end.settimeout(0.5)

        def ways():
            return {x + y for x in "abc" for y in "abc" if x != y and heard(ends[y], ends[x], f"{x}{y}".encode())}
        everything = {"ab", "ac", "ba", "bc", "ca", "cb"}
        assert ways() == everything
        lab.do("blackhole a b")
        assert ways() == everything - {"ab"}
        lab.do("heal a b", "cut c")
        assert ways() == {"ab", "ba"}
        lab.do("heal c")
        assert ways() == everything
        lab.do("link a b delay=100ms")
        ends["a"].sendto(b"under way", ends["b"].getsockname())
        wait_for(lambda: lab.show()["a", "b"]["arrived"] == 3 + 1, "the packet to be under way")
        lab.do("cut a b", "link a b delay=1ms")
        lab.do("heal a b")
        assert heard(ends["b"], ends["a"], b"later") and lab.show()["a", "b"]["swallowed"] == 2
        for end in ends.values():
            end.close()


def test_one_connection_of_several_can_be_lost():
    with WanLab("site a\nsite b\nlink a b delay=1ms") as lab, lab.socket("a", socket.SOCK_STREAM) as listener:
        listener.listen(2)
        pairs = []
        for _ in range(2):
            client = lab.socket("b", socket.SOCK_STREAM)
            client.connect(listener.getsockname())
            client.settimeout(0.5)
            pairs.append((client, listener.accept()[0]))
        lab.do(f"drop a b {pairs[0][0].getsockname()[1]}")
        for _, server in pairs:
            server.send(b"x")
        assert pairs[1][0].recv(1) == b"x"
        with pytest.raises(TimeoutError):
            pairs[0][0].recv(1)
        lab.do("heal a b")
        pairs[0][0].settimeout(60)
        assert pairs[0][0].recv(1) == b"x"  # TCP sends it again
        for pair in pairs:
            pair[0].close()
            pair[1].close()


def test_packets_stay_inside():
    with WanLab("site a\nsite b") as lab, lab.socket("a", socket.SOCK_DGRAM) as sender:
        for outside in ("192.0.2.1", "8.8.8.8"):
            with pytest.raises(OSError):
                sender.sendto(b"x", (outside, 9))
        for nobody in (lab.address("a")[:-1] + "9", "10.99.0.255"):
            try:
                sender.sendto(b"x", (nobody, 9))
            except PermissionError:
                pass  # a broadcast
        devices = subprocess.run(lab.command("a", ["cat", "/proc/net/dev"]), env=lab.environment, capture_output=True, text=True, check=True)
        assert {line.split(":")[0].strip() for line in devices.stdout.splitlines()[2:]} <= {"lo", "wan0"} | {
            name for name in devices.stdout.split() if name.startswith(("sit0", "tunl0", "ip6tnl0", "gre0", "erspan0", "gretap0"))}
        wait_for(lambda: "strangers=1" in lab.ask("show")[0], "the packet to nobody to be counted")


def namespaces_held(inodes):
    """Processes that live in one of these network namespaces or hold a file of it."""
    held = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        for link in [process / "ns" / "net", *process.glob("fd/*")]:
            try:
                if os.readlink(link) in inodes:
                    held.append(str(link))
            except OSError:
                continue
    return held


def lives(site_net):
    return os.readlink(f"/proc/self/fd/{site_net}")


@pytest.mark.parametrize("end", ["command ends", "SIGTERM", "SIGHUP", "SIGINT", "SIGKILL"])
def test_nothing_is_left_however_it_ends(end):
    lab = WanLab("site a\nsite b\nlink a b delay=1ms")
    orphan = "setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1000; done' >/dev/null 2>&1 & echo $!"
    left = []
    for site in "ab":
        with lab.popen(site, ["sh", "-c", orphan], stdout=subprocess.PIPE, text=True) as shell:
            left.append(int(shell.stdout.readline()))
    names = {lives(lab.net(site)[0]) for site in "ab"}
    folder = pathlib.Path(lab.control).parent
    assert len(names) == 2 and folder.exists() and all(pathlib.Path(f"/proc/{pid}").exists() for pid in left)
    assert not any(name.split("[")[1].rstrip("]") in pathlib.Path("/proc/self/mountinfo").read_text() for name in names)
    for net, _ in lab.nets.values():
        os.close(net)
    lab.nets = {}
    assert namespaces_held(names)
    if end == "SIGKILL":
        lab.kill9()
    elif end.startswith("SIG"):
        lab.process.send_signal(signal.Signals[end])
        assert lab.process.wait() == 128 + signal.Signals[end]
    else:
        lab.process.stdin.close()
        assert lab.process.wait() == 0
    wait_for(lambda: not folder.exists() and not namespaces_held(names), "the laboratory to be gone")
    assert not any(pathlib.Path(f"/proc/{pid}/ns/net").exists() and os.path.lexists(f"/proc/{pid}/exe") for pid in left)
    lab.process.stdout.close()


def test_its_command_is_told_where_it_is_and_its_exit_code_counts():
    script = 'test "$WANLAB_SITES" = "eu us" && test "$WANLAB_us" = 10.99.0.2 && "$0" set eu us loss=1% && ' \
             '"$0" exec us -- grep -q wan0 /proc/net/dev && exit 7'
    done = subprocess.run([WANLAB, "run", CONFIGS / "long-link.wan", "--", "sh", "-c", script, WANLAB], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


@pytest.mark.parametrize("argv, words", [
    (["run", "/nonexistent", "--", "true"], "No such file"), (["check", ROOT / "README.md"], "line 3"), (["exec", "a", "--", "true"], "WANLAB_SOCKET"),
    (["run", CONFIGS / "star.wan", "--", "/nonexistent"], "No such file"), (["run", "x"], "usage"), (["set", "a", "b"], "WANLAB_SOCKET")])
def test_what_cannot_be_is_said(argv, words):
    environment = {key: value for key, value in os.environ.items() if key != "WANLAB_SOCKET"}
    done = subprocess.run([WANLAB, *argv], capture_output=True, text=True, env=environment)
    assert done.returncode not in (0, -11) and words in done.stderr and len(done.stderr.splitlines()) <= 7


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.wan")), ids=lambda path: path.stem)
def test_sample_topologies_are_right(path):
    assert subprocess.run([WANLAB, "check", path]).returncode == 0
