"""scripts/quickstart.sh, which `make quickstart` runs, on fewer steps: the whole path from a job file to a checkpoint."""
import os
import re
import subprocess

import pytest

from harness import DEADLINE_S, MARK, marked_processes, wait_for
from stubs import BUILD, ROOT
from terminal import Terminal

pytestmark = pytest.mark.xdist_group("quickstart")  # one after another: all in one folder
LAST = re.compile(r"quickstart: ok steps=(\d+) peers=(\d+) loss=(\d+\.\d+)->(\d+\.\d+) val_loss=(\d+\.\d+) tokens_per_s=(\d+) "
                  r"seconds=(\d+) checkpoint=(/\S+)")


@pytest.fixture
def quickstart():
    marks = []

    def run(*arguments, **variables):
        marks.append(f"quickstart-{os.getpid()}-{len(marks)}")
        environment = {**os.environ, MARK: marks[-1], **variables}
        return subprocess.run([ROOT / "scripts" / "quickstart.sh", BUILD, *arguments], env=environment, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=6 * DEADLINE_S)
    yield run
    for mark in marks:
        for pid in marked_processes(mark):
            os.kill(pid, 9)


@pytest.mark.timeout(8 * DEADLINE_S)
def test_quickstart(quickstart):
    done = quickstart("--set", "train.steps=12", "--set", "train.batch_tokens=1536", "--set", "train.warmup=2",
                      "--set", "train.eval_sequences=4", "--set", "sample.tokens=20")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    lines = done.stdout.splitlines()
    found = LAST.fullmatch(lines[-1])
    assert found, lines[-1]
    assert found[1] == "12" and found[2] == "3"
    assert 0 < float(found[4]) < float(found[3]) < 7, "the loss did not fall"
    assert os.path.exists(os.path.join(found[8], "model.safetensors"))
    assert any(line.startswith("step 12/12 ") for line in lines)
    assert "---- sample ----" in lines
    wait_for(lambda: not marked_processes(f"quickstart-{os.getpid()}-0"), "all processes to end")


def test_quickstart_before_the_build(tmp_path):
    done = subprocess.run([ROOT / "scripts" / "quickstart.sh", tmp_path], capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"quickstart: failed: no {tmp_path}/bin/trainctl; 'make quickstart' builds it first\n"


@pytest.mark.timeout(8 * DEADLINE_S)
def test_quickstart_that_fails_says_so(quickstart):
    done = quickstart("--set", "data.text=/nonexistent.txt")
    assert done.returncode == 1
    assert "data.text: found '/nonexistent.txt', which cannot be read" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("quickstart: failed: ") and "quickstart: ok" not in done.stdout
    wait_for(lambda: not marked_processes(f"quickstart-{os.getpid()}-0"), "all processes to end")


@pytest.fixture
def on_terminal():
    """Starts a quickstart on a terminal and presses Ctrl-C in the middle; it is asked what that means."""
    mark = f"quickstart-{os.getpid()}-terminal"
    opened = []

    def start():
        kept = {key: value for key, value in os.environ.items() if not key.startswith("TRAIND_")}
        command = [ROOT / "scripts" / "quickstart.sh", BUILD, "--set", "train.steps=100", "--set", "sample.tokens=0",
                   "--set", "train.eval_sequences=4"]
        opened.append(Terminal(command, {**kept, MARK: mark, "TERM": "xterm"}))
        opened[-1].expect("view 1: 3 peers")
        opened[-1].send("\x03")
        opened[-1].expect(r"eep following\?")
        return opened[-1]
    yield start
    for one in opened:
        one.close()
    wait_for(lambda: not marked_processes(mark), "all processes to end")


@pytest.mark.timeout(8 * DEADLINE_S)
def test_quickstart_that_is_kept_ends_well(on_terminal):
    terminal = on_terminal()
    terminal.send("k")
    assert terminal.wait(6 * DEADLINE_S) == 0, terminal.text[-3000:]
    assert LAST.fullmatch(terminal.text.splitlines()[-1]), terminal.text[-3000:]


@pytest.mark.timeout(8 * DEADLINE_S)
def test_quickstart_that_is_left_says_so(on_terminal):
    terminal = on_terminal()
    terminal.send("d")
    assert terminal.wait() == 1
    assert re.fullmatch(r"quickstart: failed: the job was left at step \d* of 100, and its cluster has been ended",
                        terminal.text.splitlines()[-1]), terminal.text[-3000:]


@pytest.mark.timeout(8 * DEADLINE_S)
def test_quickstart_whose_terminal_goes_away_leaves_nothing(on_terminal):
    on_terminal()
