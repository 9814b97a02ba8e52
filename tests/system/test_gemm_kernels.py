"""OpenBLAS takes old kernels on a processor that it does not know, which can be several times as slow: a worker begins again with better ones."""
import os
import pathlib
import platform
import subprocess

import pytest

from harness import BIN, DEADLINE_S
from stubs import BUILD

STUB = """
#include <stdio.h>
#include <stdlib.h>
char *openblas_get_corename(void)
{
	char *asked = getenv("OPENBLAS_CORETYPE");
	(void)fprintf(stderr, "asked for %s\\n", asked ? asked : "nothing");
	return asked ? asked : "Prescott";
}
char *openblas_get_config(void) { return "DYNAMIC_ARCH"; }
"""

pytestmark = [pytest.mark.skipif(platform.machine() != "x86_64" or " avx2 " not in pathlib.Path("/proc/cpuinfo").read_text(), reason="needs AVX2"),
              pytest.mark.skipif("-" in BUILD.name, reason="a sanitizer wants to be loaded first")]


def asked(tmp_path, **environment):
    """What OpenBLAS was asked for at each beginning of a worker that has no traind, and its words and exit code."""
    (tmp_path / "stub.c").write_text(STUB)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "stub.so", tmp_path / "stub.c"], check=True)
    clean = {key: value for key, value in os.environ.items() if key != "OPENBLAS_CORETYPE"}
    done = subprocess.run([BIN / "trainworker"], env={**clean, "LD_PRELOAD": str(tmp_path / "stub.so"), **environment}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 1 and "it is started by traind" in done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("asked for ")]


def test_a_worker_takes_better_kernels_by_itself(tmp_path):
    first, second = asked(tmp_path)
    assert first == "asked for nothing" and second in ("asked for SkylakeX", "asked for Haswell")


def test_kernels_that_somebody_chose_stay(tmp_path):
    assert asked(tmp_path, OPENBLAS_CORETYPE="Nehalem") == ["asked for Nehalem"]


def test_they_are_told():
    done = subprocess.run([BIN / "trainworker", "--kernels"], env={**os.environ, "OPENBLAS_CORETYPE": "Haswell"}, capture_output=True, text=True, check=True)
    assert done.stdout == "Haswell\n"
