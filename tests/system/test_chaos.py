"""Twenty kills at random moments (make chaos runs two hundred): the record of rounds and samples is whole."""
import subprocess
import sys

import pytest

from harness import DEADLINE_S
from stubs import BUILD, ROOT

SANITIZED = "-" in BUILD.name


@pytest.mark.timeout(20 * DEADLINE_S)
def test_kills_at_random_moments_lose_nothing():
    kills = 5 if SANITIZED else 20
    done = subprocess.run([sys.executable, ROOT / "scripts" / "chaos.py", "--kills", str(kills), "--build", BUILD],
                          capture_output=True, text=True, timeout=18 * DEADLINE_S)
    print(done.stdout[-20000:], done.stderr[-5000:])
    last = done.stdout.strip().splitlines()[-1]
    assert done.returncode == 0 and last.startswith(f"chaos: ok kills={kills} "), last
