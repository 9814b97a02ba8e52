"""Kills at random moments (make chaos and make chaos-sharded run two hundred): the record of rounds and samples is whole, and what sharded jobs learn is what one worker learns."""
import subprocess
import sys

import pytest

from harness import DEADLINE_S
from stubs import BUILD, ROOT

SANITIZED = "-" in BUILD.name


def run_chaos(script, kills):
    done = subprocess.run([sys.executable, ROOT / "scripts" / script, "--kills", str(kills), "--build", BUILD], capture_output=True, text=True,
                          timeout=18 * DEADLINE_S)
    print(done.stdout[-20000:], done.stderr[-5000:])
    last = done.stdout.strip().splitlines()[-1]
    assert done.returncode == 0 and last.startswith(f"chaos: ok kills={kills} "), last


@pytest.mark.timeout(20 * DEADLINE_S)
def test_kills_at_random_moments_lose_nothing():
    run_chaos("chaos.py", 5 if SANITIZED else 12)


@pytest.mark.timeout(20 * DEADLINE_S)
def test_kills_in_sharded_jobs_lose_nothing():
    """The first job, whose nodes are lost for good and divided into halves, and perhaps the second."""
    run_chaos("chaos_sharded.py", 4 if SANITIZED else 10)
