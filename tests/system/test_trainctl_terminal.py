"""What people see and are asked while they follow a job on a terminal: bar, Ctrl-C, job control."""
import pathlib
import re
import termios

import pytest

from harness import BIN, trainctl, wait_for
from stubs import pb
from terminal import Terminal
from test_trainctl_follow import environment, fake, finish, job_file, steps, wait_watched  # noqa: F401 (fixtures)


@pytest.fixture
def terminal(fake):  # noqa: F811
    opened = []

    def make(*arguments, columns=120, inside=(), **variables):
        opened.append(Terminal([*inside, BIN / "trainctl", "--address", fake.address, *arguments], environment(**variables), columns))
        return opened[-1]
    yield make
    for one in opened:
        one.close()


def test_bar(fake, job_file, terminal):  # noqa: F811
    screen = terminal("launch", job_file, columns=120)
    wait_watched(fake)
    steps(fake, 1, 1, 5)
    screen.expect(r"5/10  .*━+.*─+.*loss 3\.750  2\.0k tok/s  3 peers  view 2  eta 0:03")
    fake.update(1, lambda row: row.events.add(unix_ms=1000, text="peer 9 joined"))
    screen.expect(r"peer 9 joined\r\n")
    steps(fake, 1, 6, 10)
    screen.expect(r"[▁▂▃▄▅▆▇█]{8,}")
    finish(fake, 1)
    assert screen.wait() == 0
    assert "the quick brown fox" in screen.text and "job 1 done" in screen.text


def test_narrow_terminal_and_no_color(fake, job_file, terminal):  # noqa: F811
    screen = terminal("launch", job_file, columns=40, NO_COLOR="1")
    wait_watched(fake)
    steps(fake, 1, 1, 5)
    screen.expect(r"5/10")
    screen.resize(30)
    steps(fake, 1, 6, 7)
    screen.expect(r"7/10")
    fake.end(1)
    screen.wait()
    assert not re.search(r"\033\[\d*m", screen.text)
    drawn = [part for part in re.split(r"[\r\n]|\033\[\d*[AJ]", screen.text) if "/10" in part]
    assert drawn and all(len(part) < 40 for part in drawn)
    assert all(len(part) < 30 for part in drawn if part.startswith("7/10"))


@pytest.mark.parametrize("columns", [60, 80, 300])
def test_help_keeps_to_the_terminal(terminal, columns):
    screen = terminal("help", "up", columns=columns)
    assert screen.wait() == 0
    lines = screen.text.split("\r\n")[1:]  # the first says what to type, whole
    assert max(map(len, lines)) <= min(columns, 100) and max(map(len, lines)) > min(columns, 100) - 20
    assert " ".join(screen.text.split()) == " ".join(trainctl("help", "up").stdout.split())


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_of_no_kind(fake, job_file, terminal, term):  # noqa: F811
    screen = terminal("launch", job_file, TERM=term)
    wait_watched(fake)
    finish(fake, 1)
    assert screen.wait() == 0 and "\033" not in screen.text


def read_by(pid):
    """Bytes, by read()."""
    return int(re.search(r"rchar: (\d+)", pathlib.Path(f"/proc/{pid}/io").read_text())[1])


def test_a_question_that_nobody_answers(fake, job_file, terminal):  # noqa: F811
    """The job ends meanwhile: its end is not written over the question. Ctrl-\\ and Ctrl-Z do not leave a terminal without echo."""
    screen = terminal("launch", job_file)
    wait_watched(fake)
    screen.send("\x03")
    screen.expect(r"eep following\? $")
    read_before = read_by(screen.program())
    screen.send("\x1c\x1a")
    wait_for(lambda: read_by(screen.program()) >= read_before + 2, "trainctl to read both keys")
    fake.end(1, pb.JOB_STATE_FAILED, "it broke")
    assert screen.wait() == 1
    assert re.search(r"following\? \r\n\r?failed: it broke\r\n", screen.text), screen.text
    usual = termios.ECHO | termios.ICANON | termios.ECHOCTL
    assert termios.tcgetattr(screen.fd)[3] & usual == usual


def test_ctrl_c_detach(fake, job_file, terminal):  # noqa: F811
    screen = terminal("launch", job_file)
    wait_watched(fake)
    steps(fake, 1, 1, 2)
    screen.expect("2/10")
    screen.send("\x03")
    screen.expect(r"\[d\]etach.*\[c\]ancel.*\[k\]eep")
    screen.send("d")
    assert screen.wait() == 0
    assert not fake.cancelled and "trainctl status 1" in screen.text


def test_ctrl_c_keep_then_cancel(fake, job_file, terminal):  # noqa: F811
    screen = terminal("launch", job_file)
    wait_watched(fake)
    steps(fake, 1, 1, 2)
    screen.expect("2/10")
    screen.send("\x03")
    screen.expect(r"\[k\]eep following\? ")
    screen.send("x")  # not an answer
    screen.send("k")
    screen.expect(r"following\? keep\r\n")
    steps(fake, 1, 3, 4)
    screen.expect("4/10")
    screen.send("\x03")
    wait_for(lambda: screen.read().count("[c]ancel or") == 2, "the second question")
    screen.send("c")
    assert screen.wait() == 5
    assert fake.cancelled == [(1, "from the terminal")]


def test_ctrl_c_twice_cancels(fake, job_file, terminal):  # noqa: F811
    screen = terminal("launch", job_file)
    wait_watched(fake)
    screen.expect("running")
    screen.send("\x03")
    screen.expect(r"\[c\]ancel")
    screen.send("\x03")
    assert screen.wait() == 5 and len(fake.cancelled) == 1


def test_in_the_background(fake, job_file, terminal):  # noqa: F811
    """The terminal is the shell's, which is asked for nothing."""
    screen = terminal("launch", job_file, inside=["bash", "-mc", '"$@" & jobs -p; wait $!; echo "code $?"', "shell"])
    wait_watched(fake)
    finish(fake, 1)
    screen.expect(r"job 1 done.*code 0")
    assert screen.wait() == 0


def test_stopped_and_sent_to_the_background(fake, job_file, terminal):  # noqa: F811
    screen = terminal("launch", job_file, inside=["bash", "-mc", '"$@"; echo stopped; bg; wait; echo over', "shell"])
    wait_watched(fake)
    screen.expect("running")
    screen.send("\x1a")
    screen.expect("stopped")
    finish(fake, 1)
    screen.expect(r"job 1 done.*over")
    assert screen.wait() == 0
