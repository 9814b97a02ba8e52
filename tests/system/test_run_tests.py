"""scripts/run_tests.py is told to end, or its pytest is: what it started is gone before it goes, and none of it has passed."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

from harness import wait_for
from stubs import ROOT

CHECK = """
check:
	@echo $$$$ >"$(HERE)/check.new"; mv "$(HERE)/check.new" "$(HERE)/check.pid"; exec sleep 1000
"""
TESTS = """
import os, pathlib, subprocess

HERE = pathlib.Path(os.environ["HERE"])

def note(name, pid):
    (HERE / (name + ".new")).write_text(str(pid))
    os.rename(HERE / (name + ".new"), HERE / (name + ".pid"))

def test_ends():
    pass

def test_goes_on():
    try:
        daemon = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        note("daemon", daemon.pid)
        note("pytest", os.getppid())
        note("worker", os.getpid())
        daemon.wait()
    finally:
        (HERE / "tidied").touch()
"""


PF_EXITING = 4  # linux/sched.h


def gone(pid):
    """Or on its way out of the kernel, where it runs nothing more."""
    try:
        state, *facts = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return state in "XZ" or int(facts[5]) & PF_EXITING != 0
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.fixture
def tree(tmp_path):
    """The smallest tree that run_tests.py can run: its programs say who they are and never end."""
    for folder in ("scripts", "tests/system"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "run_tests.py", tmp_path / "scripts")
    (tmp_path / "Makefile").write_text(CHECK)
    (tmp_path / "tests" / "system" / "test_inner.py").write_text(TESTS)
    yield tmp_path
    for path in tmp_path.glob("*.pid"):  # of a test that has failed
        if not gone(int(path.read_text())):
            os.kill(int(path.read_text()), signal.SIGKILL)


@pytest.fixture
def run(tree):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    argv = [sys.executable, tree / "scripts" / "run_tests.py", "--suites", "check,python", "--build", tree / "build", "--python-jobs", "1"]
    with subprocess.Popen(argv, env={**environment, "HERE": str(tree)}, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def pid_of(tree, name):
    return int(wait_for(lambda: (tree / f"{name}.pid").exists() and (tree / f"{name}.pid").read_text(), f"{name} runs"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ends_what_it_started(tree, run, number):
    pids = [pid_of(tree, name) for name in ("check", "daemon", "pytest", "worker")]
    run.send_signal(number)
    said = run.communicate()[0].splitlines()
    assert run.returncode == 128 + number, said
    assert all(map(gone, pids)), pids
    assert (tree / "tidied").exists(), "pytest had no time to tidy up"
    assert {"failed: check: interrupted", "failed: pytest: interrupted"} <= set(said)
    assert said[-1] == f"0 passed, 2 failed, interrupted by {number.name}", said


def test_interrupted_pytest_has_not_passed(tree, run):
    """Somebody else interrupts it."""
    check, inner = pid_of(tree, "check"), pid_of(tree, "pytest")
    os.kill(inner, signal.SIGINT)
    wait_for(lambda: gone(inner), "pytest is gone")
    os.kill(check, signal.SIGTERM)
    said = run.communicate()[0].splitlines()
    assert run.returncode == 1, said
    assert "failed: pytest: interrupted" in said and said[-1].startswith("0 passed, "), said
