"""libtraincoll as a user's program sees it: processes that join a group at a real memberd by its name, run rounds with
known data (tests/system/library_peer.c), die, stop, leave and come in the middle."""
import itertools
import json
import os
import re
import signal
import subprocess

import pytest

from harness import wait_for
from library_group import GroupPeer, check_agreement, check_common, check_survivors
from line_process import group_of
from stubs import BUILD, ROOT

PEER = BUILD / "tests" / "library_peer"
LIBRARY = BUILD / "lib" / "libtraincoll.so"


class Peer(GroupPeer):
    """One library_peer."""

    def __init__(self, cluster, group, size, rounds, policy="replay", algorithm="ring", count=100000, pause_at=0,
                 announce=0):
        super().__init__([PEER, cluster.memberd.address, group, size, rounds, policy, algorithm, count, pause_at, announce],
                         cluster.environment)


@pytest.fixture
def group(tmp_path):
    with group_of(lambda cluster, *words, **options: Peer(cluster, "g", *words, **options), tmp_path) as start:
        yield start


@pytest.mark.parametrize("algorithm", ["ring", "star", "auto"])
def test_rounds_agree(group, algorithm):
    peers = [group(3, 10, algorithm=algorithm) for _ in range(3)]
    histories = [peer.end() for peer in peers]
    assert [len(history) for history in histories] == [10, 10, 10]
    check_agreement(histories)
    assert all(line["contributors"] == 3 and not line["partial"] for line in histories[0])


@pytest.mark.parametrize("policy,algorithm", list(itertools.product(["keep", "uniform", "replay"], ["ring", "star"])))
def test_peer_killed_in_mid_op(group, policy, algorithm):
    """One peer submits two of three ops of round 4 and is killed; the others finish that very round."""
    victim = group(4, 8, policy=policy, algorithm=algorithm, count=600000, pause_at=4)
    others = [group(4, 8, policy=policy, algorithm=algorithm, count=600000, announce=4) for _ in range(3)]
    wait_for(lambda: victim.paused() and all(peer.submitted() for peer in others), "all to be in round 4")
    victim.process.kill()
    histories = [peer.end() for peer in others]
    check_agreement(histories)
    for history in histories:
        assert history[2]["contributors"] == 4 and history[4]["contributors"] == 3
        round_4 = history[3]
        if policy == "replay":
            assert round_4["restarts"] == 1 and round_4["contributors"] == 3 and not round_4["partial"]
        if policy == "uniform":
            assert round_4["restarts"] == 0 and round_4["contributors"] == 3
        if policy == "keep":
            assert round_4["restarts"] == 0


def test_peer_stopped_in_mid_op(group):
    """SIGSTOP: no socket breaks, only its heartbeats stop. Awake again, it is told that it is no longer a member."""
    victim = group(3, 8, pause_at=4)
    others = [group(3, 8) for _ in range(2)]
    wait_for(victim.paused, "the victim to be in round 4")
    victim.process.send_signal(signal.SIGSTOP)
    histories = [peer.end() for peer in others]
    check_agreement(histories)
    assert histories[0][3]["contributors"] == 2


def test_stopped_peer_learns_that_it_was_evicted(group):
    victim, *others = [group(3, 100000, count=1000) for _ in range(3)]
    wait_for(lambda: victim.reached(5), "rounds")
    victim.process.send_signal(signal.SIGSTOP)
    before = len(victim.rounds())
    wait_for(lambda: others[0].reached(before + 1000), "the others to go on")
    victim.process.send_signal(signal.SIGCONT)
    wait_for(lambda: victim.process.poll() is not None, "the evicted peer to end")
    wait_for(lambda: "error" in victim.lines[-1], "its last line to be read")
    assert victim.process.returncode == 1
    assert victim.lines[-1]["error"] == "TR_EEVICTED", victim.story()


def test_peer_killed_at_random_moments(group):
    """Five of eight are killed one after the other, wherever they are."""
    peers = [group(8, 100000, policy="keep", count=50000) for _ in range(8)]
    for i, victim in enumerate(peers[:5]):
        wait_for(lambda: all(peer.reached(3 * (i + 1) + (peers[7].rounds() or [{"round": 0}])[0]["round"])
                             for peer in peers[i:]), "rounds")
        victim.process.kill()
    check_survivors(peers, peers[5:])


@pytest.mark.parametrize("policy", ["keep", "uniform", "replay"])
@pytest.mark.parametrize("count, dies", [(100001, False), (700000, True)])
def test_a_joiner_with_other_ops_ends_alone(group, policy, count, dies):
    """A program of another version, say, under a running group's name. Also while somebody dies, so that what each holds is asked."""
    peers = [group(4, 10**9, policy) for _ in range(4)]
    wait_for(lambda: all(peer.reached(5) for peer in peers), "rounds")
    wrong = group(4, 10**9, policy, count=count)
    if dies:
        wait_for(lambda: wrong.said("joined") or wrong.process.poll() is not None, "the joiner")
        peers.pop().process.kill()
    wait_for(lambda: wrong.process.poll() is not None, "the joiner to end")
    wait_for(lambda: wrong.said("error"), "its words")
    error = wrong.said("error")[0]
    assert error["error"] == "TR_EMISMATCH" and f" {wrong.said('joined')[0]['joined']}" in error["text"] and not wrong.rounds()
    before = [len(peer.rounds()) for peer in peers]
    wait_for(lambda: all(len(peer.rounds()) > n + 20 for peer, n in zip(peers, before)), "the others to go on")
    assert all(line["wrong"] == 0 for peer in peers for line in peer.rounds())


def test_joiner_gets_the_state(group):
    """It enters a running group at a round's boundary with the others' state."""
    peers = [group(2, 100000, count=20000) for _ in range(2)]
    wait_for(lambda: all(peer.reached(5) for peer in peers), "rounds")
    peers.append(group(2, 100000, count=20000))
    wait_for(lambda: len(peers[2].rounds()) >= 20, "rounds of the joiner")
    histories = [list(peer.rounds()) for peer in peers]
    first, second = histories[2][:2]
    assert 5 < first["round"] and first["contributors"] == 2 and second["contributors"] == 3
    check_common(histories)


def test_peer_leaves(group):
    """The others go on without an error."""
    short = group(3, 5)
    others = [group(3, 12) for _ in range(2)]
    assert len(short.end()) == 5
    histories = [peer.end() for peer in others]
    check_agreement(histories)
    assert histories[0][-1]["contributors"] == 2


def test_memberd_dies_and_comes_back(group):
    """Rounds need no coordinator; a death during its absence is repaired when it is back."""
    peers = [group(3, 100000, count=2000) for _ in range(3)]
    wait_for(lambda: all(peer.reached(5) for peer in peers), "rounds")
    group.cluster.kill_memberd()
    last = peers[0].rounds()[-1]["round"]
    wait_for(lambda: all(peer.reached(last + 50) for peer in peers), "rounds without memberd")
    peers[0].process.kill()
    group.cluster.restart_memberd()
    last = peers[1].rounds()[-1]["round"]
    wait_for(lambda: all(peer.reached(last + 50) for peer in peers[1:]), "rounds of the survivors")
    histories = [list(peer.rounds()) for peer in peers[1:]]
    shortest = min(len(history) for history in histories)
    check_agreement([history[:shortest] for history in histories])
    assert histories[0][-1]["contributors"] == 2


def test_joining_fails_with_one_clear_line(group, tmp_path):
    first = group(2, 3, policy="replay")
    wait_for(lambda: first.lines, "the first to join")
    other = group(2, 3, policy="keep")
    wait_for(lambda: other.process.poll() is not None, "the other to be refused")
    assert other.process.returncode == 1
    assert other.lines[-1]["error"] == "TR_EREFUSED" and "another policy" in other.lines[-1]["text"]
    for reader in other.readers:
        reader.join()
    assert other.errors == []  # not in the caller's stderr too, and nothing is tried again


def test_a_program_without_standard_files(group):
    """What the library opens must not take their numbers: libuv aborts when it closes one of them."""
    group(1, 5)
    closed = subprocess.run(["sh", "-c", 'exec "$@" <&- 2>&-', "sh", PEER, group.cluster.memberd.address, "closed", "1", "5", "replay", "ring", "100"],
                            capture_output=True, text=True, timeout=60, env=group.cluster.environment)
    assert closed.returncode == 0 and '"done"' in closed.stdout, closed


# ---- the library's face


def test_only_the_public_names_are_exported():
    header = "".join((ROOT / path).read_text()
                     for path in ("collectives/coll.h", "collectives/sync.h", "collectives/domain.h", "common/status.h"))
    public = set(re.findall(r"^TR_API [^;(]*?\b(tr_\w+)\(", header, re.M))
    assert len(public) > 15
    listing = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], check=True, capture_output=True, text=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in listing.splitlines() if line.split()[-2] != "A"}
    assert exported - {"LIBTRAINCOLL_0"} == public


@pytest.mark.parametrize("compiler", [["gcc", "-x", "c", "-std=c99", "-pedantic-errors"], ["gcc", "-x", "c", "-std=c11"],
                                      ["g++", "-x", "c++", "-std=c++11"], ["g++", "-x", "c++", "-std=c++17"]])
def test_header_compiles(compiler, tmp_path):
    source = tmp_path / "user"
    source.write_text('#include "collectives/domain.h"\n#include "collectives/sync.h"\n'
                      "int main(void) { struct tr_join_options o = TR_JOIN_OPTIONS_INIT; struct tr_domain_options d = TR_DOMAIN_OPTIONS_INIT;"
                      " struct tr_op op = TR_OP_INIT; struct tr_sync_options s = TR_SYNC_OPTIONS_INIT; size_t first, elements; tr_block_range(10, 3, 1, &first, &elements);"
                      " return o.size_of == 0 || d.size_of != sizeof(d) || op.size_of != sizeof(op) || op.flags != TR_CONTRIBUTE || op.residual != NULL || s.overlap >= 0 ||"
                      " first != 4 || elements != 3 || tr_status_name(TR_OK)[0] != 'T'; }\n")
    environment = {name: value for name, value in os.environ.items() if name != "CFLAGS"}
    subprocess.run([*compiler, "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{ROOT}", "-o", tmp_path / "program",
                    source, f"-L{LIBRARY.parent}", "-ltraincoll", f"-Wl,-rpath,{LIBRARY.parent}"]
                   if "build" == BUILD.name else [*compiler, "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{ROOT}",
                                                  "-c", "-o", tmp_path / "program", source],
                   check=True, env=environment)
    if BUILD.name == "build":
        subprocess.run([tmp_path / "program"], check=True)


def test_manual_pages_render_and_name_every_function():
    """From the header's own comments; groff has nothing to say against them."""
    header = "".join((ROOT / path).read_text()
                     for path in ("collectives/coll.h", "collectives/sync.h", "collectives/domain.h", "common/status.h"))
    pages = {page.stem: page for page in (BUILD / "man").glob("*.3")}
    assert set(re.findall(r"^TR_API [^;(]*?\b(tr_\w+)\(", header, re.M)) == set(pages)
    for name, page in pages.items():
        text = page.read_text()
        if text.startswith(".so "):
            assert text.strip().removeprefix(".so man3/").removesuffix(".3") in pages
            continue
        done = subprocess.run(["groff", "-ww", "-man", "-Tutf8", page], capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr == "", (name, done.stderr)
        assert len(done.stdout.splitlines()) > 30


def test_collbench():
    """The benchmark's own form: one JSON object a case, results identical."""
    done = subprocess.run([BUILD / "bin" / "collbench", "--world", "1,3", "--bytes", "4,1000000", "--algo", "ring,star",
                           "--iters", "3", "--json"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    cases = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(cases) == 8
    for case in cases:
        assert set(case) >= {"world", "bytes", "algo", "transport", "median_s", "algbw_gbps", "busbw_gbps", "identical"}
        assert case["identical"] is True
    bad = subprocess.run([BUILD / "bin" / "collbench", "--bytes", "many"], capture_output=True, text=True, timeout=60)
    assert bad.returncode == 2 and "usage:" in bad.stderr
