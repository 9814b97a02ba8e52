"""What was measured apart from runs: docs/results/NAME.json, written by scripts/experiments/NAME.py."""
import json
import pathlib
import subprocess
import sys

# How each is called; what has a file is not measured again.
CALLS = {"wire": [[]], "hidden": [[]], "timing": [[]], "transport": [[]], "auto": [[]], "partition": [[]], "churn": [["--mode", mode, "--seed", str(seed)] for seed in (1, 2, 3) for mode in ("diloco", "ddp")],
         "joiner": [["--members", str(n), "--donors", str(n)] for n in (1, 2, 3)]}


def measure(folder, only=()):
    """Calls the scripts whose file is not there yet. Returns how many failed."""
    if unknown := set(only) - set(CALLS):
        raise SystemExit(f"experiments: found {', '.join(sorted(unknown))}, allowed: {' '.join(CALLS)}")
    failed = 0
    for name in [name for name in CALLS if (not only or name in only) and not (folder / f"{name}.json").exists()]:
        for words in CALLS[name]:
            script = pathlib.Path(__file__).with_name(f"{name}.py")
            print(f"experiments: {' '.join([script.name, *words])}", flush=True)
            failed += subprocess.run([sys.executable, script, *words, "--out", folder / f"{name}.json"], check=False).returncode != 0
    return failed


def read(folder, name):
    """None: it has not been measured."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def missing(name):
    return f"Not measured yet (`build/venv/bin/python scripts/experiments/{name}.py`).\n\n"


def table(head, rows):
    """Of Markdown; `rows`: lists of texts."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows)]
    return "\n".join(lines) + "\n\n"
