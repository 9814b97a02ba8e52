"""What `trainworker --measure` says of a model's parts, which `trainctl plan` plans with: more tokens and wider shards cost more, and bytes are those of the arrays."""
import gzip
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys

import pytest

from harness import BIN, MARK, marked_processes, wait_for
from stubs import ROOT, pb
from terminal import Terminal

WIDTH, CONTEXT, VOCAB = 128, 64, 256


def measure(tp=2, most=4, batch=8, micro=8, dtype="f32", dropout=0, strict=False, mesh=None, memory=None, beside=(), data=None, **model):
    shape = {"preset": "gpt2", "layers": 6, "width": WIDTH, "heads": 4, "context": CONTEXT, "vocab": "bytes", **model}
    spec = pb.JobSpec(name="measured", train=pb.TrainSpec(
        model=pb.Model(**shape), optimizer=pb.Optimizer(steps=1, batch_tokens=batch * shape["context"], micro_sequences=micro, dtype=dtype,
                                                                  dropout=dropout, strict=strict), data=data),
        mesh=pb.Mesh(**(mesh or {})))
    done = subprocess.run([str(BIN / "trainworker"), "--measure", "1", str(tp), str(most), *beside], input=spec.SerializeToString(), capture_output=True,
                          timeout=120, preexec_fn=memory and (lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory))), env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    rows = {}
    for line in done.stdout.decode().splitlines():
        if line.startswith("#"):
            continue
        word, *numbers = line.split()
        if word == "cost":
            rows[int(numbers[0]), int(numbers[1])] = [float(number) for number in numbers[2:]]
        else:
            rows[word] = " ".join(numbers) if word == "of" else float(numbers[0])
            if word == "sum":
                rows["sum byte"] = float(numbers[1])
    return done, rows


def test_parts_of_a_model():
    done, rows = measure()
    assert done.returncode == 0, done.stderr
    # of an op that workers make by themselves, and a byte of it: memory is copied at 10 MB/s to 1 TB/s
    assert rows["sum"] >= 0 and 1e-12 < rows["sum byte"] < 1e-7
    # powers of two up to the most that divide the batch, and the job's own microbatch
    assert {key for key in rows if isinstance(key, tuple)} == {(tp, n) for tp in (1, 2) for n in (1, 2, 4, 8)}
    assert rows["update"] > 0 and rows["process"] > 1e6
    for tp in (1, 2):
        for n in (1, 2, 4, 8):
            embedding, layer, head, working = rows[tp, n][6:]
            tokens = n * CONTEXT
            assert all(seconds >= 0 for seconds in rows[tp, n][:6]) and rows[tp, n][2] > 0 and rows[tp, n][3] > 0
            # a layer keeps between 12 and 16 numbers of its width a token, over tp 4 to 6 of them whole
            assert (4 + 8 / tp) * 4 * WIDTH * tokens <= layer <= (6.5 + 10 / tp) * 4 * WIDTH * tokens
            assert embedding == 0 and head >= 4 * WIDTH * tokens  # the stream has one end more than there are layers: the head's input
            assert working >= 4 * VOCAB // tp * tokens
    assert 0 < rows["core"] < 1.01
    # eight times the tokens: not less than twice the time, however busy the machine is
    assert rows[1, 8][3] > 2 * rows[1, 1][3]


def test_own_rows_take_less_memory():
    """Of a layer of tp 2 that keeps 4 + 8/2 times its width a token, two halves of what all rows were kept of."""
    rows, own = measure()[1], measure(mesh={"sequence_parallel": True})[1]
    for n in (1, 2, 4, 8):
        unit = 4 * WIDTH * n * CONTEXT
        saved = [one - other for one, other in zip(rows[2, n][6:], own[2, n][6:])]
        assert saved[2] == unit / 2 and saved[1] == pytest.approx(unit, rel=0.1)
        assert saved[3] == pytest.approx(1.5 * unit, rel=0.1)  # gradients of the stream before, in and behind the layer in work
        assert own[1, n][6:] == rows[1, n][6:]
    # With dropout also of what attention and MLP add to it.
    rows, own = measure(most=1, dropout=0.1)[1], measure(most=1, dropout=0.1, mesh={"sequence_parallel": True})[1]
    assert rows[2, 1][9] - own[2, 1][9] == pytest.approx(2.5 * 4 * WIDTH * CONTEXT, rel=0.1)


def test_what_does_not_divide_is_left_out():
    done, rows = measure(tp=8, most=1)
    assert done.returncode == 0
    assert {key[0] for key in rows if isinstance(key, tuple)} == {1, 2, 4}  # four heads


def test_bf16_takes_its_memory():
    """A rounded copy of each parameter, and for each thread the operands of a product."""
    rows, rounded = measure(tp=1, most=1, micro=1)[1], measure(tp=1, most=1, micro=1, dtype="bf16")[1]
    assert rows["parameter"] == 16 and rounded["parameter"] == 18
    assert rounded[1, 1][9] >= rows[1, 1][9] + 2 * CONTEXT * (4 * WIDTH + 4 * WIDTH)  # two bytes, of each operand of the widest product
    assert rounded[1, 1][6:9] == rows[1, 1][6:9]
    assert rows["of"] == "gpt2 width 128 heads 4/4 of 32 hidden 512 context 64 vocab 256 f32 threads 1"
    assert rounded["of"] == rows["of"].replace("f32", "bf16")


def test_with_the_jobs_dropout():
    """Two more arrays of the stream."""
    rows, dropped = measure(tp=2, most=1, micro=1)[1], measure(tp=2, most=1, micro=1, dropout=0.1)[1]
    assert dropped["of"] == rows["of"] + " dropout"
    assert dropped[1, 1][9] == rows[1, 1][9] + 2 * 4 * CONTEXT * WIDTH and dropped[2, 1][9] == rows[2, 1][9] + 2 * 4 * CONTEXT * WIDTH
    strict, strictly = measure(tp=2, most=1, micro=1, strict=True)[1], measure(tp=2, most=1, micro=1, strict=True, dropout=0.1)[1]
    assert strictly["of"] == strict["of"] + " dropout" and strictly[1, 1][9] > strict[1, 1][9]


def test_a_jobs_own_split():
    """Divisors of the heads, its own microbatch whether it divides the batch or not, and what a replica of it makes of its share."""
    done, rows = measure(tp=6, most=1, batch=10, micro=6, layers=1, width=96, heads=12, context=8, mesh={"workers": 6, "tp": 3})
    assert done.returncode == 0, done.stderr
    assert {key for key in rows if isinstance(key, tuple)} == {(tp, n) for tp in (1, 2, 3, 4, 6) for n in (1, 5, 6)}


def test_what_memory_does_not_hold_is_left_out():
    done, rows = measure(tp=1, most=1, batch=4096, micro=4096, layers=1, context=1024, memory=4 << 30)
    assert done.returncode == 0, done.stderr
    assert {key for key in rows if isinstance(key, tuple)} == {(1, 1)}
    assert b"# no memory for microbatches of 4096 sequences, tp 1\n" in done.stdout


def test_what_a_process_takes(tmp_path):
    """Code and what libraries put aside once products are made, the same for any model; and the text, which each worker has in memory."""
    plain = measure(tp=1, most=1, micro=1)[1]["process"]
    assert measure(tp=1, most=1, micro=1, width=256, context=256)[1]["process"] == pytest.approx(plain, abs=2 << 20)
    text, packed, size = tmp_path / "text", tmp_path / "text.gz", 20 << 20
    text.write_bytes(b"x" * size)
    packed.write_bytes(gzip.compress(b"y" * size, 1))
    with_both = measure(tp=1, most=1, micro=1, data=pb.Data(text=[str(text), str(packed), str(tmp_path / "not there")]))[1]["process"]
    assert with_both == pytest.approx(plain + 2 * size, abs=1 << 20)


def others_for(each):
    """So many other processes that each may have so many bytes."""
    available = next(line for line in pathlib.Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:"))
    return str(int(available.split()[1]) * 1024 // each)


def test_memory_is_for_all_that_measure():
    """So many others take as much that each has 30 MB: what was measured first stays. A sequence takes some 10 MB with the model, 64 of them 120."""
    done, rows = measure(tp=1, most=64, batch=64, micro=64, beside=(others_for(30 << 20),))
    assert done.returncode == 0, done.stderr
    sizes = {n for tp, n in (key for key in rows if isinstance(key, tuple))}
    assert 1 in sizes and 64 not in sizes and re.search(rb"# no memory for microbatches of \d+ sequences, tp 1\n", done.stdout), done.stdout


def test_a_model_that_is_too_wide_for_one():
    """Four layers of it take 100 MB with their gradients and each process has 60: what shards of tp 4 take is measured all the same, and what a process takes, and an update."""
    done, rows = measure(tp=4, most=1, batch=1, micro=1, width=512, beside=(others_for(60 << 20),))
    assert done.returncode == 0, done.stderr
    assert {key for key in rows if isinstance(key, tuple)} == {(2, 1), (4, 1)} or {key for key in rows if isinstance(key, tuple)} == {(4, 1)}, done.stdout
    assert b"# no memory for microbatches of 1 sequences, tp 1\n" in done.stdout and rows["process"] > 1e6 and 0 < rows["update"] < 1e-6


def test_a_model_of_which_nothing_fits():
    done, _ = measure(tp=2, most=1, batch=1, micro=1, width=512, beside=(others_for(1 << 20),))
    assert done.returncode == 1 and b"no memory" in done.stderr and done.stderr.count(b"\n") == 1, done.stderr


def test_more_workers_than_the_vocabulary_has_tokens():
    done, rows = measure(tp=512, most=1, batch=1, micro=1, layers=1, width=512, heads=512, context=8)
    assert done.returncode == 0, done.stderr
    assert (512, 1) in rows  # of 256 bytes: each has one, and half of them one that is none


def small_job(folder):
    text, job = folder / "text.txt", folder / "job.yaml"
    text.write_bytes(bytes(range(256)) * 64)
    job.write_text(f"""
name: small
model: {{layers: 2, width: 128, heads: 4, context: 64, vocab: bytes}}
data: {{text: [{text}]}}
train: {{steps: 1, batch_tokens: 512, micro_sequences: 8, seed: 1}}
mesh: {{nodes: 1}}
checkpoint: {{dir: {folder}/run}}
""")
    return job


def test_how_far_it_is_is_shown(tmp_path):
    """On a terminal, on one line that is gone when there is a plan; elsewhere nothing of it is written."""
    command = [BIN / "trainctl", "plan", small_job(tmp_path), "--cluster", ROOT / "configs" / "cluster.yaml"]
    terminal = Terminal(command, {**os.environ, "TERM": "xterm"})
    try:
        assert terminal.wait(60) == 0, terminal.text
        before, plan = terminal.text.rsplit("\r\033[K", 1)
        shown = re.findall(r"\r\033\[K  (\d+) of (\d+): microbatches of \d+ sequences?, tp \d+", before)
        assert [int(number) for number, _ in shown] == list(range(1, int(shown[0][1]) + 1)), terminal.text
        assert "microbatches of" not in plan.split("\n")[0] and "\n" not in before.split("large one", 1)[1].strip("\r\n")
    finally:
        terminal.close()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and len(done.stderr.splitlines()) == 1 and "\r" not in done.stderr, done.stderr


def test_a_busy_machine_is_said(tmp_path):
    """Another process has half of the only core: runs that it disturbed are thrown away, but not for ever, and the plan says that its times are too long."""
    core, job = min(os.sched_getaffinity(0)), small_job(tmp_path)
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    try:
        done = subprocess.run([str(BIN / "trainctl"), "plan", str(job), "--cluster", str(ROOT / "configs" / "cluster.yaml"), "--as-is", "--json"],
                              capture_output=True, timeout=120, preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    finally:
        other.kill()
        other.wait()
    assert done.returncode == 0, done.stderr
    assert "this machine was busy: a thread that measured had 0." in json.loads(done.stdout)["layers_by"]


@pytest.mark.parametrize("words, given", [(["0", "1", "1"], b""), (["1", "1", "1"], b""), (["1", "1", "1"], b"\xff\xff\xff")])
def test_without_a_job(words, given):
    done = subprocess.run([str(BIN / "trainworker"), "--measure", *words], input=given, capture_output=True, timeout=60)
    assert done.returncode == 1 and b"wants a job on stdin" in done.stderr and not done.stdout


def test_who_measures_ends_with_who_asked(tmp_path):
    """Also where that is killed: else it would take all cores for minutes, and nobody would read what it says."""
    text = tmp_path / "text.txt"
    text.write_bytes(bytes(range(256)) * 64)
    job = tmp_path / "job.yaml"
    job.write_text(f"""
name: large
model: {{layers: 2, width: 2048, heads: 16, context: 1024, vocab: bytes}}
data: {{text: [{text}]}}
train: {{steps: 1, batch_tokens: 16384, seed: 1}}
mesh: {{nodes: 1, workers_per_node: 2}}
checkpoint: {{dir: {tmp_path}/run}}
""")
    mark = f"mark-of-{tmp_path}"
    plan = subprocess.Popen([str(BIN / "trainctl"), "plan", str(job), "--cluster", str(ROOT / "configs" / "cluster.yaml")],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, MARK: mark})
    measuring = lambda: [pid for pid, command in marked_processes(mark).items() if "--measure" in command]
    try:
        wait_for(measuring, "somebody measures")
    finally:
        plan.kill()
        plan.wait()
    try:
        wait_for(lambda: not measuring(), "nobody measures", 20)
    finally:
        for pid in measuring():
            os.kill(pid, signal.SIGKILL)
