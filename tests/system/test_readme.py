"""Every command in the README runs: the blocks marked `sh` are the script. What takes minutes has a test of its own."""
import os
import re
import subprocess

import pytest

from harness import DEADLINE_S, marked_processes, MARK, wait_for
from stubs import BUILD, ROOT

BLOCKS = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
ELSEWHERE = {"make quickstart", "make test"}  # test_quickstart.py, and the run that this test is part of


def commands(block):
    return [line.split("  #")[0].strip() for line in block.splitlines() if line.strip()]


def test_targets_of_make_exist():
    wanted = {line for block in BLOCKS for line in commands(block) if line.startswith("make ")}
    assert wanted == ELSEWHERE
    for line in wanted:
        subprocess.run(["make", "-n", *line.split()[1:]], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.timeout(10 * DEADLINE_S)
def test_tour(tmp_path):
    tour = [block for block in BLOCKS if "trainctl" in block]
    assert len(tour) == 1
    mark = str(tmp_path)
    script = "set -ex\n" + tour[0].replace("$PWD/build/bin", str(BUILD / "bin"))
    environment = {**os.environ, "TRAIND_HOME": str(tmp_path / "home"), MARK: mark}
    try:
        done = subprocess.run(["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=8 * DEADLINE_S)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        assert "rank 3 of 4" in done.stdout
        wait_for(lambda: not marked_processes(mark), "all processes to end")
    finally:
        for pid in marked_processes(mark):
            os.kill(pid, 9)
