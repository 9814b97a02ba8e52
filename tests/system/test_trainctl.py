"""Every verb of trainctl against real daemons: `up` to `down`, bad input, exit codes, what is left behind."""
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess

import grpc
import pytest

from fake_trainer import FakeTrainer
from harness import BIN, DEADLINE_S, Cluster, alive, trainctl, wait_for
from stubs import rpc

JOB_FILE = """name: small
model: {layers: 1, width: 16, heads: 2, context: 16}
data: {text: [text.txt], validation: 10%}
train: {steps: 10, batch_tokens: 64, eval_every: 5, eval_sequences: 4}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("trainctl"), nodes=2, slots=2) as cluster:
        yield cluster


@pytest.fixture
def here(cluster):
    """Runs trainctl on the module's cluster."""
    environment = {**cluster.environment, "TRAIND_ADDRESS": cluster.memberd.address}

    def run(*arguments, **options):
        return trainctl(*arguments, environment=environment, check=False, **options)
    return run


@pytest.fixture
def job_file(tmp_path):
    (tmp_path / "text.txt").write_text("all work and no play makes jack a dull boy\n" * 50)
    path = tmp_path / "job.yaml"
    path.write_text(JOB_FILE)
    return path


# ---- up and down

def test_up_grows_replaces_and_ends(home):
    first = home.json("up", "--nodes", "2", "--slots", "2")
    assert [node["name"] for node in first["nodes"]] == ["node-1", "node-2"]
    assert all(node["alive"] and node["slots"] == 2 for node in first["nodes"]) and first["memberd"]["alive"]
    assert (home.folder / "cluster" / "memberd" / "log").exists()

    # again: the same daemons, and it says so
    again = home.run("up")
    assert again.returncode == 0 and f"pid {first['memberd']['pid']}" in again.stdout
    assert home.json("up")["nodes"] == first["nodes"]
    assert "nodes that run keep their slots" in home.run("up", "--slots", "3").stderr
    assert home.run("up", "--slots", "2").stderr == ""

    # more
    third = home.json("up", "--nodes", "3")
    assert third["nodes"][:2] == first["nodes"] and third["nodes"][2]["name"] == "node-3"
    assert sorted(row["name"] for row in home.json("nodes") if row["state"] == "alive") == ["node-1", "node-2", "node-3"]

    # a dead one is told of, and replaced only if asked
    os.kill(third["nodes"][1]["pid"], signal.SIGKILL)
    wait_for(lambda: not alive(third["nodes"][1]["pid"]), "the node to die")
    told = home.run("up", "--nodes", "3")
    assert told.returncode == 0 and "dead" in told.stdout and "--replace" in told.stdout
    fourth = home.json("up", "--replace")
    assert fourth["nodes"][1]["alive"] and fourth["nodes"][1]["pid"] != third["nodes"][1]["pid"]
    assert len(fourth["nodes"]) == 3

    assert len(home.processes()) >= 4
    assert home.run("down").returncode == 0
    assert not home.processes()
    assert not (home.folder / "cluster" / "cluster.json").exists()
    assert "no cluster is running" in home.run("down").stdout
    assert home.run("nodes").returncode == 3


def test_up_after_everything_was_killed(home):
    home.json("up", "--nodes", "2")
    home.run("launch", "-n", "1", "--", "true", check=True)
    home.end()
    wait_for(lambda: not home.processes(), "all to end")
    assert home.run("nodes").returncode == 3
    done = home.run("up")
    assert done.returncode == 0 and "starting it anew" in done.stderr
    # memberd's log is still there, and so are the nodes
    assert [row["id"] for row in home.json("jobs")] == [1]
    assert [node["name"] for node in home.json("up")["nodes"]] == ["node-1", "node-2"]


def test_up_starts_the_nodes_that_down_ended(home):
    home.json("up", "--slots", "2")
    home.json("up", "--nodes", "2", "--slots", "3")
    home.run("down", check=True)
    assert [node["slots"] for node in home.json("up")["nodes"]] == [2, 3]
    home.run("down", check=True)
    assert [node["slots"] for node in home.json("up", "--nodes", "3", "--slots", "1")["nodes"]] == [1, 1, 1]
    home.run("down", check=True)
    assert [node["slots"] for node in home.json("up", "--nodes", "1")["nodes"]] == [1]
    # killed all at once
    home.json("up", "--nodes", "2", "--slots", "4")
    home.end()
    wait_for(lambda: not home.processes(), "all to end")
    assert [node["slots"] for node in home.json("up", "--replace")["nodes"]] == [1, 4, 1]
    # one alone, with other slots
    last = home.json("up")["nodes"][2]["pid"]
    os.kill(last, signal.SIGKILL)
    wait_for(lambda: not alive(last), "the node to die")
    assert [node["slots"] for node in home.json("up", "--replace", "--slots", "2")["nodes"]] == [1, 4, 2]


def test_dead_memberd_is_told_of(home):
    before = home.json("up", "--nodes", "1")
    os.kill(before["memberd"]["pid"], signal.SIGKILL)
    wait_for(lambda: not alive(before["memberd"]["pid"]), "memberd to die")
    done = home.run("up")
    assert done.returncode == 3 and "memberd" in done.stderr and "--replace" in done.stderr
    done = home.run("launch", "-n", "1", "--", "true")
    assert done.returncode != 0 and "--replace" in done.stderr
    after = home.json("up", "--replace")
    assert after["memberd"]["address"] == before["memberd"]["address"]
    assert after["nodes"][0]["pid"] == before["nodes"][0]["pid"]
    assert home.run("launch", "-n", "1", "--", "true").returncode == 0


def test_who_does_not_answer_is_named(home):
    """memberd is stopped, or busy: it has not ended."""
    memberd = home.json("up")["memberd"]
    os.kill(memberd["pid"], signal.SIGSTOP)
    done = home.run("jobs")
    os.kill(memberd["pid"], signal.SIGCONT)
    assert done.returncode == 3 and done.stderr == f"trainctl: {memberd['address']} does not answer: the deadline has passed\n"


def test_a_dead_node_is_not_a_dead_cluster(home):
    """memberd answers that the node is away: it is not said that the cluster has ended."""
    node = home.json("up")["nodes"][0]
    home.run("launch", "-n", "1", "--", "true", check=True)
    os.kill(node["pid"], signal.SIGKILL)
    wait_for(lambda: home.json("nodes")[0]["state"] == "lost", "the node to be lost")
    logs = home.run("logs", "1")
    assert logs.returncode == 3 and "the node is not connected" in logs.stderr and "ended" not in logs.stderr, logs.stderr


def test_down_does_not_touch_a_reused_pid(home):
    record = home.json("up")
    home.run("down", check=True)
    bystander = subprocess.Popen(["sleep", "1000"])
    try:
        folder = home.folder / "cluster"
        daemon = {"name": "memberd", "pid": bystander.pid, "start_time": 12345, "address": record["memberd"]["address"], "slots": 0}
        (folder / "cluster.json").write_text(json.dumps({"memberd": daemon, "nodes": []}))
        assert home.run("down").returncode == 0
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_what_does_not_come_up_is_ended_and_its_log_shown(home, tmp_path):
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("trainctl", "memberd"):
        os.link(BIN / name, folder / name) if os.stat(BIN).st_dev == os.stat(folder).st_dev else \
            (folder / name).write_bytes((BIN / name).read_bytes())
        (folder / name).chmod(0o755)
    (folder / "traind").write_text("#!/bin/sh\necho the reason in words >&2\nexit 9\n")
    (folder / "traind").chmod(0o755)
    done = subprocess.run([folder / "trainctl", "up", "--nodes", "2"], env=home.environment, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=DEADLINE_S)
    assert done.returncode == 1
    assert "ended with exit code 9" in done.stderr and "\nthe reason in words\n" in done.stderr and "/node-1/log" in done.stderr
    assert not home.processes()


def test_two_ups_at_once(home):
    both = [home.start("up", "--nodes", "2", "--json") for _ in range(2)]
    rows = []
    for process in both:
        out, err = process.communicate(timeout=2 * DEADLINE_S)
        assert process.returncode == 0, err
        rows.append(json.loads(out))
    assert rows[0] == rows[1]


def test_down_without_a_cluster_makes_no_folder(home):
    assert home.run("down", check=True).stdout == f"no cluster is running in {home.folder}/cluster\n"
    assert not home.folder.exists()


def test_dir_is_another_cluster(home, tmp_path):
    home.json("up", "--dir", tmp_path / "other")
    assert home.run("nodes").returncode == 3
    assert home.run("down", "--dir", tmp_path / "other").returncode == 0
    assert not home.processes()


# ---- launch

def test_launch_starts_and_ends_its_own_cluster(home):
    done = home.run("launch", "-n", "3", "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE in $PWD")
    assert done.returncode == 0, done.stderr
    assert "no cluster is running" in done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] rank {rank} of 3 in {os.getcwd()}" for rank in range(3)]
    assert not home.processes()


def test_launch_whose_cluster_does_not_start(home):
    folder = home.folder / "cluster" / "memberd"
    folder.mkdir(parents=True)
    other = subprocess.Popen([str(BIN / "memberd"), "--dir", str(folder), "--listen", "127.0.0.1:0"], env=home.environment,
                             stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for((folder / "address").exists, "memberd to listen")
    done = home.run("launch", "-n", "2", "--", "true")
    other.terminate()
    assert other.wait(DEADLINE_S) == 0
    assert done.returncode == 1 and f"another memberd (pid {other.pid})" in done.stderr, done.stderr
    assert not home.processes()


def test_up_after_kills(home):
    """The first thread of a killed daemon may be gone while others of its threads hold its folder and its connections."""
    for _ in range(5):
        rows = home.json("up", "--nodes", "2")
        for victims in ([rows["memberd"], rows["nodes"][1]], None):
            for row in victims or [rows["memberd"], *rows["nodes"]]:
                os.kill(row["pid"], signal.SIGKILL)
            rows = home.json("up", "--replace") if victims else home.json("up", "--nodes", "2")
            assert all(row["alive"] for row in [rows["memberd"], *rows["nodes"]])
            assert home.run("launch", "-n", "2", "--", "true").returncode == 0
        home.run("down", check=True)


def test_launch_keep(home):
    assert home.run("launch", "--keep", "-n", "1", "--", "true").returncode == 0
    assert [row["state"] for row in home.json("jobs")] == ["done"]
    assert home.run("down").returncode == 0


def test_interrupted_launch_leaves_nothing(home):
    process = home.start("launch", "-n", "2", "--", "sh", "-c", "echo ready; exec sleep 1000")
    assert "ready" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130 and "was cancelled" in err
    wait_for(lambda: not home.processes(), "all processes to end")


def test_a_cluster_that_cannot_be_asked_stays(home, tmp_path):
    """memberd is gone, so nobody says whether others' jobs run: one of them does."""
    process = home.start("launch", "-n", "1", "--", "sh", "-c", "echo ready; exec sleep 1000")
    assert process.stdout.readline() == "ready\n"
    worker = tmp_path / "worker"
    home.run("launch", "-n", "1", "--detach", "--", "sh", "-c", f"echo $$ > {worker}.new; mv {worker}.new {worker}; exec sleep 1000", check=True)
    wait_for(worker.exists, "the other job to run")
    rows = home.json("up")
    os.kill(rows["memberd"]["pid"], signal.SIGKILL)
    while "memberd is away" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)  # the second one: wait no longer
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 143 and "job 1 was not cancelled" in err, err
    assert "the cluster stays; `trainctl down` ends it" in err, err
    assert alive(int(worker.read_text())) and alive(rows["nodes"][0]["pid"])
    home.run("up", "--replace", check=True)
    assert {row["id"]: row["state"] for row in home.json("jobs")} == {1: "running", 2: "running"}


def test_first_failing_rank_gives_the_exit_code(here):
    done = here("launch", "-n", "2", "--", "sh", "-c", "test $RANK = 0 && exec sleep 1000; echo bad luck >&2; exit 7")
    assert done.returncode == 7, done.stderr
    assert "[1] bad luck" in done.stdout and "rank 1" in done.stderr


def test_command_that_is_not_there(here):
    done = here("launch", "-n", "1", "--", "/nonexistent/program")
    assert done.returncode not in (0, 3) and "/nonexistent/program" in done.stderr + done.stdout


def test_a_rank_that_there_is_not(here):
    job = here("launch", "-n", "2", "--detach", "--json", "--", "echo", "hi").stdout
    job = json.loads(job)["id"]
    wait_for(lambda: json.loads(here("status", job, "--json").stdout)["state"] == "done", "the job to end")
    assert here("logs", job, "--rank", "1").stdout == "hi\n"
    done = here("logs", job, "--rank", "2")
    assert (done.returncode, done.stderr) == (2, "trainctl: rank: found 2, allowed: 0 to 1\n")


def test_output_of_one_rank_is_raw(here):
    done = here("launch", "-n", "1", "--", "printf", "no newline")
    assert (done.returncode, done.stdout, done.stderr) == (0, "no newline", "")


def test_much_output_arrives_whole(here):
    done = here("launch", "-n", "2", "--", "seq", "1", "200000")
    for rank in (0, 1):
        lines = [line for line in done.stdout.splitlines() if line.startswith(f"[{rank}] ")]
        assert lines == [f"[{rank}] {number}" for number in range(1, 200001)]


def test_a_command_faster_than_its_reader_is_told_of(cluster, tmp_path):
    """It ends while trainctl stands still."""
    go, over = tmp_path / "go", tmp_path / "over"
    os.mkfifo(go)
    write = "i=0; while [ $i -lt 72 ]; do head -c 1048575 /dev/zero | tr '\\0' x; echo; i=$((i + 1)); done"
    script = f"echo begun; cat {go}; {write}; touch {over}"
    process = subprocess.Popen([str(BIN / "trainctl"), "launch", "-n", "1", "--", "sh", "-c", script], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env={**cluster.environment, "TRAIND_ADDRESS": cluster.memberd.address})
    begun = process.stdout.readline()
    process.send_signal(signal.SIGSTOP)
    go.write_text("")
    wait_for(over.exists, "the command to have written all")
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=DEADLINE_S)
    notes = [line for line in out.splitlines() if line.startswith(b"[")]
    assert process.returncode == 0 and begun == b"begun\n" and len(notes) == 1, (notes, err)
    lost = int(re.fullmatch(rb"\[(\d+) bytes of output were not kept\]", notes[0]).group(1))
    # the line before the note was ended for it, if it was half there
    assert lost > 0 and len(out) - len(notes[0]) - 1 + lost - (72 << 20) in (0, 1)


def test_detach_status_logs_cancel(here):
    done = here("launch", "-n", "2", "--detach", "--json", "--", "sh", "-c", "echo out $RANK; echo err >&2; exec sleep 1000")
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)["id"]

    def running():
        row = json.loads(here("status", job, "--json").stdout)
        return row if row["state"] == "running" and all(peer["pid"] for peer in row["peers"]) and len(row["peers"]) == 2 else None
    row = wait_for(running, "the job to run")
    assert row["name"] == "sh" and row["kind"] == "command" and row["loss"] is None
    assert "running" in here("status", job).stdout
    assert job in [line["id"] for line in json.loads(here("jobs", "--json").stdout)]
    nodes = json.loads(here("nodes", "--json").stdout)
    workers = [worker for node in nodes for worker in node["workers"] if worker["job"] == job]
    assert sorted(worker["rank"] for worker in workers) == [0, 1] and all(alive(worker["pid"]) for worker in workers)
    wait_for(lambda: here("logs", job, "--rank", "1").stdout.count("\n") == 2, "the output")
    assert sorted(here("logs", job, "--rank", "1").stdout.splitlines()) == ["err", "out 1"]
    assert sorted(here("logs", job).stdout.splitlines()) == ["[0] err", "[0] out 0", "[1] err", "[1] out 1"]

    cancelled = here("cancel", job)
    assert cancelled.returncode == 0
    wait_for(lambda: json.loads(here("status", job, "--json").stdout)["state"] == "cancelled", "the job to be cancelled")
    wait_for(lambda: not any(alive(worker["pid"]) for worker in workers), "the workers to end")
    assert here("logs", job, "-f").returncode == 0  # it has ended: follows no longer
    assert here("cancel", job).returncode == 0


def test_traind_is_as_good_an_address(cluster):
    for node in cluster.nodes:
        done = trainctl("--address", node.address, "launch", "-n", "2", "--", "sh", "-c", "echo $RANK",
                        environment=cluster.environment, check=False)
        assert done.returncode == 0 and sorted(done.stdout.split()) == ["0", "1", "[0]", "[1]"], done.stderr


@pytest.mark.timeout(4 * DEADLINE_S)
def test_training_job(here, job_file):
    done = here("launch", job_file, timeout=3 * DEADLINE_S)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "step 10/10" in done.stdout and "\033" not in done.stdout
    job = json.loads(here("jobs", "--json").stdout)[0]["id"]
    row = json.loads(here("status", job, "--json").stdout)
    assert row["state"] == "done" and row["step"] == row["steps"] == 10
    assert 0 < row["loss"] < 7 and 0 < row["val_loss"] < 7 and row["tokens_per_s"] > 0 and row["view"] >= 1
    assert (pathlib.Path(row["checkpoint"]) / "model.safetensors").exists()
    assert row["checkpoint"].startswith(str(job_file.parent / "runs/small"))
    assert row["events"] and all(event["text"] for event in row["events"])


def test_a_job_whose_checkpoints_cannot_be_written_does_not_begin(here, job_file):
    job_file.write_text(JOB_FILE + "checkpoint: {dir: /proc/none}\n")
    done = here("launch", job_file, timeout=3 * DEADLINE_S)
    assert done.returncode == 1 and "checkpoint.dir: cannot make /proc/none: No such file or directory; allowed: a folder that " in done.stderr, done.stdout
    assert done.stderr.count("\n") == 1 and "step 1/" not in done.stdout, done.stderr + done.stdout


def put_in_the_way_of(folder):
    """A file in the folder's place; the worker makes the folder anew where none is, so it may be there again at once."""
    for number in range(1000):
        folder.rename(folder.with_name(f"gone-{number}"))
        try:
            folder.write_text("in the way")
            return
        except IsADirectoryError:
            pass
    pytest.fail(f"{folder} is always there again")


def test_job_without_a_checkpoint_says_so(here, job_file):
    """Its folder was there when it began."""
    folder = job_file.parent / "goes"
    job_file.write_text(JOB_FILE.replace("steps: 10", "steps: 5000") + f"checkpoint: {{dir: {folder}}}\n")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        launched = pool.submit(here, "launch", job_file, timeout=3 * DEADLINE_S)
        wait_for((folder / "metrics.jsonl").exists, "the first step")
        put_in_the_way_of(folder)
        done = launched.result()
    assert done.returncode == 0 and f"in {folder}: " in done.stdout, done.stderr + done.stdout
    job = json.loads(here("jobs", "--json").stdout)[0]["id"]
    assert done.stdout.splitlines()[-1] == f"no checkpoint was written: `trainctl status {job}` says why"


# ---- bad input: one line, exit code 2, nothing started

@pytest.mark.parametrize("change, says", [
    (("steps: 10", "stesp: 10"), "job.yaml:4: train.stesp: found an unknown key (did you mean 'steps'?), allowed: steps, "),
    (("steps: 10", "steps: ten"), "job.yaml:4: train.steps: found 'ten', allowed: a whole number from 1 to 1000000000"),
    (("width: 16", "width: 1000000"), "job.yaml:2: model.width: found 1000000, allowed: a whole number from 8 to 16384"),
    (("heads: 2", "heads: 3"), "job.yaml:2: model.width: found 16, allowed: a multiple of model.heads, which is 3"),
    (("text.txt", "none.txt"), "none.txt', which cannot be read (No such file or directory), allowed: text files that are there"),
    (("name: small", "name: small\nname: again"), "job.yaml:2: name: found the key again (first on line 1), allowed: each key once"),
    (("heads: 2,", "heads: 2],"), "job.yaml:2: yaml: found what cannot be read"),
])
def test_bad_job_file(home, job_file, change, says):
    job_file.write_text(JOB_FILE.replace(*change))
    done = home.run("launch", job_file)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert says in done.stderr and done.stderr.startswith(f"{job_file}:"), done.stderr
    assert home.run("plan", job_file).stderr == done.stderr
    assert not home.processes() and not (home.folder / "cluster").exists()


def test_a_job_file_that_nobody_writes(home, tmp_path):
    os.mkfifo(tmp_path / "job.yaml")
    done = home.run("launch", tmp_path / "job.yaml")
    assert done.returncode == 2 and "job.yaml:1: file: found no regular file" in done.stderr


@pytest.mark.parametrize("arguments, says", [
    (["launch"], "a job file is missing"),
    (["launch", "FILE", "--set", "train.lr=fast"], "--set: train.lr: found 'fast', allowed: a number from 1e-09 to 10"),
    (["launch", "FILE", "--set", "trian.lr=1"], "--set: trian.lr: found an unknown key (did you mean 'train.lr'?)"),
    (["launch", "FILE", "--env", "A=b"], "--env goes with -n N and a command"),
    (["launch", "FILE", "--costs", "costs"], "--costs goes with a job of `mesh: auto`: no other is planned"),
    (["launch", "-n", "1", "--costs", "costs", "--", "true"], "either a job file, with --set or --costs, or -n N and a command"),
    (["launch", "/none.yaml"], "/none.yaml:1: file: found none that can be read"),
    (["launch", "-n", "0", "true"], "--workers: found '0', allowed: a whole number from 1 to 256"),
    (["launch", "-n", "2"], "no command"),
    (["launch", "-n", "2", "--env", "A", "--", "true"], "command.env: found 'A', allowed: KEY=value"),
    (["launch", "-n", "2", "--nodes", "3", "true"], "--nodes: found 3, allowed: at most as many as -n has workers, 2"),
    (["launch", "--", "true"], "how many workers?"),
    (["up", "--nodes", "many"], "--nodes: found 'many', allowed: a whole number from 1 to 64"),
    (["up", "now"], "too many arguments"),
    (["status"], "an argument is missing"),
    (["status", "--", "-1"], "JOB: found '-1', allowed: a job's number"),
    (["status", "--", "1", "2"], "too many arguments"),
    (["status", "one"], "JOB: found 'one', allowed: a job's number"),
    (["logs", "1", "--rank", "-1"], "--rank: found '-1', allowed: a whole number from 0 to 255"),
    (["nodes", "--jsno"], "unknown option '--jsno' (did you mean '--json'?) (usage: trainctl nodes [--links] [--measure]; "),
    (["--bogus"], "unknown option '--bogus' (`trainctl help` explains)"),
    (["nodes", "--color", "pink"], "--color: found 'pink', allowed: auto, always or never"),
    (["--address", "nowhere", "nodes"], "--address: "),
    (["--address", "192.0.2.1:7070", "nodes"], "192.0.2.1:7070 is not a loopback address: give --tls DIR"),
    (["frobnicate"], "no verb 'frobnicate' (`trainctl help` lists them)"),
    (["stauts", "1"], "no verb 'stauts' (did you mean 'status'? `trainctl help` lists them)"),
    (["help", "lanch"], "no verb 'lanch' (did you mean 'launch'?"),
])
def test_bad_usage(home, job_file, arguments, says):
    done = home.run(*[str(job_file) if word == "FILE" else word for word in arguments])
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and says in done.stderr, done.stderr
    assert not home.processes()


def test_unreachable(home):
    for verb in (["nodes"], ["jobs"], ["status", "1"], ["logs", "1"], ["cancel", "1"], ["launch", "-n", "1", "--", "true"]):
        done = home.run("--address", "127.0.0.1:1", *verb)
        assert done.returncode == 3 and "127.0.0.1:1" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not home.processes()


@pytest.mark.parametrize("verb", [["status"], ["logs"], ["samples"], ["cancel"]])
def test_no_such_job(here, verb):
    done = here(*verb, "4711")
    assert done.returncode == 4 and "4711" in done.stderr
    assert "ListJobs" not in done.stderr and done.stderr.count("trainctl jobs") == 1


# ---- who answers, and who listens

@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_standard_file_that_is_closed(cluster, closed):
    """As by `<&-` or a supervisor: sockets must not take its number."""
    environment = {**cluster.environment, "TRAIND_ADDRESS": cluster.memberd.address}
    done = subprocess.run(["sh", "-c", f'exec "$0" nodes {closed}<&-', str(BIN / "trainctl")], capture_output=True, text=True, env=environment, timeout=DEADLINE_S)
    assert done.returncode == (1 if closed == 1 else 0), done.stderr
    assert done.stderr == ("trainctl: standard output: Bad file descriptor\n" if closed == 1 else "")
    assert closed == 1 or done.stdout.startswith("ID")


def test_an_address_in_json(home, tmp_path):
    """The path of a socket may hold what JSON quotes."""
    where = f'unix:{tmp_path}/a"b\\c'
    fake = FakeTrainer()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    rpc.add_TrainerServicer_to_server(fake, server)
    server.add_insecure_port(where)
    server.start()
    done = home.run("launch", "-n", "1", "--detach", "--json", "--address", where, "true")
    server.stop(None)
    assert done.returncode == 0 and json.loads(done.stdout) == {"id": 1, "address": where}


class Unready(rpc.TrainerServicer):
    """A memberd that reads its log."""

    def SubmitJob(self, request, context):
        context.abort(grpc.StatusCode.UNAVAILABLE, "memberd is not ready: it reads its log, or ends; try again")


def test_a_memberd_that_answers_is_not_started_again(home):
    record = home.json("up")
    home.run("down", check=True)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    rpc.add_TrainerServicer_to_server(Unready(), server)
    server.add_insecure_port(record["memberd"]["address"])
    server.start()
    start = int(pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    daemon = {"name": "memberd", "pid": os.getpid(), "start_time": start, "address": record["memberd"]["address"], "slots": 0}
    (home.folder / "cluster" / "cluster.json").write_text(json.dumps({"memberd": daemon, "nodes": []}))
    done = home.run("launch", "-n", "1", "--detach", "--", "true")
    server.stop(None)
    (home.folder / "cluster" / "cluster.json").unlink()
    assert done.returncode == 3 and done.stderr.endswith("memberd is not ready: it reads its log, or ends; try again\n"), done.stderr
