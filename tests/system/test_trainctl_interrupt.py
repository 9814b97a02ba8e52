"""Ctrl-C, SIGTERM and a closed terminal before there is a job: what was begun ends, and says so. Afterwards: test_trainctl_follow.py."""
import json
import os
import signal
import subprocess

import pytest

from fake_trainer import FakeTrainer
from harness import BIN, DEADLINE_S, alive, wait_for
from stubs import pb
from test_trainctl import JOB_FILE, job_file  # noqa: F401 (fixture)

SIGNALS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "told to end"), (signal.SIGHUP, 129, "the terminal went away")]


class Programs:
    """trainctl with daemons and a trainworker beside it of which some do nothing but say that they were started."""

    def __init__(self, folder, home):
        self.folder, self.home = folder, home
        self.folder.mkdir()
        os.mkfifo(self.folder / "never")
        for name in ("trainctl", "memberd", "traind", "trainworker"):
            (self.folder / name).write_bytes((BIN / name).read_bytes())
            (self.folder / name).chmod(0o755)

    def hang(self, name, trap=""):
        """What runs is the shell itself: it opens a pipe that nobody writes to."""
        (self.folder / name).unlink()
        (self.folder / name).write_text(f"#!/bin/sh\n{trap}\n: > {self.folder}/{name}.begun\n: < {self.folder}/never\n")
        (self.folder / name).chmod(0o755)

    def mend(self, name):
        (self.folder / name).unlink()
        (self.folder / name).write_bytes((BIN / name).read_bytes())
        (self.folder / name).chmod(0o755)

    def begun(self, name):
        wait_for((self.folder / f"{name}.begun").exists, f"{name} to be started")

    def start(self, *arguments, **environment):
        """Signals are heeded, whatever the tests are run in."""
        return subprocess.Popen(["env", "--default-signal=INT,TERM,HUP", str(self.folder / "trainctl"), *map(str, arguments)],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**self.home.environment, **environment})


@pytest.fixture
def programs(tmp_path, home):
    return Programs(tmp_path / "programs", home)


@pytest.fixture
def auto(job_file):  # noqa: F811
    job_file.write_text(JOB_FILE + "mesh: auto\n")
    return job_file


def ended(process):
    out, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, out, err.splitlines()


def check_ended(home, process, code, last_line):
    """In two lines, with nothing left."""
    returned, _, err = ended(process)
    assert returned == code, err
    assert err[-1] == last_line and len(err) == 2
    assert not home.processes() and not (home.folder / "cluster" / "cluster.json").exists()


@pytest.mark.parametrize("number, code, words", SIGNALS)
def test_while_a_daemon_starts(home, programs, job_file, number, code, words):  # noqa: F811
    programs.hang("traind")
    process = programs.start("launch", job_file)
    programs.begun("traind")
    process.send_signal(number)
    check_ended(home, process, code, f"trainctl: {words} before the job was submitted; what it had started was ended again")
    # nothing of it is in the next one's way
    assert home.run("launch", "-n", "1", "--", "true").returncode == 0


@pytest.mark.parametrize("number, code, words", SIGNALS)
def test_while_layers_are_measured(home, programs, auto, number, code, words):  # noqa: F811
    programs.hang("trainworker")
    process = programs.start("launch", auto)
    programs.begun("trainworker")
    process.send_signal(number)
    check_ended(home, process, code, f"trainctl: {words} before the job was submitted; ending the cluster that was started for it")


def test_a_cluster_that_was_there_stays(home, programs, auto):  # noqa: F811
    rows = home.json("up", "--slots", "2")
    programs.hang("trainworker")
    for verb in ("launch", "plan"):
        process = programs.start(verb, auto)
        programs.begun("trainworker")
        process.send_signal(signal.SIGINT)
        returned, out, err = ended(process)
        assert returned == 130 and out == "", err
        assert err[0].startswith("trainctl: measures layers of the model on this machine")
        assert err[1:] == ["trainctl: interrupted before " + ("the job was submitted" if verb == "launch" else "there was a plan")]
        wait_for(lambda: set(home.processes()) == {rows["memberd"]["pid"], rows["nodes"][0]["pid"]}, "the measurement to be over")
        (programs.folder / "trainworker.begun").unlink()  # two measure at once: the other one may have begun after the signal
    assert home.json("jobs") == []


def test_keep_keeps(home, programs, auto):  # noqa: F811
    programs.hang("trainworker")
    process = programs.start("launch", "--keep", auto)
    programs.begun("trainworker")
    process.send_signal(signal.SIGINT)
    returned, _, err = ended(process)
    assert returned == 130 and err[-1].endswith("; the cluster that was started for it stays: `trainctl down` ends it")
    assert [row["state"] for row in home.json("nodes")] == ["alive"]


def test_while_links_are_measured(home, programs, auto):  # noqa: F811
    """A call that takes as long as it takes."""
    with FakeTrainer() as fake:
        fake.nodes.append(pb.Node(id=1, name="node-1", address=fake.address, state="alive", slots=1, cores=1))
        fake.hold("MeasureLinks")
        process = programs.start("plan", "--measure", auto, TRAIND_ADDRESS=fake.address)
        assert fake.asked.wait(DEADLINE_S)
        process.send_signal(signal.SIGTERM)
        returned, _, err = ended(process)
        assert returned == 143 and err == ["trainctl: told to end before there was a plan"]


@pytest.mark.parametrize("detach", [(), ("--detach",)])
def test_while_it_is_submitted(programs, job_file, detach):  # noqa: F811
    """Whether there is a job says memberd's answer: it is awaited, and the job cancelled."""
    with FakeTrainer() as fake:
        fake.hold("SubmitJob")
        process = programs.start("launch", job_file, *detach, TRAIND_ADDRESS=fake.address)
        assert fake.asked.wait(DEADLINE_S)
        process.send_signal(signal.SIGINT)
        fake.answer.set()
        returned, _, err = ended(process)
        assert returned == 130 and "job 1 was cancelled" in err[-1] and fake.cancelled == [(1, "interrupted")]


def test_up_takes_back_what_it_started(home, programs):  # noqa: F811
    rows = home.json("up", "--slots", "2")
    programs.hang("traind")
    process = programs.start("up", "--nodes", "3")
    programs.begun("traind")
    process.send_signal(signal.SIGINT)
    assert ended(process)[::2] == (130, ["trainctl: interrupted: what it had started was ended again"])
    assert set(home.processes()) == {rows["memberd"]["pid"], rows["nodes"][0]["pid"]}
    assert home.json("up") == rows


def test_waiting_for_another_trainctl(home, programs):  # noqa: F811
    programs.hang("traind")
    first = programs.start("up")
    programs.begun("traind")
    second = programs.start("up")
    assert "waiting for it" in second.stderr.readline()
    second.send_signal(signal.SIGINT)
    assert ended(second)[::2] == (130, ["trainctl: interrupted"])
    assert alive(first.pid)
    first.send_signal(signal.SIGINT)
    assert ended(first)[0] == 130


@pytest.mark.parametrize("kill", [False, True])
def test_a_second_signal_ends_at_once(home, programs, job_file, kill):  # noqa: F811
    """So does SIGKILL. A daemon that was being started is left and in no record; the next launch finds it."""
    programs.hang("traind", trap="trap '' TERM")  # the first signal's work takes its time
    process = programs.start("launch", job_file)
    programs.begun("traind")
    record = json.loads((home.folder / "cluster" / "cluster.json").read_text())
    daemons = set(home.processes()) - {process.pid}
    assert record["memberd"]["pid"] in daemons and len(daemons) == 2
    while process.poll() is None:
        process.send_signal(signal.SIGKILL if kill else signal.SIGINT)
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            pass
    returned, _, err = ended(process)
    if not kill:
        assert returned == 130 and err[-1] == "trainctl: ended at once: daemons may have been left; `trainctl down` ends them"
    assert daemons & set(home.processes())
    again = home.run("launch", "-n", "2", "--", "true")
    assert again.returncode == 0, again.stderr
    wait_for(lambda: not home.processes(), "all to end")


def test_up_goes_on_with_what_was_left(home, programs):  # noqa: F811
    programs.hang("traind")
    process = programs.start("up", "--nodes", "2")
    programs.begun("traind")
    process.kill()
    process.wait()
    left = set(home.processes())
    record = json.loads((home.folder / "cluster" / "cluster.json").read_text())
    assert home.run("nodes").returncode == 3  # half a cluster is none
    rows = home.json("up", "--nodes", "2")
    assert rows["memberd"]["pid"] == record["memberd"]["pid"] and all(row["alive"] for row in rows["nodes"])
    assert not any(alive(pid) for pid in left - {rows["memberd"]["pid"]})
    assert len(home.processes()) == 3
