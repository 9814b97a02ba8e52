"""make install: a program outside the tree compiles, links and runs against what was installed."""
import os
import re
import subprocess

import pytest

from stubs import BUILD, ROOT

pytestmark = pytest.mark.xdist_group("install")  # one after another: each make links the library to install
STRICT = ["-Wall", "-Wextra", "-pedantic-errors", "-Werror"]
PROGRAM = r"""
#include <collectives/coll.h>
#include <stdio.h>
int main(void)
{
	tr_group *group;
	struct tr_error error;
	struct tr_join_options options = TR_JOIN_OPTIONS_INIT;
	struct tr_op op = TR_OP_INIT;
	struct tr_stats stats = TR_STATS_INIT;
	struct tr_link link = TR_LINK_INIT;
	size_t links;
	tr_status status = tr_group_attach(&group, &error);
	if (status == TR_OK && (options.size_of == 0 || tr_explain(group, &op, NULL, NULL, 0, &error) != TR_OK ||
	                           tr_stats_get(group, &stats, &error) != TR_OK || tr_links(group, &link, 1, &links, &error) != TR_OK))
		return 2;
	printf("%d %s\n", (int)status, error.text);
	return status == TR_ENOTFOUND ? 0 : 1;
}
"""


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    if "-" in BUILD.name:
        pytest.skip("a sanitizer's build is not installed")
    prefix = tmp_path_factory.mktemp("install") / "usr"
    make("install", prefix)
    return prefix


def make(target, prefix):
    subprocess.run(["make", "-s", "-C", str(ROOT), target, f"PREFIX={prefix}"], check=True, capture_output=True, text=True)


def run(*argv, **environment):
    environment = {key: value for key, value in {**os.environ, **environment}.items() if key != "TRAIND_WORKER_FD"}
    return subprocess.run(list(map(str, argv)), check=True, capture_output=True, text=True, env=environment).stdout


def pkg_config(prefix, *arguments):
    return run("pkg-config", *arguments, "libtraincoll", PKG_CONFIG_PATH=str(prefix / "lib" / "pkgconfig")).split()


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file() or path.is_symlink()]


def test_program_links_with_the_shared_library(prefix, tmp_path):
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PROGRAM)
    run("gcc", "-std=c99", *STRICT, "-o", program, source, *pkg_config(prefix, "--cflags", "--libs"))
    assert "libtraincoll.so.0" in run("readelf", "-d", program)
    assert run(program, LD_LIBRARY_PATH=str(prefix / "lib")).startswith("-11 ")


def test_program_links_with_the_static_library(prefix, tmp_path):
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PROGRAM)
    flags = [flag.replace("-ltraincoll", "-l:libtraincoll.a") for flag in pkg_config(prefix, "--cflags", "--libs", "--static")]
    run("gcc", "-o", program, source, *flags)
    assert run(program).startswith("-11 ")


def test_program_links_as_cpp(prefix, tmp_path):
    source, program = tmp_path / "program.cc", tmp_path / "program"
    source.write_text(PROGRAM)
    run("g++", *STRICT, "-o", program, source, *pkg_config(prefix, "--cflags", "--libs"))


def test_exports_are_exactly_those_of_the_headers(prefix):
    headers = "".join((ROOT / header).read_text() for header in ("collectives/coll.h", "collectives/sync.h", "collectives/domain.h", "common/status.h"))
    declared = set(re.findall(r"^TR_API [^;(]*?\b(tr_\w+)\(", headers, re.MULTILINE))
    assert len(declared) > 10
    for library, option in (("libtraincoll.so", "-D"), ("libtraincoll.a", "-g")):
        names = run("nm", option, "--defined-only", "--format=posix", prefix / "lib" / library)
        exported = {line.split()[0].split("@")[0] for line in names.splitlines() if len(line.split()) >= 3}
        assert exported - {"LIBTRAINCOLL_0"} == declared, library


def test_installed_programs_say_their_version(prefix):
    for program in ("memberd", "traind", "trainctl"):
        assert run(prefix / "bin" / program, "--version").split()[-1].count(".") == 2


def test_uninstall_leaves_nothing(prefix, tmp_path):
    other = tmp_path / "usr"
    make("install", other)
    assert files(other)
    make("uninstall", other)
    assert files(other) == []
