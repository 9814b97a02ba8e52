"""A short form of the soak (scripts/soak.py), for every policy: processes of one group are killed, stopped, ended and added while ops of all kinds run;
over TCP their connections break too."""
import json
import mmap
import os
import subprocess
import sys

import pytest

from stubs import BUILD, ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import soak  # noqa: E402


@pytest.mark.parametrize("policy, transport", [("keep", "auto"), ("replay", "tcp"), ("uniform", "tcp"), ("uniform", "auto")])
def test_nothing_hangs_leaks_or_differs(policy, transport):
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "soak.py"), "--build", str(BUILD), "--seconds", "12", "--pause", "0.7",
                           "--hang", "60", "--policy", policy, "--transport", transport, "--json"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["ok"] and result["rounds"] >= 20, result
    assert sum(result.get(event, 0) for event in ("join", "kill", "stop", "leave", "freeze")) >= 3, result
    if transport == "tcp" and os.geteuid() == 0:
        assert result.get("cut", 0) > 0, result


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: what a process has mapped")
def test_shared_memory_is_seen_once_while_it_is_mapped():
    before = soak.shared_files(os.getpid())
    file = os.memfd_create("soaked")
    os.ftruncate(file, 4 << 20)
    memory = mmap.mmap(file, 4 << 20)
    memory[:1 << 20] = b"x" * (1 << 20)

    def more():
        return sum(kib for key, kib in soak.shared_files(os.getpid()).items() if key not in before)

    assert more() == 1024
    os.close(file)
    assert more() == 1024
    memory.close()
    assert more() == 0


def test_growth_is_from_the_first_third_to_the_last():
    assert soak.grown([9] * 2 + [1] * 9 + [5] * 9) == 4
    assert soak.grown([7] * 30) == 0
    assert soak.grown([1, 2]) == 0
