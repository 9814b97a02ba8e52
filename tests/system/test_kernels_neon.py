"""The kernels for 64-bit ARM give the bits of their references: their unit tests, cross-compiled, in an emulator."""
import os
import shutil
import subprocess

import pytest

from stubs import BUILD, ROOT

SANITIZED = "-" in BUILD.name


@pytest.mark.skipif(SANITIZED, reason="no sanitizers in the emulator")
def test_kernels_on_arm():
    for tool, package in (("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"), ("qemu-aarch64-static", "qemu-user-static")):
        if not shutil.which(tool):
            pytest.skip(f"no {tool} here (Debian's {package})")
    run = subprocess.run(["make", "-s", "kernels-neon", f"BUILD={os.path.relpath(BUILD, ROOT)}"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("== ") == len(list((ROOT / "tests" / "unit").glob("test_kernel_*.c"))) and "ok mean_square_errors" in run.stdout
