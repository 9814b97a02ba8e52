"""Programs that differ from the tree's by a patch, for arms that the product has no mode for (variants/*.patch). Built in the build folder from
a copy of the tree at its commit."""
import fcntl
import os
import pathlib
import subprocess

from stubs import BUILD, ROOT

PATCHES = pathlib.Path(__file__).parent / "variants"
PACED = "paced"


def trainworker(name):
    """The variant's trainworker; built first if it is not there."""
    tree = BUILD / "experiments" / "variants" / name
    program = tree / "build" / "bin" / "trainworker"
    tree.mkdir(parents=True, exist_ok=True)
    with open(tree.parent / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            archive = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], check=True, capture_output=True).stdout
            subprocess.run(["tar", "-x", "-C", tree], input=archive, check=True)
            subprocess.run(["patch", "-p1", "-s", "-d", tree, "-i", PATCHES / f"{name}.patch"], check=True)
            environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
            subprocess.run(["make", "-s", "-j2", "-C", tree, "BUILD=build", "build/bin/trainworker"], check=True, env=environment,
                           stdout=subprocess.DEVNULL)
    return program


def paced(folder, sequence_ms):
    """A trainworker of which each sequence takes at least so long, whatever else the machine does: a script in `folder`."""
    script = pathlib.Path(folder) / f"trainworker-{sequence_ms:g}ms"
    script.write_text(f"#!/bin/sh\nTRAIND_SEQUENCE_MS={sequence_ms:g} exec {trainworker(PACED)} \"$@\"\n")
    script.chmod(0o755)
    return script
