"""docs/operations.md and docs/limits.md name what there is: options, files, and what the daemons do with them."""
import re
import subprocess

import pytest

from harness import BIN, Cluster
from stubs import ROOT

TEXT = {name: (ROOT / "docs" / name).read_text() for name in ("operations.md", "limits.md")}


def printed(program, *arguments):
    return subprocess.run([str(BIN / program), *arguments], capture_output=True, text=True, check=True).stdout


def rows_of(program):
    """The rows of the table, from --help."""
    for line in printed(program, "--help").splitlines():
        if line.startswith("  --"):
            option, meaning = re.fullmatch(r"  (--[\w-]+(?: [A-Z]+)?) +(.*)", line).groups()
            yield f"| `{program}` | `{option}` | {meaning} |"


def test_the_table_of_options_is_that_of_help():
    wanted = [row for program in ("memberd", "traind") for row in rows_of(program)]
    assert len(wanted) > 10
    found = re.findall(r"^\| `(?:memberd|traind)` \| `--.*$", TEXT["operations.md"], re.MULTILINE)
    assert found == wanted, "the table should be:\n" + "\n".join(wanted)


@pytest.mark.parametrize("name", TEXT)
def test_every_option_that_is_named_exists(name):
    known = set(re.findall(r"--[a-z][\w-]*", printed("memberd", "--help") + printed("traind", "--help") +
                           printed("trainctl", "help", "--manual")))
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", TEXT[name])) <= known | {"--shepherd"}


def test_the_folders_hold_what_the_table_of_files_names(tmp_path):
    """And nothing else."""
    named = {where: set(re.findall(r"`([\w.-]+)/?`", what)) for where, what in
             re.findall(r"^\| (memberd|traind)'s `--dir` \| (.*?) \|", TEXT["operations.md"], re.MULTILINE)}
    assert set(named) == {"memberd", "traind"}
    with Cluster(tmp_path, nodes=1) as cluster:
        job = cluster.submit_command(["true"])
        cluster.wait_job(job, "DONE")
        for program, daemon in (("memberd", cluster.memberd), ("traind", cluster.nodes[0])):
            there = {path.name for path in daemon.folder.iterdir()} - {"daemon.log"}
            assert there == named[program], program
        assert (cluster.nodes[0].folder / "logs" / f"job-{job}").is_dir()
