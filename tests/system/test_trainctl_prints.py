"""What trainctl prints without a cluster: help, its version, pictures; and what comes of it where that cannot be written."""
import os
import subprocess

from harness import BIN
from stubs import ROOT


def test_help_of_every_verb(home):
    overview = home.run("help").stdout
    verbs = [line.split()[0] for line in overview.split("verbs:")[1].split("options:")[0].splitlines() if line.strip()]
    assert {"up", "down", "launch", "jobs", "status", "logs", "samples", "cancel", "nodes", "plan", "plot", "export", "import", "ca", "cert", "help",
            "version"} == set(verbs)
    for verb in verbs:
        asked, flagged = home.run("help", verb), home.run(verb, "--help")
        assert asked.returncode == flagged.returncode == 0 and asked.stdout == flagged.stdout
        assert asked.stdout.startswith(f"usage: trainctl {verb}")
        assert home.run("--help", verb).stdout == asked.stdout and not home.processes()
    assert "exit codes:" in overview and "130" in overview
    assert home.run().stdout == overview and home.run("--help").stdout == overview
    assert home.run("help", "frobnicate").returncode == 2


def test_manual_and_reference_are_as_printed(home):
    assert home.run("help", "--manual").stdout == (ROOT / "docs" / "trainctl.md").read_text()
    assert home.run("help", "--job-file").stdout == (ROOT / "docs" / "job-file.md").read_text()


def test_version(home):
    assert home.run("version").stdout == home.run("--version").stdout
    assert set(home.json("version")) == {"version"}


def test_output_that_cannot_be_written(home):
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(BIN / "trainctl"), "version"], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True, env=home.environment)
    assert done.returncode == 1 and done.stderr == "trainctl: standard output: No space left on device\n"


def test_a_picture_is_not_written_through_a_link(home, tmp_path):
    """Whose name somebody has guessed: of a folder that others may write to."""
    (tmp_path / "metrics.jsonl").write_text('{"step":1,"loss":3}\n{"step":2,"loss":2}\n')
    (tmp_path / "victim").write_text("kept")
    plant = f"cd {tmp_path}; ln -s victim loss.svg.$$.new; exec {BIN}/trainctl plot metrics.jsonl"
    done = subprocess.run(["sh", "-c", plant], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=home.environment)
    assert done.returncode == 1 and done.stderr.startswith("trainctl: loss.svg.") and done.stderr.endswith(".new: File exists\n")
    assert (tmp_path / "victim").read_text() == "kept" and not (tmp_path / "loss.svg").exists()


def test_who_reads_a_picture_may_leave(home, tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step":1,"loss":3}\n{"step":2,"loss":2}\n')
    plot = [str(BIN / "trainctl"), "plot", str(tmp_path), "-o", "-"]
    reader, writer = os.pipe()
    os.close(reader)
    left = subprocess.run(plot, stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE, text=True, env=home.environment)
    os.close(writer)
    assert left.returncode == 0 and left.stderr == ""
    with open("/dev/full", "w") as full:
        done = subprocess.run(plot, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True, env=home.environment)
    assert done.returncode == 1 and done.stderr == "trainctl: standard output: No space left on device\n"
