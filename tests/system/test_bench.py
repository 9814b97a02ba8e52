"""The benchmark of the collectives: its programs give what docs/benchmarks.md says, its results are right, and a peer that cannot
run is named. No figure is judged."""
import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

import pytest

from stubs import BUILD, ROOT

COLLBENCH = BUILD / "bin" / "collbench"
FIGURES = ["world", "bytes", "algo", "transport", "dtype", "median_s", "algbw_gbps", "busbw_gbps", "identical", "rss_mib", "caller_mib", "huge_mib",
           "cpu_s", "wire_bytes", "congestion"]


def run(*argv, **more):
    return subprocess.run(list(map(str, argv)), capture_output=True, text=True, timeout=240, **more)


def rows_of(*argv):
    done = run(*argv)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_collbench_prints_one_object_a_case():
    rows = rows_of(COLLBENCH, "--world", "2,3", "--bytes", "4096,1000000", "--algo", "ring,star", "--iters", 2, "--json")
    assert len(rows) == 8
    assert {(row["world"], row["bytes"], row["algo"]) for row in rows} == {
        (world, size, algo) for world in (2, 3) for size in (4096, 1000000) for algo in ("ring", "star")}
    for row in rows:
        assert not set(FIGURES + ["codec", "round_s"]) - set(row), row
        assert row["identical"] is True
        assert 0 < row["median_s"] and row["busbw_gbps"] == pytest.approx(
            row["algbw_gbps"] * 2 * (row["world"] - 1) / row["world"], rel=0.01, abs=2e-6)


@pytest.mark.parametrize("dtype", ["f64", "i32", "i64", "f16", "bf16", "u8"])
def test_collbench_knows_all_element_types(dtype):
    row, = rows_of(COLLBENCH, "--world", 3, "--bytes", 4000, "--dtype", dtype, "--iters", 2, "--json")
    assert row["identical"] is True and row["dtype"] == dtype


@pytest.mark.parametrize("options", [["--algo", "square"], ["--transport", "pigeon"], ["--kill-at", "1.5"], ["--world", "0"],
                                     ["--dtype", "f8"], ["--codec", "zip"], ["--victim", "nobody"], ["--iters", "2,3"], ["--bytes", "7"],
                                     ["--kill-at", "0.5", "--stop-at", "0.5"], ["ring"]])
def test_collbench_refuses_what_it_does_not_know(options):
    done = run(COLLBENCH, *options, "--json")
    assert done.returncode == 2 and done.stdout == "" and "usage:" in done.stderr
    assert options[-1] in done.stderr.splitlines()[0] and options[-2:][0] in done.stderr.splitlines()[0]


@pytest.mark.parametrize("at", [0.01, 0.5, 0.99])
@pytest.mark.parametrize("transport", ["tcp", "shm"])
@pytest.mark.parametrize("algo", ["ring", "star", "direct", "one-shot"])
def test_a_death_in_mid_op_is_measured_and_the_result_exact(algo, transport, at):
    row, = rows_of(COLLBENCH, "--world", 4, "--bytes", 4 << 20, "--algo", algo, "--transport", transport, "--iters", 3, "--kill-at", at, "--json")
    assert row["exact"] is True and row["identical"] is True
    assert row["kill_at"] == at and row["undisturbed_s"] > 0 and row["disturbed_s"] > 0 and row["resent_bytes"] >= 0
    assert row["detect_s"] is None or row["detect_s"] >= 0 and row["detect_event"]
    assert 0 <= row["kept"] <= 1 and row["trigger"]
    assert row["median_s"] == pytest.approx(row["undisturbed_s"], abs=1e-6) and row["rss_mib"] >= 0
    assert row["busbw_gbps"] == pytest.approx(row["algbw_gbps"] * 2 * 3 / 4, rel=0.01)


@pytest.mark.parametrize("dtype, codec", [("f32", "bf16"), ("f32", "int8"), ("f32", "int4"), ("bf16", "none"), ("u8", "none"), ("f64", "none")])
def test_a_death_is_measured_with_any_codec_and_type(dtype, codec):
    row, = rows_of(COLLBENCH, "--world", 3, "--bytes", 4 << 20, "--algo", "direct", "--iters", 2, "--dtype", dtype, "--codec", codec, "--kill-at", 0.5, "--json")
    assert row["exact"] is True and row["identical"] is True and row["dtype"] == dtype and row["codec"] == codec and 0 <= row["kept"] <= 1


def test_a_hub_s_death_is_measured():
    """Who sends most: (n - 1) S of a star's hub beside S of a leaf. The others' sums have to begin again somewhere else; where a machine stands still all may have been there before."""
    for _ in range(4):
        row, = rows_of(COLLBENCH, "--world", 4, "--bytes", 16 << 20, "--algo", "star", "--transport", "tcp", "--iters", 3, "--kill-at", 0.5, "--victim",
                       "busiest", "--json")
        assert row["exact"] is True and row["identical"] is True
        if row["resent_bytes"] > 0:
            return
    raise AssertionError(row)


@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_a_join_is_measured(transport):
    row, = rows_of(BUILD / "bin" / "faultbench", "--fault", "join", "--world", 2, "--bytes", 1 << 20, "--transport", transport, "--trials", 1, "--json")
    assert row["transport"] == transport and row["takes_part_ms"][0] >= row["admitted_ms"][0] > 0 and row["next_op_ms"][0] >= 0 and len(row["settled_ms"]) == 3


@pytest.mark.parametrize("gradual", [[], ["--gradual"]], ids=["whole", "gradual"])
def test_a_join_with_a_state_is_measured(gradual):
    """faultbench fails where the newcomer has other bytes than the others."""
    row, = rows_of(BUILD / "bin" / "faultbench", "--fault", "join", "--world", 2, "--bytes", 1 << 16, "--state", (3 << 20) + 5, *gradual, "--trials", 1, "--json")
    assert row["state"] == (3 << 20) + 5 and row["gradual"] is bool(gradual)
    assert row["contributes_ms"][0] >= row["takes_part_ms"][0] > 0 and row["contributes_ms"][0] >= row["state_ms"][0] > 0 and row["next_result_ms"][0] >= 0


def test_the_script_measures_newcomers():
    done = run(sys.executable, ROOT / "scripts" / "bench_newcomer.py", "--build", BUILD, "--trials", 1, "--states", "0,1048576", "--bytes", "65536")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 2 + 6, done.stdout + done.stderr


@pytest.mark.parametrize("world", [2, 8])
def test_a_stop_in_mid_op_is_measured_and_the_result_exact(world):
    row, = rows_of(COLLBENCH, "--world", world, "--bytes", 4 << 20, "--algo", "ring", "--iters", 2, "--stop-at", 0.5, "--json")
    assert row["exact"] is True and row["stop_at"] == 0.5
    assert row["detect_event"] is None or "is lost" in row["detect_event"] or "broke" in row["detect_event"]


@pytest.mark.parametrize("world, size", [(1, 4), (2, 4), (3, 4), (3, 20), (5, 1000004), (4, 8 << 20)])
@pytest.mark.parametrize("floor", ["bare ring", "bare fold"])
def test_the_floors_add_right(floor, world, size):
    row, = rows_of(BUILD / "bench" / floor.replace(" ", "_"), "--world", world, "--bytes", size, "--iters", 3)
    assert not set(FIGURES) - set(row), row
    assert row["peer"] == floor and row["identical"] is True
    assert row["wire_bytes"] <= 2 * (world - 1) / world * size * 1.1 + 8  # a ring's bytes and no more


@pytest.mark.parametrize("contender", [[COLLBENCH, "--json", "--transport", "tcp"], [BUILD / "bench" / "bare_ring"], [BUILD / "bench" / "bare_fold"],
                                       [BUILD / "bench" / "gloo_bench"]], ids=lambda words: words[0].name)
def test_all_have_their_memory_in_huge_pages(contender):
    """Ours is (tr_alloc); so is a peer's, or pages and not the software make the difference."""
    if not contender[0].exists():
        pytest.skip(f"{contender[0].name} is not built")
    if "[never]" in pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text():
        pytest.skip("the system has no huge pages")
    row, = rows_of(*contender, "--world", 2, "--bytes", 32 << 20, "--iters", 3)
    assert row["identical"] is True and row["huge_mib"] >= 16, row


@pytest.mark.parametrize("transport, codec", [("tcp", "none"), ("tcp", "int8"), ("shm", "none"), ("shm", "int8")])
def test_an_op_of_256_mib_adds_32_at_most(transport, codec):
    row, = rows_of(COLLBENCH, "--world", 2, "--bytes", 256 << 20, "--transport", transport, "--codec", codec, "--iters", 2, "--json")
    assert row["identical"] is True and row["rss_mib"] <= 32 and row["caller_mib"] == 256, row


def test_peers_have_plain_pages_if_they_are_to(monkeypatch):
    monkeypatch.setenv("TR_BENCH_PAGES", "plain")
    if "[always]" in pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text():
        pytest.skip("the system gives huge pages unasked")
    row, = rows_of(BUILD / "bench" / "bare_ring", "--world", 2, "--bytes", 32 << 20, "--iters", 3)
    assert row["identical"] is True and row["huge_mib"] == 0, row


def test_the_bytes_alone_are_a_ring_s_bytes_and_nothing_is_added():
    row, = rows_of(BUILD / "bench" / "bare_ring", "--algo", "bytes", "--world", 4, "--bytes", 1 << 20, "--iters", 3)
    assert row["peer"] == "bare bytes" and row["identical"] is True  # what each rank began with is at all in the end
    assert 1.5 * (1 << 20) <= row["wire_bytes"] <= 1.5 * (1 << 20) * 1.1 + 8


def test_the_preload_chooses_the_congestion_control():
    code = """import socket
for family in (socket.AF_INET, socket.AF_INET6):
    try:
        one = socket.socket(family)
    except OSError:
        continue
    print(one.getsockopt(socket.IPPROTO_TCP, 13, 16).split(b'\\0')[0].decode())
socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"""
    done = run(sys.executable, "-c", code, env={**os.environ, "LD_PRELOAD": str((BUILD / "bench" / "cubic_preload.so").resolve())})
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() and set(done.stdout.split()) <= {"cubic", "reno"}


def test_a_peer_that_cannot_run_is_named(tmp_path):
    done = run(sys.executable, ROOT / "scripts" / "bench_collectives.py", "--build", tmp_path / "nothing", "--out", tmp_path, "--only",
               "shm n=4 4 B", "--repetitions", 1)
    assert done.returncode == 1  # nothing was measured
    absent = json.loads((tmp_path / "collectives.json").read_text())["absent"]
    for name in ("bare ring", "bare bytes", "bare fold", "Gloo halving-doubling", "Gloo ring-chunked", "Open MPI tcp", "Open MPI shm", "traind auto tcp"):
        assert re.search(rf"^  {name}: not (installed|built): \S", done.stdout, re.MULTILINE), done.stdout
        assert absent[name]


def test_the_script_prints_a_table_and_draws(tmp_path):
    done = run(sys.executable, ROOT / "scripts" / "bench_collectives.py", "--build", BUILD, "--out", tmp_path, "--only", "tcp n=4 64 KiB",
               "--peers", "bare ring", "--repetitions", 2)
    assert done.returncode == 0, done.stdout + done.stderr
    table = json.loads((tmp_path / "collectives.json").read_text())
    assert sorted(row["contender"] for row in table["medians"]) == ["bare ring", "traind auto"]
    assert len(table["runs"]) == 4 and table["machine"]["cores"] > 0
    xml.etree.ElementTree.parse(tmp_path / "collectives.svg")
    assert "bare ring" in done.stdout and "traind auto" in done.stdout


def too_much(rows):
    """In words: pytest cuts a list short."""
    return "; ".join(json.dumps(row) for row in rows if not 0 <= row["added_mib"] <= 32)


@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_an_op_adds_at_most_32_mib_of_memory(transport):
    """Every collective, in a row and strided, with and without codecs; before sources had a window a strided broadcast added all of itself. Then with a member that comes late."""
    done = run(BUILD / "bin" / "memorybench", "--bytes", 64 << 20, "--transport", transport, "--most", 32, "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, too_much(rows) or done.stderr
    assert len(rows) == 58 and {row["collective"] for row in rows} == {"all-reduce", "reduce-scatter", "all-gather", "broadcast", "send"}


@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_what_is_passed_on_encoded_adds_at_most_32_mib_of_memory(transport):
    """To a member that comes late, around a ring and by owners. Before it had a window all of it was held: up to 64 MiB of bf16 here."""
    done = run(BUILD / "bin" / "memorybench", "--bytes", 128 << 20, "--world", 4, "--only", "late", "--transport", transport, "--most", 32, "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, too_much(rows) or done.stderr
    assert len(rows) == 18 and {(row["collective"], row["algorithm"]) for row in rows} == {("all-gather", "ring"), ("broadcast", "ring"), ("broadcast", "direct")}


def test_the_scale_s_counts_are_what_its_formulas_say():
    """scalebench ends with an error where they are not."""
    rows = rows_of(BUILD / "bin" / "scalebench", "--json")
    for algo in ("ring", "star", "direct", "hierarchical", "one-shot"):
        assert {row["peers"] for row in rows if row["algo"] == algo} == {8, 64, 256, 512, 4096}
    for row in rows:
        assert row["counted"] == (row["peers"] <= 256) and row["control"] == 2 * (row["peers"] - 1)
        assert row["segments"] > 0 and row["install_bytes"] > row["report_bytes"] > 0 and row["op_s"] > 0 and row["view_s"] > 0
        assert row["most_sent"] >= row["most_far"] > 0 and row["host_far"] >= row["most_far"]


def test_relaybench_measures_both_ways_in_turns():
    rows = rows_of(BUILD / "bin" / "relaybench", 8, 2)
    assert [row["way"] for row in rows] == ["direct", "relayed"] * 2
    for row in rows:
        assert row["bytes"] == 8 << 20 and row["bytes_per_s"] > 0 and row["cpu_s_per_gb"]["all"] > 0 and row["tls"] is False
