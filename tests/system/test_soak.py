"""A short form of the soak (scripts/soak.py), for every policy: processes of one group are killed, stopped, ended and added while ops of all kinds run."""
import json
import subprocess
import sys

import pytest

from stubs import BUILD, ROOT


@pytest.mark.parametrize("policy", ["keep", "replay", "uniform"])
def test_nothing_hangs_leaks_or_differs(policy):
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "soak.py"), "--build", str(BUILD), "--seconds", "12", "--pause", "0.7",
                           "--hang", "60", "--policy", policy, "--json"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["ok"] and result["rounds"] >= 20, result
    assert sum(result.get(event, 0) for event in ("join", "kill", "stop", "leave", "freeze")) >= 3, result
