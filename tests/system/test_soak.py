"""A short form of the soak (scripts/soak.py), for every policy: processes of one group are killed, stopped, ended and added while ops of all kinds run;
over TCP their connections break too."""
import json
import os
import subprocess
import sys

import pytest

from stubs import BUILD, ROOT


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
