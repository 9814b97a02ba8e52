"""What trainctl shows and asks while it follows a job, against a service that says what the test tells it to."""
import json
import math
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from fake_trainer import FakeTrainer, training_job
from harness import BIN, DEADLINE_S, trainctl, wait_for
from stubs import pb

JOB_FILE = """name: fake
model: {layers: 1, width: 8, heads: 1, context: 8}
data: {text: [text.txt]}
train: {steps: 10, batch_tokens: 1024}
"""


@pytest.fixture
def fake():
    with FakeTrainer() as service:
        yield service


@pytest.fixture
def job_file(tmp_path):
    (tmp_path / "text.txt").write_text("word " * 100)
    path = tmp_path / "job.yaml"
    path.write_text(JOB_FILE)
    return path


def environment(**more):
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TRAIND_") and key != "NO_COLOR"}
    return {**kept, "TERM": "xterm", "LC_ALL": "C.UTF-8", **more}


def run(fake, *arguments, **options):
    return trainctl("--address", fake.address, *arguments, environment=environment(), check=False, **options)


def start(fake, *arguments):
    """trainctl in the background, without a terminal."""
    return subprocess.Popen([str(BIN / "trainctl"), "--address", fake.address, *map(str, arguments)], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())


def wait_watched(fake, times=1):
    wait_for(lambda: fake.watchers >= times, "trainctl to watch")


def steps(fake, job, first, last):
    for step in range(first, last + 1):
        def change(row, step=step):
            row.progress.step = step
            row.progress.loss = 5.0 - step / 4
            row.progress.tokens_per_s = 2048
        fake.update(job, change)
        time.sleep(0.02)


def finish(fake, job):
    def change(row):
        row.progress.first_loss, row.progress.val_loss = 5.5, 2.75
        row.progress.checkpoint, row.progress.sample = "/runs/fake/step-00000010", "the quick brown fox"
        row.state = pb.JOB_STATE_DONE
    fake.update(job, change)


# ---- lines

def test_plain_lines(fake, job_file):
    process = start(fake, "launch", job_file)
    wait_watched(fake)
    steps(fake, 1, 1, 10)
    fake.update(1, lambda row: row.events.add(unix_ms=1000, text="peer 2 lost: killed by signal 9"))
    finish(fake, 1)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, err
    assert "\033" not in out and "\r" not in out
    lines = out.splitlines()
    assert any(re.fullmatch(r"\d\d:\d\d:\d\d  peer 2 lost: killed by signal 9", line) for line in lines), out
    # the last progress is shown however fast it went, and few lines in all
    assert "step 10/10  loss 2.500  val 2.750  tokens/s 2.0k  peers 3  view 2  eta 0:00" in lines, out
    assert sum(line.startswith("step ") for line in lines) <= 4
    assert "the quick brown fox" in out
    assert "job 1 done: 10 steps" in out and "loss 5.500 -> 2.500, validation 2.750" in out
    assert "checkpoint /runs/fake/step-00000010" in out


def test_nothing_was_left_to_train(fake, job_file):
    """Of a checkpoint that is at its end already."""
    process = start(fake, "launch", job_file)
    wait_watched(fake)

    def change(row):
        row.progress.step = 10
        row.progress.loss = row.progress.first_loss = row.progress.val_loss = math.nan
        row.state = pb.JOB_STATE_DONE
    fake.update(1, change)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, err
    assert re.search(r"^job 1 done: 10 steps in \d+:\d\d$", out, re.MULTILINE), out


def test_lines_name_what_is_slow(fake, job_file):
    """The outer step, whom the others wait for, and the slowest of all links."""
    process = start(fake, "launch", job_file)
    wait_watched(fake)

    def change(row):
        row.progress.merges.MergeFrom(pb.Merges(count=4, sent_bytes=1000, dense_bytes=50000, hidden=0.5))
        row.peers[1].slow = True
        row.peers[0].links.add(peer=3, bandwidth_bytes_per_s=3 << 20, rtt_s=0.02)
        row.peers[2].links.add(peer=1, bandwidth_bytes_per_s=1 << 20, rtt_s=0.05)
    fake.update(1, change)
    steps(fake, 1, 1, 10)
    finish(fake, 1)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, err
    line, = [line for line in out.splitlines() if line.startswith("step 10/10")]
    assert line.endswith("  merges 4  bytes 1/50  hidden 50%  slow peer 2  slowest link 3 to 1, 1.0 MiB/s, 50 ms"), out


def test_events_are_printed_once(fake, job_file):
    process = start(fake, "launch", job_file)
    wait_watched(fake)
    for number in range(5):
        fake.update(1, lambda row, number=number: row.events.add(unix_ms=number, text=f"event {number}"))
        steps(fake, 1, number + 1, number + 1)
    # the oldest go, as memberd keeps the newest 256 only
    fake.update(1, lambda row: row.events.pop(0))
    fake.update(1, lambda row: row.events.add(unix_ms=9, text="event 9"))
    finish(fake, 1)
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert [text for text in re.findall(r"event \d", out)] == [f"event {n}" for n in (0, 1, 2, 3, 4, 9)]


def test_the_spec_arrives(fake, job_file):
    done = run(fake, "launch", job_file, "--set", "train.lr=0.5", "--detach", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"id": 1, "address": fake.address}
    request = fake.submitted[0]
    assert len(request.request_id) == 32
    assert request.spec.train.optimizer.lr == 0.5 and request.spec.train.optimizer.steps == 10
    assert request.spec.train.data.text == [str(job_file.parent / "text.txt")]
    assert request.spec.train.checkpoint.dir == str(job_file.parent / "runs/fake")


def test_ends(fake, job_file):
    fake.on_submit = lambda spec: training_job(state=pb.JOB_STATE_FAILED)
    assert run(fake, "launch", job_file).returncode == 1
    fake.on_submit = lambda spec: training_job(state=pb.JOB_STATE_CANCELLED)
    assert run(fake, "launch", job_file).returncode == 5
    fake.on_submit = lambda spec: "train.lr: found 7, allowed: a number from 0 to 1"
    done = run(fake, "launch", job_file)
    assert done.returncode == 2 and done.stderr == "trainctl: train.lr: found 7, allowed: a number from 0 to 1\n"


@pytest.mark.parametrize("words", ([], ["--json"]))
def test_states_of_a_newer_memberd(fake, job_file, words):
    """98 is one that passes; the stream ends after 99."""
    fake.on_submit = lambda spec: training_job(state=98)
    process = start(fake, "launch", job_file, *words)
    wait_watched(fake)
    fake.update(1, lambda row: setattr(row, "state", pb.JOB_STATE_RUNNING))
    fake.end(1, 99, "out of luck")
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 6
    assert "job 1 is in a state that this trainctl does not know (98): its memberd is newer; following it all the same\n" in out + err
    assert err.endswith("trainctl: job 1 ended in a state that this trainctl does not know (99): its memberd is newer: out of luck\n")
    assert not words or json.loads(out)["state"] == "unknown"


def test_launch_json_is_the_job(fake, job_file):
    fake.on_submit = lambda spec: training_job(step=10, state=pb.JOB_STATE_DONE, loss=2.5)
    done = run(fake, "launch", job_file, "--json")
    row = json.loads(done.stdout)
    assert done.returncode == 0 and row["state"] == "done" and row["step"] == 10 and row["loss"] == 2.5


# ---- command jobs

def command_job(spec):
    return pb.Job(state=pb.JOB_STATE_RUNNING, spec=spec)


def test_output_of_ranks(fake):
    fake.on_submit = command_job
    process = start(fake, "launch", "-n", "2", "--", "worker")
    wait_watched(fake)
    fake.log(1, 0, b"one\ntw")
    fake.log(1, 1, b"other\n")
    fake.log(1, 0, b"o\nend without newline")
    fake.end(1)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, err
    assert out.splitlines() == ["[0] one", "[1] other", "[0] two", "[0] end without newline"]


def test_output_that_is_cut_is_told(fake):
    """Its stream breaks behind the job's end, and once more when it was begun again."""
    fake.on_submit = command_job
    fake.logs_break = True
    process = start(fake, "launch", "-n", "2", "--", "worker")
    wait_watched(fake)
    fake.log(1, 0, b"one\n", position=0)
    fake.log(1, 1, b"other\n", position=0)
    fake.end(1)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0 and out.splitlines() == ["[0] one", "[1] other"]
    assert err == ("trainctl: the end of job 1's output may be missing: it went away; peer 1's was shown up to byte 4, peer 2's was shown up to byte 6; "
                   "`trainctl logs 1` shows what is kept\n")


def test_one_rank_is_raw(fake):
    fake.on_submit = command_job
    process = start(fake, "launch", "-n", "1", "--", "worker")
    wait_watched(fake)
    fake.log(1, 0, b"\x01raw\n\nbytes")
    fake.end(1)
    assert process.communicate(timeout=DEADLINE_S)[0] == "\x01raw\n\nbytes"


def test_exit_code_of_the_command(fake):
    fake.on_submit = command_job
    process = start(fake, "launch", "-n", "2", "--", "worker")
    wait_watched(fake)
    fake.end(1, pb.JOB_STATE_FAILED, "rank 1 ended with exit code 7", exit_code=7)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 7
    assert err == "trainctl: job 1 failed: rank 1 ended with exit code 7\n"


def test_waiting_for_slots_is_said(fake):
    fake.on_submit = lambda spec: pb.Job(state=pb.JOB_STATE_QUEUED, reason="needs 2 slots, 1 is free", spec=spec)
    process = start(fake, "launch", "-n", "2", "--", "worker")
    line = process.stderr.readline()
    assert line == "trainctl: job 1 waits: needs 2 slots, 1 is free\n"
    fake.end(1)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0


def test_command_and_environment(fake):
    fake.on_submit = command_job
    variables = environment(AWS_SECRET_ACCESS_KEY="secret", OMP_NUM_THREADS="3")
    done = trainctl("--address", fake.address, "launch", "-n", "3", "--env", "A=b c", "--detach", "/bin/prog", "-n", "x",
                    environment=variables)
    assert "job 1" in done.stdout
    spec = fake.submitted[0].spec
    assert list(spec.command.argv) == ["/bin/prog", "-n", "x"] and spec.mesh.workers == 3 and spec.name == "prog"
    assert spec.command.directory == os.getcwd()
    assert "A=b c" in spec.command.env and "OMP_NUM_THREADS=3" in spec.command.env
    assert f"PATH={os.environ['PATH']}" in spec.command.env
    assert not any("secret" in variable for variable in spec.command.env)


# ---- memberd goes away

def test_memberd_goes_and_comes_back(fake, job_file):
    process = start(fake, "launch", job_file)
    wait_watched(fake)
    steps(fake, 1, 1, 2)
    fake.stop()
    assert process.stdout.readline()  # the first step
    lines = []
    while not lines or "away" not in lines[-1]:
        lines.append(process.stdout.readline())
        assert lines[-1], lines
    assert lines[-1] == "memberd is away; training goes on; waiting for it\n"
    fake.start()
    wait_watched(fake, 2)
    steps(fake, 1, 3, 10)
    finish(fake, 1)
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0 and "memberd is back" in out and "step 10/10" in out


def test_output_is_not_repeated_after_a_reconnect(fake):
    fake.on_submit = command_job
    process = start(fake, "launch", "-n", "2", "--", "worker")
    wait_watched(fake)
    fake.log(1, 0, b"first\nsec")
    assert process.stdout.readline() == "[0] first\n"
    fake.stop()
    assert process.stderr.readline() == "trainctl: memberd is away; training goes on; waiting for it\n"
    fake.start()
    wait_watched(fake, 2)
    fake.log(1, 0, b"ond\n")
    fake.end(1)
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert out == "[0] second\n"


def test_output_goes_on_where_it_was_after_a_reconnect(fake):
    """What is kept begins late: its first bytes are not those that were shown."""
    fake.on_submit = command_job
    process = start(fake, "launch", "-n", "2", "--", "worker")
    wait_watched(fake)
    fake.log(1, 0, b"a long first line\nsec", 0)
    assert process.stdout.readline() == "[0] a long first line\n"
    fake.stop()
    assert process.stderr.readline() == "trainctl: memberd is away; training goes on; waiting for it\n"
    fake.logs[1] = []
    fake.log(1, 0, b"line\nsecond\n", 13)
    fake.start()
    wait_watched(fake, 2)
    fake.end(1)
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert out == "[0] second\n"


def test_output_that_was_not_kept_is_told(fake):
    fake.on_submit = command_job
    process = start(fake, "launch", "-n", "2", "--", "worker")
    wait_watched(fake)
    fake.log(1, 0, b"one\nhalf a li", 0)
    fake.log(1, 1, b"one\n", 0)
    fake.log(1, 0, b"the rest\n", 1000)
    fake.log(1, 1, b"two\n", 7)
    fake.end(1)
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert out.splitlines() == ["[0] one", "[1] one", "[0] half a li", "[0] [987 bytes of output were not kept]", "[0] the rest",
                                "[1] [3 bytes of output were not kept]", "[1] two"]
    assert run(fake, "logs", "1", "--rank", "0").stdout == "one\nhalf a li\n[987 bytes of output were not kept]\nthe rest\n"
    rows = [json.loads(line) for line in run(fake, "logs", "1", "--json").stdout.splitlines()]
    assert [(row["rank"], row["missing"]) for row in rows] == [(0, 0), (1, 0), (0, 987), (1, 3)]


def on_a_full_disk(fake, *arguments):
    with open("/dev/full", "w") as full:
        return subprocess.Popen([str(BIN / "trainctl"), "--address", fake.address, *arguments], stdin=subprocess.DEVNULL, stdout=full,
                                stderr=subprocess.PIPE, text=True, env=environment())


@pytest.mark.parametrize("exit_code, code", [(0, 1), (7, 7)])
def test_launch_whose_output_cannot_be_written(fake, exit_code, code):
    fake.on_submit = command_job
    process = on_a_full_disk(fake, "launch", "-n", "2", "--", "worker")
    wait_watched(fake)
    fake.log(1, 0, b"lost\n")
    fake.end(1, pb.JOB_STATE_FAILED if exit_code else pb.JOB_STATE_DONE, "it broke", exit_code)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == code and err.endswith("trainctl: standard output: No space left on device\n"), err
    assert not fake.cancelled


@pytest.mark.parametrize("options", [["--rank", "0"], [], ["--json"]])
@pytest.mark.parametrize("size", [5, 100000])
def test_logs_that_cannot_be_written(fake, options, size):
    job = fake.add(training_job(state=pb.JOB_STATE_DONE))
    fake.log(job, 0, b"x" * size)
    process = on_a_full_disk(fake, "logs", "1", *options)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1 and err == "trainctl: standard output: No space left on device\n"


def test_a_reader_of_logs_may_leave(fake):
    job = fake.add(training_job())
    process = start(fake, "logs", "1", "--follow", "--rank", "0")
    process.stdout.close()
    fake.log(job, 0, b"nobody reads this\n")
    assert process.wait(DEADLINE_S) == 0 and process.stderr.read() == ""


def test_characters_of_logs_stay_whole(fake):
    """Wherever the pieces end, and where a line is broken as it is too long."""
    job = fake.add(training_job(state=pb.JOB_STATE_DONE))
    euro = "\u20ac".encode()
    for at, piece in enumerate([b"x" + euro[:1], euro[1:2], euro[2:] + euro[:2]]):
        fake.log(job, 0, piece, [0, 2, 3][at])
    long = fake.add(training_job(state=pb.JOB_STATE_DONE))
    fake.log(long, 1, ("xy" + "\u20ac" * 3000 + "\n").encode(), 0)
    rows = [json.loads(line) for line in run(fake, "logs", "1", "--json").stdout.splitlines()]
    assert "".join(row["data"] for row in rows) == "x\u20ac\ufffd\ufffd" and all(row["data"] for row in rows)
    lines = [line[4:] for line in run(fake, "logs", long).stdout.splitlines()]
    assert "".join(lines) == "xy" + "\u20ac" * 3000 and len(lines) == 3


@pytest.mark.parametrize("verb", ["launch", "jobs"])
@pytest.mark.parametrize("full", [True, False])
def test_what_people_read_that_cannot_be_written(fake, job_file, verb, full):
    """A full disk is an error; who reads a pipe may leave."""
    where = os.open("/dev/full", os.O_WRONLY)
    if not full:
        os.close(where)
        left, where = os.pipe()
        os.close(left)
    words = [verb, str(job_file)] if verb == "launch" else [verb]
    process = subprocess.Popen([str(BIN / "trainctl"), "--address", fake.address, *words], stdin=subprocess.DEVNULL, stdout=where,
                               stderr=subprocess.PIPE, text=True, env=environment())
    os.close(where)
    if verb == "launch":
        wait_watched(fake)
        steps(fake, 1, 1, 10)
        finish(fake, 1)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == ((1, "trainctl: standard output: No space left on device\n") if full else (0, ""))


def test_a_log_without_its_beginning_says_so(fake):
    job = fake.add(training_job(state=pb.JOB_STATE_DONE))
    fake.log(job, 0, b"late\n", 1000)
    assert run(fake, "logs", "1", "--rank", "0").stdout == "[1000 bytes of output were not kept]\nlate\n"
    assert run(fake, "logs", "1", "--rank", "0", "--tail", "5").stdout == "late\n"


@pytest.fixture
def record(fake, tmp_path):
    """Of an embedded cluster whose memberd is `fake`."""
    path = tmp_path / "home" / "cluster" / "cluster.json"
    path.parent.mkdir(parents=True)

    def write():
        row = {"name": "memberd", "pid": os.getpid(), "start_time": 0, "address": fake.address, "slots": 0}
        path.with_suffix(".new").write_text(json.dumps({"memberd": row, "nodes": []}))
        path.with_suffix(".new").rename(path)
        return path
    write()
    return write


def start_at_home(path, *arguments):
    return subprocess.Popen([str(BIN / "trainctl"), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=environment(TRAIND_HOME=str(path.parents[1])))


def test_memberd_comes_back_elsewhere(fake, record):
    fake.on_submit = command_job
    process = start_at_home(record(), "launch", "-n", "2", "--", "worker")
    wait_watched(fake)
    before = fake.address
    fake.stop()
    assert process.stderr.readline() == "trainctl: memberd is away; training goes on; waiting for it\n"
    held = socket.create_server(("127.0.0.1", fake.port))
    fake.port = 0
    fake.start()
    record()
    wait_watched(fake, 2)
    fake.log(1, 0, b"here\n")
    fake.end(1)
    out, err = process.communicate(timeout=DEADLINE_S)
    held.close()
    assert process.returncode == 0 and out == "[0] here\n" and err == "trainctl: memberd is back\n" and fake.address != before


def test_a_cluster_that_was_ended_is_followed_no_more(fake, record):
    fake.on_submit = command_job
    path = record()
    process = start_at_home(path, "launch", "-n", "2", "--", "worker")
    wait_watched(fake)
    path.unlink()
    fake.stop()
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 3
    assert err.splitlines()[-1] == (f"trainctl: job 1 is not followed any more: the cluster in {path.parent} was ended (`trainctl up` "
                                    "starts it again)")


# ---- signals

@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_off_a_terminal_cancel(fake, job_file, number, code):
    process = start(fake, "launch", job_file)
    wait_watched(fake)
    process.send_signal(number)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == code and "job 1 was cancelled" in err
    assert len(fake.cancelled) == 1


def test_hangup_leaves_the_job(fake, job_file):
    process = start(fake, "launch", job_file)
    wait_watched(fake)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 129 and not fake.cancelled


# ---- read verbs

def test_status_without_figures_has_nulls(fake):
    fake.add(training_job())
    row = json.loads(run(fake, "status", "1", "--json").stdout)
    for key in ("id", "state", "step", "steps", "loss", "val_loss", "tokens_per_s", "view", "peers", "events"):
        assert key in row
    assert row["loss"] is None and row["val_loss"] is None and row["tokens_per_s"] is None
    assert row["step"] == 0 and row["steps"] == 10 and row["state"] == "running" and len(row["peers"]) == 3
    assert row["events"] == [] and row["checkpoint"] is None


def test_nodes(fake):
    fake.nodes = [pb.Node(id=3, name="näme", address="127.0.0.1:9", pid=7, state="suspected", reason="silent for 1.2 s", slots=2,
                          cores=4, memory_bytes=2**34, workers=[pb.Worker(job_id=1, peer_id=2, rank=0, pid=8)])]
    row, = json.loads(run(fake, "nodes", "--json").stdout)
    assert row["id"] == 3 and row["address"] == "127.0.0.1:9" and row["pid"] == 7 and row["state"] == "suspected"
    assert row["reason"] == "silent for 1.2 s" and row["workers"] == [{"job": 1, "peer": 2, "rank": 0, "pid": 8}]
    head, line = run(fake, "nodes").stdout.splitlines()
    assert head.split() == ["ID", "NAME", "STATE", "ADDRESS", "PID", "WORKERS", "CORES", "MEMORY", "REASON"]
    assert line.index("suspected") == head.index("STATE") and "1/2" in line and "16.0 GiB" in line


def test_jobs_newest_first(fake):
    fake.add(training_job(step=10, state=pb.JOB_STATE_DONE, loss=2.0))
    fake.add(training_job(step=1, loss=5.0))
    assert [row["id"] for row in json.loads(run(fake, "jobs", "--json").stdout)] == [2, 1]
    assert "fake" in run(fake, "jobs").stdout


def test_logs(fake):
    job = fake.add(training_job(state=pb.JOB_STATE_DONE))
    fake.log(job, 0, b"zero\n")
    fake.log(job, 1, b"one\n\xff\n")
    assert run(fake, "logs", "1", "--rank", "0").stdout == "zero\n"
    pieces = [json.loads(line) for line in run(fake, "logs", "1", "--json").stdout.splitlines()]
    assert [(piece["rank"], piece["node"]) for piece in pieces] == [(0, "node-1"), (1, "node-1")]
    assert pieces[0]["data"] == "zero\n" and pieces[1]["data"] == "one\n�\n"


@pytest.mark.parametrize("verb", ["status", "logs", "cancel"])
def test_no_such_job(fake, verb):
    done = run(fake, verb, "77")
    assert done.returncode == 4
    assert done.stderr == "trainctl: no job 77 (`trainctl jobs` lists those there are)\n"


def test_what_others_wrote_does_not_steer_the_terminal(fake, job_file):  # noqa: F811
    """Names, reasons and events are others': no colours, no titles, no lines of their own. JSON has them as they are, a sample keeps its lines."""
    odd, shown = "\033]0;t\a\x9b31m\r\nb\x7f", "?]0;t???31m??b?"
    row = training_job(step=3, sample=f"two\n\tlines{odd}")
    row.spec.plan.text = row.reason = row.peers[0].node_name = odd
    row.events.add(unix_ms=1000, text=odd)
    job = fake.add(row)
    fake.nodes.append(pb.Node(id=1, name=odd, state="alive", address=odd, reason=odd))
    for verb in (["nodes"], ["jobs"], ["status", job], ["cancel", 9]):
        done = run(fake, *verb)
        assert not set(done.stdout + done.stderr) & set("\033\a\x9b\r\x7f"), done
        assert shown in done.stdout or verb[0] == "cancel"
    assert "\ntwo\n\tlines?]0;t" in run(fake, "status", job).stdout
    assert json.loads(run(fake, "status", job, "--json").stdout)["reason"] == odd
    assert json.loads(run(fake, "nodes", "--json").stdout)[0]["name"] == odd

    fake.on_submit = lambda spec: row
    fake.end(job, pb.JOB_STATE_FAILED, odd)
    done = run(fake, "launch", job_file)
    assert done.returncode == 1 and f"failed: {shown}" in done.stderr and shown in done.stdout
    assert not set(done.stdout + done.stderr) & set("\033\a\x9b\r\x7f")
    fake.on_submit = lambda spec: f"no: {odd}"
    assert run(fake, "launch", job_file).stderr == f"trainctl: no: {shown}\n"
