"""Programs that differ from the tree's by a patch, for arms that the product has no mode for (variants/*.patch). Built in the build folder from
a copy of the tree at its commit, anew when that has other sources."""
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess

from stubs import BUILD, ROOT

PATCHES = pathlib.Path(__file__).parent / "variants"
PACED = "paced"
SOURCES = ["Makefile", "collectives", "common", "daemon", "proto", "scripts"]


def sources_of(patch):
    """Digest of what a variant is built from."""
    words = subprocess.run(["git", "-C", ROOT, "rev-parse", *(f"HEAD:{name}" for name in SOURCES)], check=True, capture_output=True).stdout
    return hashlib.sha256(words + patch.read_bytes()).hexdigest()


def trainworker(name):
    """The variant's trainworker; built first if it is not there, or is of other sources: an old one has an old trainer's ways, and no traind of today talks to it."""
    tree, patch = BUILD / "experiments" / "variants" / name, PATCHES / f"{name}.patch"
    program, built_from = tree / "build" / "bin" / "trainworker", tree / "sources"
    tree.parent.mkdir(parents=True, exist_ok=True)
    with open(tree.parent / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sources = sources_of(patch)
        if not program.exists() or not built_from.exists() or built_from.read_text() != sources:
            shutil.rmtree(tree, ignore_errors=True)
            tree.mkdir()
            archive = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], check=True, capture_output=True).stdout
            subprocess.run(["tar", "-x", "-C", tree], input=archive, check=True)
            subprocess.run(["patch", "-p1", "-s", "-d", tree, "-i", patch], check=True)
            environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
            subprocess.run(["make", "-s", "-j2", "-C", tree, "BUILD=build", "build/bin/trainworker"], check=True, env=environment,
                           stdout=subprocess.DEVNULL)
            built_from.write_text(sources)
    return program


def paced(folder, sequence_ms):
    """A trainworker of which each sequence takes at least so long, whatever else the machine does: a script in `folder`."""
    script = pathlib.Path(folder) / f"trainworker-{sequence_ms:g}ms"
    script.write_text(f"#!/bin/sh\nTRAIND_SEQUENCE_MS={sequence_ms:g} exec {trainworker(PACED)} \"$@\"\n")
    script.chmod(0o755)
    return script
