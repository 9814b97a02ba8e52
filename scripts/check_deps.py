#!/usr/bin/env python3
"""Holds the directions in which folders may depend on one another (the table in docs/architecture.md), and where
libuv and sockets may be used, by the #include lines."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PURE = {"common", "proto"}
COLLECTIVES = {"collectives/core", "collectives/kernels", "collectives/transport", "collectives/engine", "collectives"}

# folder: what it may include besides itself. "collectives" is coll.h and domain.h alone.
MAY_INCLUDE = {
    "common": set(),
    "proto": {"common"},
    "collectives": {"common"},
    "collectives/core": PURE | {"collectives", "collectives/kernels"},
    "collectives/kernels": PURE | {"collectives"},
    "collectives/transport": PURE,
    "collectives/engine": PURE | COLLECTIVES,
    "collectives/sync": {"common", "collectives", "collectives/kernels", "collectives/engine"},
    "collectives/backend": PURE | {"collectives", "collectives/kernels", "collectives/engine"},
    "daemon/plan": PURE | {"collectives", "collectives/kernels"},
    "daemon/shell": {"common", "collectives/transport"},
    "daemon/membership/core": PURE | {"daemon/plan"},
    "daemon/membership/store": {"common"},
    "daemon/membership/server": PURE | {"collectives/transport", "daemon/membership/core", "daemon/membership/store",
                                        "daemon/api", "daemon/plan", "daemon/shell"},
    "daemon/node": PURE | {"collectives", "collectives/engine", "collectives/transport", "daemon/api", "daemon/plan",
                    "daemon/shell"},
    "daemon/api": PURE | {"collectives/transport", "daemon/shell"},
    "daemon/checkpoint": {"common", "collectives", "collectives/kernels", "collectives/sync", "daemon/plan"},
    "daemon/worker": PURE | {"collectives", "collectives/sync", "daemon/plan", "daemon/checkpoint"},
    "examples": {"collectives"},
    "client/trainctl": PURE | {"collectives/transport", "daemon/api", "daemon/checkpoint", "daemon/plan", "daemon/shell"},
    "client/lib": PURE | {"daemon/api", "daemon/plan"},
}
MAY_INCLUDE["daemon/membership"] = MAY_INCLUDE["daemon/membership/server"] | {"daemon/membership/server"}

WITH_UV = {"collectives/transport", "collectives/backend", "collectives/engine", "daemon/node", "daemon/api", "daemon/shell", "daemon/membership",
           "daemon/membership/server", "daemon/membership/store", "client/trainctl", "client/lib"}
WITH_ENVIRONMENT = ("daemon/membership/main.c", "daemon/node/main.c", "daemon/worker/main.c", "client/",
                    "collectives/engine/")  # the channel that traind hands to its worker is named there
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
SOCKETS = re.compile(r"^(uv\.h|uv/.*|sys/socket\.h|netinet/.*|netdb\.h|raft.*|nghttp2/.*)$")


def folder_of(path):
    """The longest row of the table that holds this path; generated messages belong to proto."""
    if path.startswith(("traind/", "grpc/")):
        return "proto"
    folder = str(pathlib.PurePosixPath(path).parent)
    while folder not in MAY_INCLUDE and "/" in folder:
        folder = folder.rsplit("/", 1)[0]
    return folder


def problems_of(path):
    text = (ROOT / path).read_text()
    here = folder_of(path)
    if here not in MAY_INCLUDE:
        yield f"{path}: folder {here} is not in the table of scripts/check_deps.py"
        return
    for quote, target in INCLUDE.findall(text):
        if quote == '"' or (ROOT / target).exists():
            there = folder_of(target)
            if there != here and there not in MAY_INCLUDE[here]:
                yield f"{path}: includes {target}, but {here} may not depend on {there}"
        elif SOCKETS.match(target) and here not in WITH_UV:
            yield f"{path}: includes {target}, but {here} knows neither libuv nor sockets"
    if re.search(r"\b(secure_)?getenv\s*\(", text) and not path.startswith(WITH_ENVIRONMENT):
        yield f"{path}: reads the environment; only a program's configuration does"
    if "uv_poll_start(" in text and path.startswith("collectives/") and path != "collectives/transport/watch.c":
        yield f"{path}: uv_poll_start: an engine sleeps outside of uv_run and has to know (collectives/transport/watch.h)"


def main():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.c", "*.h"], cwd=ROOT, check=True, capture_output=True, text=True)
    files = [path for path in listed.stdout.split() if not path.startswith(("tests/", "bench/", "scripts/"))]
    problems = [problem for path in files for problem in problems_of(path)]
    for problem in problems:
        print(problem)
    print(f"deps: {len(files)} files, {len(problems)} problems")
    return 1 if problems or not files else 0


if __name__ == "__main__":
    sys.exit(main())
