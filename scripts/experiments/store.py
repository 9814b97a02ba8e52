"""Finished runs: one small JSON each, committed with the tree (docs/results/runs/)."""
import json
import os
import pathlib
import platform
import subprocess

CURVE_POINTS = 64


class Store:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def path(self, run):
        return self.folder / f"{run.arm.name}-seed{run.seed}-{run.key}.json"

    def has(self, run):
        return self.path(run).exists()

    def put(self, run, result):
        self.folder.mkdir(parents=True, exist_ok=True)
        whole = {"arm": run.arm.name, "seed": run.seed, "key": run.key, "settings": run.settings, **result}
        there = self.path(run)
        beside = there.with_suffix(".tmp")
        beside.write_text(json.dumps(whole, indent=1) + "\n")
        os.replace(beside, there)

    def get(self, run):
        """None: it has not been run."""
        return json.loads(self.path(run).read_text()) if self.has(run) else None


class Rows:
    """A file of rows, written after each. Those that it has of the same commit are not measured again. `keys`: what tells a row from the others."""
    def __init__(self, path, commit, keys, name="rows", **facts):
        before = json.loads(path.read_text()) if path.exists() else {}
        self.path, self.keys = path, keys
        self.rows = before[name] if before.get("commit") == commit else []
        self.whole = {"commit": commit, "machine": machine(), **facts, name: self.rows}

    def has(self, *values):
        return any(tuple(row[key] for key in self.keys) == values for row in self.rows)

    def put(self, row):
        self.rows.append(row)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.whole, indent=1) + "\n")


def thin(points, most=CURVE_POINTS):
    """[(step, loss)]: means of equal numbers of neighbours, each at its last step."""
    size = -(-len(points) // most) or 1
    groups = [points[at:at + size] for at in range(0, len(points), size)]
    return [[group[-1][0], round(sum(loss for _, loss in group) / len(group), 5)] for group in groups]


def machine():
    names = [line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {"cpu": names[0] if names else platform.machine(), "cores": os.cpu_count(), "kernel": platform.release()}


def commit_of(tree):
    done = subprocess.run(["git", "-C", tree, "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"
